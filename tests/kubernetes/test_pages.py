"""Commands of pages about an installation on Kubernetes."""

import os
from pathlib import Path

import pytest
from koordctl.stack.kubernetes.programs import admin_kubeconfig
from support.guide import Reader
from support.kubernetes.control_plane import ROOT, TOOLS, ControlPlane
from support.kubernetes.installation import NAMESPACE, NODE_NAMESPACE, install, rendered
from support.kubernetes.kube_scheduler import PROGRAM, kube_scheduler
from support.kubernetes.kubelets import add_nodes, node_document
from support.pages import DOCS, rest_of
from support.until import until

pytestmark = [pytest.mark.kubernetes]

IN_SENTENCES = (
    f"kubectl get pods,lease -n {NAMESPACE}",
    f"kubectl get jobs -n {NAMESPACE}",
    "kubectl cordon worker-1",
    "kubectl uncordon worker-1",
)
"""Commands in sentences of the pages, with values in the places of names."""


@pytest.fixture
def reader(plane: ControlPlane) -> Reader:
    """Somebody with kubectl at the installed system."""
    kubeconfig = str(admin_kubeconfig(plane.directory))
    return Reader(ROOT, {"KUBECONFIG": kubeconfig, "PATH": f"{TOOLS}:{os.environ['PATH']}"})


@pytest.mark.skipif(not PROGRAM.exists(), reason="kube-scheduler not built: `make test-kubernetes` needs Go")
async def test_the_proxy_is_put_on_a_node_and_removed(plane: ControlPlane, reader: Reader) -> None:
    node = node_document("worker-1")
    node["spec"] = {"taints": [{"key": "test/proxy-only", "effect": "NoSchedule"}]}  # DaemonSets tolerate it
    add_nodes(plane, node)
    async with kube_scheduler(plane):
        reader.follow(DOCS / "cri-proxy.md")
        await until(
            lambda: phase_on(plane, "worker-1") == {"koord-criproxy-removal": "Running"}, "the pod of the removal"
        )
    for command in IN_SENTENCES:
        reader.run(command)
    plane.kubectl("delete", "node", "worker-1")


def phase_on(plane: ControlPlane, node: str) -> dict[str, str]:
    """Return workload -> phase of the pods about the proxy on a node."""
    pods = plane.get("pods", "-n", NODE_NAMESPACE, "-l", "koord-app", f"--field-selector=spec.nodeName={node}")["items"]
    found = {pod["metadata"]["labels"]["koord-app"]: pod["status"]["phase"] for pod in pods}
    return {name: phase for name, phase in found.items() if "criproxy" in name}


def test_an_installation_is_upgraded(plane: ControlPlane, reader: Reader, tmp_path: Path) -> None:
    installed = {(item["kind"], item["metadata"]["name"]) for item in rendered()}
    more = [item for item in rendered("k8s/overlays/ha") if (item["kind"], item["metadata"]["name"]) not in installed]
    try:
        reader.follow(rest_of("upgrades.md", tmp_path))
    finally:
        for item in more:
            namespace = item["metadata"].get("namespace", "default")
            plane.kubectl("delete", item["kind"], item["metadata"]["name"], "-n", namespace, "--ignore-not-found")
        install(plane)
