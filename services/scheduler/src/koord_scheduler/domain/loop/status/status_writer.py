"""Status writes on their way to the log, and what follows from its answer.

Source: event-bus spec, 4.2
"""

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field

from koordcore.events.envelope import AggregateRef, Event
from koordcore.events.gateway import PodEvictionRequested
from koordcore.events.pod import PodDeviceUnhealthy, PodNominated
from koordcore.events.schedule_explanation import ScheduleExplanationComputed

from koord_scheduler.domain.cluster.forgetting import DeletedPods
from koord_scheduler.domain.cluster.record import Phase, PodRecord
from koord_scheduler.domain.framework.books import Book
from koord_scheduler.domain.loop.commit.status_writes import StatusWrite, StatusWrites, TakenStatusWrite
from koord_scheduler.domain.loop.queue.nominator import Nominator
from koord_scheduler.domain.loop.queue.scheduling_queue import SchedulingQueue
from koord_scheduler.domain.loop.status.schedule_explanations import KIND, ScheduleExplanations


@dataclass(slots=True)
class ControllerTimes:
    """When controllers run next, in seconds of the service's `Clock`."""

    next_look: float = 0.0  # When explanations and the network are examined again
    next_topology: float = 0.0  # When the network's domains are examined again
    # `<scheduler name>/<plugin>` -> the next run of its controller.
    next_control: dict[str, float] = field(default_factory=dict[str, float])


class StatusWriter:
    """Status writes until the log has answered them. Books know what their features have published. `position`: returns
    the position in the log of the last folded event. `publishing`: kind of an aggregate -> the book whose feature
    publishes its status.
    """

    def __init__(
        self,
        writes: StatusWrites,
        *,
        position: Callable[[], int],
        pods: dict[str, PodRecord],
        deleted: DeletedPods,
        queue: SchedulingQueue,
        nominator: Nominator,
        publishing: Mapping[str, Book],
    ) -> None:
        self.writes = writes  # Status writes that the log has not answered yet
        self.due = ControllerTimes()  # When controllers run next
        self.explanations = ScheduleExplanations()  # Questions of ScheduleExplanations, with their published statuses
        self._position = position
        self._pods = pods
        self._deleted = deleted
        self._queue = queue
        self._nominator = nominator
        self._publishing = publishing

    def last_seq(self, ref: AggregateRef) -> int | None:
        """Return the position of the last known event of an aggregate, which the next status write expects. 0 without
        one. Returns None if another append about the aggregate is in flight.
        """
        if ref.kind != "pod":
            return self.writes.seqs.get(ref, 0)
        pod = self._pods.get(ref.id)
        if pod is None:
            return self._deleted.seq_of(ref.id)
        return None if pod.work_node or pod.phase is Phase.RELEASING else pod.seq

    def in_log(self, ref: AggregateRef, seq: int) -> None:
        """Record that the log has an event of an aggregate at position `seq`. The next status write expects it. If
        there are many, forget the positions of aggregates whose objects do not exist.
        """
        self.writes.seqs[ref] = max(seq, self.writes.seqs.get(ref, 0))
        self.writes.prune(self._position(), self._exists)

    def _exists(self, ref: AggregateRef) -> bool:
        if ref.kind == "eviction":
            return ref.id in self._pods
        if ref.kind == KIND:
            return ref.id in self.explanations.questions
        book = self._publishing.get(ref.kind)
        return book is None or book.exists(ref)

    def takes(self, ref: AggregateRef, event: Event) -> bool:
        """Return whether a status must be published. If its feature has a book, it counts as published there."""
        book = self._publishing.get(ref.kind)
        return book is None or book.takes(event)

    def next(self) -> TakenStatusWrite | None:
        """Take the next status write that may be appended; None if there is none. Status writes that have become wrong
        meanwhile are undone.
        """
        while (taken := self.writes.take(self.last_seq)) is not None:
            if self._is_true(taken.write):
                return taken
            self.refused(taken)
        return None

    def _is_true(self, write: StatusWrite) -> bool:
        """Return whether a write still holds: the pod is nominated, or still holds its devices on the node."""
        uid = write.uid
        if uid and not (uid in self._pods and not self._pods[uid].node and self._nominator.node_of(uid)):
            return False
        for ref, event in write.facts:
            if isinstance(event, PodDeviceUnhealthy):
                pod = self._pods.get(ref.id)
                if pod is None or event.node not in (pod.node, pod.bound_node):
                    return False
        return True

    def stored(self, taken: TakenStatusWrite, seqs: Sequence[int]) -> None:
        """Record the positions of a status write that the log has stored. `seqs`: positions of its events, in the order
        of its drafts.
        """
        self.writes.landed(taken)
        for draft, seq in zip(taken.drafts, seqs, strict=True):
            if draft.ref.kind == "pod":
                self._pod_stored(draft.ref.id, draft.event, seq, taken.write.trigger)
            else:
                self.in_log(draft.ref, seq)
            if isinstance(draft.event, PodEvictionRequested):
                self._nominator.unsaid.discard(draft.ref.id)
            book = self._publishing.get(draft.ref.kind)
            if book is not None:
                book.stored(draft.event)

    def _pod_stored(self, uid: str, event: Event, seq: int, trigger: str) -> None:
        pod = self._pods.get(uid)
        if pod is not None:
            if isinstance(event, PodDeviceUnhealthy) and seq > pod.seq:
                pod.unhealthy = tuple(event.devices)
            pod.seq = max(pod.seq, seq)
        elif isinstance(event, PodNominated):
            self._nominator.stored_after_deletion(uid, event, seq, trigger)

    def refused(self, taken: TakenStatusWrite, *, for_good: bool = False) -> None:
        """Undo a status write that the log has refused. Nominations of pods about which a newer event was read since
        then stay. `for_good`: whether the log will never store it, because it is too large.
        """
        self.writes.landed(taken)
        known = {draft.ref: self.last_seq(draft.ref) or 0 for draft in taken.drafts if draft.ref.kind == "pod"}
        moved = {draft.ref for draft in taken.drafts if known.get(draft.ref, 0) > draft.expected_last}
        self.undo(taken.write, moved, for_good=for_good)

    def undo(self, write: StatusWrite, moved: Container[AggregateRef] = (), *, for_good: bool = False) -> None:
        """Undo a status write that will not be stored, and wake its pod if it waits. Nominations and requested
        evictions are dropped. Statuses count as not published and are published again. `moved`: aggregates of pods with
        newer events. Their nominations stay, because others may have changed them. `for_good`: whether the same write
        would never be stored. Then a status is published again only after it has changed, the answer to a
        ScheduleExplanation in short, and the pod waits for an event that may help it.
        """
        for ref, event in write.facts:
            match event:
                case PodNominated() if ref in moved:
                    pass
                case PodNominated():
                    self._nominator.drop(ref.id)
                case PodEvictionRequested() if ref.id in self._nominator.unsaid:
                    self._nominator.not_evicted(ref.id)
                case PodDeviceUnhealthy(devices=devices):
                    if for_good and ref.id in self._pods:
                        self._pods[ref.id].unstorable = tuple(devices)
                case ScheduleExplanationComputed():
                    self.explanations.unsaid(ref.id, event, is_too_large=for_good)
                case _ if (book := self._publishing.get(ref.kind)) is not None:
                    book.unsaid(event, again=not for_good)
                case _:
                    pass
        uid = write.uid
        if uid and not for_good and self._queue.get(uid) is not None:
            self._queue.wake_pod(uid, write.trigger)

    def withdraw_all(self) -> None:
        """Undo every status write that is not in flight, because another scheduler leads from now on."""
        for write in self.writes.withdraw_all():
            self.undo(write)
