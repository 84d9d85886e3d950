"""What the manager decides about nodes stands on them and in their NodeSLO; what stock agents report is taken in."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from koord_manager.shell.gateway.outbox import Writes
from koordcore.events import CATALOGUE
from koordcore.events.envelope import AggregateRef, BasedOn
from koordcore.events.nodepolicy import NodeMetricPolicyRendered, NodeOvercommitComputed, NodeSloRendered
from koordcore.events.observation import NodeUsageReported, PodUsage, Usage
from koordcore.ports.leadership import Term
from support.kubernetes.gateway_world import Interrupted, World, gateway_settings, gateway_world, install_crds, node
from support.until import until


def overcommit(cpu: int | None) -> NodeOvercommitComputed:
    return NodeOvercommitComputed(
        batch_cpu_milli=cpu,
        batch_memory_bytes=None if cpu is None else 1 << 30,
        origin={} if cpu is None else {"kubernetes.io/batch-cpu": cpu, "kubernetes.io/batch-memory": 1 << 30},
        reason="first",
        based_on=BasedOn(),
    )


async def test_batch_resources_stand_on_the_node_and_leave_it_again(tmp_path: Path) -> None:
    async with gateway_world(tmp_path) as world:
        await world.server.apply(node("node-1"))
        await world.until(lambda: world.view.node("node-1"))
        ref = AggregateRef("nodepolicy", "node-1")

        def batch() -> object:
            found = world.server.object("nodes", "", "node-1")
            assert found is not None
            return found["status"]["allocatable"].get("kubernetes.io/batch-cpu")

        world.server.faults.answer("PATCH", "/nodes/node-1/status", 409, times=1)
        world.server.faults.answer("PATCH", "/nodes/node-1/status", 429, times=1, retry_after=0)
        await world.append(ref, overcommit(3700))
        await world.until(lambda: batch() == "3700")
        await world.until(lambda: world.gateway.is_idle)
        found = world.server.object("nodes", "", "node-1")
        assert found is not None
        origin = json.loads(found["metadata"]["annotations"]["node.koordinator.sh/originExtendedAllocatable"])
        assert origin["resources"]["kubernetes.io/batch-cpu"] == "3700"

        await world.server.patch_status("nodes", "", "node-1", {"allocatable": {"kubernetes.io/batch-cpu": "1"}})
        await world.until(lambda: batch() == "3700")  # whoever overwrites it is overwritten
        await world.append(ref, overcommit(None))
        await world.until(lambda: batch() is None)


async def test_node_slo_is_created_updated_and_deleted_with_its_node(tmp_path: Path) -> None:
    settings = gateway_settings(writes=Writes(node_slo=True, node_metric=True))
    async with gateway_world(tmp_path, settings=settings, begin=False) as world:
        await install_crds(world.server)
        await world.begin()
        await world.server.apply(node("node-1"))
        await world.until(lambda: world.view.node("node-1"))
        ref = AggregateRef("nodepolicy", "node-1")

        def percent() -> object:
            found = world.server.object("nodeslos", "", "node-1")
            return (
                None if found is None else found["spec"]["resourceUsedThresholdWithBE"]["cpuSuppressThresholdPercent"]
            )

        for wanted in (65, 70):
            spec = {"resourceUsedThresholdWithBE": {"enable": True, "cpuSuppressThresholdPercent": wanted}}
            await world.append(ref, NodeSloRendered(spec=spec))
            await world.until(lambda wanted=wanted: percent() == wanted)
        await world.server.delete("nodes", "", "node-1")
        await world.until(lambda: world.server.object("nodeslos", "", "node-1") is None)


async def test_reports_of_a_stock_agent_are_taken_in(tmp_path: Path) -> None:
    settings = gateway_settings(take_node_metrics=True)
    async with gateway_world(tmp_path, settings=settings, begin=False) as world:
        await install_crds(world.server)
        await world.begin()
        await world.server.apply(node("node-1"))
        await world.until(lambda: world.view.node("node-1"))
        policy = AggregateRef("nodepolicy", "node-1")

        def interval() -> object:
            found = world.server.object("nodemetrics", "", "node-1")
            return None if found is None else found["spec"]["metricCollectPolicy"]["reportIntervalSeconds"]

        await world.append(policy, NodeMetricPolicyRendered(spec={"reportIntervalSeconds": 60}))
        await world.until(lambda: interval() == 60)
        usage = {"nodeUsage": {"resources": {"cpu": "1500m", "memory": "2Gi"}}}
        await world.server.patch_status(
            "nodemetrics", "", "node-1", {"updateTime": "2026-11-21T10:00:00Z", "nodeMetric": usage}
        )
        ref = AggregateRef("node", "node-1")
        found = await until(lambda: world.bus.observations.latest([ref]))
        report = CATALOGUE.read(found[0])
        assert json.loads(found[0].body)["node_usage"] == {"cpu_milli": 1500, "memory_bytes": 2 << 30}
        assert report is not None
        await world.append(policy, NodeMetricPolicyRendered(spec={"reportIntervalSeconds": 30}))
        await world.until(lambda: interval() == 30)
        await world.server.delete("nodes", "", "node-1")
        await world.until(lambda: world.server.object("nodemetrics", "", "node-1") is None)


async def test_a_new_node_metric_object_gets_the_report_that_the_earlier_one_had(tmp_path: Path) -> None:
    async with _node_metric(tmp_path, node_metric_status=True, report_seconds=0.01) as world:
        report = NodeUsageReported(
            updated_at="2026-11-21T10:00:00.000000Z",
            report_interval_seconds=60,
            aggregate_duration_seconds=300,
            node_usage=Usage(cpu_milli=1500),
            system_usage=Usage(),
        )
        world.view.observe(1, "node-1", report)

        def written() -> object:
            found = world.server.object("nodemetrics", "", "node-1")
            return found is not None and found.get("status", {}).get("updateTime")

        await world.until(written)
        await world.server.delete("nodemetrics", "", "node-1")
        await world.until(written)


async def test_a_report_that_differs_in_its_time_only_is_not_written_and_the_next_replaces_all_of_it(
    tmp_path: Path,
) -> None:
    def report(second: int, cpu: int, *pods: str) -> NodeUsageReported:
        used = [PodUsage(uid="", namespace="d", name=name, priority_class="", qos="", usage=Usage(1)) for name in pods]
        return NodeUsageReported(
            updated_at=f"2026-11-21T10:00:{second:02}.000000Z",
            report_interval_seconds=60,
            aggregate_duration_seconds=300,
            node_usage=Usage(cpu_milli=cpu),
            pods=used,
            prod_peak=Usage(1) if pods else None,
        )

    async with _node_metric(tmp_path, node_metric_status=True, report_seconds=0.01) as world:
        await world.server.apply(node("node-2"))
        await world.until(lambda: world.view.node("node-2"))
        await world.append(AggregateRef("nodepolicy", "node-2"), NodeMetricPolicyRendered(spec={}))
        await world.until(lambda: world.server.object("nodemetrics", "", "node-2"))

        def status(name: str = "node-1") -> dict[str, Any]:
            found = world.server.object("nodemetrics", "", name)
            written: dict[str, Any] = (found or {}).get("status") or {}
            return written

        def is_written(second: int, name: str = "node-1") -> bool:
            return status(name).get("updateTime", "").startswith(f"2026-11-21T10:00:{second:02}")

        world.view.observe(1, "node-1", report(0, 1500, "a", "b"))
        await world.until(lambda: is_written(0))
        assert [pod["name"] for pod in status()["podsMetric"]] == ["a", "b"]
        world.view.observe(2, "node-1", report(1, 1500, "a", "b"))
        world.view.observe(3, "node-2", report(1, 1500))
        await world.until(lambda: is_written(1, "node-2"))  # looked at after the first node
        assert is_written(0)
        world.view.observe(4, "node-1", report(2, 1600))
        await world.until(lambda: is_written(2))
        assert (status()["podsMetric"], "prodPeakMetric" in status()) == ([], False)
        assert status()["nodeMetric"]["nodeUsage"]["resources"]["cpu"] == "1600m"


async def test_who_no_longer_leads_writes_no_report(tmp_path: Path) -> None:
    settings = gateway_settings(node_metric_status=True, report_seconds=0.01)
    async with gateway_world(tmp_path, settings=settings, begin=False) as world:
        await install_crds(world.server)
        leadership = Interrupted()
        await world.begin(leadership=leadership)
        await world.server.apply(node("node-1"))
        await world.until(lambda: world.view.node("node-1"))
        await world.append(AggregateRef("nodepolicy", "node-1"), NodeMetricPolicyRendered(spec={}))
        await world.until(lambda: world.server.object("nodemetrics", "", "node-1"))

        def status() -> object:
            return (world.server.object("nodemetrics", "", "node-1") or {}).get("status")

        leadership.term = None
        report = NodeUsageReported(
            updated_at="2026-11-21T10:00:00Z", report_interval_seconds=60, aggregate_duration_seconds=300
        )
        world.view.observe(1, "node-1", report)
        await world.until(lambda: leadership.is_awaited)
        assert not status()
        leadership.term = Term("test", 2, 0.0)
        await world.until(status)


async def test_the_report_of_a_new_node_metric_object_is_taken_in_whatever_the_earlier_one_said(tmp_path: Path) -> None:
    async with _node_metric(tmp_path, take_node_metrics=True) as world:
        usage = {"nodeUsage": {"resources": {"cpu": "1500m", "memory": "2Gi"}}}
        for count in range(1, 3):
            await world.until(lambda: world.server.object("nodemetrics", "", "node-1"))
            status = {"updateTime": "2026-11-21T10:00:00Z", "nodeMetric": usage}
            await world.server.patch_status("nodemetrics", "", "node-1", status)

            async def is_taken_in(count: int = count) -> bool:
                return (await world.bus.observations.head()).last_seq == count

            await until(is_taken_in)
            await world.server.delete("nodemetrics", "", "node-1")


@asynccontextmanager
async def _node_metric(tmp_path: Path, **settings: Any) -> AsyncGenerator[World]:
    """A gateway that keeps the NodeMetric object of one node."""
    async with gateway_world(tmp_path, settings=gateway_settings(**settings), begin=False) as world:
        await install_crds(world.server)
        await world.begin()
        await world.server.apply(node("node-1"))
        await world.until(lambda: world.view.node("node-1"))
        policy = AggregateRef("nodepolicy", "node-1")
        await world.append(policy, NodeMetricPolicyRendered(spec={"reportIntervalSeconds": 60}))
        await world.until(lambda: world.server.object("nodemetrics", "", "node-1"))
        yield world
