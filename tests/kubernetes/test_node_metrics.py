"""Usage reports of our agent as people and programs of Koordinator read them on a real API server."""

import json
from typing import Any

import pytest
from koordcore.bus.factory import BusSettings, open_bus
from koordcore.events.nodestate import NodeTopologyReported, TopologyZone
from koordctl.stack.nodes import write_nodes
from support.kubernetes.control_plane import ControlPlane
from support.kubernetes.installation import CONFIGURATION, NAMESPACE, Installation
from support.kubernetes.kubelets import add_nodes, node_document
from support.kubernetes.services import CLUSTER
from support.scheduler.processes import say

pytestmark = [pytest.mark.kubernetes]

Json = dict[str, Any]
NODE = "seen"


async def test_kubectl_shows_the_usage_that_our_agent_reports(plane: ControlPlane, installed: Installation) -> None:
    node = node_document(NODE, cpu=16, memory="32Gi", labels={"test/node": NODE})
    add_nodes(plane, node)
    colocation = {"enable": True, "metricReportIntervalSeconds": 30}
    meta = {"name": CONFIGURATION, "namespace": NAMESPACE}
    data = {"colocation-config": json.dumps(colocation)}
    plane.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data})
    requests = {"requests": {"cpu": "2", "memory": "1Gi"}}
    web: Json = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web", "namespace": "default", "labels": {"koordinator.sh/qosClass": "LS"}},
        "spec": {
            "schedulerName": "koord-scheduler",
            "priorityClassName": "koord-prod",
            "nodeSelector": {"test/node": NODE},  # nodes of other tests are there, too
            "containers": [{"name": "main", "image": "pause", "resources": requests}],
        },
    }
    await installed.start_both()
    nodes = write_nodes(installed.directory / "nodes.json", [node])
    flags = ("--simulated-nodes-file", str(nodes), "--state-dir", str(installed.directory / "agent"))
    await installed.start("agent", "koord_agent", flags)
    plane.apply(web)

    def metric() -> Json:
        answer = plane.ask("get", "nodemetric", NODE, "-o", "json", "--show-managed-fields")
        found: Json = json.loads(answer.out) if answer.code == 0 else {}
        return found

    def pods() -> list[Json]:
        return list(metric().get("status", {}).get("podsMetric") or [])

    await installed.until(lambda: [pod["name"] for pod in pods()] == ["web"], "the report has the pod")
    found = metric()
    status, used = found["status"], found["status"]["nodeMetric"]["nodeUsage"]["resources"]
    columns = plane.kubectl("get", "nodemetrics", NODE, "--no-headers").split()
    assert columns[:4] == [NODE, used["cpu"], used["memory"], "30"]
    assert columns[4].endswith("s"), "the column Updated is an age"
    assert {"resource"} <= status["prodReclaimableMetric"].keys()
    assert [entry["duration"] for entry in status["nodeMetric"]["aggregatedNodeUsages"]] == ["5m0s", "10m0s", "30m0s"]
    assert (pods()[0]["qos"], pods()[0]["priority"]) == ("LS", "koord-prod")
    owners = {
        (entry["manager"], entry["operation"])
        for entry in found["metadata"]["managedFields"]
        if entry.get("subresource") == "status"
    }
    assert owners == {("koordstream", "Apply")}

    first = status["updateTime"]
    await installed.until(lambda: metric()["status"]["updateTime"] != first, "the next report is written")
    plane.kubectl("delete", "node", NODE)


async def test_the_zones_that_an_agent_reports_stand_in_a_node_resource_topology(
    plane: ControlPlane, installed: Installation
) -> None:
    add_nodes(plane, node_document(NODE, cpu=16, memory="32Gi"))
    await installed.start_manager("manager", webhooks=False)
    await installed.until(lambda: installed.logged("Node", NODE), "the node is mirrored")
    amounts = {"cpu": 8000, "memory": 16 << 30}
    report = NodeTopologyReported(
        policies=["SingleNUMANodePodLevel"],
        zones=[TopologyZone(name=f"node-{number}", capacity=amounts, allocatable=amounts) for number in (0, 2)],
        annotations={"node.koordinator.sh/cpu-shared-pools": '[{"socket":0,"node":0,"cpuset":"0-7"}]'},
    )
    async with open_bus(BusSettings(urls=(installed.nats.url,), cluster=CLUSTER)) as bus:
        await say(bus, "nodestate", NODE, report)
    await installed.until(lambda: plane.ask("get", "noderesourcetopology", NODE).code == 0, "the object is written")

    found = plane.get("noderesourcetopology", NODE)
    assert found["topologyPolicies"] == ["SingleNUMANodePodLevel"]
    assert found["metadata"]["ownerReferences"][0]["name"] == NODE
    assert [(zone["name"], zone["type"]) for zone in found["zones"]] == [("node-0", "Node"), ("node-2", "Node")]
    assert found["zones"][1]["resources"][0] == {"name": "cpu", "capacity": "8", "allocatable": "8", "available": "8"}
    assert "SingleNUMANodePodLevel" in plane.kubectl("get", "node-res-topo", NODE, "--no-headers")
    plane.kubectl("delete", "node", NODE)
