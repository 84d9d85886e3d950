"""All Reservations of the cluster, folded from facts; the cost of a fact does not grow with their number.

    objects of Reservations        say which pods may use them, and how
    pods on nodes, with the        say what Reservations hold, and how much of
    allocations that they got      it each pod uses

The node columns count an amount that a pod uses from a Reservation once: with the pod, no longer with the Reservation.
So the requested amounts of a node are the sum of its pods and of the unused amounts of its Reservations, as in the
ledger of the log.

An index of labels is not needed for the selectors of pods: the owner rules find the Reservations of a pod, and no more
nodes remain than an index would find. Queries are only counted, because the metrics of Koordinator have the counters.

Source: scheduler-fine-grained spec, 3.5, 3.6, 3.13, 6
"""

from collections import Counter
from collections.abc import Generator, Iterable, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Final
from weakref import WeakKeyDictionary, finalize

from koordcore.protocol.objects import Pod
from koordcore.protocol.reservations import Reservation

from koord_scheduler.domain.cluster.equivalence_classes import PodClass
from koord_scheduler.domain.cluster.info import PodInfo
from koord_scheduler.domain.cluster.population import Population
from koord_scheduler.domain.columns.node_columns import NodeColumns
from koord_scheduler.domain.plugins.reservation.entry import NOWHERE, Entry, KnownReservation, change_of, owner_use
from koord_scheduler.domain.plugins.reservation.lending import Lender
from koord_scheduler.domain.plugins.reservation.life_cycle import limits_of
from koord_scheduler.domain.plugins.reservation.matching import terms_of
from koord_scheduler.domain.plugins.reservation.owners import Group, OwnerIndex
from koord_scheduler.domain.plugins.reservation.pre_allocation import PreAllocations
from koord_scheduler.domain.plugins.reservation.usable import Usable
from koord_scheduler.domain.plugins.reservation.wishes import ASPECT, PodWish

EVERY_GROUP: Final = 0
"""Number that stands for the Reservations of all groups. Groups have numbers from 1 on."""


class Watchers:
    """The cached objects `Usable` that depend on Reservations, by the id of the group of Reservations."""

    def __init__(self) -> None:
        self._by_group: dict[int, dict[int, Usable]] = {}

    def add(self, pod_class: PodClass, groups: tuple[int, ...], usable: Usable) -> None:
        """Update `usable` on changes of these groups of Reservations from now on, as long as the class has pods.
        `usable`: the Reservations that pods of the class may use.
        """
        for group in groups:
            self._by_group.setdefault(group, {})[id(usable)] = usable
        finalize(pod_class, self._stop, id(usable), groups).atexit = False

    def told(self, group: int, entry: Entry, *, has_changed: bool) -> None:
        """Update the Reservations of all classes that watch a group, after one of its Reservations changed. `entry`:
        the Reservation that changed. `has_changed`: As for `Usable.told`.
        """
        watchers = self._by_group.get(group)
        if watchers:
            for usable in tuple(watchers.values()):  # the garbage collector may remove one meanwhile
                usable.told(entry, has_changed=has_changed)

    def _stop(self, number: int, groups: tuple[int, ...]) -> None:
        """Forget the answer for a class of which no pod is left."""
        for group in groups:
            watchers = self._by_group.get(group)
            if watchers is not None and watchers.pop(number, None) is not None and not watchers:
                del self._by_group[group]


MOST_POWER: Final = 23


class SelectorQueries:
    """The queries of pods with a `reservationSelector`."""

    def __init__(self) -> None:
        self.hits = 0  # Queries with at least one indexed label
        self.misses = 0  # Queries without an indexed label
        self.nodes = 0  # Sum of the numbers of nodes that remained for hits
        # Power p -> number of hits for which more than 2^(p-1) and at most 2^p nodes remained. Power 0 stands for at
        # most one node, and a power above `MOST_POWER` for all larger numbers.
        self.by_power: Counter[int] = Counter()

    def count(self, indexed: Iterable[bool], nodes: int) -> None:
        """Count one query. `indexed`: for each label of the selector, whether it is indexed. `nodes`: number of nodes
        with a Reservation that the pod may use.
        """
        if not any(indexed):
            self.misses += 1
            return
        self.hits += 1
        self.nodes += nodes
        self.by_power[min((nodes - 1).bit_length() if nodes else 0, MOST_POWER + 1)] += 1


NO_ROWS: Final[Mapping[int, object]] = {}
"""The answer of `rows_of` for pods that no Reservation is for."""
_NOTHING_LENT: Final = nullcontext()


class ReservationBooks:
    """All Reservations of the cluster, with their objects, their amounts on nodes, and the pods that use them."""

    def __init__(
        self, nodes: NodeColumns, population: Population, *, omits_node_labels: bool = False, skips_node: bool = False
    ) -> None:
        # Uid -> Reservation. A Reservation without a known object is included while pods use it.
        self.entries: dict[str, Entry] = {}
        self.owners = OwnerIndex()  # Finds the Reservations that are for a pod
        self.version = 0  # Number that grows when a Reservation becomes available, or an available one itself changes
        self.due: dict[str, None] = {}  # Uids of Reservations whose status may have to be published again
        # Name -> plugin whose resources Reservations hold besides amounts, such as CPUs. Each plugin adds itself.
        self.lenders: dict[str, Lender] = {}
        self.operating: set[str] = set()  # Uids of the pods that act or acted as Reservations
        self.may_preempt = False  # Whether pods are evicted to make room for Reservations (argument `enablePreemption`)
        self.selector_queries = SelectorQueries()  # How often pods looked for Reservations by labels
        # Whether the free amounts of the node are not compared if exactly one Reservation matches (a feature gate).
        self.skips_node = skips_node
        # Chooses the running pods whose place Reservations take.
        self.pre_allocations = PreAllocations(nodes, population, self.lenders, self.operating, self.find)
        self._nodes = nodes
        self._omits_node_labels = omits_node_labels
        self._by_name: dict[str, str] = {}
        self._on_row: dict[int, dict[str, Entry]] = {}
        self._on_node: dict[str, set[str]] = {}
        self._usable: WeakKeyDictionary[PodClass, Usable] = WeakKeyDictionary()
        self._watchers = Watchers()

    # --- objects -----------------------------------------------------------------------------------------------------

    def put(self, reservation: Reservation) -> Group | None:
        """Add or change a Reservation by its object. Result: the group of the Reservation if it is new, so that all
        pods must be compared with its owner rules; otherwise None.
        """
        meta = reservation.metadata
        entry = self._entry(meta.uid, meta.name)
        self._by_name[meta.name] = meta.uid
        entry.limits = limits_of(reservation)
        self.due[entry.uid] = None
        return self._describe(entry, reservation)

    def operate(self, reservation: Reservation, pod_info: PodInfo, node: str, *, is_consumed: bool) -> Group | None:
        """Add or change a pod that acts as a Reservation. `reservation`: the Reservation that it acts as.
        `is_consumed`: whether its object says that a pod uses or used it. Result: As `put`.
        """
        meta, row = reservation.metadata, self._nodes.row(node)
        entry = self._entry(meta.uid, meta.name)
        entry.is_consumed = entry.is_consumed or is_consumed
        self.operating.add(entry.uid)
        if row is not None and entry.row == NOWHERE:
            self._hold(row, entry, pod_info)
        return self._describe(entry, reservation)

    def _describe(self, entry: Entry, reservation: Reservation) -> Group | None:
        """Let an object say which pods may use an entry and how. Returns: as `put`."""
        terms = terms_of(reservation)
        before, fresh = entry.group, None
        entry.document, entry.terms = reservation, terms
        if before is None or terms.owners is None or before.owners.key != terms.owners.key:
            entry.group = None
            if terms.owners is not None:
                entry.group, is_new = self.owners.add(terms.owners, entry.uid)
                fresh = entry.group if is_new else None
            if before is not None:
                self._watchers.told(before.id, entry, has_changed=True)
                self.owners.remove(before, entry.uid)
        self._refresh(entry, has_changed=True)
        return fresh

    def drop(self, name: str) -> str:
        """Remove the object of a Reservation; it stays in `entries` while in use. Return its uid, "" if unknown."""
        uid = self._by_name.pop(name, "")
        entry = self.entries.get(uid)
        if entry is None:
            return ""
        self.pre_allocations.forget(name)
        self._undescribe(entry)
        return uid

    def retire(self, uid: str) -> None:
        """Make a pod with operating mode `Reservation` unavailable to further pods. No-op for any other pod."""
        entry = self.entries.get(uid)
        if uid in self.operating and entry is not None and entry.terms is not None:
            self._undescribe(entry)

    def _undescribe(self, entry: Entry) -> None:
        group, entry.document, entry.terms, entry.limits, entry.group = entry.group, None, None, None, None
        if group is not None:
            self._watchers.told(group.id, entry, has_changed=True)
            self.owners.remove(group, entry.uid)
        self._refresh(entry, has_changed=True)
        self.due[entry.uid] = None
        self._forget_if_unused(entry)

    def find(self, name: str) -> Entry | None:
        """Return the Reservation with this name, or None if there is none."""
        return self.entries.get(self._by_name.get(name, ""))

    def ended(self, uid: str, phase: str, at: float) -> None:
        """Record that a Reservation has succeeded or failed. No-op if it is unknown. `at`: Unix seconds of its end."""
        entry = self.entries.get(uid)
        if entry is not None:
            entry.phase, entry.ended_at = phase, at
            self._refresh(entry)
            self.due[uid] = None

    def restore(self, known: KnownReservation) -> None:
        """Restore a Reservation from a snapshot; `put` restores its object."""
        entry = self._entry(known.uid, known.name)
        self.operating.update([known.uid] if known.is_pod else ())
        entry.phase, entry.ended_at, entry.is_collected = known.phase, known.ended_at, known.is_collected
        entry.is_consumed, entry.said = known.is_consumed, known.said
        self.placed(known.uid, known.node, entry.placed_at)

    # --- placements --------------------------------------------------------------------------------------------------

    def placed(self, uid: str, node: str, at: float) -> None:
        """Record that the log has placed a Reservation on a node. `node`: name of the node; "" if it no longer has one.
        `at`: Unix seconds of the placement.
        """
        entry = self.entries.get(uid)
        if entry is None:
            return
        if entry.node:
            self._on_node.get(entry.node, set()).discard(uid)
        entry.node, entry.placed_at = node, at
        if node:
            self._on_node.setdefault(node, set()).add(uid)
            self.pre_allocations.forget(entry.name)
        self.due[uid] = None

    def left(self, uid: str) -> None:
        """Record that the log has released a Reservation from its node. If the Reservation has ended, it keeps the name
        of its node.
        """
        entry = self.entries.get(uid)
        if entry is not None and not entry.phase:
            self.placed(uid, "", 0.0)
            self._forget_if_unused(entry)

    def forget(self, uid: str) -> None:
        """Remove a Reservation whose object was deleted and that needs no further status. No-op if it has an object. It
        stays in `entries` while pods use it.
        """
        entry = self.entries.get(uid)
        if entry is not None and entry.terms is None:
            entry.phase, entry.node, entry.said, entry.is_collected = "", "", "", False
            self._forget_if_unused(entry)

    def consumed(self, uid: str) -> None:
        """Record that a pod in the log uses the Reservation, so that no other gets it. No-op without `allocateOnce`."""
        entry = self.entries.get(uid)
        if entry is not None and not entry.is_consumed and entry.terms is not None and entry.terms.is_once:
            entry.is_consumed = True
            self._refresh(entry)
            self.due[uid] = None

    def node_gone(self, name: str) -> None:
        """Add the Reservations on a deleted node to `due`, so that they fail."""
        self.due.update(dict.fromkeys(self._on_node.get(name, ())))

    def node_changed(self, row: int) -> None:
        """Match the Reservations on a node again with pods, because the labels of the node may have changed."""
        for entry in tuple(self._on_row.get(row, {}).values()):
            self._refresh(entry, has_changed=True)

    def rows_in_use(self) -> Mapping[int, Mapping[str, Entry]]:
        """Return position of a node -> uid -> Reservation, for all nodes with Reservations."""
        return self._on_row

    def name_of(self, uid: str) -> str:
        """Return the name of a Reservation; "" if it is unknown."""
        entry = self.entries.get(uid)
        return "" if entry is None else entry.name

    def on_row(self, row: int) -> Mapping[str, Entry]:
        """Return uid -> Reservation, for the Reservations on the node at position `row`."""
        return self._on_row.get(row, {})

    def took(self, row: int, pod_info: PodInfo) -> None:
        """Count a pod on its node. A reserve pod makes its Reservation hold amounts; an owner uses amounts of one."""
        used = pod_info.allocation.reservation
        if used is not None and used.uid == pod_info.uid:
            self._hold(row, self._entry(used.uid, used.name), pod_info)
            return
        if used is not None:
            entry = self._entry(used.uid, used.name)
            entry.owners[pod_info.uid] = owner_use(row, pod_info, used)
            self._refresh(entry)
        if pod_info.uid in self.operating:
            self._hold(row, self.entries[pod_info.uid], pod_info)

    def gave(self, row: int, pod_info: PodInfo) -> None:
        used = pod_info.allocation.reservation
        entry = self.entries.get(used.uid) if used is not None else None
        if entry is not None and entry.uid != pod_info.uid:
            entry.owners.pop(pod_info.uid, None)
            self._refresh(entry)
            self._forget_if_unused(entry)
        held = self.entries.get(pod_info.uid)
        if held is not None and held.row == row:
            self._shift(row, held.covered, {})
            held.covered, held.row = {}, NOWHERE
            there = self._on_row[row]
            there.pop(held.uid, None)
            if not there:
                del self._on_row[row]
            self._refresh(held)
            self.due[held.uid] = None
            self._forget_if_unused(held)

    def _hold(self, row: int, entry: Entry, pod_info: PodInfo) -> None:
        entry.row, entry.allocatable = row, pod_info.demand.requests
        self._on_row.setdefault(row, {})[entry.uid] = entry
        self._refresh(entry, has_changed=True)

    def may_refuse(self, pod_class: PodClass) -> bool:
        return bool(self.entries)

    def restored(self, pod_class: PodClass) -> Mapping[int, Mapping[int, int]] | None:
        usable = self.usable(pod_class)
        return self.pre_allocations.selected(pod_class) if usable is None else usable.restored

    # --- pods --------------------------------------------------------------------------------------------------------

    def groups_of(self, pod: Pod) -> tuple[int, ...]:
        """Return the ids of the groups of Reservations whose owner rules match the pod, ascending."""
        return self.owners.of(pod)

    def usable(self, pod_class: PodClass) -> Usable | None:
        """Return the Reservations that pods of a class may use. None: none is for them, or they are reserve pods."""
        wish = pod_class.aspects.get(ASPECT)
        if not isinstance(wish, PodWish) or wish.is_reserve:
            return None
        found = self._usable.get(pod_class)
        if found is None:
            found = self._usable[pod_class] = Usable(
                wish,
                pod_class,
                self._nodes,
                tuple(self.lenders.values()),
                omits_node_labels=self._omits_node_labels,
            )
            self._watchers.add(pod_class, (EVERY_GROUP,) if found.wish.ignores else wish.groups, found)
            groups = [group for id_ in wish.groups if (group := self.owners.groups.get(id_)) is not None]
            members = self.entries if found.wish.ignores else [uid for group in groups for uid in group.members]
            found.told_all([self.entries[uid] for uid in members])
        return found

    def rows_of(self, pod_class: PodClass) -> Mapping[int, object]:
        """Return a mapping whose keys are the positions of nodes with a Reservation that pods of a class may use. On
        these nodes the plugin Reservation decides about CPUs, zones and devices.
        """
        usable = self.usable(pod_class)
        if usable is None:
            return self.pre_allocations.selected(pod_class) or NO_ROWS
        return usable.by_row if usable.lenders or not usable.wish.ignores else NO_ROWS

    def nominated(self, pod_class: PodClass, row: int) -> Entry | None:
        """Return the Reservation that a pod of the class would use on a node; None if it would use none."""
        usable = self.usable(pod_class)
        return None if usable is None else usable.nominated(row)

    def nominated_lent(self, pod_class: PodClass, row: int) -> AbstractContextManager[Entry | None]:
        """Return a context in which the Reservation that a pod would use on a node counts as free for the pod. Its
        value is the Reservation; None: the pod would use none. See `Usable.lent` and `PreAllocations.lent`.
        """
        usable = self.usable(pod_class)
        if usable is not None:
            return usable.lent(row, usable.nominated(row))
        return _NOTHING_LENT if self.pre_allocations.selected(pod_class) is None else self._places_lent(pod_class, row)

    @contextmanager
    def _places_lent(self, pod_class: PodClass, row: int) -> Generator[None]:
        with self.pre_allocations.lent(pod_class, row):
            yield

    # --- consequences ------------------------------------------------------------------------------------------------

    def _entry(self, uid: str, name: str) -> Entry:
        entry = self.entries.get(uid)
        if entry is None:
            entry = self.entries[uid] = Entry(uid, name)
        return entry

    def _refresh(self, entry: Entry, *, has_changed: bool = False) -> None:
        now = entry.changed()
        if now != entry.covered and entry.row != NOWHERE:
            self._shift(entry.row, entry.covered, now)
        entry.covered = now
        if entry.group is not None:
            self._watchers.told(entry.group.id, entry, has_changed=has_changed)
        self._watchers.told(EVERY_GROUP, entry, has_changed=has_changed)
        if has_changed and entry.row != NOWHERE:
            self._nodes.load.record(entry.row)
        if has_changed and entry.is_available():
            self.version += 1

    def _shift(self, row: int, before: Mapping[str, int], after: Mapping[str, int]) -> None:
        """Let the columns count `after` instead of `before` as covered by owners."""
        self._nodes.take(row, change_of(self._nodes, before, after))

    def _forget_if_unused(self, entry: Entry) -> None:
        if entry.terms is None and entry.row == NOWHERE and not entry.owners and not entry.node and not entry.phase:
            self.entries.pop(entry.uid, None)
            self.operating.discard(entry.uid)
            self.due.pop(entry.uid, None)
