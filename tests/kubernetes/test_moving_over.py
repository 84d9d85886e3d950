"""Steps of moving over from Koordinator: our scheduler beside its manager, our manager beside its agent, our agent."""

import json
from datetime import UTC, datetime

import pytest
from koordctl.stack.nodes import write_nodes
from support.kubernetes.control_plane import ControlPlane
from support.kubernetes.installation import CONFIGURATION, NAMESPACE, Installation
from support.kubernetes.kubelets import add_nodes, node_document

pytestmark = [pytest.mark.kubernetes]

BINDINGS_ONLY = (
    "--write-node-status=false",
    "--write-node-slo=false",
    "--write-node-metric=false",
    "--write-object-status=false",
)


def report(plane: ControlPlane, node: str, cpu: str, memory: str) -> None:
    """Write the status of a NodeMetric as Koordinator's agent does."""
    usage = {"resources": {"cpu": cpu, "memory": memory}}
    status: dict[str, object] = {
        "updateTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "nodeMetric": {"nodeUsage": usage, "systemUsage": usage},
    }
    patch = json.dumps({"status": status})
    plane.kubectl("patch", "nodemetric", node, "--subresource=status", "--type=merge", "-p", patch)


def enable_colocation(plane: ControlPlane) -> None:
    """Create the shipped configuration, and enable colocation in it."""
    plane.kubectl("create", "-f", "k8s/configuration.yaml")
    enabled = json.dumps({"data": {"colocation-config": json.dumps({"enable": True})}})
    plane.kubectl("patch", "configmap", CONFIGURATION, "-n", NAMESPACE, "-p", enabled)


async def test_beside_its_manager_ours_writes_bindings_only(plane: ControlPlane, installed: Installation) -> None:
    add_nodes(plane, node_document("beside-node", cpu=16, memory="32Gi"))
    enable_colocation(plane)
    await installed.start_both(*BINDINGS_ONLY)
    before = plane.get("node", "beside-node")["status"]["allocatable"]

    container = {"name": "main", "image": "pause"}
    spec = {"schedulerName": "koord-scheduler", "containers": [container]}
    plane.apply(
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "moved", "namespace": "default"}, "spec": spec}
    )
    await installed.until(lambda: "moved" in installed.bound_pods(), "the pod is bound")

    assert plane.ask("get", "nodeslo,nodemetric", "beside-node").out == ""
    assert plane.get("node", "beside-node")["status"]["allocatable"] == before
    # the way back: without our services, the pod stays on its node and runs
    await installed.kill()
    await installed.until(lambda: phase(plane, "moved") == "Running", "the pod runs")


def phase(plane: ControlPlane, name: str) -> str:
    """Return the phase of a pod."""
    found: str = plane.get("pod", name, "-n", "default")["status"]["phase"]
    return found


async def test_reports_of_a_stock_agent_become_batch_resources(plane: ControlPlane, installed: Installation) -> None:
    add_nodes(plane, node_document("stock-node", cpu=16, memory="32Gi"))
    enable_colocation(plane)
    await installed.start_manager("manager", "--take-node-metrics", webhooks=False)

    await installed.until(lambda: plane.ask("get", "nodemetric", "stock-node").code == 0, "the policy is written")
    report(plane, "stock-node", cpu="2", memory="4Gi")

    def allocatable() -> dict[str, str]:
        found: dict[str, str] = plane.get("node", "stock-node")["status"]["allocatable"]
        return found

    await installed.until(lambda: "kubernetes.io/batch-cpu" in allocatable(), "the node has batch resources")
    # 16 cores: 60 % of the node may be used, and the system uses 2 (spec: manager, batch by usage)
    assert allocatable()["kubernetes.io/batch-cpu"] == "7600"


async def test_our_agent_replaces_the_stock_one_and_the_other_way_round(
    plane: ControlPlane, installed: Installation
) -> None:
    node = node_document("changing-node", cpu=16, memory="32Gi")
    add_nodes(plane, node)
    enable_colocation(plane)

    def batch() -> str:
        return str(plane.get("node", "changing-node")["status"]["allocatable"].get("kubernetes.io/batch-cpu", "0"))

    await installed.start_manager("ours", webhooks=False)
    nodes = write_nodes(installed.directory / "nodes.json", [node])
    flags = ("--simulated-nodes-file", str(nodes), "--state-dir", str(installed.directory / "agent"))
    await installed.start("agent", "koord_agent", flags)
    await installed.until(lambda: batch() != "0", "our agent's reports become batch resources")
    from_ours = batch()
    # the way back: Koordinator's agent reports
    await installed.kill()
    await installed.start_manager("back", "--take-node-metrics", webhooks=False)
    await installed.until(lambda: plane.ask("get", "nodemetric", "changing-node").code == 0, "the policy is written")
    report(plane, "changing-node", cpu="2", memory="4Gi")
    await installed.until(lambda: batch() == "7600", "its reports become batch resources")

    assert from_ours != "7600"
    plane.kubectl("delete", "node", "changing-node")
