"""The protocol of QoS strategies, for those of the agent and those of installed packages, and what runs them.

A strategy proposes. It never writes. `StrategyRunner` decides which strategies are due, and reuses the plans of the
others until their next interval. One arbiter (`domain.plans.arbiter`) picks one plan for each file, and one executor
writes. Source: agent spec, 10.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, NamedTuple, Protocol

from koordcore.values.invalid import InvalidInput

from koord_agent.domain.hooks.group_identity import BVT, BvtKernel
from koord_agent.domain.kernel.storage_info import StorageInfo
from koord_agent.domain.plans.plan import CgroupFile, Plan
from koord_agent.domain.qos.contention.contentions import NO_EFFECTS, Effects
from koord_agent.domain.qos.evict.eviction import EvictionTask
from koord_agent.domain.qos.intervals import Interval, QosOptions
from koord_agent.domain.qos.suppress.cpu_suppress import NodeView
from koord_agent.domain.state.node_look import NodeLook
from koord_agent.domain.state.suppress_policy import SuppressPolicy

RESOURCE_QOS = "resourceQOSStrategy"
RESOURCE_THRESHOLD = "resourceUsedThresholdWithBE"


class Pace(StrEnum):
    """The agent's flag that sets the interval of a strategy; EVERY_CYCLE for a strategy without such a flag."""

    EVERY_CYCLE = "every cycle"
    SUPPRESS = "cpu-suppress-interval-seconds"
    RECONCILE = "reconcile-interval-seconds"
    CPU_EVICT = "cpu-evict-interval-seconds"
    MEMORY_EVICT = "memory-evict-interval-seconds"


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """Conditions under which a strategy runs, and the part of the NodeSLO that it gets.

    Attributes:
        gates: Feature gates. At least one must be on. Empty: the strategy needs none.
        section: Part of the NodeSLO that `propose` gets as its policy; "" for the whole NodeSLO.
        pace: Flag that sets the interval of the strategy.
        node_slo: Whether the strategy is skipped while the node has no valid NodeSLO.
    """

    gates: tuple[str, ...] = ()
    section: str = ""
    pace: Pace = Pace.RECONCILE
    node_slo: bool = True


class Readings(Protocol):
    """Access to files and features of the machine for strategies, besides the snapshot of the node."""

    def read(self, file: CgroupFile) -> str | None:
        """Return the text of a kernel file; None if it is unreadable."""
        ...

    def quota_us(self, directory: str) -> int | None:
        """Return the CFS quota of a directory; -1 if unlimited, None if unreadable."""
        ...

    def group_identity(self) -> BvtKernel:
        """Return whether this kernel supports group identity (cpu.bvt_warp_ns), and whether it is on."""
        ...

    def disks(self, now_ms: int) -> StorageInfo | None:
        """Return the disks of the machine; None while they are unknown."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleState:
    """Inputs of a strategy besides the snapshot of the node.

    Attributes:
        readings: Files of the machine.
        ttl_ms: Lifetime of the plans of this strategy: two of its intervals.
        effects: Changes of settings by ongoing contentions.
        view: Inputs of CPU suppression; None if this cycle has no suppression.
        suppress: Settings of CPU suppression. None without a valid NodeSLO.
        written: File that had a plan in the last cycle -> whether the file has the planned value now.
        is_last: Whether this is the last cycle before the agent stops.
    """

    readings: Readings
    ttl_ms: int = 2_000
    effects: Effects = NO_EFFECTS
    view: NodeView | None = None
    suppress: SuppressPolicy | None = None
    written: Mapping[CgroupFile, bool] = field(default_factory=dict[CgroupFile, bool])
    is_last: bool = False


class Proposal(NamedTuple):
    """The proposal of a strategy in one cycle: values of kernel files, and evictions.

    Attributes:
        plans: At most one value for each file.
        evictions: Amounts to release by evicting pods.
        problems: Parts that could not be proposed, one sentence each.
        group_identity: Whether group identity must be switched on in the kernel before the plans are written.
    """

    plans: Iterable[Plan] = ()
    evictions: Iterable[EvictionTask] = ()
    problems: Iterable[str] = ()
    group_identity: bool = False


class Strategy(Protocol):
    """A QoS strategy: proposes values of kernel files and evictions for one node. It may keep state between cycles."""

    @property
    def name(self) -> str:
        """Name of the strategy in plans, audit events and metrics."""
        ...

    @property
    def needs(self) -> Needs:
        """Conditions under which the strategy runs, and the part of the NodeSLO that it gets."""
        ...

    def propose(self, look: NodeLook, policy: Mapping[str, Any], state: CycleState) -> Proposal:
        """Propose plans and evictions for this cycle.

        Args:
            look: Snapshot of the node. Nothing in it changes during the cycle.
            policy: The section of the NodeSLO that `needs` names, as JSON. Empty if absent.
            state: Other inputs of the cycle.

        Raises:
            InvalidInput: The policy is malformed. The strategy then proposes nothing until its next interval.
        """
        ...


_NOTHING: Mapping[str, Any] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposed:
    """The proposals of all strategies of a node in a cycle.

    Attributes:
        plans: Values of kernel files, in the order of the strategies.
        evictions: Strategy -> eviction tasks. Strategies without evictions are left out.
        problems: Parts that could not be proposed, one sentence each.
    """

    plans: tuple[Plan, ...]
    evictions: Mapping[str, tuple[EvictionTask, ...]]
    problems: tuple[str, ...]


@dataclass(slots=True)
class _Entry:
    strategy: Strategy
    interval: Interval
    plans: tuple[Plan, ...] = ()
    problems: tuple[str, ...] = ()


@dataclass(slots=True)
class StrategyRunner:
    """Runs the strategies of one node. Only its `QosCycle` uses it.

    Attributes:
        switch_group_identity: Switches group identity on in the kernel; returns False if the kernel refuses.
    """

    switch_group_identity: Callable[[], bool]
    _entries: list[_Entry] = field(default_factory=list[_Entry])

    def add(
        self,
        strategies: Sequence[Strategy],
        *,
        options: QosOptions,
        cycle_ms: int,
        is_enabled: Callable[[str], bool],
    ) -> None:
        """Add those of the strategies whose feature gates are on.

        Args:
            strategies: Strategies in the order in which they run.
            options: Intervals.
            cycle_ms: Milliseconds between cycles.
            is_enabled: Returns whether a feature gate is on.
        """
        for strategy in strategies:
            gates = strategy.needs.gates
            if not gates or any(map(is_enabled, gates)):
                interval = Interval(interval_ms(options, strategy.needs.pace, cycle_ms), cycle_ms)
                self._entries.append(_Entry(strategy, interval))

    def propose(self, look: NodeLook, state: CycleState, *, resting: Collection[str] = ()) -> Proposed:
        """Run every strategy that is due, and return the plans and evictions of all strategies.

        Args:
            look: Snapshot of the node.
            state: Other inputs. Each strategy gets the lifetime of its own plans.
            resting: Names of strategies that pause after an eviction.
        """
        evictions: dict[str, tuple[EvictionTask, ...]] = {}
        for entry in self._entries:
            strategy = entry.strategy
            if look.slo is None and strategy.needs.node_slo:
                entry.plans = entry.problems = ()
            elif strategy.name not in resting and entry.interval.is_due(look.now_ms):
                tasks = self._run(entry, look, replace(state, ttl_ms=entry.interval.ttl_ms))
                if tasks:
                    evictions[strategy.name] = tasks
        return Proposed(
            plans=tuple(plan for entry in self._entries for plan in entry.plans),
            evictions=evictions,
            problems=tuple(problem for entry in self._entries for problem in entry.problems),
        )

    def _run(self, entry: _Entry, look: NodeLook, state: CycleState) -> tuple[EvictionTask, ...]:
        section = entry.strategy.needs.section
        slo = look.slo or _NOTHING
        try:
            proposal = entry.strategy.propose(look, (slo.get(section) or _NOTHING) if section else slo, state)
        except InvalidInput as error:
            proposal = Proposal(problems=(f"NodeSLO: {error}",))
        plans = tuple(proposal.plans)
        if proposal.group_identity and not self.switch_group_identity():
            plans = tuple(plan for plan in plans if plan.file.resource != BVT)
        entry.plans, entry.problems = plans, tuple(proposal.problems)
        return tuple(proposal.evictions)


def interval_ms(options: QosOptions, pace: Pace, cycle_ms: int) -> int:
    """Return the milliseconds between two runs of a strategy; 0 for never.

    Args:
        options: Intervals of the flags.
        pace: Flag that sets the interval of the strategy.
        cycle_ms: Milliseconds between cycles.
    """
    match pace:
        case Pace.EVERY_CYCLE:
            return cycle_ms
        case Pace.SUPPRESS:
            return options.suppress_ms
        case Pace.RECONCILE:
            return options.reconcile_ms
        case Pace.CPU_EVICT:
            return options.cpu_evict_ms
        case Pace.MEMORY_EVICT:
            return options.memory_evict_ms
