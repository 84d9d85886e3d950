"""Pre-allocation: a Reservation takes over the resources of running pods, which become its owners. The Reservation must
have the policy Restricted, because its owners must not exceed it. It is placed on a node as if the chosen pods were not
there. The same append records in the ledger that these pods take their amounts from the Reservation.

Source: scheduler-fine-grained spec, 3.11.
"""

from collections.abc import Callable, Container, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Final, NamedTuple

import msgspec
import numpy as np
from koordcore.protocol.objects import Pod
from koordcore.protocol.reservations import is_reserve_pod
from koordcore.protocol.selectors import Operator, Requirement, Selector
from koordcore.values.allocation import Allocation, ReservationUse
from koordcore.values.invalid import InvalidInput

from koord_scheduler.domain.cluster.equivalence_classes import PodClass
from koord_scheduler.domain.cluster.info import PodInfo
from koord_scheduler.domain.cluster.kinds import Question
from koord_scheduler.domain.cluster.population import Population
from koord_scheduler.domain.cluster.record import is_alive
from koord_scheduler.domain.columns.counters import Counter
from koord_scheduler.domain.columns.node_columns import NOT_OFFERED, PODS_COLUMN, NodeColumns, row_list
from koord_scheduler.domain.config.koordinator_args import PreAllocationConfig
from koord_scheduler.domain.plugins.reservation.entry import Entry
from koord_scheduler.domain.plugins.reservation.fit import Held, short_in_reservation
from koord_scheduler.domain.plugins.reservation.lending import Lender, all_lent
from koord_scheduler.domain.plugins.reservation.matching import Match, Terms, match, wish_of
from koord_scheduler.domain.plugins.reservation.wishes import ASPECT, PodWish, PreAllocating

UNSUPPORTED: Final = "node(s) reservation pre allocation is unsupported with current attributes"
NO_CLUSTER_MODE: Final = "reservation requires cluster mode pre-allocation which is disabled"
NO_POD: Final = "node(s) no pod match reservation with pre allocation required"
NOT_ENOUGH: Final = "node(s) no pod(s) to meet the pre-allocation requirements"
_ANYWHERE: Final = Selector()


class Adopted(NamedTuple):
    """A running pod that becomes an owner of a Reservation."""

    pod_info: PodInfo  # The pod as it counts on the node
    use: ReservationUse  # The Reservation and the amounts that the pod takes from it

    def as_owner(self) -> PodInfo:
        """Return the pod as it counts on the node once it is an owner."""
        allocation = msgspec.structs.replace(self.pod_info.allocation, reservation=self.use)
        return msgspec.structs.replace(self.pod_info, allocation=allocation)


def is_within(of_pod: Allocation, of_reservation: Allocation) -> bool:
    """Return whether a Reservation holds all CPUs and devices of a pod. CPUs are compared only if the Reservation holds
    CPUs, devices only if it holds devices.
    Source: scheduler-fine-grained spec, 3.9 (pre-allocation).
    """
    if of_reservation.cpuset and not of_pod.cpus <= of_reservation.cpus:
        return False
    held = {(each.type, each.minor) for each in of_reservation.devices}
    return not held or all((each.type, each.minor) in held for each in of_pod.devices)


class Selection(NamedTuple):
    """The pods of a node whose place a Reservation takes."""

    # The pods; empty if no candidate helps, or if the Reservation fits without them and need not take a place.
    pods: tuple[Adopted, ...] = ()
    has_candidates: bool = False  # Whether any pod of the node may become an owner of the Reservation


class PreAllocations:
    """Chooses the running pods whose place Reservations take. `lenders`: name -> plugin whose resources (CPUs, devices)
    Reservations may hold. `operating`: uids of pods that act as Reservations themselves. They keep their place. `find`:
    takes a name, and returns the Reservation with this name.
    """

    def __init__(
        self,
        nodes: NodeColumns,
        population: Population,
        lenders: Mapping[str, Lender],
        operating: Container[str],
        find: Callable[[str], Entry | None],
    ) -> None:
        # Takes the name of a node, and returns the pods that count there.
        self.pods_on: Callable[[str], Sequence[PodInfo]] = lambda _: ()
        self.config = PreAllocationConfig()  # The argument `preAllocationConfig`
        self._nodes = nodes
        self._population = population
        self._lenders = lenders
        self._operating = operating
        self._find = find
        self._counters: dict[PreAllocating, tuple[Counter, ...]] = {}
        self._adopted: dict[str, tuple[Adopted, ...]] = {}

    def selected(self, pod_class: PodClass) -> "SelectedAmounts | None":
        """Return the amounts of the running pods whose place a Reservation may take on each node. None if it has no
        `preAllocation`, its policy is not Restricted, or its object is unknown.
        """
        wish = pod_class.aspects.get(ASPECT)
        pre = wish.pre if isinstance(wish, PodWish) else None
        entry = None if pre is None else self._find(pre.name)
        if pre is None or entry is None or entry.terms is None or not pre.is_restricted:
            return None
        uid, terms, requests = entry.uid, entry.terms, pod_class.requests
        return SelectedAmounts(
            self._nodes,
            self._counters_of(pre, terms),
            lambda row: self.selection(pre, uid, terms, requests, row),
        )

    @contextmanager
    def lent(self, pod_class: PodClass, row: int) -> Generator[tuple[Lender, ...]]:
        """Count what some pods hold as free inside this context: the pods whose place a Reservation takes on the node.
        Yields the plugins whose resources the Reservation requests; none if it takes no pod's place on the node.
        """
        selected = self.selected(pod_class)
        pods = selected.selection(row).pods if selected is not None and row in selected else ()
        lenders = tuple([lender for lender in self._lenders.values() if pods and lender.may_refuse(pod_class)])
        with ExitStack() as stack:
            for each in pods:
                stack.enter_context(all_lent(lenders, row, each.pod_info.uid, frozenset()))
            yield lenders

    def _counters_of(self, pre: PreAllocating, terms: Terms) -> tuple[Counter, ...]:
        counters = self._counters.get(pre)
        if counters is None:
            questions = [Question(frozenset(), _ANYWHERE, selector) for selector in self._selectors(pre, terms)]
            counters = self._counters[pre] = tuple(self._population.counter(question) for question in questions)
        return counters

    def adopt(self, uid: str, pods: Sequence[Adopted]) -> None:
        """Record which pods become owners with the placement of a Reservation, until `take_adopted`. `pods`: the pods;
        empty for none.
        """
        self._adopted.pop(uid, None)
        if pods:
            self._adopted[uid] = tuple(pods)

    def adopted(self, uid: str) -> tuple[Adopted, ...]:
        """Return the pods that become owners with the placement of the Reservation with this uid."""
        return self._adopted.get(uid, ())

    def take_adopted(self, uid: str) -> tuple[Adopted, ...]:
        """Return the running pods that become owners of the Reservation, and forget them."""
        return self._adopted.pop(uid, ())

    def forget(self, name: str) -> None:
        """Delete the cached counters of pods that may become owners of the Reservation with this name."""
        for pre in [pre for pre in self._counters if pre.name == name]:
            del self._counters[pre]

    def is_awaited(self) -> bool:
        """Return whether a Reservation without a node may take the place of a pod that comes to a node."""
        return bool(self._counters)

    def _selectors(self, pre: PreAllocating, terms: Terms) -> Iterator[Selector]:
        if pre.in_cluster_mode:
            yield Selector((Requirement(self.config.cluster_label_key, Operator.IN, frozenset({"true"})),))
        elif terms.owners is not None:
            yield from (rule.selector for rule in terms.owners.rules if rule.selector is not None)

    def selection(self, pre: PreAllocating, uid: str, terms: Terms, requests: Mapping[str, int], row: int) -> Selection:
        """Return the pods of a node whose place a Reservation takes. No pods if it does not fit with their place
        either. If it fits without, pods are chosen nevertheless, unless the argument `preferNoPreAllocatedPods` is set
        and the Reservation does not require to take a place. `requests`: resource -> amount that the Reservation
        reserves.
        """
        candidates = self._candidates(pre, terms, requests, row)
        if not candidates:
            return Selection()
        if self.config.prefer_no_pre_allocated_pods and not pre.is_required and self._fits(row, requests, ()):
            return Selection(has_candidates=True)
        chosen: list[Adopted] = []
        held = Held(terms=terms, allocatable=requests)
        for pod_info in candidates:
            if short_in_reservation(held, pod_info.requests):
                continue
            left = held.remained()
            amounts = {name: min(amount, left.get(name, 0)) for name, amount in pod_info.requests.items()}
            use = ReservationUse(name=pre.name, uid=uid, amounts={name: each for name, each in amounts.items() if each})
            chosen = [*chosen, Adopted(pod_info, use)] if pre.takes_many else [Adopted(pod_info, use)]
            if self._fits(row, requests, chosen):
                return Selection(tuple(chosen), has_candidates=True)
            if pre.takes_many:
                names = held.restricted_names()
                allocated = dict(held.allocated)
                for name in names & pod_info.requests.keys():
                    allocated[name] = allocated.get(name, 0) + pod_info.requests[name]
                held = replace(held, allocated=allocated, owners=held.owners + 1)
        return Selection(has_candidates=True)

    def _fits(self, row: int, requests: Mapping[str, int], chosen: Sequence[Adopted]) -> bool:
        nodes = self._nodes
        if nodes.free_at[PODS_COLUMN, row] + len(chosen) < 1:
            return False
        return all(
            amount <= nodes.free_of(name, row) + sum(each.use.amounts.get(name, 0) for each in chosen)
            for name, amount in requests.items()
            if amount > 0
        )

    def _candidates(self, pre: PreAllocating, terms: Terms, requests: Mapping[str, int], row: int) -> list[PodInfo]:
        labels = self._nodes.shape_of(row).labels
        found = [
            pod_info
            for pod_info in self.pods_on(self._nodes.names[row])
            if pod_info.pod is not None
            and pod_info.allocation.reservation is None
            and pod_info.uid not in self._operating
            and not is_reserve_pod(pod_info.pod)
            and is_alive(pod_info.pod)
            and self._is_candidate(pre, terms, pod_info.pod, pod_info.requests, requests, labels)
        ]
        return sorted(found, key=lambda each: self._order(pre, each))

    def _order(self, pre: PreAllocating, pod_info: PodInfo) -> tuple[int, str, str]:
        assert pod_info.pod is not None, f"pod {pod_info.uid} has no object"
        meta = pod_info.pod.metadata
        priority = 0
        if pre.in_cluster_mode:
            try:
                priority = int(meta.annotations.get(self.config.cluster_priority_annotation_key, "0"))
            except ValueError:
                priority = 0
        return (-priority, meta.namespace, meta.name)

    def _is_candidate(
        self,
        pre: PreAllocating,
        terms: Terms,
        pod: Pod,
        of_pod: Mapping[str, int],
        reserved: Mapping[str, int],
        node_labels: Mapping[str, str],
    ) -> bool:
        if pre.in_cluster_mode:
            return pod.metadata.labels.get(self.config.cluster_label_key) == "true"
        if terms.owners is None:
            return False
        if not any(rule.selector is not None and rule.matches(pod) for rule in terms.owners.rules):
            return False
        try:
            wish = replace(wish_of(pod), ignores=False)
        except InvalidInput:
            return False
        result = match(
            wish,
            replace(terms, is_closed=False),
            is_owner=True,
            requests=of_pod,
            allocatable=reserved,
            node_labels=node_labels,
        )
        return result is Match.MATCHED


class SelectedAmounts(Mapping[int, Mapping[int, int]]):
    """Node position -> resource column -> amount of the pods whose place a Reservation takes there, computed on demand.
    `counters`: counters of the pods that may become owners. `selection`: returns the selection for the node at a
    position.
    """

    def __init__(self, nodes: NodeColumns, counters: Sequence[Counter], selection: Callable[[int], Selection]) -> None:
        self._nodes = nodes
        self._counters = counters
        self.selection = selection

    def __contains__(self, row: object) -> bool:
        """Return whether the node at position `row` has pods that may become owners."""
        return isinstance(row, int) and any(
            row < len(counter.rows) and counter.rows.item(row) > 0 for counter in self._counters
        )

    def __getitem__(self, row: int) -> Mapping[int, int]:
        """Return resource column -> amount on the node at position `row`."""
        if row not in self:
            raise KeyError(row)
        chosen = self.selection(row).pods
        amounts = {PODS_COLUMN: len(chosen)}
        for each in chosen:
            for name, amount in each.use.amounts.items():
                column = self._nodes.column_of(name)
                if column != NOT_OFFERED:
                    amounts[column] = amounts.get(column, 0) + amount
        return amounts

    def __iter__(self) -> Iterator[int]:
        """Return an iterator over the positions of these nodes."""
        found = np.zeros(self._nodes.capacity, np.bool_)
        for counter in self._counters:
            found[: len(counter.rows)] |= counter.rows > 0
        return iter(row_list(np.flatnonzero(found)))

    def __len__(self) -> int:
        return sum(1 for _ in self)
