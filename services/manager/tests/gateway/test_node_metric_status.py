"""The status of a NodeMetric from a usage report, and when it is written."""

from datetime import UTC, datetime, timedelta
from typing import Any, cast

import msgspec
from koord_manager.domain.gateway.node_metric import report_of
from koord_manager.domain.gateway.objects.node_metric_status import (
    REFRESH_SECONDS,
    Written,
    pending_node_metric_status,
    status_of,
)
from koord_manager.domain.gateway.objects.node_objects import Known
from koordcore.events.observation import (
    AggregatedUsage,
    GpuUsage,
    HostApplicationUsage,
    NodeUsageReported,
    NumaUsage,
    PodUsage,
    Usage,
)
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
    document: dict[str, Any] = {
        "apiVersion": "slo.koordinator.sh/v1alpha1",
        "kind": "NodeMetric",
        "metadata": {"name": "n"},
        "spec": {},
        "status": status_of(report),
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


WHOLE = NodeUsageReported(
    updated_at="2026-01-01T00:00:00Z",
    report_interval_seconds=60,
    aggregate_duration_seconds=300,
    node_usage=Usage(1500, 4096),
    system_usage=Usage(200, 1024),
    aggregated_node_usages=[AggregatedUsage(duration_seconds=300, usage={"p95": Usage(1900, 5000)})],
    aggregated_system_usages=[AggregatedUsage(duration_seconds=300, usage={"avg": Usage(210, 1100)})],
    pods=[PodUsage(uid="", namespace="d", name="p", priority_class="koord-prod", qos="LS", usage=Usage(1, 2))],
    host_applications=[
        HostApplicationUsage(name="nginx", priority_class="koord-prod", qos="LS", usage=Usage(3, 4)),
    ],
    prod_reclaimable=Usage(700, 800),
    prod_peak=Usage(900, 1000),
    numa=[NumaUsage(numa_node=2, node_usage=Usage(5, 6), system_usage=Usage(7, 8))],
)
KNOWN = Known("u1", {})


def test_what_is_written_is_read_back_as_the_same_report() -> None:
    """The shape is that which Koordinator's components read and its agent writes (protocol spec, 9.1)."""
    policy = {"metricCollectPolicy": {"reportIntervalSeconds": 60, "aggregateDurationSeconds": 300}}
    assert report_of({"spec": policy, "status": status_of(WHOLE)}, lambda _, __: "") == WHOLE


def test_a_status_is_applied_to_the_object_that_was_seen() -> None:
    request, written = pending_node_metric_status("n", WHOLE, KNOWN, None)
    assert request is not None
    assert (request.method, request.path) == ("PATCH", "/apis/slo.koordinator.sh/v1alpha1/nodemetrics/n/status")
    assert request.content_type == "application/apply-patch+yaml"
    assert dict(request.parameters) == {"fieldManager": "koordstream", "force": "true"}
    body = cast("dict[str, Any]", request.body)
    assert body["metadata"] == {"name": "n", "uid": "u1"}
    assert written.updated_at == WHOLE.updated_at


def later(report: NodeUsageReported, seconds: float, **changed: Any) -> NodeUsageReported:
    at = (datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)).isoformat()
    return msgspec.structs.replace(report, updated_at=at, **changed)


def is_due(report: NodeUsageReported, written: Written, known: Known = KNOWN) -> bool:
    return pending_node_metric_status("n", report, known, written)[0] is not None


def test_only_a_changed_report_is_written_until_the_written_time_is_old() -> None:
    written = pending_node_metric_status("n", WHOLE, KNOWN, None)[1]

    assert not is_due(WHOLE, written), "the same report"
    assert not is_due(later(WHOLE, 60), written), "the same but for its time"
    assert is_due(later(WHOLE, 60, node_usage=Usage(1501, 4096)), written)
    assert is_due(later(WHOLE, REFRESH_SECONDS), written), "readers would take it for expired"
    assert is_due(later(WHOLE, -REFRESH_SECONDS), written), "the clock of the node went back"
    assert is_due(WHOLE, written, Known("u2", {})), "a new object"


def test_a_report_that_was_left_out_is_compared_once() -> None:
    written = pending_node_metric_status("n", WHOLE, KNOWN, None)[1]
    request, after = pending_node_metric_status("n", later(WHOLE, 60), KNOWN, written)
    assert request is None
    assert (after.updated_at, after.seen) == (WHOLE.updated_at, later(WHOLE, 60).updated_at)
    assert is_due(later(WHOLE, 130), after)
