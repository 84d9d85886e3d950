"""Stand in for the kubelet of one node, with the delays of a kubelet, which are a part of what is measured.

Secrets that do not exist yet, ended containers and probes are tried again when a kubelet would: after 0.5 s, 1 s, 2 s
... for volumes, after 10 s, 20 s ... for containers, and each period of a probe.

Source:
    Kubernetes 1.35, pkg/kubelet and pkg/volume/util/operationexecutor
"""

import asyncio
import base64
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import httpx
from bench.installation.containers import Container, environment, make_network
from koordctl.stack.kubernetes.api import STRATEGIC_PATCH, patch, require_success
from support.kubernetes.control_plane import ControlPlane

Json = dict[str, Any]

NODE: Final = "node-0"
LOOK_SECONDS: Final = 0.25
FIRST_MOUNT_RETRY, LAST_MOUNT_RETRY = 0.5, 122.0
FIRST_RESTART, LAST_RESTART = 10.0, 300.0
CONFIG_RETRY: Final = 10.0
_NOT_FOUND: Final = 404
NUMBERS: Final = {"koord-keys": 11, "nats": 12, "postgres": 13, "koord-manager": 14, "koord-scheduler": 15} | {
    "koord-descheduler": 16,
    "koord-projector": 17,
}
"""Label `koord-app` of the pods that run -> last number of their address. Other pods are left alone."""
IMAGE_USER: Final = 70
"""User `postgres` of the image; Postgres does not run as root."""
_USERS: Final = Path("/etc/passwd").read_text(encoding="utf-8")
STOOD_IN: Final = ("reloader",)
"""Containers whose program is not on this machine. They count as running."""


@dataclass
class Kubelet:
    """The pods of one node.

    Attributes:
        saw: Called with what has happened, for the report.
    """

    plane: ControlPlane
    client: httpx.AsyncClient
    folder: Path
    saw: Callable[[str], None]
    containers: list[Container] = field(default_factory=list[Container])

    async def serve(self) -> None:
        """Run the pods of the node until cancelled."""
        known: set[str] = set()
        try:
            async with asyncio.TaskGroup() as pods:
                while True:
                    query = {"fieldSelector": f"spec.nodeName={NODE}"}
                    listed = require_success(await self.client.get("/api/v1/pods", params=query)).json()
                    for pod in listed["items"]:
                        if pod["metadata"]["uid"] not in known:
                            known.add(pod["metadata"]["uid"])
                            pods.create_task(self._run(pod))
                    await asyncio.sleep(LOOK_SECONDS)
        finally:
            for container in self.containers:
                container.kill()

    async def _run(self, pod: Json) -> None:
        app = pod["metadata"].get("labels", {}).get("koord-app", "")
        if app not in NUMBERS:
            return
        run = PodRun(self, pod, app, make_network(NUMBERS[app]))
        await run.to_the_end()


class PodRun:
    """One pod: volumes, init containers, containers, probes, status."""

    def __init__(self, kubelet: Kubelet, pod: Json, app: str, address: str) -> None:
        self.kubelet, self.pod, self.app, self.address = kubelet, pod, app, address
        self.namespace: str = pod["metadata"]["namespace"]
        self.folder = kubelet.folder / app
        self.ready: dict[str, bool] = {item["name"]: False for item in pod["spec"]["containers"]}

    async def to_the_end(self) -> None:
        """Run the pod until cancelled."""
        sources = await self._volumes()
        for spec in self.pod["spec"].get("initContainers", ()):
            await self._repeat(await self._container(spec, sources), lambda code: code == 0)
            self.kubelet.saw(f"{self.app}: {spec['name']} done")
        await self._report()
        async with asyncio.TaskGroup() as group:
            for spec in self.pod["spec"]["containers"]:
                if spec["name"] in STOOD_IN:
                    self.ready[spec["name"]] = True
                    continue
                container = await self._container(spec, sources)
                group.create_task(self._repeat(container, lambda _: False))
                group.create_task(self._probe(container))

    async def _repeat(self, container: Container, is_done: Callable[[int], bool]) -> None:
        """Run a container, and again after it has ended."""
        pause = FIRST_RESTART
        while True:
            await container.start()
            code = await container.ended()
            if is_done(code):
                return
            self.kubelet.saw(f"{self.app}: {container.name} ended with {code}, again in {pause:g} s")
            await asyncio.sleep(pause)
            pause = min(2 * pause, LAST_RESTART)

    async def _object(self, kind: str, name: str, first: float, longest: float) -> Json:
        """Return a Secret or ConfigMap once it exists.

        Args:
            kind: Plural of its kind.
            name: Its name.
            first: Seconds until the second look. Each further pause is twice as long.
            longest: Longest pause in seconds.
        """
        pause = first
        while True:
            answer = await self.kubelet.client.get(f"/api/v1/namespaces/{self.namespace}/{kind}/{name}")
            if answer.status_code != _NOT_FOUND:
                return require_success(answer).json()
            await asyncio.sleep(pause)
            pause = min(2 * pause, longest)

    async def _volumes(self) -> dict[str, Path]:
        """Return name -> folder of the pod's volumes, when all of them exist."""
        found: dict[str, Path] = {}
        for volume in self.pod["spec"].get("volumes", ()):
            folder = found[volume["name"]] = self.folder / "volumes" / volume["name"]
            folder.mkdir(parents=True, exist_ok=True)
            folder.chmod(0o777)
            for source, kind, key in (("secret", "secrets", "secretName"), ("configMap", "configmaps", "name")):
                if source not in volume:
                    continue
                wanted = await self._object(kind, volume[source][key], FIRST_MOUNT_RETRY, LAST_MOUNT_RETRY)
                for name, text in wanted.get("data", {}).items():
                    content = base64.b64decode(text) if source == "secret" else text.encode()
                    (folder / name).write_bytes(content)
            if "projected" in volume:
                await self._account(folder)
        return found

    async def _account(self, folder: Path) -> None:
        account = self.pod["spec"]["serviceAccountName"]
        token = await asyncio.to_thread(self.kubelet.plane.token, account, self.namespace)
        for name, text in (("token", token), ("namespace", self.namespace)):
            (folder / name).write_text(text)
        (folder / "ca.crt").write_bytes(self.kubelet.plane.tls.ca.read_bytes())

    async def _variables(self, spec: Json) -> dict[str, str]:
        found: dict[str, str] = {}
        for item in spec.get("env", ()):
            source = item.get("valueFrom", {})
            if "fieldRef" in source:
                found[item["name"]] = self.pod["metadata"][source["fieldRef"]["fieldPath"].removeprefix("metadata.")]
            elif "secretKeyRef" in source:
                wanted = source["secretKeyRef"]
                secret = await self._object("secrets", wanted["name"], CONFIG_RETRY, CONFIG_RETRY)
                found[item["name"]] = base64.b64decode(secret["data"][wanted["key"]]).decode()
            else:
                found[item["name"]] = item.get("value", "")
        return found

    async def _container(self, spec: Json, sources: dict[str, Path]) -> Container:
        folder = self.folder / spec["name"]
        folder.mkdir(parents=True, exist_ok=True)
        hosts, users, scratch = folder / "hosts", folder / "passwd", folder / "scratch"
        own = f"{self.address} {self.pod['metadata']['name']}"
        hosts.write_text("\n".join(["127.0.0.1 localhost", own, *_hosts()]))
        mounts = {item["mountPath"]: sources[item["name"]] for item in spec.get("volumeMounts", ())}
        mounts.setdefault("/tmp", folder / "scratch")
        scratch.mkdir(exist_ok=True)
        users.write_text(f"{_USERS}image:x:{IMAGE_USER}:{IMAGE_USER}::/:/bin/sh\n")
        container = Container(
            spec=spec,
            network=f"pod{NUMBERS[self.app]}",
            folder=folder,
            mounts={**mounts, "/etc/hosts": hosts, "/etc/passwd": users},
            env=environment(await self._variables(spec), self.kubelet.plane.files.ports["kube-apiserver"]),
            user=IMAGE_USER if self.app == "postgres" else None,
        )
        self.kubelet.containers.append(container)
        return container

    async def _probe(self, container: Container) -> None:
        """Repeat the probes of a container as a kubelet does, and report when the pod becomes ready or unready."""
        for kind in ("startupProbe", "readinessProbe"):
            probe = container.spec.get(kind)
            if probe is None:
                if kind == "readinessProbe":
                    await self._is_ready(container.name, ready=True)
                continue
            await asyncio.sleep(probe.get("initialDelaySeconds", 0))
            failures = 0
            while True:
                good = container.is_running and await self._succeeds(container, probe)
                failures = 0 if good else failures + 1
                if kind == "startupProbe" and good:
                    break
                if kind == "readinessProbe" and (good or failures >= probe.get("failureThreshold", 3)):
                    await self._is_ready(container.name, ready=good)
                await asyncio.sleep(probe.get("periodSeconds", 10))

    async def _succeeds(self, container: Container, probe: Json) -> bool:
        if "exec" in probe:
            return await container.executes(probe["exec"]["command"])
        wanted = probe["httpGet"]
        ports = {item["name"]: item["containerPort"] for item in container.spec["ports"]}
        scheme = wanted.get("scheme", "HTTP").lower()
        url = f"{scheme}://{self.address}:{ports.get(wanted['port'], wanted['port'])}{wanted['path']}"
        try:
            seconds = probe.get("timeoutSeconds", 1)
            # A kubelet does not check the certificate.
            async with httpx.AsyncClient(timeout=seconds, trust_env=False, verify=False) as client:
                return 200 <= (await client.get(url)).status_code < 400
        except httpx.HTTPError:
            return False

    async def _is_ready(self, name: str, *, ready: bool) -> None:
        if self.ready[name] == ready:
            return
        self.ready[name] = ready
        if all(self.ready.values()):
            self.kubelet.saw(f"{self.app}: ready")
        await self._report()

    async def _report(self) -> None:
        """Write the pod's status."""
        state = "True" if all(self.ready.values()) else "False"
        conditions = [{"type": name, "status": state} for name in ("ContainersReady", "Ready")]
        status = {"phase": "Running", "podIP": self.address, "podIPs": [{"ip": self.address}]}
        name = self.pod["metadata"]["name"]
        path = f"/api/v1/namespaces/{self.namespace}/pods/{name}/status"
        body = {"status": {**status, "conditions": conditions}}
        require_success(await patch(self.kubelet.client, path, STRATEGIC_PATCH, body))


def _hosts() -> list[str]:
    """Return the names of Services that pods use, as lines of a hosts file: the DNS of the cluster."""
    names = {app: [f"{app}.koordinator-system.svc"] for app in NUMBERS}
    names["nats"].append("nats-0.nats.koordinator-system.svc")
    return [f"10.77.0.{NUMBERS[app]} {' '.join(aliases)}" for app, aliases in names.items()]
