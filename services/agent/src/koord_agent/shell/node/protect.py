r"""The QoS cycle of one node: detect, propose, arbitrate, write, set the machine, evict, record.

    look -> contentions -> proposals of all strategies -> arbiter -> executor -> audit, facts
                                                       \-> evictor -> facts

Strategies are pure (`koord_agent.domain.strategies`). This is the only place that runs them.

Source: agent spec, 10 to 19.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from koordcore.events.envelope import Event
from koordcore.protocol.config.node_strategies import ThresholdStrategy
from koordcore.protocol.qos import KubeQos
from koordcore.values.invalid import InvalidInput

from koord_agent.domain.extending.node_extensions import NodeExtensions
from koord_agent.domain.gate_names import (
    BATCH_RESOURCE,
    BE_CPU_MANAGER,
    CORE_SCHED,
    CPU_NORMALIZATION,
    GROUP_IDENTITY,
)
from koord_agent.domain.hooks.facts import HookRepairs
from koord_agent.domain.kernel.cfs_bandwidth import QUOTA, UNLIMITED
from koord_agent.domain.kernel.cgroup_files import Unsupported, from_file_text
from koord_agent.domain.kernel.cgroup_layout import HostApplication
from koord_agent.domain.kernel.storage_info import StorageInfo
from koord_agent.domain.node.node_look import NodeLook
from koord_agent.domain.plans.plan import CgroupFile, writable_trees
from koord_agent.domain.reporting.suppression_summary import in_force
from koord_agent.domain.strategies.block_io import BlockIoStrategy
from koord_agent.domain.strategies.contention.contentions import InterferenceSettings, interference_settings
from koord_agent.domain.strategies.contention.cpi_caps import AntagonistCapsStrategy
from koord_agent.domain.strategies.contention.detection import Detection
from koord_agent.domain.strategies.cpu_burst import CpuBurstStrategy
from koord_agent.domain.strategies.cpu_qos import CpuQosStrategy
from koord_agent.domain.strategies.cpu_suppress import Decision, NodeView
from koord_agent.domain.strategies.cpu_suppress_strategy import CpuSuppressStrategy, suppresses_cpu
from koord_agent.domain.strategies.cpuset import CpusetStrategy
from koord_agent.domain.strategies.evict import cpu_evict, memory_evict
from koord_agent.domain.strategies.evict.strategies import CpuEvictStrategy, Evictor, MemoryEvictStrategy
from koord_agent.domain.strategies.group_identity import BVT, BvtKernel
from koord_agent.domain.strategies.memory_qos import MemoryQosStrategy
from koord_agent.domain.strategies.pod_resources import PodResourcesStrategy
from koord_agent.domain.strategies.runner import Interval, StrategyRunner
from koord_agent.domain.strategies.strategy import CycleState, Pace, Strategy
from koord_agent.settings import AgentSettings
from koord_agent.shell.collect.storage import Storage
from koord_agent.shell.hooks.gauges import Gauge
from koord_agent.shell.hooks.machine_hooks import MachineHooks, ObserveReconciler
from koord_agent.shell.host.executor import CgroupExecutor, ObserveWrite, Outcome, Result
from koord_agent.shell.host.host import Host
from koord_agent.shell.node.burst_values import BurstValues
from koord_agent.shell.node.machine_settings import MachineSettings
from koord_agent.shell.node.record import QosRecord, count_plans
from koord_agent.shell.node.weight_evidence import WeightEvidence
from koord_agent.shell.store.audit_log import AuditSink, no_audit

TROUBLE = (Result.REFUSED, Result.FAILED, Result.HELD_BACK)
IN_PLACE = (Result.WRITTEN, Result.UNCHANGED)


class HostReadings:
    """Files come from `host`, settings outside of cgroups from `machine`.

    From `begin` to `end`, each file is read once: strategies, arbiter and executor decide by the same text.

    Implements `domain.strategies.strategy.Readings`.
    """

    def __init__(self, host: Host, machine: MachineSettings | None) -> None:
        self.machine = machine  # Settings of a real machine. None on a simulated one.
        self._host = host
        self._texts: dict[CgroupFile, str | None] | None = None

    def begin(self) -> None:
        self._texts = {}

    def end(self) -> None:
        """Before the next step reads what was written."""
        self._texts = None

    def read(self, file: CgroupFile) -> str | None:
        texts = self._texts
        if texts is None:
            return self._host.read(file)
        if file not in texts:
            texts[file] = self._host.read(file)
        return texts[file]

    def quota_us(self, directory: str) -> int | None:
        text = self.read(CgroupFile(directory, QUOTA))
        if text is None:
            return None
        try:
            quota = int(from_file_text(QUOTA, text, self._host.cgroup_version))
        except (InvalidInput, Unsupported):
            return None
        return quota if quota >= 0 else UNLIMITED

    def tree(self, directory: str) -> tuple[str, ...]:
        return self._host.tree(directory)

    def group_identity(self) -> BvtKernel:
        has_file = self.read(CgroupFile(self._host.layout.root, BVT)) is not None
        return (
            BvtKernel(has_file=has_file)
            if self.machine is None
            else self.machine.kernel.group_identity(has_file=has_file)
        )

    def disks(self, now_ms: int) -> StorageInfo | None:
        return None if self.machine is None else self.machine.disks(now_ms)


def _no_observer(_resource: str, _written: bool, _seconds: float) -> None:
    return


def _no_reconciler_observer(_level: str, _resource: str, *, is_ok: bool, seconds: float) -> None:
    return


def _middle() -> float:
    return 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Protection:
    """What protecting a node needs besides the settings."""

    audit: AuditSink = no_audit  # receives every write
    draw: Callable[[], float] = _middle  # returns random numbers in 0..1
    observe_write: ObserveWrite = _no_observer  # receives every write with its duration
    observe_reconciler: ObserveReconciler = _no_reconciler_observer  # receives every run of a reconciler of hooks


DEFAULT_PROTECTION: Final = Protection()


@dataclass(frozen=True, slots=True, kw_only=True)
class QosOutcome:
    problems: tuple[str, ...]  # Problems of the cycle, one sentence each
    decision: Decision
    outcomes: tuple[Outcome, ...]
    # CPU quota of the best-effort class after the cycle, microseconds per 100 ms. None if unreadable.
    quota_us: int | None
    # (strategy, result) -> number of plans; results are applied, expired, overridden and conflict.
    plans: Mapping[tuple[str, str], int]


class QosCycle:
    """Runs the strategies of one node, and carries out the plans and evictions that they propose.

    Only the agent uses it.
    """

    def __init__(
        self,
        host: Host,
        settings: AgentSettings,
        protection: Protection,
        extensions: NodeExtensions,
        *,
        cycle_ms: int,
    ) -> None:
        gates = settings.feature_gates
        self._extensions = extensions
        intervals = _intervals(settings)
        self._machine: MachineSettings | None = None
        self._hooks: MachineHooks | None = None
        if host.roots is not None:
            audit, observe, every_ms = protection.audit, protection.observe_reconciler, intervals[Pace.RECONCILE]
            self._machine = MachineSettings(host, host.roots, settings, audit, Interval(every_ms, cycle_ms))
            self._hooks = MachineHooks(host, host.roots, settings, observe, Interval(every_ms, cycle_ms))
        self._readings = HostReadings(host, self._machine)
        self.weights = WeightEvidence(host)
        self._detection = Detection()
        self._suppression = CpuSuppressStrategy(gates.enabled)
        # Only for the lifetime of plans and for whether suppression runs in each cycle
        self.suppress_every = Interval(intervals[Pace.SUPPRESS] if suppresses_cpu(gates.enabled) else 0, cycle_ms)
        self.burst_values = BurstValues(host.cgroup_version)
        own: tuple[Strategy, ...] = (
            self._suppression,
            AntagonistCapsStrategy(self._detection.cpi.caps),
            CpuBurstStrategy(draw=protection.draw, normalizes=gates.enabled(CPU_NORMALIZATION)),
            MemoryQosStrategy(),
            CpuQosStrategy(gates.enabled(GROUP_IDENTITY), gates.enabled(CORE_SCHED)),
            BlockIoStrategy(),
            CpusetStrategy(
                unsets_quota=not settings.disable_unset_cpu_quota, be_by_manager=gates.enabled(BE_CPU_MANAGER)
            ),
        )
        if host.roots is not None:  # a simulated pod has no limits that a container runtime would set
            batch, normalization = gates.enabled(BATCH_RESOURCE), gates.enabled(CPU_NORMALIZATION)
            own = (*own, PodResourcesStrategy(batch, normalization, suppresses=suppresses_cpu(gates.enabled)))
        evictions = (CpuEvictStrategy(gates.enabled), MemoryEvictStrategy(gates.enabled))
        self._runner = StrategyRunner(self._switch_group_identity)
        strategies = (*own, *extensions.strategies(), *evictions)
        self._runner.add(strategies, intervals=intervals, cycle_ms=cycle_ms, is_enabled=gates.enabled)
        self._evictor = Evictor(
            rest_ms={
                cpu_evict.PLUGIN: settings.cpu_evict_cool_time_seconds * 1_000,
                memory_evict.PLUGIN: settings.memory_evict_cool_time_seconds * 1_000,
            },
            rest_at_start=(cpu_evict.PLUGIN,),
        )
        self._executor = CgroupExecutor(
            host, trees=writable_trees(host.layout), observe=protection.observe_write, read=self._readings.read
        )
        self._quota_file = CgroupFile(host.layout.qos_directory(KubeQos.BEST_EFFORT), QUOTA)
        self._record = QosRecord(
            host.layout, self._quota_file, protection.audit, repairs=HookRepairs() if host.roots is not None else None
        )
        self._written: Mapping[CgroupFile, bool] = {}
        self._failed: Mapping[CgroupFile, Outcome] = {}
        """File -> outcome with which its present trouble began."""
        self._applications: tuple[HostApplication, ...] = ()

    @property
    def hook_gauges(self) -> Iterable[Gauge]:
        return () if self._hooks is None else self._hooks.gauges()

    @property
    def storage(self) -> Storage | None:
        """None if block IO is not set on this machine."""
        return None if self._machine is None else self._machine.storage

    def run(
        self,
        look: NodeLook,
        view: NodeView,
        policy: ThresholdStrategy | None,
        facts: list[Event],
        *,
        report_interval_ms: int = 0,
        end: Callable[[str], bool],
    ) -> QosOutcome:
        """Run one QoS cycle.

        Args:
            policy: None without a valid NodeSLO.
            facts: List to which facts are appended as soon as they are known, also if the cycle fails later.
            report_interval_ms: Interval of the node's reports. Facts about small changes wait for several of them.
            end: Ends the processes of a pod on this node; returns False if it cannot.
        """
        problems: list[str] = []
        self._record.start_cycle(report_interval_ms)
        self._readings.begin()
        look = self._extensions.with_policies(look)

        # 1. detect who is disturbed
        settings = _settings(look, problems)
        facts += self._record.contentions(self._detection.detect(look, settings, self._readings.quota_us))
        effects = self._detection.contentions.effects(settings)

        # 2. ask every strategy what it wants
        state = CycleState(readings=self._readings, effects=effects, view=view, suppress=policy, written=self._written)
        proposed = self._runner.propose(look, state, resting=self._evictor.resting(look.now_ms))
        decision = self._suppression.decision(view)
        problems.extend(proposed.problems)

        # 3. pick one value for each file and write it, in the order that the tree needs
        self._allow_applications(look)
        self.weights.look(look)
        arbitration = self._executor.arbitrate(proposed.plans, look.now_ms)
        outcomes = self._executor.write(arbitration)
        self._readings.end()
        self.burst_values.take(look, proposed.plans, outcomes)
        self._written = {outcome.file: outcome.result in IN_PLACE for outcome in outcomes}
        self._failed = _first_failures(self._failed, outcomes)
        problems.extend(outcome.detail for outcome in self._failed.values())
        quota_us = self._written_quota(outcomes)
        if quota_us is not None:
            decision = in_force(decision, quota_us, arbitration.winners.get(self._quota_file))

        # 4. record the writes
        self._record.writes(look, arbitration, outcomes)
        facts += self._record.repairs(look, arbitration, outcomes)
        facts += self._record.changes(
            look.now_ms, decision, view.capacity_milli, effects.suppress_causes, is_written=quota_us is not None
        )

        # 5. set what is outside of cgroups, on a real machine
        if self._machine is not None:
            problems.extend(self._machine.apply(look))
        if self._hooks is not None:
            problems.extend(self._hooks.apply(look))

        # 6. evict
        evicted = self._evictor.evict(look, proposed.evictions, end)
        facts += evicted
        self._record.evictions(evicted)
        return QosOutcome(
            problems=tuple(problems),
            decision=decision,
            outcomes=outcomes,
            quota_us=view.be_quota_us if quota_us is None else quota_us,
            plans=count_plans(proposed.plans, arbitration),
        )

    def suppress(
        self, look: NodeLook, view: NodeView, policy: ThresholdStrategy | None, facts: list[Event]
    ) -> QosOutcome | None:
        """Lower the limits of best effort between two cycles. No-op if they would stay or rise: returns None.

        The other strategies keep their last plans, because a limit of the class is also one of its pods. The arguments
        are those of `run`.
        """
        self._readings.end()
        effects = self._detection.contentions.effects(_settings(look, []))
        state = CycleState(
            readings=self._readings,
            ttl_ms=self.suppress_every.ttl_ms,
            effects=effects,
            view=view,
            suppress=policy,
            written=self._written,
        )
        proposal = self._suppression.propose_less(state)
        if proposal is None:
            return None
        arbitration = self._executor.arbitrate(self._runner.replace(self._suppression, proposal.plans), look.now_ms)
        outcomes = self._executor.write(arbitration)
        self._written = {**self._written, **{outcome.file: outcome.result in IN_PLACE for outcome in outcomes}}
        decision, quota_us = self._suppression.decision(view), self._written_quota(outcomes)
        if quota_us is not None:
            decision = in_force(decision, quota_us, arbitration.winners.get(self._quota_file))
        self._record.writes(look, arbitration, outcomes)
        facts += self._record.repairs(look, arbitration, outcomes)
        facts += self._record.changes(
            look.now_ms, decision, view.capacity_milli, effects.suppress_causes, is_written=quota_us is not None
        )
        return QosOutcome(
            problems=(),
            decision=decision,
            outcomes=outcomes,
            quota_us=view.be_quota_us if quota_us is None else quota_us,
            plans={},
        )

    def farewell(self, look: NodeLook | None, now_ms: int) -> tuple[Event, ...]:
        """Lift the caps of pods that disturb others, because they need a running agent, and return the last facts."""
        self._readings.end()
        if look is not None:
            look = replace(look, now_ms=now_ms)
            caps = AntagonistCapsStrategy(self._detection.cpi.caps)
            plans = caps.propose(look, {}, CycleState(readings=self._readings, is_last=True)).plans
            arbitration = self._executor.arbitrate(tuple(plans), now_ms)
            self._record.writes(look, arbitration, self._executor.write(arbitration))
        return self._record.farewell(now_ms)

    def _allow_applications(self, look: NodeLook) -> None:
        """The executor may write the directories of configured host applications."""
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

    def _written_quota(self, outcomes: tuple[Outcome, ...]) -> int | None:
        """The quota of the best-effort class if it was written."""
        written = (o.value for o in outcomes if o.file == self._quota_file and o.result is Result.WRITTEN)
        return next(map(int, written), None)

    def _switch_group_identity(self) -> bool:
        return self._machine is None or self._machine.kernel.switch_group_identity()


def _intervals(settings: AgentSettings) -> dict[Pace, int]:
    seconds = {
        Pace.SUPPRESS: settings.cpu_suppress_interval_seconds,
        Pace.RECONCILE: settings.reconcile_interval_seconds,
        Pace.CPU_EVICT: settings.cpu_evict_interval_seconds,
        Pace.MEMORY_EVICT: settings.memory_evict_interval_seconds,
    }
    return {pace: max(each, 0) * 1_000 for pace, each in seconds.items()}


def _settings(look: NodeLook, problems: list[str]) -> InterferenceSettings:
    try:
        return interference_settings(look.slo or {})
    except InvalidInput as error:
        problems.append(f"NodeSLO: {error}")
        return InterferenceSettings()


def _first_failures(before: Mapping[CgroupFile, Outcome], outcomes: Iterable[Outcome]) -> dict[CgroupFile, Outcome]:
    """Return file -> outcome with which its trouble began, for all files that have one now.

    The wanted value may change in each cycle, such as a quota that the kernel refuses. The trouble is the same while
    its reason is the same.
    """
    failed = {outcome.file: outcome for outcome in outcomes if outcome.result in TROUBLE}
    firsts = {file: before.get(file, outcome) for file, outcome in failed.items()}
    return {file: first if _kind(first) == _kind(failed[file]) else failed[file] for file, first in firsts.items()}


def _kind(outcome: Outcome) -> tuple[Result, str]:
    """Return what went wrong, without the value. The detail of a failed write ends with the reason of the kernel."""
    return outcome.result, outcome.detail.rpartition(": ")[2] if outcome.result is Result.FAILED else ""
