"""Record a QoS cycle: audit events of every write, and the facts that are due.

Small changes are summarised (`knob_summary`, `suppression_summary`), so that a busy node does not flood the log.
Source: agent spec, 19.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from koordcore.events.envelope import Event
from koordcore.events.nodestate import AgentStopped, ContainerHookApplied, PodsEvictedByAgent
from koordcore.protocol.qos import KubeQos

from koord_agent.domain.hooks.facts import PLUGINS, HookRepairs, SetValue
from koord_agent.domain.kernel.cgroup_layout import CgroupLayout
from koord_agent.domain.node.node_look import NodeLook
from koord_agent.domain.plans.arbiter import Arbitration
from koord_agent.domain.plans.plan import CgroupFile, Plan
from koord_agent.domain.reporting.audit import eviction_event, interference_event, lost_event, write_event
from koord_agent.domain.reporting.knob_summary import SAY_AFTER_MS, KnobSummary, KnobWrite
from koord_agent.domain.reporting.suppression_summary import SuppressionSummary
from koord_agent.domain.strategies.cpu_suppress import Decision
from koord_agent.shell.host.executor import Outcome, Result
from koord_agent.shell.store.audit_log import AuditSink

REPORTS_PER_FACT = 12
"""Number of report intervals until small changes become a fact; at least ten minutes."""


class QosRecord:
    """Records the QoS cycles of one node: audit events and facts. Only its `QosCycle` uses it."""

    def __init__(
        self,
        layout: CgroupLayout,
        quota_file: CgroupFile,
        audit: AuditSink,
        *,
        repairs: HookRepairs | None = None,
    ) -> None:
        self._repairs = repairs
        self._audit = audit
        self._suppression = SuppressionSummary()
        self._knobs = KnobSummary(silent=frozenset((quota_file,)))
        self._class_directories = frozenset(layout.qos_directory(qos) for qos in KubeQos)
        self._left: dict[str, str] = {}
        self._every_ms = SAY_AFTER_MS

    def start_cycle(self, report_interval_ms: int) -> None:
        """Facts about small changes are delayed by several report intervals (milliseconds)."""
        self._every_ms = max(SAY_AFTER_MS, REPORTS_PER_FACT * report_interval_ms)

    def contentions(self, facts: tuple[Event, ...]) -> tuple[Event, ...]:
        """Write an audit event for each fact, and return the facts unchanged."""
        for fact in facts:
            event = interference_event(fact)
            if event is not None:
                self._audit(event, 1)
        return facts

    def repairs(
        self, look: NodeLook, arbitration: Arbitration, outcomes: Sequence[Outcome]
    ) -> tuple[ContainerHookApplied, ...]:
        """Facts about pods and containers that lacked values of hooks until this cycle."""
        if self._repairs is None:
            return ()
        values: list[SetValue] = []
        for outcome in outcomes:
            winner = arbitration.winners.get(outcome.file)
            strategy = next((name for name in winner.plugins if name in PLUGINS), None) if winner is not None else None
            if strategy is not None and outcome.result in (Result.WRITTEN, Result.UNCHANGED):
                after = outcome.value if outcome.result is Result.WRITTEN else None
                values.append(SetValue(outcome.file, strategy, (outcome.before or "").strip(), after))
        return self._repairs.facts(look, values)

    def writes(self, look: NodeLook, arbitration: Arbitration, outcomes: Sequence[Outcome]) -> None:
        """Write an audit event for every write, and for every plan that begins to lose against another one."""
        written: list[KnobWrite] = []
        for outcome in outcomes:
            if outcome.result is not Result.WRITTEN or outcome.before is None:
                continue
            winner = arbitration.winners.get(outcome.file)
            write = KnobWrite(file=outcome.file, before=outcome.before.strip(), after=outcome.value, winner=winner)
            written.append(write)
            self._audit(write_event(look, write), 1)
            if outcome.file.directory in self._class_directories:
                self._left[outcome.file.key] = outcome.value
        failed = sum(outcome.result is Result.FAILED for outcome in outcomes)
        self._knobs.add(written, failed=failed)
        for loser in self._knobs.lost(arbitration.losers, arbitration.winners):
            self._audit(lost_event(loser, arbitration), 2)

    def changes(
        self, now_ms: int, decision: Decision, capacity_milli: int, causes: tuple[str, ...], *, is_written: bool
    ) -> list[Event]:
        """The facts about changed files that are due.

        `is_written`: whether the quota of the best-effort class was written.
        """
        if is_written:
            said = self._suppression.written(decision, now_ms, capacity_milli, self._every_ms, causes)
        else:
            said = self._suppression.due(now_ms, self._every_ms)
        told = self._knobs.due(now_ms, self._every_ms)
        return [fact for fact in (said, told) if fact is not None]

    def evictions(self, facts: Iterable[PodsEvictedByAgent]) -> None:
        for fact in facts:
            for pod in fact.pods:
                self._audit(eviction_event(fact.feature, fact.reason, pod), 0)

    def farewell(self, now_ms: int) -> tuple[Event, ...]:
        """Return the last facts before the agent stops: unpublished changes of files, and values that stay in force.

        Unpublished small changes of the best-effort quota get no fact; its last value is among those that stay.
        """
        last = self._knobs.said(now_ms)
        stopped = AgentStopped(left=dict(sorted(self._left.items())))
        return (stopped,) if last is None else (last, stopped)


def count_plans(plans: Sequence[Plan], arbitration: Arbitration) -> Mapping[tuple[str, str], int]:
    """(strategy, result) -> number; results are applied, expired, overridden and conflict."""
    lost = Counter((loser.plan.plugin, str(loser.loss)) for loser in arbitration.losers)
    handed = Counter(plan.plugin for plan in plans)
    for (plugin, _), number in lost.items():
        handed[plugin] -= number
    return {**{(plugin, "applied"): number for plugin, number in handed.items() if number > 0}, **lost}
