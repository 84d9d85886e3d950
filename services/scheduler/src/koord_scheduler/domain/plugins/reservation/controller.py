"""Ends Reservations that expired, lost their node or were used once, and requests the deletion of their objects. With
the gate CleanExpiredReservationAllocated, the owners of a deleted Reservation use it no longer. Each run examines only
the Reservations that changed since the last run, and those whose deadline has passed.

Source: scheduler-fine-grained spec, 3.2 (validation), 3.3.
"""

import heapq
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Final

from koordcore.events.envelope import AggregateRef, Event
from koordcore.events.reservation import (
    ReservationCollected,
    ReservationDeleted,
    ReservationFailed,
    ReservationSucceeded,
    ReservationUnschedulable,
)
from koordcore.protocol.reservation_status import FAILED, SUCCEEDED
from koordcore.values.timestamps import rfc3339

from koord_scheduler.domain.cluster.forgetting import Forgetting
from koord_scheduler.domain.columns.node_columns import NodeColumns
from koord_scheduler.domain.config.koordinator_args import ReservationArgs
from koord_scheduler.domain.framework.lifecycle_hooks import ControllerDecision, ReservationLeft, Status
from koord_scheduler.domain.plugins.reservation.books import ReservationBooks
from koord_scheduler.domain.plugins.reservation.entry import NOWHERE, Entry

_REPEAT_SECONDS: Final = 30.0
"""Seconds after which a fact is published again that the log has refused or has not stored."""
_ENDS: Final = (ReservationFailed.__name__, ReservationSucceeded.__name__)
_JUST_AFTER: Final = 0.001
"""A Reservation has not expired at the very moment of its limit."""


class ReservationController:
    """Publishes the status of Reservations: placed, expired, used or without a node. Requests the deletion of ended
    ones. `frees_owners`: gate CleanExpiredReservationAllocated: whether owners of a deleted Reservation stop using it.
    """

    def __init__(
        self, nodes: NodeColumns, books: ReservationBooks, args: ReservationArgs, *, frees_owners: bool = False
    ) -> None:
        self._nodes = nodes
        self._books = books
        self._args = args
        self._frees_owners = frees_owners
        self._has_looked = not frees_owners
        self._times: list[tuple[float, str]] = []
        self._planned: dict[str, float] = {}
        self._published: dict[str, tuple[str, float]] = {}
        self._forgetting = Forgetting()
        self._forgetting_times = Forgetting()

    def problem_of(self, uid: str) -> str:
        """Return a sentence about why a Reservation is invalid and never scheduled; "" if no reason is known."""
        entry = self._books.entries.get(uid)
        if entry is None or entry.terms is None or entry.limits is None:
            return ""
        if entry.terms.owners is not None and not entry.terms.owners.rules:
            return "the reservation must have owners"
        if entry.limits.ttl is None and entry.limits.expires is None:
            return "the reservation must have ttl or expires"
        return ""

    def found_no_node(self, uid: str, message: str) -> None:
        """Record why an attempt found no node for a Reservation, so that the next run publishes it in the status. No-op
        if the Reservation is unknown, or if its published status has this message already.
        """
        entry = self._books.entries.get(uid)
        if entry is not None and message != entry.said:
            entry.to_say = message
            self._books.due[uid] = None

    def due(self) -> float | None:
        """Return 0 if a Reservation has changed or the first run is due, else Unix seconds of the next expiry. None for
        never.
        """
        if self._books.due or not self._has_looked:
            return 0.0
        return self._times[0][0] if self._times else None

    def control(self, now: float) -> list[ControllerDecision]:
        if not self._has_looked:
            self._has_looked = True
            self._books.due.update(dict.fromkeys(uid for uid, entry in self._books.entries.items() if not entry.terms))
        uids = list(self._books.due)
        self._books.due.clear()
        while self._times and self._times[0][0] <= now:
            at, uid = heapq.heappop(self._times)
            if self._planned.get(uid) == at:
                del self._planned[uid]
                uids.append(uid)
        self._forget_gone()
        wanted: list[ControllerDecision] = []
        for uid in dict.fromkeys(uids):
            entry = self._books.entries.get(uid)
            if entry is not None and uid not in self._books.operating:
                wanted += self._statuses(entry, now)
                wanted += [ReservationLeft(owner, entry.uid) for owner in self._to_free(entry)]
                self._plan(entry, now)
        return wanted

    def _forget_gone(self) -> None:
        """Forget statuses and times of Reservations that do not exist. No-op until `Forgetting` requires a search."""
        if self._forgetting_times.is_due(len(self._times)):  # they may expire in years
            self._planned = {uid: at for uid, at in self._planned.items() if uid in self._books.entries}
            self._times = sorted((at, uid) for uid, at in self._planned.items())
            self._forgetting_times.searched(len(self._times))
        if self._forgetting.is_due(len(self._published)):
            self._published = {uid: said for uid, said in self._published.items() if uid in self._books.entries}
            self._forgetting.searched(len(self._published))

    def _to_free(self, entry: Entry) -> Iterable[str]:
        """Return the uids of pods that use a Reservation whose object is deleted and that holds nothing any more."""
        is_gone = entry.terms is None and entry.row == NOWHERE
        return entry.owners if self._frees_owners and is_gone else ()

    def _statuses(self, entry: Entry, now: float) -> Iterator[Status]:
        event = self._next_event(entry, now)
        if event is None:
            return
        kind = type(event).__name__
        if not isinstance(event, ReservationUnschedulable):
            said, at = self._published.get(entry.uid, ("", 0.0))
            if said == kind and now < at + _REPEAT_SECONDS:
                return
            self._published[entry.uid] = (kind, now)
        yield Status(AggregateRef("reservation", entry.uid), event)

    def _next_event(self, entry: Entry, now: float) -> Event | None:
        if entry.terms is None:
            return self._of_deleted(entry)
        if entry.phase_by_others():
            return None  # its life is the business of the scheduler that placed it
        if entry.phase:
            is_over = self._is_garbage(entry, now)
            return ReservationCollected(name=entry.name) if is_over else None
        since = rfc3339(datetime.fromtimestamp(entry.placed_at, UTC)) if entry.node else ""
        if entry.is_consumed:
            owner = next(iter(entry.owners), "")
            return ReservationSucceeded(
                name=entry.name,
                node=entry.node,
                owner=owner,
                available_since=since,
                allocatable=dict(entry.allocatable),
            )
        is_lost = bool(entry.node) and self._nodes.row(entry.node) is None
        if is_lost or (entry.limits is not None and entry.limits.is_over(now)):
            message = f"its node {entry.node} is gone" if is_lost else "its time is over"
            return ReservationFailed(
                name=entry.name,
                node=entry.node,
                message=message,
                available_since=since,
                allocatable=dict(entry.allocatable),
            )
        if entry.to_say and not entry.node:
            entry.said, entry.to_say = entry.to_say, ""
            return ReservationUnschedulable(name=entry.name, message=entry.said)
        return None

    def _of_deleted(self, entry: Entry) -> Event | None:
        return ReservationDeleted(name=entry.name) if entry.phase or entry.said else None

    def _is_garbage(self, entry: Entry, now: float) -> bool:
        if not self._collects(entry) or entry.phase not in (SUCCEEDED, FAILED):
            return False
        is_lost = bool(entry.node) and self._nodes.row(entry.node) is None
        return is_lost or now - entry.ended_at > self._args.gc_duration_seconds

    def _collects(self, entry: Entry) -> bool:
        """Return whether the deletion of an ended Reservation's object is still to be requested."""
        return not (self._args.disable_garbage_collection or entry.is_collected)

    def _plan(self, entry: Entry, now: float) -> None:
        """Look at the Reservation again when its time comes."""
        at: float | None = None
        published = self._published.get(entry.uid)
        answers = (*_ENDS, ReservationCollected.__name__) if entry.is_collected else _ENDS
        is_answered = bool(entry.phase) and published is not None and published[0] in answers
        if published is not None and not is_answered:
            at = published[1] + _REPEAT_SECONDS
        elif entry.phase:
            if self._collects(entry):
                at = max(entry.ended_at + self._args.gc_duration_seconds, now + self._args.gc_interval_seconds)
        elif entry.limits is not None and (end := entry.limits.due()) is not None:
            at = end + _JUST_AFTER
        if at is None and self._to_free(entry):
            at = now + _REPEAT_SECONDS
        if at is not None and self._planned.get(entry.uid) != at:
            self._planned[entry.uid] = at
            heapq.heappush(self._times, (at, entry.uid))
