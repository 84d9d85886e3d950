"""Unschedulable pods, grouped by subject, so that the pods which an event may help are found quickly.

An event that helps one pod of a group helps all of them. So it wakes only the first pod of each group, and each success
wakes the next pod. Many equal pods therefore cost one attempt per event instead of one per pod. Filters depend on one
node alone, so an event helps a group exactly if the group fits on one of the changed nodes. Before this is checked, the
requests of all groups are compared at once with the free amounts. This comparison is skipped for groups whose cycle may
see other nodes (`PluginLists.sees_otherwise`).

Source: scheduler-core spec, 2 (events and hints)
"""

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from koord_scheduler.domain.cluster.equivalence_classes import Subject
from koord_scheduler.domain.columns.node_columns import NodeColumns, Rows
from koord_scheduler.domain.columns.resource_names import can_be_ignored

Fits = Callable[[Subject, Rows], bool]
SeesOtherwise = Callable[[Subject], bool]
"""A function that tells whether plugins may show pods of this subject other nodes or amounts than there are."""
Rank = tuple[int, int, str]
"""Sort key of pods in the queue: (-priority, ticket, uid)."""
_MOST_LEFT: Final = 16
"""Entries of pods that left a group, beyond the number of its pods, above which they are removed from its heap."""


@dataclass(slots=True)
class Group:
    """Pods that wait for the same event, ordered by priority and time of enqueueing. A pod that leaves and returns with
    the same priority, while others wait, keeps its place: the heap has its rank.
    """

    heap: list[Rank] = field(default_factory=list[Rank])
    members: set[str] = field(default_factory=set[str])
    ranks: dict[str, Rank] = field(default_factory=dict[str, Rank])

    def add(self, rank: Rank) -> None:
        """Add a pod with its sort key (`QueuedPod.rank`, which contains the uid)."""
        priority, _, uid = rank
        known = self.ranks.get(uid)
        if known is None or known[0] != priority:
            self.ranks[uid] = rank
            heapq.heappush(self.heap, rank)
        self.members.add(uid)
        if len(self.heap) > 2 * len(self.members) + _MOST_LEFT:
            self.ranks = {each: self.ranks[each] for each in self.members}
            self.heap = sorted(self.ranks.values())

    def discard(self, uid: str) -> None:
        """Remove a pod. No-op if it is not in the group."""
        self.members.discard(uid)

    def first(self) -> str | None:
        """The uid of the pod with the highest priority, of equals the one that waits longest. None if there is none."""
        while self.heap:
            rank = self.heap[0]
            uid = rank[2]
            is_present = self.ranks.get(uid) == rank
            if is_present and uid in self.members:
                return uid
            heapq.heappop(self.heap)
            if is_present:
                del self.ranks[uid]
        return None

    def first_but(self, is_passed_over: Callable[[str], bool]) -> str | None:
        """Return the first pod that is not passed over; None if there is none. Its time grows with the group only if
        `first` is passed over.
        """
        head = self.first()
        if head is None or not is_passed_over(head):
            return head
        ranks = [self.ranks[uid] for uid in self.members if not is_passed_over(uid)]
        return min(ranks)[2] if ranks else None


@dataclass(slots=True, kw_only=True)
class _Group(Group):
    subject: Subject
    slot: int


class WaitingRoom:
    """The unschedulable pods that fit on no node, in groups of equal `Subject`."""

    def __init__(self, nodes: NodeColumns, sees_otherwise: SeesOtherwise) -> None:
        self._nodes = nodes
        self._sees_otherwise = sees_otherwise
        self._groups: dict[Subject, _Group] = {}
        self._slots: list[_Group] = []
        self._need = np.zeros((16, len(nodes.allocatable)), np.int64)

    def add(self, subject: Subject, rank: Rank) -> None:
        """Add a waiting pod with its sort key (`QueuedPod.rank`) to the group of its subject."""
        group = self._groups.get(subject)
        if group is None:
            group = self._groups[subject] = _Group(subject=subject, slot=len(self._slots))
            self._slots.append(group)
            self._write_need(group)
        group.add(rank)

    def discard(self, subject: Subject, uid: str) -> None:
        """Remove a pod that no longer waits from the group of its subject. No-op if it is not in the group."""
        group = self._groups.get(subject)
        if group is None or uid not in group.members:
            return
        group.members.remove(uid)
        if not group.members:
            self._drop(group)

    def move(self, before: Subject, subject: Subject, uid: str) -> None:
        """Move a waiting pod to the group of another subject. If it waits alone, its group keeps its place."""
        group = self._groups[before]
        if len(group.members) > 1 or subject in self._groups:
            self.discard(before, uid)
            self.add(subject, group.ranks[uid])
            return
        del self._groups[before]
        self._groups[subject] = group
        group.subject = subject
        self._write_need(group)

    def first(self, subject: Subject) -> str | None:
        """Return the uid of the first waiting pod of a subject, or None if none waits."""
        group = self._groups.get(subject)
        return group.first() if group is not None else None

    def groups(self) -> Sequence[Group]:
        """Return the groups in the order in which they began to wait."""
        return self._slots

    def subjects(self) -> list[Subject]:
        """Return the subjects of the groups in the order in which they began to wait."""
        return [group.subject for group in self._slots]

    def helped(self, rows: Rows, fits: Fits) -> list[Subject]:
        """Return the subjects that fit on at least one of the changed nodes, in the order in which they began to wait.
        `rows`: positions of the changed nodes, shape (K,). `fits`: returns whether a subject fits on one of the given
        nodes. Called only if the free amounts suffice.
        """
        if not self._slots or len(rows) == 0:
            return []
        free = self._nodes.free
        if self._need.shape[1] < len(free):
            grown = np.zeros((len(self._need), len(free)), np.int64)
            grown[:, : self._need.shape[1]] = self._need
            self._need = grown
        best = free[:, rows].max(axis=1)
        need = self._need[: len(self._slots)]
        possible = np.flatnonzero(((need <= best) | (need == 0)).all(axis=1))
        return [self._slots[slot].subject for slot in possible.tolist() if fits(self._slots[slot].subject, rows)]

    def _write_need(self, group: _Group) -> None:
        if group.slot >= len(self._need) or len(self._nodes.allocatable) > self._need.shape[1]:
            grown = np.zeros((max(2 * group.slot, 16), len(self._nodes.allocatable)), np.int64)
            grown[: len(self._need), : self._need.shape[1]] = self._need
            self._need = grown
        self._need[group.slot] = 0
        if self._sees_otherwise(group.subject):
            return
        demand = group.subject.pod_class.demand
        for resource, (column, amount) in zip(demand.names, demand.pairs, strict=True):
            # What the profile may be told to ignore is left to the exact answer.
            if not can_be_ignored(resource):
                self._need[group.slot, column] = amount

    def _drop(self, group: _Group) -> None:
        last = self._slots.pop()
        if last is not group:
            self._slots[group.slot] = last
            self._need[group.slot] = self._need[last.slot]
            last.slot = group.slot
        del self._groups[group.subject]
