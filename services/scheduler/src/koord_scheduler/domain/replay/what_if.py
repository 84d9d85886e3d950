"""Repeats the decisions of a window of the log under another configuration, without effects.

    before(stored)    fold the facts before the window, our own decisions included
    window(events)    the events of the window
    rerun(events)     pods, nodes and load change as recorded; decisions of schedulers in the window are skipped, and
                      every decision is made here and takes effect at once, only in this state

Every recorded attempt is repeated in the recorded order: on the facts and reports that it names, at its time, with
the nodes released that had been released by then. A pod that has no node here although it has one in the recording is
attempted when an event may help it. A pod that the recording never attempted is attempted when nothing else happens.

A victim that the same pod preempted in the recording leaves when it did there, any other victim at once. Pods that
were preempted only in the recording leave when they did there.

Source: scheduler-core spec, 1; event-bus spec, 6
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
from koordcore.events import CATALOGUE
from koordcore.events.envelope import AggregateRef, StoredEvent
from koordcore.events.gateway import PodBindFailed, PodEvictionRequested
from koordcore.events.objects import PodSpecDeleted
from koordcore.events.pod import PodNominated
from koordcore.values.timestamps import unix_seconds

from koord_scheduler.domain.cluster.record import Phase
from koord_scheduler.domain.loop.commit.status_writes import TakenStatusWrite
from koord_scheduler.domain.loop.commit.work import NodeWork, Placement, Release, Work
from koord_scheduler.domain.loop.cycle.deciding import decide_next, settle_waits
from koord_scheduler.domain.loop.folding.log import fold, fold_ahead, fold_report, skip
from koord_scheduler.domain.loop.queue.nominator import PREEMPTED
from koord_scheduler.domain.loop.queue.queued_pod import Came, QueueState
from koord_scheduler.domain.loop.state.state import SchedulerState
from koord_scheduler.domain.replay import recording as recordings
from koord_scheduler.domain.replay.recording import stored_as, subject_of, without_node

OWN_KINDS: Final = frozenset({"pod", "node", "gang", "quota", "scheduleexplanation", "clustertopology"})
"""Kinds of aggregates that schedulers write. In the window, their events are skipped."""
_NOBODY: Final[recordings.Term] = ("", "")
IDLE_SECONDS: Final = 1.0
"""After this time without an event, a scheduler has decided everything that it could."""
EVENTS_OF_PROGRESS: Final = 1_000


@dataclass(frozen=True, slots=True)
class Fate:
    """The node of one pod in the recording and in the re-run. The two may be equal."""

    namespace: str
    name: str
    recorded: str  # Its node in the recording; "" if it had none
    rerun: str  # Its node in the re-run; "" if it got none


class WhatIf:
    """A re-run of scheduling decisions under another configuration, on a private copy of the state."""

    def __init__(self, state: SchedulerState) -> None:
        self.state = state
        self.placed: dict[str, str] = {}  # Uid -> node that the re-run chose, for pods that still have the node
        self.nominated: list[recordings.Nomination] = []  # The nominations of the re-run
        self.evicted: dict[str, tuple[str, str]] = {}  # Uid -> (namespace, name) of pods that the re-run preempted
        self.decided = 0  # Number of decisions of the re-run that found a node
        self._names: dict[str, tuple[str, str]] = {}
        self._now = 0.0
        self._seq = 0
        self._half = ""
        self._is_half = False
        self._recording = recordings.Recording()
        self._gone: set[str] = set()
        self._turns: Counter[str] = Counter()
        self._in_flight: list[NodeWork] = []
        self._answers: dict[str, recordings.Appended] = {}
        self._owed: dict[str, None] = {}
        self._woken = 0
        self._term: recordings.Term | None = None
        self._ordinal = 0
        self._known: tuple[recordings.Term, int, int] = (_NOBODY, 0, 0)
        self._reports: Sequence[StoredEvent] = ()
        self._next_report = 0

    def before(self, stored: StoredEvent) -> None:
        """Fold an event from before the window that is decided again. Raises UnreadableEvent: the event cannot be
        decoded.
        """
        self._now = max(self._now, unix_seconds(stored.occurred_at))
        fold(self.state, stored)
        self._is_half = stored.type in ("PodPlaced", "PodReleased") or (self._is_half and stored.ref.kind != "node")
        self._half = stored.causation_id if stored.type in ("PodNominated", "PodEvictionRequested") else ""

    def window(self, events: Sequence[StoredEvent]) -> Sequence[StoredEvent]:
        """Return the events to decide again: the window without the rest of an append that began before it. This rest
        is folded here as by `before`.
        """
        rest = 0
        while rest < len(events) and (self._is_half or self._is_asked_with(events[rest])):
            self.before(events[rest])
            rest += 1
        return events[rest:]

    def _is_asked_with(self, stored: StoredEvent) -> bool:
        return stored.type == "PodEvictionRequested" and bool(self._half) and stored.causation_id == self._half

    def rerun(
        self,
        events: Sequence[StoredEvent],
        recording: recordings.Recording,
        reports: Sequence[StoredEvent] = (),
        progress: Callable[[int], None] | None = None,
    ) -> None:
        """Decide the window of the log again, attempt by attempt. `events`: those that `window` returned. `reports`: as
        far as they are retained. `progress`: called with the position after every 1,000 events. Raises UnreadableEvent.
        """
        self._recording, self._reports = recording, reports
        self._seq = events[-1].seq if events else self.state.log.position
        self._turns.update(one.uid for one in recording.attempts)
        attempts = iter([*recording.attempts, None])
        one = next(attempts)
        while one is not None and one.position <= self.state.log.position:
            self._again(one)
            one = next(attempts)
        for number, stored in enumerate(events, 1):
            self._pass_time(unix_seconds(stored.occurred_at))
            self._answer(one, stored.seq - 1)
            self._take(stored)
            while one is not None and one.position <= stored.seq:
                self._again(one)
                one = next(attempts)
            if progress is not None and (number % EVENTS_OF_PROGRESS == 0 or number == len(events)):
                progress(stored.seq)
        self._known = (_NOBODY, self._seq, self._seq)
        self._settle(self._now)
        self._attempt_owed(self._now)

    def fates(self) -> list[Fate]:
        """Return each pod that has a node in the recording or in the re-run, with both nodes, by namespace and name."""
        recorded = self._recording
        names = {**recorded.names, **self._names}
        fates = [
            Fate(*names[uid], recorded.placed.get(uid, ""), self.placed.get(uid, ""))
            for uid in recorded.placed.keys() | self.placed.keys()
        ]
        return sorted(fates, key=lambda fate: (fate.namespace, fate.name))

    # --- triggers ----------------------------------------------------------------------------------------------------

    def _take(self, stored: StoredEvent) -> None:
        self._known = (_NOBODY, stored.seq, stored.seq)
        uid = stored.ref.id
        if stored.ref.kind in OWN_KINDS or uid in self._gone:
            skip(self.state, stored.seq)
            return
        if stored.ref.kind == "eviction":
            self._take_eviction(stored)
            return
        if subject_of(stored) in self._recording.names:
            stored = without_node(stored)
        if stored.type == PodBindFailed.__name__:
            stored = self._bind_failed(stored)
        fold(self.state, stored)

    def _answer(self, coming: recordings.Recorded | None, position: int) -> None:
        """Confirm what the log has up to a position and the next attempt knows, before more is folded."""
        if self._in_flight or self.state.assumed.to_release:
            known = position if coming is None else min(coming.acknowledged, position)
            self._known = (_NOBODY if coming is None else coming.term, position, known)
            self._release()
            self._land()

    def _take_eviction(self, stored: StoredEvent) -> None:
        """Fold evictions that others requested. Evictions by preemption are decided here."""
        event = CATALOGUE.read(stored)
        skip(self.state, stored.seq)
        is_own = isinstance(event, PodEvictionRequested) and event.reason == PREEMPTED
        if not is_own and (isinstance(event, PodEvictionRequested) or stored.ref.id in self.state.nominator.evictions):
            fold_ahead(self.state, msgspec.structs.replace(stored, seq=self._next_seq()))

    def _bind_failed(self, stored: StoredEvent) -> StoredEvent:
        """Return the event so that the binding fails here as well, if it was to the same node."""
        event, pod = CATALOGUE.read(stored), self.state.pods.get(stored.ref.id)
        if not isinstance(event, PodBindFailed) or pod is None or pod.node != event.node:
            return stored
        changed = msgspec.structs.replace(event, placement=pod.seq)
        return msgspec.structs.replace(stored, body=stored_as(stored.seq, stored.ref, changed).body)

    def _pass_time(self, until: float) -> None:
        """Advance the time. In a pause, make the decisions that become due and that the recording does not contain."""
        if until - self._now > IDLE_SECONDS:
            self._settle(self._now)
            self._attempt_idle(self._now)
            while (due := self.state.next_due()) is not None and due < until:
                self._settle(max(due, self._now))
                self._attempt_idle(self._now)
        self._now = max(self._now, until)

    # --- attempts ----------------------------------------------------------------------------------------------------

    def _again(self, one: recordings.Recorded) -> None:
        """Repeat a recorded attempt, after the unrecorded decisions that its scheduler had made by then."""
        while self._next_report < len(self._reports) and self._reports[self._next_report].seq <= one.observed:
            fold_report(self.state, self._reports[self._next_report])
            self._next_report += 1
        if one.term != self._term:
            if self._term is not None:
                self.state.commits.withdraw_all()
            self._term, self._ordinal = one.term, one.before
        self._known = (one.term, one.position, one.acknowledged)
        self._settle(one.now)
        if one.before > self._ordinal:
            self._attempt_unsaid(one.before - self._ordinal, one.now)
        self._ordinal = max(self._ordinal, one.order[0])
        self._turns[one.uid] -= 1
        if one.stored:
            self._answers[one.uid] = recordings.Appended(one.stored, one.term)
        self._attempt(one.uid, one.now)
        if not self._turns[one.uid]:
            self._owed[one.uid] = None
        self._attempt_owed(one.now)

    def _attempt(self, uid: str, now: float) -> None:
        """Attempt the pod, after the members of the gang that is being scheduled."""
        queued = self.state.queue.get(uid)
        before = queued.attempts if queued is not None else 0
        while queued is not None and queued.attempts == before and self._decide(now, uid):
            queued = self.state.queue.get(uid)

    def _attempt_owed(self, now: float) -> None:
        """Attempt the pods that have no node here and no further recorded attempt, once an event may help them."""
        incoming = self.state.queue.incoming
        woken = sum(
            count for (place, came), count in incoming.items() if place is QueueState.ACTIVE and came != Came.ADDED
        )
        if woken != self._woken:
            self._woken = woken
            self._attempt_all(list(self._owed), now)

    def _attempt_idle(self, now: float) -> None:
        """Attempt the pods that the recording does not attempt any more, unless its scheduler was away. It was away if
        pods waited that it attempted only later, or if a gang's round was in progress.
        """
        if not self.state.queue.has_active() or self.state.books.gangs.round is not None:
            return
        active = self._in_turn(list(self.state.pods))
        if not any(self._turns[uid] for uid in active):
            self._attempt_all([uid for uid in self.state.pods if not self._turns[uid]], now)

    def _attempt_unsaid(self, most: int, now: float) -> None:
        """Make decisions that the log lacks, for pods that had a node at the end or lost it without a record."""
        until = self.decided + most
        for uid in self._in_turn([uid for uid in self.state.pods if not self._turns[uid]]):
            if self.decided >= until:
                return
            self._attempt(uid, now)

    def _attempt_all(self, uids: Sequence[str], now: float) -> None:
        while active := self._in_turn(uids):
            for uid in active:
                self._attempt(uid, now)

    def _in_turn(self, uids: Sequence[str]) -> list[str]:
        known = (self.state.queue.get(uid) for uid in uids)
        active = [queued for queued in known if queued is not None and queued.state is QueueState.ACTIVE]
        return [queued.uid for queued in sorted(active, key=lambda queued: queued.rank)]

    # --- decisions ---------------------------------------------------------------------------------------------------

    def _settle(self, now: float) -> None:
        """Apply the effects of time and events."""
        state = self.state
        self._now = max(self._now, now)
        state.frameworks.advance(now)
        state.queue.tick(now)
        state.hints.wake()
        self._release()
        settle_waits(state, now)
        self._land()

    def _decide(self, now: float, uid: str) -> bool:
        """Attempt to place the pod `uid` once. Return False if it is not ready."""
        decided = decide_next(self.state, now, uid)
        self.decided += isinstance(decided, Placement)
        self._land()
        self.state.hints.wake()
        return decided is not None

    def _release(self) -> None:
        """Release nodes, and delay the releases that the recording had not stored by now."""
        due = self.state.assumed.to_release
        held: dict[str, tuple[str, str]] = {}
        for uid in list(due):
            pod = self.state.pods[uid]
            if self._is_held(uid) and pod.phase in (Phase.PLACED, Phase.RELEASING):
                held[uid] = due.pop(uid)
                pod.phase, pod.work_node = Phase.RELEASING, pod.node
            elif pod.phase is Phase.RELEASING:
                pod.phase, pod.work_node = Phase.PLACED, ""
        for uid in due:
            del self._recording.freed.get(uid, [])[:1]
        self.state.assumed.release_due()
        due.update(held)

    def _is_held(self, uid: str) -> bool:
        freed = self._recording.freed.get(uid)
        return bool(freed) and self._is_to_come(freed[0])

    def _is_to_come(self, appended: recordings.Appended | None) -> bool:
        """Return whether the append was still unknown to the scheduler whose attempt is repeated now."""
        term, position, acknowledged = self._known
        return appended is not None and appended.seq > (acknowledged if appended.term == term else position)

    def _land(self) -> None:
        """Confirm decisions: at once, or when the recorded decision about the same pod was confirmed."""
        state = self.state
        while (taken := state.status.next()) is not None:
            state.status.stored(taken, [self._next_seq() for _ in taken.drafts])
            self._note(taken)
        while True:
            while (batch := state.assumed.outbox.take()).works:
                self._in_flight += batch.works
                for work in batch.works:  # several at a time: they may have gone together in the recording
                    state.assumed.outbox.landed(work.node)
            held: list[NodeWork] = []
            landed: list[NodeWork] = []
            for work in self._in_flight:
                (held if any(map(self._is_awaited, work.items)) else landed).append(work)
            self._in_flight = held
            if not landed:
                return
            for work in landed:
                self._confirm(work)
            self._release()

    def _is_awaited(self, item: Work) -> bool:
        return isinstance(item, Placement) and self._is_to_come(self._answers.get(item.uid))

    def _confirm(self, work: NodeWork) -> None:
        seqs = [self._next_seq() for _ in work.items]
        self.state.commits.confirmed(work, self._next_seq(), seqs, f"what-if-{self._seq}")
        for item in work.items:
            self._names[item.uid] = (item.namespace, item.name)
            if isinstance(item, Placement):
                self.placed[item.uid] = item.node
                self._owed.pop(item.uid, None)
                self._answers.pop(item.uid, None)
            elif isinstance(item, Release):
                self.placed.pop(item.uid, None)

    def _note(self, taken: TakenStatusWrite) -> None:
        """Record nominations, and delete the victims that the recording did not preempt in the same way."""
        pairs: set[tuple[str, str]] = set()
        for draft in taken.drafts:
            if isinstance(draft.event, PodNominated):
                self.nominated.append(recordings.nomination_of(draft.event))
                pairs.update((draft.ref.id, victim.uid) for victim in draft.event.victims)
        for draft in taken.drafts:
            event, uid = draft.event, draft.ref.id
            if isinstance(event, PodEvictionRequested) and event.reason == PREEMPTED:
                self.evicted[uid] = (event.namespace, event.name)
                if uid not in {victim for _, victim in pairs & self._recording.pairs}:
                    self._gone.add(uid)
                    gone = PodSpecDeleted(namespace=event.namespace, name=event.name)
                    fold_ahead(self.state, stored_as(self._next_seq(), AggregateRef("podspec", uid), gone))
        self._release()

    def _next_seq(self) -> int:
        self._seq += 1
        return self._seq
