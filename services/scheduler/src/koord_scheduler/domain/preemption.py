"""Room for a pod that no node suits, at the cost of pods of lower priority.

    candidates   nodes that were refused, but might not be if pods left them
    dry run      without its possible victims the pod fits; those that can stay come back, the most important first
    choice       the node whose victims cost least (`preemption_pick`)

The dry run takes pods off the columns and puts them back, so every plugin answers as it would; nothing else sees it.

source    scheduler-core spec, 6 and 10.8
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, NamedTuple

import numpy as np
from koordcore.protocol.objects import Pod

from koord_scheduler.domain.columns import Rows, row_list, text_hash
from koord_scheduler.domain.gang.round import JobAttempt
from koord_scheduler.domain.job_preemption import JobSearch
from koord_scheduler.domain.occupancy import Occupant
from koord_scheduler.domain.plugins.interface import PreemptionPlugin, Rejection, Room
from koord_scheduler.domain.plugins.job_preempting import JobPreempting
from koord_scheduler.domain.plugins.node_resources_fit import NodeResourcesFit, can_be_ignored
from koord_scheduler.domain.pods import Phase, PodRecord
from koord_scheduler.domain.preemption_pick import Candidate, pick_candidate
from koord_scheduler.domain.preemption_pick import Victim as Cost
from koord_scheduler.domain.state import SchedulerState
from koord_scheduler.domain.templates import Subject

NEVER: Final = "Never"


class Victim(NamedTuple):
    """A pod that has to go."""

    pod: PodRecord
    violates_budget: bool
    node: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Preemption:
    """The pod fits on the node once the victims are gone.

    examined       nodes that were tried
    nominations    uid -> node of all members of the pod's job, when it was about the whole job
    message        what is to be said beside
    """

    plugin: str
    node: str
    victims: tuple[Victim, ...]
    examined: int
    nominations: Mapping[str, str] = field(default_factory=dict[str, str])
    message: str = ""


@dataclass(frozen=True, slots=True)
class NoPreemption:
    """Why there is none.

    keeps_nomination    an earlier one is still under way
    ends                no other plugin need try
    """

    message: str
    keeps_nomination: bool = False
    ends: bool = False


def preempt(
    state: SchedulerState, pod: PodRecord, subject: Subject, rejection: Rejection | None, within: Rows | None = None
) -> Preemption | NoPreemption:
    """The first preemption of the pod's profile that finds a node.

    rejection    how the pod was refused before any node; None: no node was feasible
    within       only these nodes came into question; None: all
    source       scheduler-core spec, 1 (step 7), 6
    """
    refusal = _not_eligible(state, pod)
    if refusal is not None:
        return refusal
    message = ""
    for plugin in state.framework_of(pod).profile.preemptions:
        if not plugin.answers(rejection):
            continue
        if isinstance(plugin, JobPreempting):
            found = _for_job(state, pod, subject, plugin, within)
        else:
            found = _Search(state, pod, subject, plugin).run(within, everywhere=rejection is not None)
        if isinstance(found, Preemption) or found.ends:
            return found
        message = found.message
    return NoPreemption(message)


def _not_eligible(state: SchedulerState, pod: PodRecord) -> NoPreemption | None:
    """Why the pod may not preempt at all; None: it may. source    scheduler-core spec, 6 (1)"""
    assert pod.pod is not None, f"pod {pod.uid} has no spec"
    if pod.pod.spec.preemption_policy == NEVER:
        return NoPreemption("not eligible due to preemptionPolicy=Never.")
    node = state.nominations.node_of(pod.uid)
    for uid in state.ledgers.pods(node) if node else ():
        other = state.pods.get(uid)
        if other is not None and uid in state.evictions and other.priority < pod.priority:
            return NoPreemption("not eligible due to a terminating pod on the nominated node.", keeps_nomination=True)
    return None


def _for_job(
    state: SchedulerState, pod: PodRecord, subject: Subject, plugin: JobPreempting, within: Rows | None
) -> Preemption | NoPreemption:
    """Room for the whole job; its waiting members lose their nodes, to get them again with the others, or for good.

    source    scheduler-core spec, 8.10
    """
    said = plugin.said(pod)
    if said:
        return NoPreemption(said, keeps_nomination=True, ends=True)
    search = JobSearch(state, pod, subject, plugin, within)
    if search.awaits_victims():
        message = "not eligible due to a terminating pod on the nominated node of a member."
        return NoPreemption(message, keeps_nomination=True, ends=True)
    room = search.run()
    state.job_attempts.append(JobAttempt(_job_of(state, pod), is_preemption=True, succeeded=not isinstance(room, str)))
    waiting = {uid: state.waiting.node_of(uid) for uid in plugin.waiting(pod) if uid in state.waiting}
    if isinstance(room, str):
        plugin.remember(pod, room)
        if not plugin.is_job(pod):
            return NoPreemption(room)
        for member in search.members:
            state.clear_nomination(member, "unhelpful")
        state.reject(plugin.reject_waiting(pod))
        return NoPreemption(room, ends=True)
    message = f"preempt success, alreadyWaitingForBound: {len(waiting)}/{len(waiting) + len(search.members)}"
    plugin.remember(pod, message)
    state.reject(plugin.reject_waiting(pod))
    return Preemption(
        plugin=plugin.name,
        node=room.nominations[pod.uid],
        victims=tuple(Victim(victim, violates_budget=False, node=node) for victim, node in room.victims),
        examined=room.examined,
        nominations={**room.nominations, **waiting},
        message=message,
    )


def _job_of(state: SchedulerState, pod: PodRecord) -> str:
    gang = state.cluster.gangs.roster.gang_of(pod.uid)
    return gang.id if gang is not None else f"{pod.namespace}/{pod.name}"


class _Search:
    """One plugin's search for one pod."""

    def __init__(self, state: SchedulerState, pod: PodRecord, subject: Subject, plugin: PreemptionPlugin) -> None:
        self._state = state
        self._pod = pod
        self._subject = subject
        self._plugin = plugin
        self._engine = state.framework_of(pod).engine
        self._room = plugin.room_for(pod)
        coupled = bool(self._engine.judges(subject).filters)
        self._occupancy = state.cluster.occupancy.parts_for(subject.template, coupled=coupled)

    def run(self, within: Rows | None, *, everywhere: bool) -> Preemption | NoPreemption:
        """everywhere: every node is a candidate, because none was asked; within: of these only, None of all."""
        state, nodes = self._state, self._state.nodes
        rows = np.flatnonzero(nodes.alive) if everywhere else self._engine.resolvable(self._subject)
        if within is not None:
            rows = np.intersect1d(rows, within, assume_unique=True)
        possible = rows[state.cluster.priorities.lowest(nodes.capacity)[rows] < self._pod.priority]
        message = f"0/{len(nodes)} nodes are available: "
        if len(possible) == 0:
            return NoPreemption(f"{message}{len(nodes)} No preemption victims found for incoming pod.")
        most = self._plugin.most_candidates(len(nodes))
        found: dict[str, Candidate] = {}
        victims_of: dict[str, tuple[Victim, ...]] = {}
        examined = 0
        for row in self._in_turn(possible):
            if examined >= most or len(found) >= most:
                break
            examined += 1
            victims = self._dry_run(row)
            if victims:
                name = nodes.names[row]
                victims_of[name] = victims
                found[name] = _candidate(victims)
        chosen = pick_candidate(found)
        if chosen is None:
            return NoPreemption(f"{message}{len(nodes)} Preemption is not helpful for scheduling.")
        return Preemption(plugin=self._plugin.name, node=chosen, victims=victims_of[chosen], examined=examined)

    def _in_turn(self, rows: Rows) -> Iterable[int]:
        """All rows, beginning at a place that depends on the pod alone."""
        offset = text_hash(self._pod.uid) % len(rows)
        return row_list(np.roll(rows, -offset))

    def _dry_run(self, row: int) -> tuple[Victim, ...]:
        """Who has to leave the node for the pod; empty: nobody's leaving helps."""
        possible = self._possible_victims(row)
        if not self._could_fit(row, possible):
            return ()
        occupancy = self._occupancy
        gone: dict[str, Occupant] = {}
        rivals = self._state.rivals_on(self._state.nodes.names[row], self._pod)
        with occupancy.trial():
            try:
                for rival in rivals:
                    occupancy.take(row, rival)
                for occupant in possible:
                    self._take_off(row, occupant, gone)
                if not self._fits(row):
                    return ()
                by_importance = self._ordered(possible)
                for occupant in by_importance:
                    self._put_back(row, occupant, gone)
                    if not self._fits(row):
                        self._take_off(row, occupant, gone)
                kept_out = [each for each in by_importance if each.uid in gone]
                violating = self._violating(kept_out)
                return tuple(
                    Victim(self._state.pods[each.uid], each.uid in violating, self._state.nodes.names[row])
                    for each in sorted(kept_out, key=_importance)
                )
            finally:
                for occupant in list(gone.values()):
                    self._put_back(row, occupant, gone)
                for rival in rivals:
                    occupancy.give(row, rival)

    def _could_fit(self, row: int, possible: Sequence[Occupant]) -> bool:
        """Whether all possible victims together hold what the node lacks; most nodes are passed over by this alone."""
        if not possible:
            return False
        nodes = self._state.nodes
        for column, amount in self._subject.template.demand.pairs:
            short = amount - nodes.free.item(column, row)
            if short <= 0 or (can_be_ignored(nodes.resources[column]) and self._ignores(nodes.resources[column])):
                continue
            for occupant in possible:
                short -= sum(held for held_column, held in occupant.demand.pairs if held_column == column)
            if short > 0:
                return False
        return True

    def _ignores(self, resource: str) -> bool:
        fits = (plugin for plugin in self._engine.profile.filters if isinstance(plugin, NodeResourcesFit))
        return any(plugin.args.ignores(resource) for plugin in fits)

    def _fits(self, row: int) -> bool:
        room: Room | None = self._room
        if room is not None and not room.fits():
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


def _candidate(victims: Sequence[Victim]) -> Candidate:
    costs = [Cost(each.pod.priority, started_at(each.pod.pod, each.pod.placed_at)) for each in victims]
    return Candidate(costs, sum(each.violates_budget for each in victims))
