"""Run the strategies of one node that are due, and reuse the plans of the others until their next interval."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from koordcore.values.invalid import InvalidInput

from koord_agent.domain.failure import failure
from koord_agent.domain.hooks.group_identity import BVT
from koord_agent.domain.plans.plan import Plan
from koord_agent.domain.qos.evict.eviction import EvictionTask
from koord_agent.domain.qos.intervals import Interval, QosOptions
from koord_agent.domain.qos.strategy import CycleState, Pace, Proposal, Strategy
from koord_agent.domain.state.node_look import NodeLook

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
        """Add the strategies of which at least one feature gate is on, or that have no gate.

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
        """Run every strategy that is due, and return the plans of all strategies, and the new evictions.

        A strategy that is not due or pauses keeps the plans of its last run, but requests no evictions. While the node
        has no NodeSLO, a strategy that needs one does not run, and its plans are dropped.

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
        except Exception as error:  # noqa: BLE001 - without this strategy, the others still protect the node
            proposal = Proposal(problems=(failure(f"{entry.strategy.name} failed", error),))
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
