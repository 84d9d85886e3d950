"""The scheduler reads the newest usage report of every node when it starts, and every later one."""

import asyncio
from collections.abc import Sequence

from koord_scheduler.shell.folding import follow_reports
from koordcore.bus.adapters.memory import MemoryObservationLog
from koordcore.bus.read.report_gate import ReportGate
from koordcore.bus.refusals import Refusals
from koordcore.events.envelope import AggregateRef, Origin, StoredEvent
from koordcore.events.observation import NodeUsageReported, Usage
from support.manual_clock import ManualClock
from support.scheduler.scheduling import Scheduler, SmallLog, node, pod
from support.until import until

GATE = ReportGate(ManualClock(), Refusals("test"))

LIMITED = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: koord-scheduler
  pluginConfig:
  - name: LoadAwareScheduling
    args: {filterExpiredNodeMetrics: false, usageThresholds: {cpu: 50}}
  plugins:
    filter: {enabled: [{name: LoadAwareScheduling}]}
    reserve: {enabled: [{name: LoadAwareScheduling}]}
"""
IDLE, BUSY = 0, 4000
"""Milli-cores that a node of four cores uses."""


class Reports(MemoryObservationLog):
    """Usage reports. While the newest ones are read, one node reports again, and then another one."""

    async def report(self, node: str, cpu_milli: int) -> None:
        usage = Usage(cpu_milli, 1)
        event = NodeUsageReported(
            updated_at="2026-01-01T00:00:00Z",
            report_interval_seconds=60,
            aggregate_duration_seconds=300,
            node_usage=usage,
            system_usage=usage,
        )
        origin = Origin(causation_id=f"{node}/{cpu_milli}", correlation_id=node, actor="a", occurred_at="")
        await self.publish(AggregateRef("node", node), event, origin)

    async def latest(self, refs: Sequence[AggregateRef]) -> list[StoredEvent]:
        first = await super().latest(refs[:1])
        await self.report("n1", BUSY)
        await self.report("n2", BUSY)
        return first + await super().latest(refs[1:])


async def test_report_that_arrives_while_the_newest_ones_are_read_is_not_missed() -> None:
    log, reports = SmallLog(), Reports()
    for name in ("n1", "n2"):
        log.add_node(node(name))
        await reports.report(name, IDLE)
    scheduler = Scheduler(log, LIMITED)

    async def nodes_known() -> None:
        scheduler.follow()

    following = asyncio.create_task(follow_reports(scheduler.state, nodes_known, reports, GATE, changed=lambda: None))
    await until(lambda: scheduler.state.log.observed == 4)
    following.cancel()
    log.add_pod(pod("p", {"cpu": "1"}))
    scheduler.run()
    assert scheduler.state.pods["p"].node == "", "both nodes use more than half of their cores"
