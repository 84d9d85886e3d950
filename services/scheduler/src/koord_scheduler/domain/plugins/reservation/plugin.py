"""Reservation: places Reservations like pods, and lets their owners use the reserved resources.

For an owner, filters by amounts count the unused amounts of its Reservations as free (`Usable.restored`). The
results are cached per pod class and node, as for every filter. So Reservations cost no time for pods that are not
owners, and an owner costs as much as any other pod.

Source: scheduler-fine-grained spec, 3.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Final, cast

import numpy as np
from koordcore.protocol import keys
from koordcore.protocol.annotations.pods import is_preemptible
from koordcore.protocol.objects import Pod
from koordcore.protocol.reservations import is_reserve_pod
from koordcore.values.allocation import NOTHING, Allocation, ReservationUse

from koord_scheduler.domain.cluster.equivalence_classes import PodClass
from koord_scheduler.domain.cluster.record import PodRecord
from koord_scheduler.domain.columns.node_columns import BoolArray, IntArray, NodeColumns, Rows, row_list
from koord_scheduler.domain.config.koordinator_args import ReservationArgs
from koord_scheduler.domain.framework import extension_points as points
from koord_scheduler.domain.framework.cluster import Cluster
from koord_scheduler.domain.framework.fact_points import ClusterEvent, EventKind
from koord_scheduler.domain.framework.lifecycle_hooks import ControllerDecision, PageAnswer
from koord_scheduler.domain.framework.node_points import Reads, RowFunction
from koord_scheduler.domain.framework.outcomes import Candidates, Rejection
from koord_scheduler.domain.framework.post_filter import NoPreemption, Preemption, PreemptionSearch, Room
from koord_scheduler.domain.plugins.reservation import pre_allocation
from koord_scheduler.domain.plugins.reservation.books import ReservationBooks
from koord_scheduler.domain.plugins.reservation.controller import ReservationController
from koord_scheduler.domain.plugins.reservation.entry import Entry
from koord_scheduler.domain.plugins.reservation.fit import PREFIX, Held, refusals
from koord_scheduler.domain.plugins.reservation.lending import refused_by
from koord_scheduler.domain.plugins.reservation.matching import Match, untolerated
from koord_scheduler.domain.plugins.reservation.reports import reservation_pages
from koord_scheduler.domain.plugins.reservation.scores import normalized, raw_score, score_of_selection
from koord_scheduler.domain.plugins.reservation.usable import Usable, among
from koord_scheduler.domain.plugins.reservation.wishes import ASPECT, PodWish, pod_wish, pre_allocating

_RULES: Final = (
    (Match.NAME_UNMATCHED, "didn't match the requested reservation name"),
    (Match.AFFINITY_UNMATCHED, "didn't match affinity rules"),
    (Match.UNSCHEDULABLE, "is unschedulable"),
    (Match.NOT_EXACT_MATCHED, "is not exact matched"),
)


def match_counts(
    usable: Usable, entry_of: Callable[[str], Entry | None], reasons_on: Callable[[int], Sequence[str]]
) -> list[str]:
    """Return phrases with numbers of Reservations: how many match the pod, and how many each rule forbids. Empty if no
    Reservation is for the pod and it requires none. `usable`: the Reservations that are for the pod, with the result of
    the rules for each. `entry_of`: returns the Reservation with a uid. `reasons_on`: returns why the node at a position
    refuses the pod with its Reservations there.
    """
    results = {uid: result for uid, result in usable.results.items() if result is not Match.IGNORED}
    affinity = usable.wish.affinity
    if not results and affinity is None:
        return []
    phrases: list[tuple[int, str]] = []
    if affinity is not None and affinity.name:
        named = sum(result is not Match.NAME_UNMATCHED for result in results.values())
        phrases.append((named, "exactly matches the requested reservation name"))
    phrases += [(sum(result is rule for result in results.values()), text) for rule, text in _RULES]
    taints: dict[str, int] = {}
    for uid, result in results.items():
        entry = entry_of(uid) if result is Match.TAINT_UNTOLERATED else None
        taint = untolerated(usable.wish, entry.terms) if entry is not None and entry.terms is not None else None
        if taint is not None:
            text = f"had untolerated taint {{{taint.key}: {taint.value}}}"
            taints[text] = taints.get(text, 0) + 1
    phrases += [(count, text) for text, count in sorted(taints.items())]
    by_node: dict[str, int] = {}
    for row, there in usable.by_row.items():
        reasons = reasons_on(row)
        of_reservations = sum(reason.startswith(PREFIX) for reason in reasons)
        for reason in reasons:
            if not reason.startswith(PREFIX):
                by_node[reason] = by_node.get(reason, 0) + len(there) - of_reservations
    phrases += [(count, f"for node reason that {reason}") for reason, count in sorted(by_node.items())]
    phrases.append((len(results), "matched owner total"))
    return [f"{count} {PREFIX}{text}" for count, text in phrases if count > 0]


NO_MATCH: Final = "node(s) no reservations match reservation affinity"
OTHER_NODE: Final = "node(s) didn't match the nodeName specified by reservation"
POLICY_CONFLICT: Final = "node(s) reservation allocate policy conflict"
IGNORING: Final = Allocation(ignores_reservations=True)
"""The allocation of a pod that may hold CPUs and devices of the Reservations on its node without using one."""
_FEW_NODES: Final = 32
"""If pods have Reservations on at most so many nodes, these are examined before all others."""
_UNRESOLVABLE: Final = 5
"""Codes up to this one are refusals that no eviction resolves."""


class Reservation:
    """The plugin Reservation: places Reservations like pods, and lets owners use the reserved resources."""

    name = ASPECT
    extension_points = (
        points.CONCERNS,
        points.READ_POD,
        points.PRE_FILTER,
        points.FILTER,
        points.ROW_FILTER,
        points.SCORE,
        points.ROW_SCORE,
        points.RESERVE,
        points.POST_FILTER,
        points.AFTER_FAILURE,
        points.QUEUEING_HINTS,
        points.CONTROLLER,
        points.PAGES,
    )
    reads = Reads.LOAD
    normalizes = True
    wakes_on = frozenset({EventKind.OWN, EventKind.NODE})

    def __init__(self, cluster: Cluster, books: ReservationBooks, args: ReservationArgs) -> None:
        self._nodes = cluster.nodes
        self._books = books
        self._args = args
        self._books.may_preempt = args.enable_preemption
        self._controller = ReservationController(
            cluster.nodes,
            books,
            args,
            frees_owners=cluster.gates.clean_expired_reservation_allocated,
        )
        self._books.pre_allocations.config = args.pre_allocation_config
        never = (NO_MATCH, OTHER_NODE, POLICY_CONFLICT, pre_allocation.UNSUPPORTED, pre_allocation.NO_POD)
        self._codes: dict[tuple[str, ...], int] = {(): 0, **{(reason,): code for code, reason in enumerate(never, 1)}}
        self._reasons: list[tuple[str, ...]] = list(self._codes)

    # --- pods --------------------------------------------------------------------------------------------------------

    def concerns(self, pod: Pod) -> bool:
        return self.read(pod) is not None

    def read(self, pod: Pod) -> Hashable:
        """Return the part of the pod that the plugin's results depend on: a `PodWish`. None if no Reservation concerns
        it. For a reserve pod, it also describes the running pods whose place the Reservation takes.
        """
        if not is_reserve_pod(pod):
            return pod_wish(pod, self._books.groups_of(pod))
        entry = self._books.find(pod.metadata.annotations.get(keys.RESERVATION_NAME, ""))
        if entry is None or entry.document is None or entry.terms is None:
            return pod_wish(pod, ())
        return pod_wish(pod, (), pre_allocating(entry.document, entry.terms))

    # --- the cycle ---------------------------------------------------------------------------------------------------

    def pre_filter(self, pod: PodRecord, now: float) -> Rejection | Candidates | None:
        """Reject invalid annotations, an affinity that no Reservation matches, and an invalid Reservation. If few nodes
        have a Reservation that the pod may use, try these nodes first.
        """
        assert pod.subject is not None, f"pod {pod.uid} has no spec"
        usable = self._books.usable(pod.subject.pod_class)
        if usable is None:
            problem = self._controller.problem_of(pod.uid) or self._problem_of(pod.subject.pod_class)
            return Rejection(plugin=self.name, message=problem, key=pod.uid) if problem else None
        if usable.problem:
            return Rejection(plugin=self.name, message=usable.problem, key=usable.problem)
        index, affinity = self._args.reservation_selector_index, usable.wish.affinity
        if index.enabled and affinity is not None and affinity.selector:
            self._books.selector_queries.count(map(index.has, affinity.selector), len(usable.by_row))
        if usable.has_affinity and not usable.by_row:
            return Rejection(plugin=self.name, message=", ".join([NO_MATCH, *self._counts(usable)]))
        if not usable.by_row or len(usable.by_row) > _FEW_NODES or usable.wish.ignores:
            return None
        return Candidates(first=tuple(self._nodes.names[row] for row in sorted(usable.by_row)))

    def _problem_of(self, pod: PodClass) -> str:
        pre = cast("PodWish", pod.aspects[self.name]).pre
        is_off = pre is not None and pre.in_cluster_mode and not self._args.pre_allocation_config.enable_cluster_mode
        return pre_allocation.NO_CLUSTER_MODE if is_off else ""

    def filter(self, pod: PodClass, nodes: NodeColumns, rows: Rows) -> IntArray | None:
        """Return codes that refuse nodes on which the Reservations for the pod have too little room; 0 accepts a node.
        A pod with a reservation affinity is also refused by nodes without a Reservation for it. A reserve pod has codes
        of its own. None if no node can be refused.
        """
        wish = cast("PodWish", pod.aspects[self.name])
        if wish.is_reserve:
            return self._codes_of_reserve_pod(wish, pod, rows)
        usable = self._books.usable(pod)
        if usable is None or (usable.wish.ignores and not usable.lenders):
            return None
        codes = np.full(len(rows), int(usable.has_affinity), np.int64)
        if usable.by_row:
            known = usable.by_row
            for index in row_list(np.flatnonzero(among(rows, known, nodes.capacity))):
                codes[index] = self._code(usable, rows.item(index))
        return codes

    def row_filter(self, pod: PodClass, nodes: NodeColumns) -> RowFunction | None:
        wish = cast("PodWish", pod.aspects[self.name])
        if wish.is_reserve:
            return lambda row: self._code_of_reserve_pod(wish, pod, row)
        usable = self._books.usable(pod)
        if usable is None or (usable.wish.ignores and not usable.lenders):
            return None
        return lambda row: self._code(usable, row)

    def _code(self, usable: Usable, row: int) -> int:
        if row not in usable.by_row:
            return int(usable.has_affinity)
        if usable.wish.ignores:
            with usable.lent(row, None):
                return self._code_for(usable.refused_alone(row))
        if usable.is_fitting(row):
            return 0
        affinity = usable.wish.affinity
        reasons = refusals(
            usable.room(row),
            usable.held(row),
            usable.requests,
            has_affinity=affinity is not None,
            only="" if affinity is None else affinity.name,
            ignored=self._ignores,
            skips_node=self._books.skips_node,
            more=lambda held: self._refused(usable, row, held),
        )
        return self._code_for(tuple(dict.fromkeys(reasons)))

    def _refused(self, usable: Usable, row: int, held: Held | None) -> tuple[str, ...]:
        if held is None:
            return usable.refused_alone(row)
        entry = next(each for each in usable.by_row[row].values() if each.name == held.terms.name)
        return usable.refused_with(row, entry)

    def _ignores(self, name: str) -> bool:
        args = self._args
        return name in args.ignored_resources or name.partition("/")[0] in args.ignored_resource_groups

    def _codes_of_reserve_pod(self, wish: PodWish, pod: PodClass, rows: Rows) -> IntArray | None:
        codes = np.full(len(rows), self._code_without_pods(wish), np.int64)
        if wish.node:
            row = self._nodes.row(wish.node)
            codes[rows != (-1 if row is None else row)] = self._codes[OTHER_NODE,]
        for index in row_list(np.flatnonzero(among(rows, self._books.rows_in_use(), self._nodes.capacity))):
            codes[index] = codes[index] or self._code_of_reserve_pod(wish, pod, rows.item(index))
        selected = self._books.pre_allocations.selected(pod)
        if selected is not None:
            for index in row_list(np.flatnonzero(among(rows, selected, self._nodes.capacity))):
                codes[index] = self._code_of_reserve_pod(wish, pod, rows.item(index))
        return codes

    def _code_without_pods(self, wish: PodWish) -> int:
        """Return the code of nodes without pods whose place the Reservation could take."""
        if wish.pre is None:
            return 0
        if not wish.pre.is_restricted:
            return self._codes[pre_allocation.UNSUPPORTED,]
        return self._codes[pre_allocation.NO_POD,] if wish.pre.is_required else 0

    def _code_of_reserve_pod(self, wish: PodWish, pod: PodClass, row: int) -> int:
        if wish.node and self._nodes.names[row] != wish.node:
            return self._codes[OTHER_NODE,]
        others = (each.terms for each in self._books.on_row(row).values())
        is_mixed = any(other is not None and bool(other.policy) != bool(wish.policy) for other in others)
        return self._codes[POLICY_CONFLICT,] if is_mixed else self._code_of_selection(wish, pod, row)

    def _code_of_selection(self, wish: PodWish, pod: PodClass, row: int) -> int:
        selected = self._books.pre_allocations.selected(pod)
        chosen = selected.selection(row) if selected is not None and row in selected else pre_allocation.Selection()
        if chosen.pods:
            with self._books.pre_allocations.lent(pod, row) as lenders:
                return self._code_for(refused_by(lenders, pod, row))
        if chosen.has_candidates and wish.pre is not None and wish.pre.is_required:
            return self._code_for((pre_allocation.NOT_ENOUGH,))
        return self._code_without_pods(wish)

    def _code_for(self, reasons: tuple[str, ...]) -> int:
        code = self._codes.get(reasons)
        if code is None:
            code = self._codes[reasons] = len(self._reasons)
            self._reasons.append(reasons)
        return code

    def reasons(self, pod: PodClass, nodes: NodeColumns, code: int) -> tuple[str, ...]:
        return self._reasons[code]

    def unresolvable(self, pod: PodClass, nodes: NodeColumns, rows: Rows) -> BoolArray:
        """Return for each node whether preemption cannot help there, bool (K,). These are nodes without a Reservation
        that matches the pod. For a reserve pod, they are nodes that conflict with its node name or its policy.
        """
        codes = self.filter(pod, nodes, rows)
        return np.zeros(len(rows), np.bool_) if codes is None else codes <= _UNRESOLVABLE

    def score(self, pod: PodClass, nodes: NodeColumns, rows: Rows) -> IntArray | None:
        """Return higher scores for nodes whose Reservations the pod fills better. None if the pod uses no
        Reservation.
        """
        usable = self._books.usable(pod)
        if usable is None:
            return self._scores_of_selections(pod, rows)
        if usable.wish.ignores or not usable.by_row:
            return None
        raw = np.zeros(len(rows), np.int64)
        for index in row_list(np.flatnonzero(among(rows, usable.by_row, nodes.capacity))):
            raw[index] = raw_score(usable, rows.item(index))
        return raw

    def row_score(self, pod: PodClass, nodes: NodeColumns) -> RowFunction | None:
        usable = self._books.usable(pod)
        if usable is None:
            selected = self._selected_many(pod)
            return None if selected is None else lambda row: score_of_selection(selected, row)
        if usable.wish.ignores:
            return None
        return lambda row: raw_score(usable, row) if row in usable.by_row else 0

    def _selected_many(self, pod: PodClass) -> pre_allocation.SelectedAmounts | None:
        pre = cast("PodWish", pod.aspects[self.name]).pre
        return self._books.pre_allocations.selected(pod) if pre is not None and pre.takes_many else None

    def _scores_of_selections(self, pod: PodClass, rows: Rows) -> IntArray | None:
        selected = self._selected_many(pod)
        if selected is None:
            return None
        return np.array([score_of_selection(selected, row) for row in row_list(rows)], np.int64)

    def normalize(self, raw: IntArray, low: int, high: int) -> IntArray:
        """Scale the scores to 0..100. Reservations with an order come before all others."""
        return normalized(raw, high)

    def reserve(self, pod: PodRecord, node: str) -> Allocation | Rejection:
        """Return the amounts that the pod takes from the Reservation which is nominated for it. A pod that stands for a
        Reservation becomes its holder. Reject a pod with affinity if no Reservation is left.
        """
        row = self._nodes.row(node)
        if row is None or pod.subject is None:
            return NOTHING
        usable = self._books.usable(pod.subject.pod_class)
        if usable is None:
            selected = self._books.pre_allocations.selected(pod.subject.pod_class)
            adopted = selected.selection(row).pods if selected is not None and row in selected else ()
            self._books.pre_allocations.adopt(pod.uid, adopted)
            return Allocation(reservation=ReservationUse(name=self._books.name_of(pod.uid), uid=pod.uid))
        if usable.wish.ignores:
            return IGNORING if usable.lenders and row in usable.by_row else NOTHING
        entry = self._books.nominated(pod.subject.pod_class, row)
        if entry is None:
            if usable.has_affinity:
                return Rejection(plugin=self.name, message=f"node {node}: {NO_MATCH}", resolvable=True)
            return NOTHING
        left = entry.held().remained()
        amounts = {
            name: min(amount, left[name])
            for name, amount in usable.requests.items()
            if name in left and min(amount, left[name]) > 0
        }
        return Allocation(reservation=ReservationUse(name=entry.name, uid=entry.uid, amounts=amounts))

    def unreserve(self, pod: PodRecord, node: str) -> Sequence[str]:
        """Return no pods, because the books follow the pods of nodes. Pods chosen for a new Reservation are
        released.
        """
        self._books.pre_allocations.adopt(pod.uid, ())
        return ()

    # --- preemption ------------------------------------------------------------------------------------------------

    def post_filter(
        self, pod: PodRecord, rejection: Rejection | None, search: PreemptionSearch
    ) -> Preemption | NoPreemption | None:
        usable = None if pod.subject is None else self._books.usable(pod.subject.pod_class)
        counts = [] if usable is None else self._counts(usable)
        notes = f"{', '.join(counts)}." if counts else ""
        found = search.on_one_node(self) if self._args.enable_preemption and rejection is None else NoPreemption("")
        return found if isinstance(found, Preemption) else replace(found, notes=notes)

    def _counts(self, usable: Usable) -> list[str]:
        return match_counts(usable, self._books.entries.get, lambda row: self._reasons[self._code(usable, row)])

    def spares_everyone(self, pod: PodRecord) -> bool:
        return False

    def may_preempt(self, pod: PodRecord, victim: PodRecord) -> bool:
        """Return whether the victim's labels allow its preemption. Reserve pods are never asked about."""
        return victim.pod is not None and is_preemptible(victim.pod.metadata.labels)

    def room_for(self, pod: PodRecord) -> Room | None:
        return None

    def most_candidates(self, nodes: int) -> int:
        args = self._args
        wanted = max(nodes * args.min_candidate_nodes_percentage // 100, args.min_candidate_nodes_absolute)
        return min(wanted, nodes)

    # --- around the cycle --------------------------------------------------------------------------------------------

    def after_failure(self, pod: PodRecord, message: str) -> None:
        """Record why no node was found for a Reservation; the next `control` returns it. No-op for other pods."""
        if pod.pod is not None and is_reserve_pod(pod.pod):
            self._controller.found_no_node(pod.uid, message)

    def hint_version(self) -> int:
        """Return a number that grows when a Reservation becomes available or changes, not when an owner leaves it."""
        return self._books.version

    def queueing_hint(self, event: ClusterEvent, pod: PodRecord) -> bool:
        usable = None if pod.subject is None else self._books.usable(pod.subject.pod_class)
        return event.kind is EventKind.OWN and usable is not None and bool(usable.by_row)

    def control_due(self) -> float | None:
        """Return Unix seconds of the next run: to publish a status of a Reservation, or because one expires."""
        return self._controller.due()

    def control(self, now: float) -> Sequence[ControllerDecision]:
        return self._controller.control(now)

    def pages(self) -> Mapping[str, PageAnswer]:
        return reservation_pages(self._nodes, self._books, self._args.reservation_selector_index)
