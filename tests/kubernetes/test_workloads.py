"""The shipped workloads: their keys, their pods as the API server admits them, and their flags."""

import base64
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from koordcore.embedded.ports import LOOPBACK, free_ports
from koordcore.embedded.process import NEVER_RESTART, ChildProcess, ProcessSpec
from koordcore.embedded.server import nats_server_binary
from koordcore.service.settings import ServiceSettings
from support.guide import GUIDE, ROOT, Reader
from support.kubernetes.control_plane import TOOLS, ControlPlane
from support.kubernetes.installation import NAMESPACE, NODE_NAMESPACE, Installation, install, rendered
from support.kubernetes.kubelets import add_nodes, api_client, node_document
from support.until import until, until_blocking

pytestmark = [pytest.mark.kubernetes]

Json = dict[str, Any]
WORKLOADS = ("Deployment", "StatefulSet", "DaemonSet")
CONTAINER = {"name": "main", "image": "pause"}
LABEL = {"koordinator.sh/device-discovery": "true"}
PROXY = "koordinator.sh/cri-proxy"
CLUSTER_DEFINITION = TOOLS / "cloudnative-pg.yaml"


def workloads(plane: ControlPlane) -> dict[str, Json]:
    """Return name -> workload of the installed overlay."""
    return {item["metadata"]["name"]: item for item in rendered() if item["kind"] in WORKLOADS}


def container(workload: Json) -> Json:
    """Return the first container of a workload."""
    found: Json = workload["spec"]["template"]["spec"]["containers"][0]
    return found


def koord(*words: str, env: dict[str, str] | None = None) -> str:
    """Run a `koord` command and return what it printed."""
    done = subprocess.run(
        [sys.executable, "-m", "koordctl", *words], env=env or {}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr or done.stdout
    return done.stdout


def store_keys(plane: ControlPlane, *more: str) -> str:
    """Run the container of koord-keys once with more flags, and exactly the rights of its ServiceAccount."""
    flags = [flag for flag in container(workloads(plane)["koord-keys"])["args"] if not flag.startswith("--every")]
    user = plane.kubeconfig("keys", plane.token("koord-keys"))
    return koord("keys", "store", "--kubeconfig", str(user), *flags, *more)


def secrets(plane: ControlPlane, namespace: str) -> dict[str, Json]:
    """Return name -> entries of the Secrets of a namespace that koord-keys writes."""
    items = plane.get("secrets", "-n", namespace)["items"]
    named = {item["metadata"]["name"]: item["data"] for item in items if item["type"] == "Opaque"}
    return {name: data for name, data in named.items() if name.startswith("koord-")}


def mount(secret: Json, folder: Path) -> Path:
    """Write a Secret as the kubelet mounts it, and return the folder."""
    folder.mkdir()
    for name, text in secret.items():
        (folder / name).write_bytes(base64.b64decode(text))
    return folder


@asynccontextmanager
async def stored_server(files: Path, data: Path) -> AsyncGenerator[tuple[str, ChildProcess]]:
    """Start a NATS server with the configuration in the Secret, and yield its address and process."""
    port, monitor = free_ports(2)
    config = files / "nats-0.conf"
    config.write_text(config.read_text().replace('"/etc/nats/', f'"{files}/').replace('"/data', f'"{data}'))
    words = ("--config", str(config), "--addr", LOOPBACK, "--port", str(port), "--http_port", str(monitor))
    spec = ProcessSpec(
        name="nats-0",
        argv=(str(nats_server_binary()), *words),
        ready=f"http://{LOOPBACK}:{monitor}/healthz?js-server-only=true",  # answers when clients may connect
        ready_seconds=60.0,
        log_file=data.with_suffix(".log"),
        restart=NEVER_RESTART,
    )
    server = ChildProcess(spec)
    await server.start()
    try:
        yield f"tls://localhost:{port}", server
    finally:
        await server.kill()


def test_keys_are_made_once_and_each_workload_finds_its_own(plane: ControlPlane) -> None:
    store_keys(plane)
    first = {name: secrets(plane, name) for name in (NAMESPACE, NODE_NAMESPACE)}

    again = store_keys(plane)

    assert "written: none" in again
    assert first == {name: secrets(plane, name) for name in (NAMESPACE, NODE_NAMESPACE)}
    assert set(first[NODE_NAMESPACE]) == {"koord-agent", "koord-criproxy"}
    missing = [
        (workload["metadata"]["name"], volume["secret"]["secretName"])
        for workload in workloads(plane).values()
        for volume in workload["spec"]["template"]["spec"].get("volumes", [])
        if "secret" in volume and volume["secret"]["secretName"] not in first[workload["metadata"]["namespace"]]
    ]
    assert missing == []
    assert base64.b64decode(first[NAMESPACE]["koord-postgres"]["password"])


def test_the_second_server_of_a_mirror_finds_its_files_in_a_secret(plane: ControlPlane) -> None:
    store_keys(plane)
    try:
        said = store_keys(plane, "--mirror", "dr-nats.example")
        found = secrets(plane, NAMESPACE)
        again = store_keys(plane, "--mirror", "dr-nats.example")
    finally:
        plane.kubectl("delete", "secret", "koord-mirror", "-n", NAMESPACE, "--ignore-not-found")
        store_keys(plane)

    assert "written: koord-authority, koord-nats, koord-mirror\n" in said
    assert "written: none\n" in again
    files = {name: base64.b64decode(text) for name, text in found["koord-mirror"].items()}
    assert set(files) == {"ca.crt", "nats-mirror.conf", "nats.seed", "tls.crt", "tls.key"}
    assert files["nats.seed"].strip() in files["nats-mirror.conf"]
    assert b"tls://nats-0.nats.koordinator-system.svc:7422" in files["nats-mirror.conf"]
    assert b":7422" in base64.b64decode(found["koord-nats"]["nats-0.conf"])


def test_a_lost_certificate_is_made_again_by_the_same_authority(plane: ControlPlane) -> None:
    store_keys(plane)
    before = secrets(plane, NAMESPACE)
    lost = '[{"op": "remove", "path": "/data/tls.crt"}]'
    plane.kubectl("patch", "secret", "koord-authority", "-n", NAMESPACE, "--type=json", "-p", lost)

    said = store_keys(plane)

    after = secrets(plane, NAMESPACE)
    assert "written: koord-authority, koord-nats\n" in said
    assert after["koord-nats"]["tls.crt"] != before["koord-nats"]["tls.crt"]
    assert after["koord-nats"]["ca.crt"] == before["koord-nats"]["ca.crt"]
    assert after["koord-manager"] == before["koord-manager"]


def served_certificate(url: str, ca: Path) -> str:
    """Return the certificate that a NATS server shows to a client, as PEM text."""
    address = urlsplit(url)
    assert address.hostname is not None
    with socket.create_connection((address.hostname, address.port), timeout=10) as plain:
        plain.recv(65536)  # INFO; then TLS begins
        with ssl.create_default_context(cafile=ca).wrap_socket(plain, server_hostname="localhost") as secure:
            found = secure.getpeercert(binary_form=True)
    assert found is not None
    return ssl.DER_cert_to_PEM_cert(found)


async def test_a_renewed_certificate_is_served_without_a_restart(plane: ControlPlane, tmp_path: Path) -> None:
    """The sidecar sends the signal when the mounted files change."""
    store_keys(plane)
    files = mount(secrets(plane, NAMESPACE)["koord-nats"], tmp_path / "nats")
    async with stored_server(files, tmp_path / "data") as (url, server):
        before, pid = served_certificate(url, files / "ca.crt"), server.pid
        lost = '[{"op": "remove", "path": "/data/tls.crt"}]'
        plane.kubectl("patch", "secret", "koord-authority", "-n", NAMESPACE, "--type=json", "-p", lost)
        store_keys(plane)
        renewed = secrets(plane, NAMESPACE)["koord-nats"]
        for name in ("tls.crt", "tls.key"):
            (files / name).write_bytes(base64.b64decode(renewed[name]))
        server.send(signal.SIGHUP)
        await until(lambda: served_certificate(url, files / "ca.crt") != before, "the new certificate is served")

        assert (server.is_running, server.pid) == (True, pid)
        assert served_certificate(url, files / "ca.crt").strip() == (files / "tls.crt").read_text().strip()


def test_no_key_is_in_a_config_map(plane: ControlPlane) -> None:
    store_keys(plane)

    texts = {
        item["metadata"]["name"]: json.dumps(item.get("data", {}))
        for namespace in (NAMESPACE, NODE_NAMESPACE)
        for item in plane.get("configmaps", "-n", namespace)["items"]
    }

    assert [name for name, text in texts.items() if "PRIVATE KEY" in text or "nats.seed" in text] == []


async def test_a_lost_webhook_certificate_is_made_again_without_a_restart(
    plane: ControlPlane, installed: Installation
) -> None:
    await installed.start_manager("manager")
    await installed.until_ready("manager")
    pid = installed.processes["manager"].pid

    def authority() -> str:
        name = "koordinator-mutating-webhook-configuration"
        entries = plane.get("mutatingwebhookconfiguration", name)["webhooks"]
        return str(entries[0]["clientConfig"].get("caBundle", ""))

    def is_admitted() -> bool:
        pod = {"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [CONTAINER]}}
        text = json.dumps({**pod, "metadata": {"name": "asked", "namespace": "default"}})
        return plane.ask("create", "--dry-run=server", "-f", "-", stdin=text).code == 0

    await installed.until(is_admitted, "the webhooks answer")
    before = authority()
    plane.kubectl("delete", "secret", "koordinator-webhook-certs", "-n", NAMESPACE)
    await installed.until(lambda: authority() != before, "there is a new certificate")
    await installed.until(is_admitted, "the webhooks answer with it")

    assert installed.processes["manager"].pid == pid


def test_pods_of_the_system_start_while_no_manager_runs(plane: ControlPlane) -> None:
    """Pods of users that name the scheduler wait for a manager, because profiles and quotas must not be bypassed."""

    def answer(namespace: str) -> str:
        document = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "early", "namespace": namespace}}
        text = json.dumps({**document, "spec": {"schedulerName": "koord-scheduler", "containers": [CONTAINER]}})
        return plane.ask("create", "--dry-run=server", "-f", "-", stdin=text).err

    assert answer("kube-system") == ""
    assert "failed calling webhook" in answer("default")


@pytest.mark.parametrize(
    ("account", "verb", "resource", "allowed"),
    [
        ("koord-manager", "create", "pods/binding", True),
        ("koord-manager", "list", "secrets", False),
        ("koord-manager", "create", "pods", False),
        ("koord-manager", "create", "pods/exec", False),
        ("koord-manager", "update", "configmaps", False),
        ("koord-keys", "list", "secrets", False),
        ("koord-keys", "get", "pods", False),
        ("koord-scheduler", "list", "pods", False),
        ("koord-descheduler", "create", "pods/eviction", False),
        ("koord-projector", "list", "pods", False),
    ],
)
def test_the_authorizer_allows_what_is_needed(
    plane: ControlPlane, account: str, verb: str, resource: str, allowed: bool
) -> None:
    user = f"--as=system:serviceaccount:{NAMESPACE}:{account}"

    kind, _, subresource = resource.partition("/")
    answer = plane.ask("auth", "can-i", verb, kind, f"--subresource={subresource}", user, "-n", NAMESPACE)

    assert answer.out.strip() == ("yes" if allowed else "no")


async def test_a_manager_with_the_stored_key_serves_on_the_stored_servers(
    plane: ControlPlane, installed: Installation, tmp_path: Path
) -> None:
    """Its key opens the log over TLS; the streams are those of the init container."""
    store_keys(plane)
    found = secrets(plane, NAMESPACE)
    user = {name: mount(found[f"koord-{name}"], tmp_path / name) for name in ("nats", "bootstrap", "manager")}
    async with stored_server(user["nats"], tmp_path / "data") as (url, _):
        keys = {"KOORD_NATS_SEED": str(user["bootstrap"] / "nats.seed"), "KOORD_NATS_CA": str(user["nats"] / "ca.crt")}
        made = koord("bus", "bootstrap", env={"KOORD_NATS": url, **keys})
        await installed.start_manager(
            *("keyed", "--nats-seed-file", str(user["manager"] / "nats.seed")),
            *("--nats-ca-file", str(user["manager"] / "ca.crt")),
            webhooks=False,
            cluster="dev",
            log=url,
        )
        await installed.until_ready("keyed")
    assert "KOORD_EV_dev: created" in made


async def test_the_api_server_admits_the_pods_of_every_workload(plane: ControlPlane, installed: Installation) -> None:
    """PodSecurity is enforced: `restricted`, but for the parts of the nodes."""
    add_nodes(
        plane,
        node_document("node-with-cards", labels={**LABEL, PROXY: "install"}),
        node_document("node-without-proxy", labels={PROXY: "remove"}),
    )
    names = set(workloads(plane))

    def unmade() -> set[str]:
        made: set[str] = set()
        for item in plane.get("deployments,statefulsets,daemonsets", "--all-namespaces")["items"]:
            status = item["status"]
            wanted = item["spec"].get("replicas") or status.get("desiredNumberScheduled", 0)
            pods = status.get("replicas", status.get("currentNumberScheduled", 0))
            if 0 < wanted <= pods:
                made.add(item["metadata"]["name"])
        return names - made

    plane.kubectl("create", "job", "tonight", "--from=cronjob/koord-nightly", "-n", NAMESPACE)

    def nightly() -> list[Json]:
        found: list[Json] = plane.get("pods", "-n", NAMESPACE, "-l", "job-name=tonight")["items"]
        return found

    await installed.until(lambda: not unmade() and nightly(), "every workload has its pods")


def settings_of(package: str) -> type[ServiceSettings]:
    """Return the class of a program's settings: of those in its module the one that derives from all others."""
    name = f"{package}.{'compose' if package.endswith('.installer') else 'settings'}"
    found: list[type[ServiceSettings]] = [
        kind
        for kind in vars(import_module(name)).values()
        if isinstance(kind, type) and issubclass(kind, ServiceSettings) and kind.__module__ == name
    ]
    return max(found, key=lambda kind: len(kind.__mro__))


def test_the_services_accept_their_flags_and_environment(plane: ControlPlane) -> None:
    checked: dict[str, tuple[str, ...]] = {}
    for name, workload in workloads(plane).items():
        main = container(workload)
        package = main.get("command", [""])[-1].replace("-", "_").replace("_installer", ".installer")
        if package.startswith("koord_"):
            settings = settings_of(package)
            environment = {each["name"]: each.get("value", name) for each in main.get("env", [])}
            checked[package] = settings.load(main["args"], environment).nats_urls
    assert checked.pop("koord_devicediscovery")  # these two have no connection to the log
    assert checked.pop("koord_criproxy.installer")
    assert len(checked) == 5
    assert set(checked.values()) == {("tls://nats.koordinator-system.svc:4222",)}


def test_the_highly_available_overlay_is_accepted(plane: ControlPlane) -> None:
    answer = plane.ask("apply", "--dry-run=server", "--kustomize", "k8s/overlays/ha")

    assert (answer.code, answer.err) == (0, "")


@pytest.mark.skipif(not CLUSTER_DEFINITION.exists(), reason="not fetched: `make test-kubernetes` needs Go")
def test_the_overlay_of_the_operator_is_accepted_with_its_definition(plane: ControlPlane) -> None:
    is_served = ("get", "clusters.postgresql.cnpg.io", "--all-namespaces")
    plane.kubectl("create", "-f", str(CLUSTER_DEFINITION))
    try:
        until_blocking(lambda: plane.ask(*is_served).code == 0, "the API server serves the kind", every=0.5)
        answer = plane.ask("apply", "--dry-run=server", "--kustomize", "k8s/overlays/operator")
    finally:
        plane.kubectl("delete", "-f", str(CLUSTER_DEFINITION))

    assert (answer.code, answer.err) == (0, "")
    assert "cluster.postgresql.cnpg.io/koord-postgres created (server dry run)" in answer.out


def test_the_requests_of_the_manager_have_a_priority_level_of_their_own(plane: ControlPlane) -> None:
    paths = {
        "koord-manager": "/api/v1/nodes",
        "koord-manager-lease": f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/koordinator-manager",
    }
    with api_client(plane, plane.token("koord-manager")) as client:
        chosen = {name: client.get(path).headers["x-kubernetes-pf-flowschema-uid"] for name, path in paths.items()}

    assert chosen == {name: plane.get("flowschema", name)["metadata"]["uid"] for name in paths}


async def test_pods_run_on_after_everything_is_removed(plane: ControlPlane, installed: Installation) -> None:
    add_nodes(plane, node_document("node-0"))
    await installed.start_manager("manager")
    await installed.until_ready("manager")
    pod = {"apiVersion": "v1", "kind": "Pod", "spec": {"nodeName": "node-0", "containers": [CONTAINER]}}
    plane.apply({**pod, "metadata": {"name": "stays", "namespace": "default"}})
    await installed.kill()
    try:
        # The namespace controller may be faster than kubectl.
        plane.kubectl("delete", "--kustomize", "k8s/overlays/dev", "--ignore-not-found", "--timeout=180s")
        plane.apply({**pod, "metadata": {"name": "comes", "namespace": "default"}})  # no webhook is in its way

        def phases() -> set[str]:
            return {plane.get("pod", name, "-n", "default")["status"]["phase"] for name in ("stays", "comes")}

        await installed.until(lambda: phases() == {"Running"}, "both pods run")
    finally:
        install(plane)


def test_every_command_of_the_guide_prints_what_its_page_shows(plane: ControlPlane) -> None:
    environment = {"KUBECONFIG": str(plane.directory / "admin.kubeconfig"), "PATH": f"{TOOLS}:{os.environ['PATH']}"}
    try:
        Reader(ROOT, environment).follow(GUIDE / "install-on-kubernetes.md")
    finally:
        install(plane)
