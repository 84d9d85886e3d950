"""Resources of nodes on a real API server: from a stock koordlet's objects, mid resources, amplification."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from support.kubernetes.control_plane import ControlPlane
from support.kubernetes.installation import CONFIGURATION, NAMESPACE, Installation
from support.kubernetes.kubelets import add_nodes, node_document

pytestmark = [pytest.mark.kubernetes]

Json = dict[str, Any]
COLOCATION: Json = {"enable": True, "midCPUThresholdPercent": 50}
BATCH_CPU, MID_CPU = "kubernetes.io/batch-cpu", "kubernetes.io/mid-cpu"


def configure(plane: ControlPlane, section: str, value: Json) -> None:
    """Write one section of the manager's configuration."""
    data = {section: json.dumps(value)}
    meta = {"name": CONFIGURATION, "namespace": NAMESPACE}
    plane.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data})


def amounts(cpu: str, memory: str) -> Json:
    return {"resources": {"cpu": cpu, "memory": memory}}


def koordlet_status(pod: str, node_cpu: str, reclaimable_cpu: str, age: timedelta = timedelta()) -> Json:
    """Return the status of a NodeMetric with every part that a koordlet v1.8 writes.

    A report is known by its node and its `updateTime` in whole seconds, so `age` tells two reports of a test apart.
    """
    aggregated = {
        "usage": {name: amounts(node_cpu, "6Gi") for name in ("avg", "p50", "p90", "p95", "p99")},
        "duration": "5m0s",
    }
    return {
        "updateTime": (datetime.now(UTC) - age).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "nodeMetric": {
            "nodeUsage": amounts(node_cpu, "6Gi"),
            "systemUsage": amounts("1", "1Gi"),
            "aggregatedNodeUsages": [aggregated],
            "aggregatedSystemUsages": [aggregated],
        },
        "podsMetric": [
            {
                "name": pod,
                "namespace": "default",
                "podUsage": amounts("2", "4Gi"),
                "priority": "koord-prod",
                "qos": "LS",
            }
        ],
        "hostApplicationMetric": [],
        "prodReclaimableMetric": {"resource": amounts(reclaimable_cpu, "2Gi")},
    }


def report(plane: ControlPlane, node: str, status: Json) -> None:
    """Write the status of a NodeMetric as a koordlet does."""
    patch = json.dumps({"status": status})
    plane.kubectl("patch", "nodemetric", node, "--subresource=status", "--type=merge", "-p", patch)


def stock_objects(node: str) -> list[Json]:
    """Return the Device and the NodeResourceTopology that a koordlet writes about its node."""
    gpu = {
        "type": "gpu",
        "id": "GPU-1",
        "minor": 0,
        "health": True,
        "resources": {
            "koordinator.sh/gpu-core": "100",
            "koordinator.sh/gpu-memory": "16Gi",
            "koordinator.sh/gpu-memory-ratio": "100",
        },
        "topology": {"socketID": 0, "nodeID": 0, "pcieID": "0", "busID": "0000:00:07.0"},
    }
    cpus = [{"id": cpu, "core": cpu // 2, "socket": 0, "node": 0} for cpu in range(16)]
    annotations = {
        "node.koordinator.sh/cpu-topology": json.dumps({"detail": cpus}),
        "kubelet.koordinator.sh/cpu-manager-policy": json.dumps({"policy": "none"}),
    }
    labels = {"app.kubernetes.io/managed-by": "Koordinator"}
    zone = {
        "name": "node-0",
        "type": "Node",
        "resources": [{"name": "cpu", "capacity": "16", "allocatable": "16", "available": "16"}],
    }
    return [
        {
            "apiVersion": "scheduling.koordinator.sh/v1alpha1",
            "kind": "Device",
            "metadata": {"name": node},
            "spec": {"devices": [gpu]},
        },
        {
            "apiVersion": "topology.node.k8s.io/v1alpha1",
            "kind": "NodeResourceTopology",
            "metadata": {
                "name": node,
                "annotations": annotations,
                "labels": labels,
            },
            "topologyPolicies": ["None"],
            "zones": [zone],
        },
    ]


def allocatable(plane: ControlPlane, node: str) -> dict[str, str]:
    found: dict[str, str] = plane.get("node", node)["status"]["allocatable"]
    return found


async def test_the_objects_of_a_stock_koordlet_decide_batch_mid_and_devices(
    plane: ControlPlane, installed: Installation
) -> None:
    add_nodes(plane, node_document("stock", cpu=16, memory="32Gi"))
    configure(plane, "colocation-config", COLOCATION)
    plane.apply(*stock_objects("stock"))
    requests = {"requests": {"cpu": "4", "memory": "8Gi"}}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "service", "namespace": "default", "labels": {"koordinator.sh/qosClass": "LS"}},
        "spec": {
            "nodeName": "stock",
            "priorityClassName": "koord-prod",
            "containers": [{"name": "main", "image": "pause", "resources": requests}],
        },
    }
    await installed.start_both("--take-node-metrics")
    plane.apply(pod)
    await installed.until(lambda: plane.ask("get", "nodemetric", "stock").code == 0, "the policy is written")

    await installed.until(lambda: installed.logged("Pod", "service"), "the pod of the report is known")
    before = koordlet_status("service", node_cpu="3", reclaimable_cpu="2", age=timedelta(minutes=1))
    report(plane, "stock", before)
    await installed.until(lambda: allocatable(plane, "stock").get(MID_CPU) == "2k", "mid is the reclaimable part")
    quiet = allocatable(plane, "stock")
    report(plane, "stock", koordlet_status("service", node_cpu="15", reclaimable_cpu="2"))
    await installed.until(lambda: allocatable(plane, "stock")[MID_CPU] == "1k", "mid is what the node does not use")

    # batch by usage: 16 cores, 40 % stay free, the system uses 1 and the pod 2 (spec: manager, 5)
    assert quiet[BATCH_CPU] == "6600"
    card = {**pod, "metadata": {"name": "card", "namespace": "default"}}
    limits = {"koordinator.sh/gpu-core": "100", "koordinator.sh/gpu-memory-ratio": "100"}
    card["spec"] = {
        "schedulerName": "koord-scheduler",
        "containers": [{"name": "main", "image": "pause", "resources": {"requests": limits, "limits": limits}}],
    }
    plane.apply(card)

    def given() -> str:
        annotations = plane.get("pod", "card", "-n", "default")["metadata"].get("annotations", {})
        return str(annotations.get("scheduling.koordinator.sh/device-allocated", ""))

    await installed.until(given, "the pod gets the card")
    assert json.loads(given())["gpu"][0]["minor"] == 0
    plane.kubectl("delete", "device/stock", "noderesourcetopology/stock")


def batch_pod(name: str, cpu: str, node: str) -> Json:
    asked = {BATCH_CPU: cpu, "kubernetes.io/batch-memory": "1Gi"}
    container = {"name": "main", "image": "pause", "resources": {"requests": asked, "limits": asked}}
    meta = {"name": name, "namespace": "default", "labels": {"koordinator.sh/qosClass": "BE"}}
    spec = {
        "schedulerName": "koord-scheduler",
        "priorityClassName": "koord-batch",
        "nodeSelector": {"kubernetes.io/hostname": node},
        "containers": [container],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


async def test_a_node_shows_what_its_running_batch_pods_request(plane: ControlPlane, installed: Installation) -> None:
    """A kubelet that starts again admits each pod anew, and ends those that exceed the allocatable of its node."""
    add_nodes(plane, node_document("kept", labels={"kubernetes.io/hostname": "kept"}))
    configure(plane, "colocation-config", {"enable": True})
    await installed.start_both("--take-node-metrics")
    await installed.until(lambda: plane.ask("get", "nodemetric", "kept").code == 0, "the policy is written")
    report(plane, "kept", koordlet_status("none", node_cpu="3", reclaimable_cpu="0", age=timedelta(minutes=1)))
    await installed.until(lambda: allocatable(plane, "kept").get(BATCH_CPU), "batch resources are published")
    plane.apply(batch_pod("worker", "5000", "kept"))
    await installed.until(lambda: installed.bound_pods().get("worker") == "kept", "the pod is bound")

    busy = koordlet_status("none", node_cpu="15", reclaimable_cpu="0")
    busy["nodeMetric"]["systemUsage"] = amounts("9", "1Gi")
    report(plane, "kept", busy)
    await installed.until(lambda: allocatable(plane, "kept")[BATCH_CPU] == "5k", "the node shows what was promised")

    plane.apply(batch_pod("next", "100", "kept"))
    await installed.until(
        lambda: "Insufficient" in plane.kubectl("describe", "pod", "next", "-n", "default"), "nothing new fits"
    )
    configure(plane, "colocation-config", {"enable": False})
    await installed.until(
        lambda: allocatable(plane, "kept").get("kubernetes.io/batch-memory") == str(1 << 30),
        "withdrawn, but for the pod",
    )
    assert allocatable(plane, "kept")[BATCH_CPU] == "5k"
    plane.kubectl("delete", "pod", "worker", "-n", "default", "--grace-period=1")
    await installed.until(lambda: BATCH_CPU not in allocatable(plane, "kept"), "nothing is promised any more")
    plane.kubectl("delete", "node", "kept")


async def test_a_limit_of_the_page_cache_reaches_the_node(plane: ControlPlane, installed: Installation) -> None:
    """The API server drops a field of a NodeSLO that the definition lacks."""
    add_nodes(plane, node_document("cached"))
    quality = {"memoryQOS": {"enable": True, "pageCacheLimitPercent": 25}}
    configure(plane, "resource-qos-config", {"clusterStrategy": {"beClass": quality}})
    await installed.start_manager("manager", webhooks=False)

    path = "jsonpath={.spec.resourceQOSStrategy.beClass.memoryQOS.pageCacheLimitPercent}"
    await installed.until(
        lambda: plane.ask("get", "nodeslo", "cached", "-o", path).out == "25", "the NodeSLO has the limit"
    )
    plane.kubectl("delete", "node", "cached")


async def test_a_ratio_amplifies_what_the_kubelet_reports(plane: ControlPlane, installed: Installation) -> None:
    section, raw = "resource-amplification-config", "node.koordinator.sh/raw-allocatable"
    node = node_document("amplified", cpu=16, memory="32Gi")
    add_nodes(plane, node)
    await installed.start_manager("manager", "--feature-gates", "NodeMutatingWebhook=true")
    await installed.until_ready("manager")

    def webhooks() -> list[str]:
        found = plane.get("mutatingwebhookconfiguration", "koordinator-mutating-webhook-configuration")["webhooks"]
        return [item["name"] for item in found if "caBundle" in item["clientConfig"]]

    await installed.until(lambda: "mnode-status.koordinator.sh" in webhooks(), "the webhook of the gate is registered")
    configure(plane, section, {"enable": True, "resourceAmplificationRatio": {"cpu": 1.5}})

    def heartbeat() -> str:
        """The kubelet reports the same again; the webhook amplifies it as soon as the manager annotated the ratio."""
        add_nodes(plane, node)
        return allocatable(plane, "amplified")["cpu"]

    await installed.until(lambda: heartbeat() == "24", "the amount is amplified")
    kept = plane.get("node", "amplified")["metadata"]["annotations"][raw]
    configure(plane, section, {"enable": False})
    await installed.until(lambda: heartbeat() == "16", "the kubelet's amount is back")

    assert json.loads(kept)["cpu"] == "16"
    assert raw not in plane.get("node", "amplified")["metadata"]["annotations"]
    plane.kubectl("delete", "node", "amplified")
