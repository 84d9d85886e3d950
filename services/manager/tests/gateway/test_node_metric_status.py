"""The status of a NodeMetric from a usage report, with the GPUs of the node and of its pods."""

from typing import Any, cast

from koord_manager.domain.gateway.objects.node_objects import node_metric_status
from koordcore.events.observation import GpuUsage, NodeUsageReported, PodUsage, Usage
from koordcore.protocol.crd.admit import Accepted, admit

GPU = GpuUsage(minor=1, uuid="GPU-a", core_percent=61, memory_bytes=2048, memory_percent=17)
DEVICE = {
    "type": "gpu",
    "id": "GPU-a",
    "minor": 1,
    "resources": {
        "koordinator.sh/gpu-core": "61",
        "koordinator.sh/gpu-memory": "2048",
        "koordinator.sh/gpu-memory-ratio": "17",
    },
}


def test_usage_of_gpus_is_kept_by_the_definition_of_the_object() -> None:
    pod = PodUsage(uid="u", namespace="d", name="p", priority_class="koord-prod", qos="LS", usage=Usage(1), gpus=[GPU])
    report = NodeUsageReported(
        updated_at="2026-01-01T00:00:00Z",
        report_interval_seconds=60,
        aggregate_duration_seconds=300,
        node_usage=Usage(10, 20),
        pods=[pod, PodUsage(uid="v", namespace="d", name="q", priority_class="", qos="", usage=Usage(2))],
        gpus=[GPU],
    )
    (operation,) = cast("list[dict[str, Any]]", node_metric_status("n", report).body)
    document: dict[str, Any] = {
        "apiVersion": "slo.koordinator.sh/v1alpha1",
        "kind": "NodeMetric",
        "metadata": {"name": "n"},
        "spec": {},
        "status": operation["value"],
    }
    admitted = admit(document)
    assert isinstance(admitted, Accepted)
    status = cast("dict[str, Any]", admitted.object)["status"]
    of_node, of_pod, without = (
        status["nodeMetric"]["nodeUsage"],
        status["podsMetric"][0]["podUsage"],
        status["podsMetric"][1]["podUsage"],
    )
    assert of_node["resources"] == {"cpu": "10m", "memory": "20"}
    assert [DEVICE.items() <= device.items() for device in of_node["devices"]] == [True]
    assert [DEVICE.items() <= device.items() for device in of_pod["devices"]] == [True]
    assert "devices" not in without
