"""Dry run of a preemption: remove the possible victims of a node, then put back those that may stay; choose a node.

If only amounts can refuse the pod, which is the usual case, adding amounts suffices. Otherwise the pods are removed
from the columns, every plugin is called, and the pods are put back; no other code runs meanwhile. Both ways find the
same victims (tested).

Pods are put back by importance. If pods hold CPUs, zones or devices, this may leave victims in several zones although
fewer victims in one zone would do. So the pods of each place (NUMA zone, PCIe switch) are also put back last on trial,
and the set of victims with the least cost is taken.

Source: scheduler-core spec, 6 (3) and (5), 10.8; scheduler-fine-grained spec, 1.7, 2.6
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Final, NamedTuple, TypeAlias

from koordcore.protocol.hardware.devices import UNKNOWN_NUMA_NODE
from koordcore.protocol.objects import Pod
from koordcore.values.allocation import Allocation, is_reservation

from koord_scheduler.domain.cluster.equivalence_classes import Subject
from koord_scheduler.domain.cluster.info import PodInfo
from koord_scheduler.domain.cluster.record import PodRecord
from koord_scheduler.domain.engine.amounts import move, needs_of, only_amounts_refuse, suffices
from koord_scheduler.domain.framework.post_filter import PodVictim, VictimRules
from koord_scheduler.domain.loop.state.state import SchedulerState
from koord_scheduler.domain.plugins.books import Books
from koord_scheduler.domain.plugins.numa.node_book import taken_of

_OFFSET: Final = 1 << 31
"""Makes every priority positive, so that each further victim adds to the cost."""


class VictimCost(NamedTuple):
    """The properties of a pod that determine the cost of its eviction."""

    priority: int
    started_at: float  # Unix seconds of its start


class Candidate(NamedTuple):
    """The victims of a preemption on one node, from which follows its cost."""

    victims: Sequence[VictimCost]  # The pods to evict
    pdb_violations: int = 0  # Number of victims whose PodDisruptionBudget is exhausted


def pick_candidate(candidates: Mapping[str, Candidate]) -> str | None:
    """Return the name of the node on which preemption costs least, or None if there are no candidates. The criteria,
    each of which only decides ties of the criteria before it: fewest budget violations; least highest priority of a
    victim; least sum of (priority + 2^31); fewest victims; latest start of the earliest victim among those of highest
    priority; first candidate. A node without victims is taken at once. Source: vectors scheduler/preempt_pick.
    """
    for node, candidate in candidates.items():
        if not candidate.victims:
            return node
    return min(candidates, key=lambda node: _cost(candidates[node]), default=None)


def _cost(candidate: Candidate) -> tuple[int, int, int, int, float]:
    victims = candidate.victims
    highest = max(victim.priority for victim in victims)
    earliest = min(victim.started_at for victim in victims if victim.priority == highest)
    return (
        candidate.pdb_violations,
        highest,
        sum(victim.priority + _OFFSET for victim in victims),
        len(victims),
        -earliest,
    )


Place: TypeAlias = tuple[str, str]
"""A kind of place and its id on the node."""


def places_of(books: Books, node: str, row: int, allocation: Allocation) -> frozenset[Place]:
    """Return the hardware of a node that a pod with this allocation holds, as comparable places."""
    return frozenset(_places(books, node, row, allocation))


def weight_of(allocation: Allocation) -> int:
    """Return the number of CPUs and devices of an allocation, by which pods of equal priority are compared."""
    return taken_of(allocation).cpus.bit_count() + len(allocation.devices)


def _places(books: Books, node: str, row: int, allocation: Allocation) -> Iterator[Place]:
    for zone in allocation.zones:
        yield "zone", str(zone.zone)
    layout, cpus = books.numa.book(row).hardware.layout, taken_of(allocation).cpus
    for zone, unit in layout.zones.items() if layout is not None and cpus else ():
        if unit.cpus & cpus:
            yield "zone", str(zone)
    inventory = books.devices.by_node.get(node)
    for device in allocation.devices if inventory is not None else ():
        card = inventory.by_minor.get(device.type, {}).get(device.minor) if inventory is not None else None
        if card is not None and card.has_topology:
            yield "switch", card.pcie
            if card.numa != UNKNOWN_NUMA_NODE:
                yield "zone", str(card.numa)


class DryRuns:
    """Tries on single nodes which pods a pod would have to preempt, under the rules of one plugin. Each trial is
    undone. `subject`: the pod as the tried nodes see it in this cycle.
    """

    def __init__(self, state: SchedulerState, pod: PodRecord, subject: Subject, plugin: VictimRules) -> None:
        self._state = state
        self._pod = pod
        self._subject = subject
        self._plugin = plugin
        self._engine = state.frameworks.framework_of(pod).engine
        self._room = plugin.room_for(pod)
        coupled = bool(self._engine.cross_node_filters(subject).filters)
        self._occupancy = state.cluster.accounting.parts_for(subject.pod_class, coupled=coupled)
        self._needs = needs_of(self._engine, subject)
        # Pods on the tried nodes that stay for now, because their evictions have failed repeatedly. Uid -> Unix seconds
        # from which the pod may be evicted.
        self.spared: dict[str, float] = {}
        can_sum = self._room is None
        # Whether comparing sums of requests suffices; otherwise every filter is called for each trial.
        self.sums_decide = can_sum and only_amounts_refuse(self._engine, subject, state.cluster.accounting)

    def victims(self, row: int) -> tuple[PodVictim, ...]:
        """Return the pods that must leave the node at position `row` so that the pod fits. Empty: no eviction helps."""
        possible = self._possible_victims(row)
        if not possible:
            return ()
        node = self._state.nodes.names[row]
        rivals = self._state.nominator.rivals_on(node, self._pod) if len(self._state.nominator) else []
        if not self._could_fit(row, possible):
            return ()
        by_importance = self._ordered(possible)
        if self.sums_decide:
            gone = self._gone_by_sums(row, by_importance, rivals)
        else:
            gone = self._gone_by_trial(row, by_importance, rivals)
            if len(gone) > 1:
                gone = self._cheapest(row, by_importance, rivals, gone)
        violating = self._violating(gone)
        return tuple(
            PodVictim(self._state.pods[each.uid], each.uid in violating, node) for each in sorted(gone, key=_importance)
        )

    def _gone_by_sums(self, row: int, by_importance: Sequence[PodInfo], rivals: Sequence[PodInfo]) -> list[PodInfo]:
        """The victims in the order in which they were tried. Empty: the pod does not fit even without all of them."""
        if not self._engine.answers.suits(self._subject.pod_class, row):
            return []
        left = self._needs.left(self._state.nodes, row, rivals)
        for pod_info in by_importance:
            move(left, pod_info, 1)
        if not suffices(left):
            return []
        gone: list[PodInfo] = []
        for pod_info in by_importance:
            move(left, pod_info, -1)
            if not suffices(left):
                move(left, pod_info, 1)
                gone.append(pod_info)
        return gone

    def _gone_by_trial(self, row: int, by_importance: Sequence[PodInfo], rivals: Sequence[PodInfo]) -> list[PodInfo]:
        """Return the victims as `_gone_by_sums` does, by asking the plugins."""
        gone: dict[str, PodInfo] = {}
        with self._occupancy.trial():
            try:
                for rival in rivals:
                    self._occupancy.take(row, rival)
                for pod_info in by_importance:
                    self._take_off(row, pod_info, gone)
                if not self._fits(row):
                    return []
                for pod_info in by_importance:
                    self._put_back(row, pod_info, gone)
                    if not self._fits(row):
                        self._take_off(row, pod_info, gone)
                return [each for each in by_importance if each.uid in gone]
            finally:
                for pod_info in list(gone.values()):
                    self._put_back(row, pod_info, gone)
                for rival in rivals:
                    self._occupancy.give(row, rival)

    def _cheapest(
        self, row: int, by_importance: Sequence[PodInfo], rivals: Sequence[PodInfo], gone: list[PodInfo]
    ) -> list[PodInfo]:
        """Return the victims that cost least among `gone` and those of orders that empty one place of the hardware."""
        books, node = self._state.books, self._state.nodes.names[row]
        places = {each.uid: places_of(books, node, row, each.allocation) for each in by_importance}
        violating = self._violating(by_importance)
        sets = {"": gone}
        for place in sorted({place for each in places.values() for place in each}):
            order = sorted(
                by_importance,
                key=lambda each: (place in places[each.uid], each.uid not in violating, _lightest(each)),
            )
            sets["/".join(place)] = self._gone_by_trial(row, order, rivals)
        chosen = pick_candidate({name: self._cost(victims) for name, victims in sets.items()})
        return gone if chosen is None else sets[chosen]

    def _cost(self, victims: Sequence[PodInfo]) -> Candidate:
        costs = [VictimCost(each.priority, started_at(each.pod, each.since)) for each in victims]
        return Candidate(costs, len(self._violating(sorted(victims, key=_importance))))

    def _could_fit(self, row: int, possible: Sequence[PodInfo]) -> bool:
        """Whether the node has enough if all possible victims leave. Most nodes are excluded by this check alone."""
        free = self._state.nodes.free
        for column, amount in self._needs.amounts:
            short = amount - free.item(column, row)
            if short <= 0:
                continue
            for pod_info in possible:
                short -= sum(held for held_column, held in pod_info.demand.taken if held_column == column)
            if short > 0:
                return False
        return True

    def _fits(self, row: int) -> bool:
        if self._room is not None and not self._room.fits():
            return False
        return self._engine.passes(self._subject, row)

    def _possible_victims(self, row: int) -> list[PodInfo]:
        state, pod = self._state, self._pod
        possible: list[PodInfo] = []
        for pod_info in state.assumed.ledgers.pod_infos(state.nodes.names[row]):
            other = state.pods.get(pod_info.uid)
            if other is None or pod_info.priority >= pod.priority or pod_info.uid == pod.uid:
                continue
            if is_reservation(pod_info.uid, pod_info.allocation):
                continue
            is_settled = other.is_settled or other.uid in state.assumed.waiting
            if not is_settled or not self._plugin.may_preempt(pod, other):
                continue
            until = state.nominator.spared_until(other.uid)
            if until <= state.queue.now:
                possible.append(pod_info)
            else:
                self.spared[other.uid] = until
        return possible

    def _ordered(self, possible: Sequence[PodInfo]) -> list[PodInfo]:
        """Return the pods in the order in which they may stay: violated budgets first, then by importance."""
        by_importance = sorted(possible, key=_importance)
        violating = self._violating(by_importance)
        return sorted(by_importance, key=lambda each: each.uid not in violating)

    def _violating(self, by_importance: Sequence[PodInfo]) -> set[str]:
        known = [(each.uid, each.pod) for each in by_importance if each.pod is not None]
        answers = self._state.cluster.budgets.violating(pod for _, pod in known)
        return {uid for (uid, _), violates in zip(known, answers, strict=True) if violates}

    def _take_off(self, row: int, pod_info: PodInfo, gone: dict[str, PodInfo]) -> None:
        self._occupancy.give(row, pod_info)
        if self._room is not None:
            self._room.take(pod_info.uid)
        gone[pod_info.uid] = pod_info

    def _put_back(self, row: int, pod_info: PodInfo, gone: dict[str, PodInfo]) -> None:
        self._occupancy.take(row, pod_info)
        if self._room is not None:
            self._room.put_back(pod_info.uid)
        del gone[pod_info.uid]


def _importance(pod_info: PodInfo) -> tuple[int, float, str]:
    """Return the sort key by importance: higher priority first, then earlier start."""
    return (-pod_info.priority, started_at(pod_info.pod, pod_info.since), pod_info.uid)


def _lightest(pod_info: PodInfo) -> tuple[int, int, float, str]:
    """Return the sort key that puts back pods with little hardware first among those of equal priority."""
    priority, started, uid = _importance(pod_info)
    return (priority, weight_of(pod_info.allocation), started, uid)


def started_at(pod: Pod | None, since: float) -> float:
    """Unix seconds of `status.startTime`; without it `since`, when the pod came to its node."""
    if pod is not None and pod.status.start_time:
        try:
            return datetime.fromisoformat(pod.status.start_time).timestamp()
        except ValueError:
            return since
    return since
