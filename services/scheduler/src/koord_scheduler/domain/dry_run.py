"""Who would have to leave a node for a pod: without its possible victims the pod fits; those that can stay come back.

Where nothing but amounts can refuse the pod (the usual case), sums decide. Elsewhere the pods are taken off the columns
and put back, so every plugin answers as it would; nothing else sees it. Both give the same victims (tested).

source    scheduler-core spec, 6 (3), 10.8
"""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from koordcore.protocol.objects import Pod

from koord_scheduler.domain.amounts import move, needs_of, only_amounts_refuse, suffices
from koord_scheduler.domain.nominees import rivals_on
from koord_scheduler.domain.occupant import Occupant
from koord_scheduler.domain.plugins.interface import PreemptionPlugin
from koord_scheduler.domain.pods import Phase, PodRecord
from koord_scheduler.domain.state import SchedulerState
from koord_scheduler.domain.templates import Subject


class Victim(NamedTuple):
    """A pod that has to go."""

    pod: PodRecord
    violates_budget: bool
    node: str


class DryRuns:
    """What one plugin's preemption would cost on one node after the other, for one pod.

    sums_decide    whether sums do; otherwise the plugins are asked
    """

    def __init__(self, state: SchedulerState, pod: PodRecord, subject: Subject, plugin: PreemptionPlugin) -> None:
        self._state = state
        self._pod = pod
        self._subject = subject
        self._plugin = plugin
        self._engine = state.framework_of(pod).engine
        self._room = plugin.room_for(pod)
        coupled = bool(self._engine.judges(subject).filters)
        self._occupancy = state.cluster.occupancy.parts_for(subject.template, coupled=coupled)
        self._needs = needs_of(self._engine, subject)
        can_sum = self._room is None
        self.sums_decide = can_sum and only_amounts_refuse(self._engine, subject, state.cluster.occupancy)

    def victims(self, row: int) -> tuple[Victim, ...]:
        """Who has to leave the node for the pod; empty: nobody's leaving helps."""
        possible = self._possible_victims(row)
        if not possible:
            return ()
        node = self._state.nodes.names[row]
        rivals = rivals_on(self._state, node, self._pod) if len(self._state.nominations) else []
        if not self._could_fit(row, possible):
            return ()
        by_importance = self._ordered(possible)
        if self.sums_decide:
            gone = self._gone_by_sums(row, by_importance, rivals)
        else:
            gone = self._gone_by_trial(row, by_importance, rivals)
        violating = self._violating(gone)
        return tuple(
            Victim(self._state.pods[each.uid], each.uid in violating, node) for each in sorted(gone, key=_importance)
        )

    def _gone_by_sums(self, row: int, by_importance: Sequence[Occupant], rivals: Sequence[Occupant]) -> list[Occupant]:
        """Victims in the order in which they were tried; empty: the pod does not fit without all of them, either."""
        if not self._engine.answers.suits(self._subject.template, row):
            return []
        left = self._needs.left(self._state.nodes, row, rivals)
        for occupant in by_importance:
            move(left, occupant, 1)
        if not suffices(left):
            return []
        gone: list[Occupant] = []
        for occupant in by_importance:
            move(left, occupant, -1)
            if not suffices(left):
                move(left, occupant, 1)
                gone.append(occupant)
        return gone

    def _gone_by_trial(self, row: int, by_importance: Sequence[Occupant], rivals: Sequence[Occupant]) -> list[Occupant]:
        """The same, asked of the plugins."""
        gone: dict[str, Occupant] = {}
        with self._occupancy.trial():
            try:
                for rival in rivals:
                    self._occupancy.take(row, rival)
                for occupant in by_importance:
                    self._take_off(row, occupant, gone)
                if not self._fits(row):
                    return []
                for occupant in by_importance:
                    self._put_back(row, occupant, gone)
                    if not self._fits(row):
                        self._take_off(row, occupant, gone)
                return [each for each in by_importance if each.uid in gone]
            finally:
                for occupant in list(gone.values()):
                    self._put_back(row, occupant, gone)
                for rival in rivals:
                    self._occupancy.give(row, rival)

    def _could_fit(self, row: int, possible: Sequence[Occupant]) -> bool:
        """Whether all possible victims together hold what the node lacks; most nodes are passed over by this alone."""
        free = self._state.nodes.free
        for column, amount in self._needs.amounts:
            short = amount - free.item(column, row)
            if short <= 0:
                continue
            for occupant in possible:
                short -= sum(held for held_column, held in occupant.demand.pairs if held_column == column)
            if short > 0:
                return False
        return True

    def _fits(self, row: int) -> bool:
        if self._room is not None and not self._room.fits():
            return False
        return self._engine.passes(self._subject, row)

    def _possible_victims(self, row: int) -> list[Occupant]:
        state, pod = self._state, self._pod
        possible: list[Occupant] = []
        for occupant in state.ledgers.occupants(state.nodes.names[row]):
            other = state.pods.get(occupant.uid)
            if other is None or occupant.priority >= pod.priority or occupant.uid == pod.uid:
                continue
            is_settled = other.phase in (Phase.PLACED, Phase.BOUND) or other.uid in state.waiting
            if is_settled and self._plugin.may_preempt(pod, other):
                possible.append(occupant)
        return possible

    def _ordered(self, possible: Sequence[Occupant]) -> list[Occupant]:
        """In the order in which they may stay: those whose eviction violates a budget first, each by importance."""
        by_importance = sorted(possible, key=_importance)
        violating = self._violating(by_importance)
        return sorted(by_importance, key=lambda each: each.uid not in violating)

    def _violating(self, by_importance: Sequence[Occupant]) -> set[str]:
        known = [(each.uid, each.pod) for each in by_importance if each.pod is not None]
        answers = self._state.cluster.budgets.violating(pod for _, pod in known)
        return {uid for (uid, _), violates in zip(known, answers, strict=True) if violates}

    def _take_off(self, row: int, occupant: Occupant, gone: dict[str, Occupant]) -> None:
        self._occupancy.give(row, occupant)
        if self._room is not None:
            self._room.take(occupant.uid)
        gone[occupant.uid] = occupant

    def _put_back(self, row: int, occupant: Occupant, gone: dict[str, Occupant]) -> None:
        self._occupancy.take(row, occupant)
        if self._room is not None:
            self._room.put_back(occupant.uid)
        del gone[occupant.uid]


def _importance(occupant: Occupant) -> tuple[int, float, str]:
    """Most important first: higher priority, then earlier start."""
    return (-occupant.priority, started_at(occupant.pod, occupant.since), occupant.uid)


def started_at(pod: Pod | None, since: float) -> float:
    """Unix seconds at which the pod started; else those since which it is on its node."""
    if pod is not None and pod.status.start_time:
        try:
            return datetime.fromisoformat(pod.status.start_time).timestamp()
        except ValueError:
            return since
    return since
