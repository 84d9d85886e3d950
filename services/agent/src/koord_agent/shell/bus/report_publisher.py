"""Publish the usage reports of the nodes once per report interval, spread over the interval.

Source: agent spec, 7.
"""

import hashlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from koordcore.events.envelope import AggregateRef, name_token
from koordcore.events.observation import NodeUsageReported
from koordcore.values.timestamps import rfc3339

from koord_agent.domain.failure import failure
from koord_agent.shell.bus.bus_link import BusLink
from koord_agent.shell.bus.fact_publisher import FactPublisher
from koord_agent.shell.metrics.agent_metrics import ProblemLog
from koord_agent.shell.node.node_agent import NodeAgent
from koord_agent.shell.node.threads import finished_in_thread


@dataclass(frozen=True, kw_only=True, eq=False)
class ReportPublisher:
    link: BusLink  # The bus. Without a connection, no report is made.
    facts: FactPublisher
    is_on: bool
    problems: ProblemLog  # Logs why a report could not be made
    in_thread: bool  # Whether reports are made in a thread, because they read files of a machine
    _slots: dict[str, int] = field(default_factory=dict[str, int])

    async def publish_due(
        self, agents: Mapping[str, NodeAgent], now_ms: int, breathe: Callable[[], Awaitable[None]]
    ) -> int:
        """Make and publish the reports of the nodes whose report interval has passed, and return their number.

        `breathe` is awaited after each report. It gives control to other tasks of the event loop.
        """
        ports, count = self.link.ports, 0
        if ports is None or not self.is_on:
            return 0
        for node, agent in agents.items():
            if agent.desired is None:
                continue
            interval_ms = agent.desired.collect.report_interval_seconds * 1000
            slot = (now_ms + _phase(node) * interval_ms // 1000) // interval_ms
            if slot == self._slots.get(node):
                continue
            report = await self._report(agent, now_ms)
            if report is None or (report.node_usage is None and node not in self._slots):
                continue  # the first interval of a machine has no usage yet
            self._slots[node] = slot
            origin = self.facts.origin(node, causation=f"{self.facts.start_id}/{slot}")
            await ports.reports.publish(AggregateRef("node", name_token(node)), report, origin)
            count += 1
            await breathe()
        return count

    async def _report(self, agent: NodeAgent, now_ms: int) -> NodeUsageReported | None:
        """None if there is none yet, or if making it failed. The failure is logged once."""
        try:
            if self.in_thread:  # a real machine is asked for its pressure, and a day's models for their peaks
                report = await finished_in_thread(agent.report, now_ms, _text_of)
            else:
                report = agent.report(now_ms, _text_of)
        except Exception as error:  # noqa: BLE001 - a report never ends the agent; the next cycle tries again
            self.problems.tell(agent.node, (failure("no usage report", error),), of="report")
            return None
        self.problems.tell(agent.node, (), of="report")
        return report


def _phase(node: str) -> int:
    """Thousandths of a report interval after which a node reports; they depend only on its name."""
    return int.from_bytes(hashlib.blake2b(node.encode(), digest_size=4).digest()) % 1000


def _text_of(at_ms: int) -> str:
    return rfc3339(datetime.fromtimestamp(at_ms / 1000, UTC))
