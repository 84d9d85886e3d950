"""Rows of `koord top`: the busiest first, silent nodes last, shares of what there is."""

from typing import Any

from koordcore.events.envelope import AggregateRef, Draft
from koordcore.events.observation import NodeUsageReported, PodUsage, Usage
from koordctl.access.log import readable_report
from koordctl.top import node_rows, pod_rows
from support.histories.recording import stored


def node(name: str, cpu_used: int | None, quota: int = -1) -> dict[str, Any]:
    silent = cpu_used is None
    return {
        "name": name,
        "cpu_milli": 8000,
        "memory_bytes": 16 << 30,
        "cpu_used": cpu_used,
        "memory_used": None if silent else 4 << 30,
        "be_cpu_used": None if silent else 500,
        "be_quota_us": quota,
        "batch_cpu": 3000,
        "batch_cpu_requested": 1000,
        "pods_running": 3,
        "reported_at": None if silent else "2026-01-01T10:20:30.000000Z",
    }


def test_the_busiest_node_comes_first_and_a_silent_one_last() -> None:
    rows = node_rows([node("a", 1000), node("silent", None), node("b", 4000, quota=150_000)], None, "cpu")
    assert [row[0] for row in rows] == ["b", "a", "silent"]
    assert rows[0] == ("b", "4", "50%", "0.5", "1.5", "4.0Gi", "25%", "2", 3, "10:20:30")
    assert rows[2][1:4] == ("-", "-", "-")
    assert [row[0] for row in node_rows([node("a", 1), node("b", 2)], "a", "name")] == ["a"]


def test_pods_of_all_nodes_are_one_list_by_what_they_use() -> None:
    def pod(name: str, cpu: int, namespace: str = "default") -> PodUsage:
        usage = Usage(cpu, 1 << 30)
        return PodUsage(uid=name, namespace=namespace, name=name, priority_class="koord-prod", qos="LS", usage=usage)

    report = NodeUsageReported(
        updated_at="2026-01-01T00:00:00Z",
        report_interval_seconds=60,
        aggregate_duration_seconds=300,
        pods=[pod("idle", 10), pod("busy", 900), pod("other", 500, "shop")],
    )
    rows = pod_rows({"n": report}, None, "cpu")
    assert [row[1] for row in rows] == ["busy", "other", "idle"]
    assert [row[1] for row in pod_rows({"n": report}, "shop", "cpu")] == ["other"]


def test_a_report_that_the_services_pass_over_is_left_out_and_hides_no_other_node() -> None:
    def message(cpu_milli: int) -> NodeUsageReported | None:
        report = NodeUsageReported(
            updated_at="2026-01-01T00:00:00Z",
            report_interval_seconds=60,
            aggregate_duration_seconds=300,
            node_usage=Usage(cpu_milli, 1),
        )
        return readable_report(stored(1, Draft(AggregateRef("node", "n1"), report, 0)))

    assert message(-1) is None
    assert message(1) is not None
