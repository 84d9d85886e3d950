"""Run the strategies of one node that are due, and reuse the plans of the others until their next interval.

Source: agent spec, 2.2 (QoS, executor).
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from koordcore.values.invalid import InvalidInput

from koord_agent.domain.failure import failure
from koord_agent.domain.node.node_look import NodeLook
from koord_agent.domain.plans.plan import Plan
from koord_agent.domain.strategies.group_identity import BVT
from koord_agent.domain.strategies.strategy import CycleState, EvictionTask, Pace, Proposal, Strategy

_NOTHING: Mapping[str, Any] = {}


@dataclass(slots=True)
class Interval:
    """Decides in which cycles a periodic task, such as a strategy, runs.

    Cycles are not exact to the millisecond, so a task runs in the cycle nearest to its due time.
    """

    every_ms: int  # Milliseconds between two runs. 0 means never.
    cycle_ms: int  # Milliseconds between cycles
    _next_ms: int | None = None

    @property
    def ttl_ms(self) -> int:
        """Lifetime of a plan of the task: two intervals (agent spec, 10.2)."""
        return 2 * max(self.every_ms, self.cycle_ms)

    @property
    def is_off(self) -> bool:
        return self.every_ms <= 0

    def is_due(self, now_ms: int) -> bool:
        """Return whether the task runs in the cycle at `now_ms`. If so, its next interval begins.

        A clock that is set back does not delay it.
        """
        if self.is_off or self.every_ms <= self.cycle_ms:
            return not self.is_off
        due = self._next_ms
        if due is not None and due - self.every_ms <= now_ms < due - self.cycle_ms // 2:
            return False
        self._next_ms = now_ms + self.every_ms
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposed:
    """The proposals of all strategies of a node in a cycle."""

    plans: tuple[Plan, ...]  # Values of kernel files, in the order of the strategies
    # Strategy -> eviction tasks. Strategies without evictions are left out.
    evictions: Mapping[str, tuple[EvictionTask, ...]]
    problems: tuple[str, ...]  # Parts that could not be proposed, one sentence each


@dataclass(slots=True)
class _Entry:
    strategy: Strategy
    interval: Interval
    plans: tuple[Plan, ...] = ()
    problems: tuple[str, ...] = ()


@dataclass(slots=True)
class StrategyRunner:
    """Runs the strategies of one node. Only its `QosCycle` uses it."""

    # Switches group identity on in the kernel; returns False if the kernel refuses.
    switch_group_identity: Callable[[], bool]
    _entries: list[_Entry] = field(default_factory=list[_Entry])

    def add(
        self,
        strategies: Sequence[Strategy],
        *,
        intervals: Mapping[Pace, int],
        cycle_ms: int,
        is_enabled: Callable[[str], bool],
    ) -> None:
        """Add the strategies of which at least one feature gate is on, or that have no gate.

        `intervals` are milliseconds between two runs; 0 for never.
        """
        for strategy in strategies:
            gates = strategy.needs.gates
            if not gates or any(map(is_enabled, gates)):
                every_ms = cycle_ms if strategy.needs.pace is Pace.EVERY_CYCLE else intervals[strategy.needs.pace]
                self._entries.append(_Entry(strategy, Interval(every_ms, cycle_ms)))

    def propose(self, look: NodeLook, state: CycleState, *, resting: Collection[str] = ()) -> Proposed:
        """Run every strategy that is due, and return the plans of all strategies, and the new evictions.

        A strategy that is not due or pauses keeps the plans of its last run, but requests no evictions. While the node
        has no NodeSLO, a strategy that needs one does not run, and its plans are dropped.

        Args:
            state: Other inputs. Each strategy gets the lifetime of its own plans.
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
            plans=self._plans(),
            evictions=evictions,
            problems=tuple(problem for entry in self._entries for problem in entry.problems),
        )

    def replace(self, strategy: Strategy, plans: Iterable[Plan]) -> tuple[Plan, ...]:
        """Take new plans of one strategy between two cycles, and return those of all strategies."""
        for entry in self._entries:
            if entry.strategy is strategy:
                entry.plans = tuple(plans)
        return self._plans()

    def _plans(self) -> tuple[Plan, ...]:
        return tuple(plan for entry in self._entries for plan in entry.plans)

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
