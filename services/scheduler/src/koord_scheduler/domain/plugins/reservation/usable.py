"""The Reservations that pods of one class may use, kept up to date one Reservation at a time. If a node has several,
the pod gets the one with the smallest order label; without such labels, the one that it fills most (nomination).

Source: scheduler-fine-grained spec, 3.5, 3.6, 3.8
"""

from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Final, NamedTuple
from weakref import ref

import numpy as np
from koordcore.protocol import keys
from koordcore.protocol.reservations import parse_exact_match, parse_reservation_affinity
from koordcore.values.invalid import InvalidInput

from koord_scheduler.domain.cluster.equivalence_classes import PodClass
from koord_scheduler.domain.columns.node_columns import NOT_OFFERED, PODS_COLUMN, BoolArray, NodeColumns, Rows
from koord_scheduler.domain.plugins.reservation.entry import NOWHERE, Entry
from koord_scheduler.domain.plugins.reservation.fit import PREFIX, RESTRICTED, Held, NodeRoom, fits_with
from koord_scheduler.domain.plugins.reservation.lending import Lender, all_lent, refused_by
from koord_scheduler.domain.plugins.reservation.matching import Match, Wish, match
from koord_scheduler.domain.plugins.reservation.wishes import PodWish

MOST: int = 100


def reservation_score(requests: Mapping[str, int], allocatable: Mapping[str, int], allocated: Mapping[str, int]) -> int:
    """Return how full a Reservation will be with the pod, in percent 0..100: the mean over its resources. A resource of
    which more is requested than the Reservation holds counts 0. `requests`: resource -> amount that the pod requests,
    in milli-cores and whole units.
    """
    parts = [
        MOST * used // capacity if used <= capacity else 0
        for name, capacity in allocatable.items()
        if capacity > 0
        for used in (requests.get(name, 0) + allocated.get(name, 0),)
    ]
    return sum(parts) // len(parts) if parts else 0


def nominate(requests: Mapping[str, int], candidates: Sequence[Held], more: Mapping[str, int] | None = None) -> Held:
    """Return the one of several Reservations of a node that the pod will use. Reservations with an order label come
    first, the smallest order before all. If no Reservation has an order label, the highest score wins. A tie is decided
    by name. `requests`: resource -> amount that the pod requests. `candidates`: Reservations that the pod fits into; at
    least one. `more`: name of a Reservation -> score of other plugins, which is added; None for no such scores.
    """
    ordered = [each for each in candidates if each.terms.order is not None]
    if ordered:
        return min(ordered, key=lambda each: (each.terms.order or 0, each.terms.name))
    scores = more or {}
    return min(
        candidates,
        key=lambda each: (
            -reservation_score(requests, each.allocatable, each.allocated) - scores.get(each.terms.name, 0),
            each.terms.name,
        ),
    )


_USED: Final = (Match.MATCHED, Match.IGNORED)


_MOST_KEPT: Final = 1024
_NOTHING: Final[Mapping[str, int]] = {}
_NO_LABELS: Final[Mapping[str, str]] = {}


class _Unused(NamedTuple):
    """What follows from the amounts of a Reservation that nobody has taken from."""

    allocatable: Mapping[str, int]  # The amounts that it holds
    restored: dict[int, int]  # Resource column -> the same amounts
    score: int  # Its score for the pods


class Usable:
    """The Reservations that pods of one class may use, updated when one of them changes. `wish`: the properties of the
    pods that concern Reservations. `pod_class`: the class. The object does not keep it alive. `omits_node_labels`:
    whether reservation affinities are compared with the labels of Reservations alone, without those of their nodes.
    """

    def __init__(
        self,
        wish: PodWish,
        pod_class: PodClass,
        nodes: NodeColumns,
        lenders: Sequence[Lender] = (),
        *,
        omits_node_labels: bool,
    ) -> None:
        self.problem = ""  # Why their annotations are invalid; "" if they are valid
        self.wish = Wish(ignores=wish.ignores)  # Wishes about Reservations in the pods' labels and annotations
        try:
            self.wish = Wish(
                wish.ignores,
                parse_reservation_affinity({keys.RESERVATION_AFFINITY: wish.affinity}),
                parse_exact_match({keys.EXACT_MATCH_RESERVATION: wish.exact}),
            )
        except InvalidInput as error:
            self.problem = error.sentence()
        self.by_row: dict[int, dict[str, Entry]] = {}  # Node position -> uid -> Reservation that the pods may use
        # Node position -> resource column -> unused amount of these Reservations. Filters count it as free.
        self.restored: dict[int, dict[int, int]] = {}
        # Uid of an available Reservation -> whether the pods may use it, or which rule forbids it.
        self.results: dict[str, Match] = {}
        self.requests = pod_class.requests
        # Plugins whose resources the pods request and Reservations may hold, such as CPUs and devices.
        self.lenders = tuple(lender for lender in lenders if lender.may_refuse(pod_class))
        self._pod_class = ref(pod_class)
        self._wanted = [(name, nodes.column_of(name), amount) for name, amount in self.requests.items() if amount > 0]
        self._rows: dict[str, int] = {}
        self._unused: dict[int, _Unused] = {}
        self._nodes = nodes
        self._omits_node_labels = omits_node_labels

    @property
    def has_affinity(self) -> bool:
        """Return whether the pods must use a Reservation, because they have a reservation affinity."""
        return self.wish.affinity is not None

    def told(self, entry: Entry, *, has_changed: bool = False) -> None:
        """Update the attributes after a change of one Reservation or of its owners. `has_changed`: whether its object,
        its amounts or its node changed. False if only its owners changed.
        """
        uid = entry.uid
        if has_changed or not entry.is_available():
            self.results.pop(uid, None)
        row = entry.row if self._matches(entry) else NOWHERE
        before = self._rows.get(uid, NOWHERE)
        if before not in (NOWHERE, row):
            self._leave(before, uid)
        if row != NOWHERE:
            self._join(row, entry)
            self._restore(row)

    def told_all(self, entries: Iterable[Entry]) -> None:
        """Set the results of all Reservations that may concern the pods. No other result is known yet. `entries`: the
        Reservations, each once.
        """
        for entry in entries:
            if self._matches(entry):
                self._join(entry.row, entry)
        for row in self.by_row:
            self._restore(row)

    def _join(self, row: int, entry: Entry) -> None:
        self._rows[entry.uid] = row
        there = self.by_row.get(row)
        if there is None:
            self.by_row[row] = {entry.uid: entry}
        else:
            there[entry.uid] = entry

    def _matches(self, entry: Entry) -> bool:
        if not entry.is_available() or entry.terms is None or self.problem:
            return False
        result = self.results.get(entry.uid)
        if result is None:
            is_asked = self.wish.affinity is not None and not self._omits_node_labels
            labels = self._nodes.shape_of(entry.row).labels if is_asked else _NO_LABELS
            result = self.results[entry.uid] = match(
                self.wish,
                entry.terms,
                is_owner=True,
                requests=self.requests,
                allocatable=entry.allocatable,
                node_labels=labels,
            )
        return result in _USED

    def _leave(self, row: int, uid: str) -> None:
        del self._rows[uid]
        there = self.by_row[row]
        del there[uid]
        if there:
            self._restore(row)
        else:
            del self.by_row[row], self.restored[row]

    def _restore(self, row: int) -> None:
        there = self.by_row[row]
        if len(there) == 1:
            (only,) = there.values()
            if not only.covered:
                self.restored[row] = self._unused_of(only).restored
                return
        amounts = {PODS_COLUMN: len(there)}
        for entry in there.values():
            for name, amount in entry.unused().items():
                column = self._nodes.column_of(name)
                if column != NOT_OFFERED:
                    amounts[column] = amounts.get(column, 0) + amount
        self.restored[row] = amounts

    def _unused_of(self, entry: Entry) -> "_Unused":
        """Return what is equal for all Reservations that hold the same amounts and that nobody has taken from."""
        held = entry.allocatable
        found = self._unused.get(id(held))
        if found is None or found.allocatable is not held:
            if len(self._unused) >= _MOST_KEPT:
                self._unused.clear()
            restored = {PODS_COLUMN: 1}
            for name, amount in held.items():
                column = self._nodes.column_of(name)
                if column != NOT_OFFERED:
                    restored[column] = amount
            score = reservation_score(self.requests, held, _NOTHING)
            found = self._unused[id(held)] = _Unused(held, restored, score)
        return found

    def plain_score(self, row: int) -> int | None:
        """Return the score 0..100 of the Reservations on a node by a short check; None if that check does not suffice.
        It does not suffice if a Reservation has an order label or owners, or if the pods request CPUs or devices of
        plugins that lend. Then the caller uses `fitting` and `nominate`. `row`: position of a node with a Reservation
        that the pods may use.
        """
        if self.lenders:
            return None
        best = 0
        for entry in self.by_row[row].values():
            if entry.terms is None or entry.terms.order is not None or not self._fits_plainly(row, entry):
                return None
            best = max(best, self._unused_of(entry).score)
        return best

    def room(self, row: int) -> NodeRoom:
        """Return the free amounts of a node, while the unused amounts of these Reservations count as taken."""
        nodes = self._nodes
        return NodeRoom(
            free={name: nodes.free_of(name, row) for name in self.requests},
            pods=nodes.free_at[PODS_COLUMN, row] + len(self.by_row.get(row, {})),
        )

    def is_fitting(self, row: int) -> bool:
        """Return True if a short check finds a Reservation on the node into which a pod of the class fits. If False, a
        pod may fit nevertheless: the caller must check in detail. `row`: position of a node with Reservations that the
        pods may use.
        """
        return not self.lenders and any(self._fits_plainly(row, entry) for entry in self.by_row[row].values())

    def _fits_plainly(self, row: int, entry: Entry) -> bool:
        """Return whether the pod fits into a Reservation that nobody has taken from, where nothing but amounts decides.
        This is the usual case. False: it may fit nevertheless.
        """
        terms, free, held = entry.terms, self._nodes.free_at, entry.allocatable
        if terms is None or entry.owners or terms.policy == RESTRICTED or terms.inner:
            return False
        is_used = self.has_affinity
        if free[PODS_COLUMN, row] + len(self.by_row[row]) < 1:
            return False
        for name, column, amount in self._wanted:
            inside = held.get(name, 0)
            left = free[column, row] if column != NOT_OFFERED else self._nodes.free_of(name, row)
            if amount > left + inside:
                return False
            is_used = is_used or inside > 0
        return is_used

    def held(self, row: int) -> list[Held]:
        """Return the amounts of the usable Reservations on the node at position `row`, ordered by their names."""
        there = self.by_row.get(row, {})
        return [entry.held() for entry in sorted(there.values(), key=lambda each: each.name)]

    def fitting(self, row: int) -> list[Entry]:
        """Return the Reservations on the node at position `row` into which a pod of the class fits, by name. Empty if
        the pods ignore Reservations.
        """
        if row not in self.by_row or self.wish.ignores:
            return []
        there, requests = self.by_row[row], self.requests
        plain = [entry for entry in there.values() if self._fits_plainly(row, entry)]
        if len(plain) < len(there):
            room = self.room(row)
            only = "" if self.wish.affinity is None else self.wish.affinity.name
            plain += [
                entry
                for entry in there.values()
                if entry not in plain
                and (not only or entry.name == only)
                and (self.has_affinity or any(requests.get(name, 0) > 0 for name in entry.allocatable))
                and fits_with(room, entry.held(), requests)
            ]
        if self.lenders:
            plain = [entry for entry in plain if not self.refused_with(row, entry)]
        return plain if len(plain) < 2 else sorted(plain, key=lambda each: each.name)

    def nominated(self, row: int) -> Entry | None:
        """Return the Reservation that a pod of the class would use on a node; None if it would use none."""
        candidates = self.fitting(row)
        if len(candidates) < 2:
            return candidates[0] if candidates else None
        best = nominate(self.requests, [each.held() for each in candidates], self._scores_of_lenders(row, candidates))
        return next(each for each in candidates if each.held() is best)

    def _scores_of_lenders(self, row: int, candidates: Sequence[Entry]) -> dict[str, int]:
        """Return name of a Reservation -> sum of the plugins' scores; the best one has 100 for each plugin."""
        pod_class, scores = self._pod_class(), dict.fromkeys([entry.name for entry in candidates], 0)
        if pod_class is None:
            return scores
        for lender in self.lenders:
            raw = {entry.name: lender.reservation_score(pod_class, row, entry.uid) for entry in candidates}
            best = max(raw.values())
            for name, score in raw.items() if best > 0 else ():
                scores[name] += MOST * score // best
        return scores

    # --- CPUs, zones and devices -------------------------------------------------------------------------------------

    @contextmanager
    def lent(self, row: int, entry: Entry | None) -> Generator[Entry | None]:
        """Count the unused resources of a Reservation as free for a pod of the class inside this context. `entry`: the
        Reservation, or None if the pod uses none. With None, the unused resources of all Reservations on the node count
        as free if the pod ignores Reservations; otherwise nothing changes. Yields `entry`.
        """
        ignored = self.by_row.get(row, {}).values() if self.wish.ignores else ()
        with self._nodes.unrecorded(), ExitStack() as stack:
            for each in ignored if entry is None else (entry,):
                stack.enter_context(self._lent(row, each))
            yield entry

    @contextmanager
    def _lent(self, row: int, entry: Entry) -> Generator[None]:
        is_limited = entry.terms is not None and entry.terms.policy == RESTRICTED
        limits = entry.held().restricted_names() if is_limited else frozenset[str]()
        unused = self._nodes.demand(entry.unused(), {})
        with all_lent(self.lenders, row, entry.uid, None if self.wish.ignores else limits):
            self._nodes.give(row, unused)
            try:
                yield
            finally:
                self._nodes.take(row, unused)

    def refused_with(self, row: int, entry: Entry) -> tuple[str, ...]:
        """Return why the CPUs, zones and devices of a node do not suffice for a pod that uses a Reservation there.
        Empty if they suffice.
        """
        if not self.lenders:
            return ()
        with self.lent(row, entry):
            reasons = self.refused_alone(row)
        return tuple([f"{PREFIX}{reason}" for reason in reasons])

    def refused_alone(self, row: int) -> tuple[str, ...]:
        """Return why the CPUs, zones and devices of a node do not suffice for a pod that uses no Reservation. Empty if
        they suffice.
        """
        pod_class = self._pod_class()
        return () if pod_class is None else refused_by(self.lenders, pod_class, row)


def among(rows: Rows, known: Mapping[int, object], capacity: int) -> BoolArray:
    """Return for each node whether its position is a key of a mapping, bool (K,). `rows`: positions of nodes, shape
    (K,). `known`: a mapping whose keys are node positions. Only the keys matter. `capacity`: number of positions in the
    node columns, free ones included.
    """
    is_known = np.zeros(capacity, np.bool_)
    is_known[np.fromiter(known.keys(), np.intp, len(known))] = True
    return is_known[rows]
