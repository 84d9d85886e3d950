"""Koordstream installed on a real control plane: the objects of k8s/overlays/dev, and its services as processes.

The managers use the token of their ServiceAccount and the flags of the shipped Deployment. Nothing routes the addresses
of Services here, so the Service of the webhooks leads to a loopback address on which the managers listen.
"""

import asyncio
import os
import subprocess
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import yaml
from koordcore.bus.factory import BusSettings, bootstrap_bus
from koordcore.embedded.nats import NatsServer
from support.kubernetes.control_plane import ROOT, TOOLS, ControlPlane
from support.kubernetes.services import CLUSTER, Services
from support.until import DEADLINE_SECONDS

Json = dict[str, Any]

NAMESPACE = "koordinator-system"
NODE_NAMESPACE = "koordinator-nodes"
CONFIGURATION = "slo-controller-config"
WEBHOOK_ADDRESS = f"127.77.{os.getpid() // 250 % 250}.{os.getpid() % 250 + 1}"
"""Loopback address of this process. With a shared one, two runs on a machine would both listen on its port 443."""
BASE = ROOT / "k8s" / "base"


def shipped_flags(file: str) -> list[str]:
    """Return the flags in the Deployment of a service, without mounted files and addresses that need a pod."""
    deployment: Json = yaml.safe_load((BASE / file).read_text(encoding="utf-8"))
    flags: list[str] = deployment["spec"]["template"]["spec"]["containers"][0]["args"]
    replaced = ("--gateway", "--metrics-addr", "--health-probe-addr", "--http-")
    return [flag for flag in flags if not flag.startswith(replaced)]


def with_mirror(folder: Path) -> Path:
    """Write a kustomization of k8s/overlays/ha and the component k8s/mirror into a folder, and return the folder."""
    k8s = Path(os.path.relpath(ROOT / "k8s", folder))
    document = {"resources": [str(k8s / "overlays" / "ha")], "components": [str(k8s / "mirror")]}
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(document), encoding="utf-8")
    return folder


def rendered(folder: str | Path = "k8s/overlays/dev") -> list[Json]:
    """Return the objects of a kustomization; a relative folder is one of this project."""
    text = subprocess.run([str(TOOLS / "kubectl"), "kustomize", str(ROOT / folder)], capture_output=True, check=True)
    return [item for item in yaml.safe_load_all(text.stdout) if item]


def reachable(documents: Sequence[Json]) -> list[Json]:
    """Return the objects with a Service of the webhooks that leads to `WEBHOOK_ADDRESS`."""

    def is_webhook_service(item: Json) -> bool:
        return bool(item["kind"] == "Service" and item["metadata"]["name"] == "koordinator-webhook-service")

    spec = {"type": "ExternalName", "externalName": WEBHOOK_ADDRESS}
    return [{**item, "spec": spec} if is_webhook_service(item) else item for item in documents]


@dataclass(kw_only=True)
class Installation(Services):
    """The installed system.

    Attributes:
        plane: The control plane.
        credentials: Kubeconfig with the token of the manager's ServiceAccount.
    """

    plane: ControlPlane
    credentials: Path

    async def start_manager(
        self, name: str, *flags: str, webhooks: bool = True, cluster: str = CLUSTER, log: str = ""
    ) -> None:
        """Start a manager.

        Args:
            name: Name of the instance.
            flags: Flags besides those of the Deployment.
            webhooks: Whether this manager serves the webhooks; only one process can listen on their address.
            cluster: Id of the cluster, which names the streams.
            log: Address of another server of the log than `nats`, or "".
        """
        address = ("--webhook-address", WEBHOOK_ADDRESS) if webhooks else ("--webhooks", "off")
        env = {"WEBHOOK_PORT": "443", "WEBHOOK_CERT_DIR": str(self.directory / f"{name}-certs")}
        flags = ("--kubeconfig", str(self.credentials), *shipped_flags("manager.yaml"), *address, *flags)
        await self.start(name, "koord_manager", flags, env, cluster=cluster, log=log)

    async def start_scheduler(self, name: str = "scheduler", *flags: str) -> None:
        """Start a scheduler with the flags of the Deployment and these."""
        await self.start(name, "koord_scheduler", (*shipped_flags("scheduler.yaml"), *flags))

    async def start_both(self, *flags: str, manager: str = "manager") -> None:
        """Start a manager and a scheduler at once, and wait until the manager is ready.

        Args:
            flags: Flags of the manager besides those of the Deployment.
            manager: Name of its instance.
        """
        await asyncio.gather(self.start_manager(manager, *flags), self.start_scheduler())
        await self.until_ready(manager)

    async def until_ready(self, name: str) -> None:
        """Wait until an instance answers that it is ready."""

        def is_ready() -> bool:
            assert self.processes[name].is_running, f"{name} has ended"
            with suppress(httpx.TransportError):
                return httpx.get(f"{self.urls[name]}/readyz", timeout=5, trust_env=False).status_code == 200
            return False

        await self.until(is_ready, f"{name} is ready")

    def logged(self, kind: str, name: str, namespace: str = "default") -> Json:
        """Return an object as the instance `manager` has it from the log; {} if it has none."""
        url = f"{self.urls['manager']}/v1/objects/{kind}/{name}"
        answer = httpx.get(url, params={"namespace": namespace}, timeout=DEADLINE_SECONDS, trust_env=False)
        found: Json = answer.json() if answer.status_code == 200 else {}
        return found

    def bound_pods(self, namespace: str = "default") -> dict[str, str]:
        """Return pod -> node of the bound pods of a namespace."""
        items: list[Json] = self.plane.get("pods", "-n", namespace)["items"]
        return {item["metadata"]["name"]: item["spec"]["nodeName"] for item in items if "nodeName" in item["spec"]}

    def leader(self) -> str:
        """Return the instance that holds the Lease, or "" if there is none."""
        answer = self.plane.ask(
            "get", "lease", "koordinator-manager", "-n", NAMESPACE, "-o", "jsonpath={.spec.holderIdentity}"
        )
        return answer.out.rsplit("_", 1)[0]


def install(plane: ControlPlane) -> None:
    """Apply k8s/overlays/dev with one command, as on a new cluster, and wait until the definitions are served."""
    plane.apply(*reachable(rendered()))
    plane.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=120s")


@asynccontextmanager
async def installation(plane: ControlPlane, nats: NatsServer, directory: Path) -> AsyncGenerator[Installation]:
    """Create the streams of a new log for an installed base, and remove what a test leaves. No service runs yet.

    Afterwards there are no pods in the namespace default, no configuration, and no Lease that the next manager would
    have to wait for.
    """
    credentials = plane.kubeconfig("manager", plane.token("koord-manager"))
    await bootstrap_bus(BusSettings(urls=(nats.url,), cluster=CLUSTER))
    whole = Installation(nats=nats, directory=directory, plane=plane, credentials=credentials)
    try:
        yield whole
    finally:
        await whole.kill()
        left = ("lease/koordinator-manager", f"configmap/{CONFIGURATION}", "configmap/koordstream-cluster")
        plane.kubectl("delete", *left, "-n", NAMESPACE, "--ignore-not-found")
        plane.kubectl("delete", "pods", "--all", "-n", "default", "--grace-period=1")
