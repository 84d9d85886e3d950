"""One round of protection on one node: contentions, strategies, arbiter, executor, evictions, and what is said of it.

    look -> contentions -> plans of every strategy -> arbiter -> executor -> audit, facts
                       \\-> eviction tasks -> victims

Strategies are pure (`koord_agent.domain.qos`); this is the only place that runs them. Source: agent spec, 10 to 19.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from koordcore.events.agents.nodestate import AgentStopped, PodsEvictedByAgent
from koordcore.events.envelope import Event
from koordcore.protocol.qos import KubeQos
from koordcore.service.configuration.gates import FeatureGates, parse_feature_gates
from koordcore.values.invalid import InvalidInput

from koord_agent.config.gates import (
    BE_CPU_MANAGER,
    BE_CPU_SUPPRESS,
    EVICTIONS,
    GATES,
)
from koord_agent.domain.extending.extensions import Extensions
from koord_agent.domain.extending.node_extensions import NodeExtensions
from koord_agent.domain.kernel.cgroup_files import UNLIMITED, Unsupported, from_file_text
from koord_agent.domain.kernel.cgroup_layout import HostApplication
from koord_agent.domain.metrics.metric_kinds import Kind
from koord_agent.domain.plans.arbiter import Arbitration
from koord_agent.domain.plans.executor import CACHE_LIFE_MS, WriteCache
from koord_agent.domain.plans.plan import CgroupFile, Plan, writable_trees
from koord_agent.domain.qos.contention.contentions import VICTIMS, ContentionBook, Effects, PodLoad, PodSignals
from koord_agent.domain.qos.contention.cpi_book import CpiBook
from koord_agent.domain.qos.contention.interference import (
    CpiSettings,
    InterferenceSettings,
    Signal,
    interference_settings,
)
from koord_agent.domain.qos.evict.eviction_cycle import EvictionBook
from koord_agent.domain.qos.intervals import DEFAULT_OPTIONS, QosOptions, Turn
from koord_agent.domain.qos.strategies.cpu_burst_strategy import QUOTA
from koord_agent.domain.qos.suppress.cpu_suppress import Decision, NodeView, SuppressMemory, SuppressPolicy, decide
from koord_agent.domain.reporting.audit_events import eviction_event, interference_event, lost_event, write_event
from koord_agent.domain.reporting.knob_summary import SAY_AFTER_MS, KnobSummary, KnobWrite
from koord_agent.domain.reporting.suppression_summary import SuppressionSummary, in_force
from koord_agent.domain.state.node_look import NodeLook
from koord_agent.shell.collect.storage import REFRESH_MS
from koord_agent.shell.host.executor import CgroupExecutor, ObserveWrite, Outcome, Result
from koord_agent.shell.host.host import Host
from koord_agent.shell.node.reconciling import ReconcileStrategies, section_of
from koord_agent.shell.store.audit_log import AuditSink, no_audit

SIGNAL_EVERY_MS = 10_000
MOST_SCALED = 2_000
"""Knobs whose scaled value is remembered before those of gone pods are dropped."""
REPORTS_PER_FACT = 12
"""Small changes wait for so many reports, or ten minutes."""
TROUBLE = (Result.REFUSED, Result.FAILED, Result.HELD_BACK)
DEFAULT_GATES = parse_feature_gates([], GATES)
_NOTHING: Mapping[str, Any] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class QosOutcome:
    """What a round came to.

    decision      of CPU suppression
    quota_us      best-effort quota in force afterwards; None = unreadable
    plans         plugin and result (applied, expired, overridden, conflict) -> number
    """

    facts: tuple[Event, ...]
    problems: tuple[str, ...]
    decision: Decision
    outcomes: tuple[Outcome, ...]
    quota_us: int | None
    plans: Mapping[tuple[str, str], int]


class QosCycle:
    """The protection of one node. Not shared: its agent owns it.

    interval_ms   between rounds, on the service's clock
    draw          numbers of 0 to 1
    options       how often each strategy has its turn
    observe       told about every write
    extensions    what installed packages add
    """

    def __init__(
        self,
        node: str,
        host: Host,
        *,
        interval_ms: int,
        gates: FeatureGates = DEFAULT_GATES,
        audit: AuditSink = no_audit,
        draw: Callable[[], float] = lambda: 0.5,
        options: QosOptions = DEFAULT_OPTIONS,
        storage_refresh_ms: int = REFRESH_MS,
        observe: ObserveWrite = lambda _resource, _written, _seconds: None,
        extensions: NodeExtensions | None = None,
    ) -> None:
        self._node = node
        self._host = host
        self._gates = gates
        self._audit = audit
        self._suppress_turn = Turn(options.suppress_ms, interval_ms)
        self._decision: Decision | None = None
        self.reconciling = ReconcileStrategies(
            host,
            turn=Turn(options.reconcile_ms, interval_ms),
            gates=gates,
            audit=audit,
            draw=draw,
            storage_refresh_ms=storage_refresh_ms,
            extensions=extensions or NodeExtensions(Extensions()),
            read_quota=self._read_quota,
        )
        force_ms = options.force_after_ms
        cache = WriteCache(force_after_ms=force_ms, life_ms=max(CACHE_LIFE_MS, 2 * force_ms))
        self._executor = CgroupExecutor(host, trees=writable_trees(host.layout), cache=cache, observe=observe)
        self._quota_file = CgroupFile(host.layout.qos_directory(KubeQos.BEST_EFFORT), QUOTA)
        self._suppress = SuppressMemory()
        self._said = SuppressionSummary()
        self._applications: tuple[HostApplication, ...] = ()
        features = frozenset(name for name in EVICTIONS if gates.enabled(name))
        self._evictions = EvictionBook(features, options, interval_ms)
        self._contentions = ContentionBook()
        self._cpi = CpiBook()
        self._signals_due_ms = 0
        self._knobs = KnobSummary(silent=frozenset((self._quota_file,)))
        self._class_directories = frozenset(host.layout.qos_directory(qos) for qos in KubeQos)
        self._left: dict[str, str] = {}
        self._tell_every_ms = SAY_AFTER_MS

    def run(
        self,
        look: NodeLook,
        view: NodeView,
        policy: SuppressPolicy | None,
        *,
        report_interval_ms: int = 0,
        end: Callable[[str], bool],
    ) -> QosOutcome:
        """One round.

        view, policy         of CPU suppression
        report_interval_ms   of the node's reports: small changes are told with every few of them
        end                  ends a pod's processes here and now if this node can; False = it cannot
        """
        problems: list[str] = []
        self._tell_every_ms = max(SAY_AFTER_MS, REPORTS_PER_FACT * report_interval_ms)
        slo: Mapping[str, Any] = look.slo or {}
        look = self.reconciling.extensions.with_policies(look)

        # 1. who is disturbed
        settings = _settings(slo, problems)
        contended = (*self._contended(look, settings), *self._slowed(look, settings))
        effects = self._contentions.effects(settings)

        # 2. what every strategy wants
        decision = self._decide(view, policy, effects)
        plans = list(decision.plans)
        if effects.suppress_causes:
            plans = [replace(plan, cause=effects.suppress_causes[0]) for plan in plans]
        plans.extend(self._cpi.plans(look, self._read_quota, ttl_ms=self._suppress_turn.ttl_ms))
        plans.extend(self.reconciling.plans(look, halve_io_weight=effects.halve_io_weight, problems=problems))

        # 3. one value per knob, in the order that the tree needs
        self._allow_applications(look)
        arbitration = self._executor.arbitrate(plans, look.now_ms)
        outcomes = self._executor.write(arbitration, look.now_ms)
        problems.extend(outcome.detail for outcome in outcomes if outcome.result in TROUBLE)
        if _went_well(decision, outcomes):
            self._suppress = decision.memory
        quota_us = self._written_quota(outcomes)
        if quota_us is not None:
            decision = in_force(decision, quota_us, arbitration.winners.get(self._quota_file))
        facts: list[Event] = [*contended, *self._tell(look, view, decision, effects, arbitration, outcomes)]

        # 4. what is set beside cgroups, on a real machine
        problems.extend(self.reconciling.set_machine(look))

        # 5. who has to go
        if look.slo is not None:
            facts.extend(self._evict(look, slo, effects, end, problems))
        return QosOutcome(
            facts=tuple(facts),
            problems=tuple(problems),
            decision=decision,
            outcomes=outcomes,
            quota_us=view.be_quota_us if quota_us is None else quota_us,
            plans=_count(plans, arbitration),
        )

    def farewell(self, look: NodeLook | None, now_ms: int) -> tuple[Event, ...]:
        """Lift what only a living agent may hold (caps); say what was not told yet, and what stays in force.

        look    the last one; None = there was none
        """
        if look is not None:
            look = replace(look, now_ms=now_ms)
            plans = self._cpi.plans(look, self._read_quota, ttl_ms=self._suppress_turn.ttl_ms, ends=True)
            arbitration = self._executor.arbitrate(plans, now_ms)
            self._audit_writes(look, arbitration, self._executor.write(arbitration, now_ms))
        last = self._knobs.said(now_ms)
        stopped = AgentStopped(left=dict(sorted(self._left.items())))
        return (stopped,) if last is None else (last, stopped)

    def _decide(self, view: NodeView, policy: SuppressPolicy | None, effects: Effects) -> Decision:
        """CPU suppression, its threshold lowered while contentions go on; switched off it gives back what it took.

        Between two of its turns the last decision stands.
        """
        last = self._decision
        if self._suppress_turn.is_off:
            return decide(view, None, self._suppress, ttl_ms=0)
        if not self._suppress_turn.comes(view.now_ms) and last is not None:
            return last
        if policy is not None and (self._gates.enabled(BE_CPU_MANAGER) or not self._gates.enabled(BE_CPU_SUPPRESS)):
            policy = replace(policy, enable=False)
        if policy is not None and effects.suppress_points:
            lowered = max(policy.threshold_percent - effects.suppress_points, policy.min_percent or 0)
            policy = replace(policy, threshold_percent=min(lowered, policy.threshold_percent))
        self._decision = decide(view, policy, self._suppress, ttl_ms=self._suppress_turn.ttl_ms)
        return self._decision

    def _allow_applications(self, look: NodeLook) -> None:
        """The directories of configured host applications may be written, too."""
        if look.host_applications == self._applications:
            return
        self._applications = look.host_applications
        directories: list[str] = []
        for application in look.host_applications:
            try:
                directories.append(look.layout.host_application_directory(application))
            except ValueError:
                continue
        self._executor.allow(writable_trees(look.layout, directories))

    def _evict(
        self,
        look: NodeLook,
        slo: Mapping[str, Any],
        effects: Effects,
        end: Callable[[str], bool],
        problems: list[str],
    ) -> tuple[PodsEvictedByAgent, ...]:
        section = section_of(slo, "resourceUsedThresholdWithBE")
        try:
            facts = self._evictions.run(look, section, memory_points=effects.memory_points, end=end)
        except InvalidInput as error:
            problems.append(f"NodeSLO: {error}")
            return ()
        for fact in facts:
            for pod in fact.pods:
                self._audit(eviction_event(fact.feature, fact.reason, pod), 0)
        return facts

    def _contended(self, look: NodeLook, settings: InterferenceSettings) -> tuple[Event, ...]:
        """Feed each signal's newest value once per sample, not once per round."""
        back = self._signals_due_ms - look.now_ms > SIGNAL_EVERY_MS
        if look.now_ms < self._signals_due_ms and not back:
            return ()
        self._signals_due_ms = look.now_ms + SIGNAL_EVERY_MS
        if not settings.enable and not self._contentions.ongoing:
            return ()
        within_ms = 2 * max(SIGNAL_EVERY_MS, look.metrics.interval_ms)
        signals = [
            PodSignals(pod=pod, values=_signals(look, pod.uid, within_ms)) for pod in look.pods if pod.qos in VICTIMS
        ]
        loads = {
            pod.uid: PodLoad(
                cpu_cores=look.metrics.last(Kind.POD_CPU, pod.uid) or 0.0,
                memory_bytes=look.metrics.last(Kind.POD_MEMORY, pod.uid) or 0.0,
            )
            for pod in look.pods
        }
        return self._audited(self._contentions.take(settings, signals, loads, look.by_uid, look.now_ms))

    def _slowed(self, look: NodeLook, settings: InterferenceSettings) -> tuple[Event, ...]:
        """Containers whose cycles per instruction stand out from what their workload has learnt."""
        cpi = settings.cpi if settings.enable else CpiSettings()
        return self._audited(self._cpi.take(look, cpi, self._read_quota))

    def _audited(self, facts: tuple[Event, ...]) -> tuple[Event, ...]:
        for fact in facts:
            event = interference_event(fact)
            if event is not None:
                self._audit(event, 1)
        return facts

    def _tell(
        self,
        look: NodeLook,
        view: NodeView,
        decision: Decision,
        effects: Effects,
        arbitration: Arbitration,
        outcomes: Sequence[Outcome],
    ) -> list[Event]:
        """Audit every write; the facts that are due."""
        self._audit_writes(look, arbitration, outcomes)
        if self._written_quota(outcomes) is not None:
            said = self._said.written(
                decision, look.now_ms, view.capacity_milli, self._tell_every_ms, effects.suppress_causes
            )
        else:
            said = self._said.due(look.now_ms, self._tell_every_ms)
        told = self._knobs.due(look.now_ms, self._tell_every_ms)
        return [fact for fact in (said, told) if fact is not None]

    def _audit_writes(self, look: NodeLook, arbitration: Arbitration, outcomes: Sequence[Outcome]) -> None:
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

    def _written_quota(self, outcomes: Sequence[Outcome]) -> int | None:
        """The best-effort quota that was written; None = it was not."""
        written = (o.value for o in outcomes if o.file == self._quota_file and o.result is Result.WRITTEN)
        return next(map(int, written), None)

    def _read_quota(self, directory: str) -> int | None:
        text = self._host.read(CgroupFile(directory, QUOTA))
        if text is None:
            return None
        try:
            quota = int(from_file_text(QUOTA, text, self._host.cgroup_version))
        except (InvalidInput, Unsupported):
            return None
        return quota if quota >= 0 else UNLIMITED


def _settings(slo: Mapping[str, Any], problems: list[str]) -> InterferenceSettings:
    try:
        return interference_settings(slo)
    except InvalidInput as error:
        problems.append(f"NodeSLO: {error}")
        return InterferenceSettings()


def _signals(look: NodeLook, uid: str, within_ms: int) -> dict[Signal, float]:
    metrics = look.metrics
    found = {
        Signal.PSI_CPU: metrics.pressure(uid, "cpu", "some", within_ms=within_ms),
        Signal.PSI_MEM: metrics.pressure(uid, "mem", "full", within_ms=within_ms),
        Signal.PSI_IO: metrics.pressure(uid, "io", "full", within_ms=within_ms),
        Signal.SCHED_DELAY: metrics.last(Kind.POD_SCHED_DELAY, uid, within_ms=within_ms),
        Signal.MEM_ALLOC: metrics.last(Kind.POD_MEMORY_ALLOC_STALL, uid, within_ms=within_ms),
        Signal.DISK_IO: metrics.last(Kind.POD_DISK_AWAIT, uid, within_ms=within_ms),
        Signal.NETWORK: metrics.last(Kind.POD_TCP_RETRANSMIT, uid, within_ms=within_ms),
    }
    return {signal: value for signal, value in found.items() if value is not None}


def _went_well(decision: Decision, outcomes: Sequence[Outcome]) -> bool:
    files = {plan.file for plan in decision.plans}
    return all(o.result in (Result.WRITTEN, Result.UNCHANGED) for o in outcomes if o.file in files)


def _count(plans: Sequence[Plan], arbitration: Arbitration) -> Mapping[tuple[str, str], int]:
    lost = Counter((loser.plan.plugin, str(loser.loss)) for loser in arbitration.losers)
    handed = Counter(plan.plugin for plan in plans)
    for (plugin, _), number in lost.items():
        handed[plugin] -= number
    return {**{(plugin, "applied"): number for plugin, number in handed.items() if number > 0}, **lost}
