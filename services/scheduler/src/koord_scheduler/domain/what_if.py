"""What another configuration would have decided: recorded triggers decided anew, effects off.

    before(stored)    facts up to the beginning, our own decisions included
    window(events)    what comes after it
    rerun(events)     the window: pods, nodes and load come and go as recorded; what schedulers said in it is passed
                      over, and every decision is taken here and takes effect at once, in this state only

A decision is taken where the recorded one was: on the facts and reports that it names (`based_on`), at its time. Pods
that a decision preempts here are gone at once; pods that were preempted in the recording leave when they did then.

source    scheduler-core spec, 1; event-bus spec, 6
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

import msgspec
from koordcore.events import CATALOGUE
from koordcore.events.envelope import AggregateRef, Draft, Event, Origin, StoredEvent
from koordcore.events.gateway import PodEvictionRequested
from koordcore.events.mirror import PodSpecAdded, PodSpecChanged, PodSpecDeleted
from koordcore.events.pod import PodPlaced, PodReleased

from koord_scheduler.domain.deciding import confirmed, decide_next, give_up_overdue, release_due
from koord_scheduler.domain.notices import TakenNotice
from koord_scheduler.domain.state import SchedulerState
from koord_scheduler.domain.work import Place

OWN_KINDS: Final = frozenset({"pod", "node", "gang", "quota", "scheduleexplanation", "clustertopology", "eviction"})
"""What schedulers say. In the window they have not said it yet."""
IDLE_SECONDS: Final = 1.0
"""After so long without an event a scheduler has decided all that it could."""


@dataclass(frozen=True, slots=True)
class Fate:
    """Where a pod was placed in the recording, and where here; "" nowhere."""

    namespace: str
    name: str
    recorded: str
    rerun: str


@dataclass(slots=True)
class _Point:
    """The recorded decisions on one position. now: unix seconds of the last."""

    placed: int = 0
    observed: int = 0
    now: float = 0.0


@dataclass(slots=True)
class Recorded:
    """What schedulers decided in the window.

    placed   uid -> node, the last one
    names    uid -> namespace and name
    points   position -> the decisions that were based on it
    """

    placed: dict[str, str] = field(default_factory=dict[str, str])
    names: dict[str, tuple[str, str]] = field(default_factory=dict[str, tuple[str, str]])
    points: dict[int, _Point] = field(default_factory=dict[int, _Point])


def recorded_in(events: Sequence[StoredEvent]) -> Recorded:
    """The recorded decisions among these events."""
    found = Recorded()
    for stored in events:
        if stored.ref.kind != "pod":
            continue
        event = CATALOGUE.read(stored)
        if isinstance(event, PodPlaced):
            found.placed[stored.ref.id] = event.node
            found.names[stored.ref.id] = (event.namespace, event.name)
            based_on = event.explanation.based_on
            point = found.points.setdefault(based_on.ev, _Point())
            point.placed += 1
            point.observed = max(point.observed, based_on.obs)
            point.now = max(point.now, _unix(stored.occurred_at))
        elif isinstance(event, PodReleased):
            found.placed.pop(stored.ref.id, None)
    return found


class WhatIf:
    """One run over a state that nobody else uses.

    placed     uid -> node, by decisions taken here; of pods that still hold it
    evicted    uids of pods that were preempted here
    decided    how many decisions found a node
    """

    def __init__(self, state: SchedulerState) -> None:
        self.state = state
        self.placed: dict[str, str] = {}
        self.evicted: list[str] = []
        self.decided = 0
        self._names: dict[str, tuple[str, str]] = {}
        self._now = 0.0
        self._seq = 0
        self._is_half = False
        self._reports: Sequence[StoredEvent] = ()
        self._next_report = 0

    def before(self, stored: StoredEvent) -> None:
        """Fold a fact from before the window. Raises UnreadableEvent."""
        self._now = max(self._now, _unix(stored.occurred_at))
        self.state.apply(stored)
        self._is_half = stored.type in ("PodPlaced", "PodReleased") or (self._is_half and stored.ref.kind != "node")

    def window(self, events: Sequence[StoredEvent]) -> Sequence[StoredEvent]:
        """The events without those that belong to a batch of which some were folded before."""
        rest = 0
        while self._is_half and rest < len(events):
            self.before(events[rest])
            rest += 1
        return events[rest:]

    def rerun(
        self,
        events: Sequence[StoredEvent],
        recorded: Recorded,
        reports: Sequence[StoredEvent] = (),
        progress: Callable[[int], None] | None = None,
    ) -> None:
        """Decide the window anew.

        events      as `window` gave them
        recorded    the decisions among them
        reports     the nodes' reports, in order; those that are not kept any more are not known
        progress    called with each position
        raises      UnreadableEvent
        """
        self._reports = reports
        self._seq = events[-1].seq if events else self.state.position
        for position in sorted(position for position in recorded.points if position <= self.state.position):
            self._decide_like(recorded.points[position])
        for stored in events:
            self._pass_time(_unix(stored.occurred_at))
            self._take(stored, recorded)
            point = recorded.points.get(stored.seq)
            if point is not None:
                self._decide_like(point)
            if progress is not None:
                progress(stored.seq)
        self._decide(self._now)

    def fates(self, recorded: Recorded) -> list[Fate]:
        """Every pod that has a node in the recording or here, by namespace and name."""
        names = {**recorded.names, **self._names}
        fates = [
            Fate(*names[uid], recorded.placed.get(uid, ""), self.placed.get(uid, ""))
            for uid in recorded.placed.keys() | self.placed.keys()
        ]
        return sorted(fates, key=lambda fate: (fate.namespace, fate.name))

    # --- triggers ----------------------------------------------------------------------------------------------------

    def _take(self, stored: StoredEvent, recorded: Recorded) -> None:
        if stored.ref.kind in OWN_KINDS or stored.ref.id in self.evicted:
            self.state.skip(stored.seq)
            return
        if stored.ref.kind == "podspec" and stored.ref.id in recorded.names:
            stored = _without_node(stored)
        self.state.apply(stored)

    def _pass_time(self, until: float) -> None:
        """Time goes by; in a pause everything is decided that the time makes due."""
        if until - self._now > IDLE_SECONDS:
            self._decide(self._now)
            while (due := self.state.next_due()) is not None and due < until:
                self._decide(max(due, self._now))
        self._now = max(self._now, until)

    # --- decisions ---------------------------------------------------------------------------------------------------

    def _decide_like(self, point: _Point) -> None:
        """As many placements as the recording has here, on the reports that it had."""
        while self._next_report < len(self._reports) and self._reports[self._next_report].seq <= point.observed:
            self.state.observe(self._reports[self._next_report])
            self._next_report += 1
        self._decide(max(self._now, point.now), point.placed)

    def _decide(self, now: float, most: int | None = None) -> None:
        state, self._now = self.state, now
        state.frameworks.advance(now)
        state.queue.tick(now)
        state.wake()
        release_due(state)
        give_up_overdue(state, now)
        self._land()
        enough = None if most is None else self.decided + most
        while (enough is None or self.decided < enough) and (decided := decide_next(state, now)) is not None:
            self.decided += isinstance(decided, Place)
            self._land()
            state.wake()

    def _land(self) -> None:
        """Everything that was decided is so, at once."""
        state = self.state
        while (taken := state.next_notice()) is not None:
            state.notice_stored(taken, [self._stored() for _ in taken.drafts])
            self._evict(taken)
        while (batch := state.outbox.take()).works:
            for work in batch.works:
                seqs = [self._stored() for _ in work.items]
                confirmed(state, work, self._stored(), seqs, f"what-if-{self._seq}")
                for item in work.items:
                    self._names[item.uid] = (item.namespace, item.name)
                    if isinstance(item, Place):
                        self.placed[item.uid] = item.node
                    else:
                        self.placed.pop(item.uid, None)
            release_due(state)

    def _evict(self, taken: TakenNotice) -> None:
        for draft in taken.drafts:
            if isinstance(draft.event, PodEvictionRequested):
                self.evicted.append(draft.ref.id)
                gone = PodSpecDeleted(namespace=draft.event.namespace, name=draft.event.name)
                self.state.ahead(_stored(self._stored(), AggregateRef("podspec", draft.ref.id), gone))
        release_due(self.state)

    def _stored(self) -> int:
        self._seq += 1
        return self._seq


def _without_node(stored: StoredEvent) -> StoredEvent:
    """A pod as the API has it, but for the node that the recorded decision gave it."""
    event = CATALOGUE.read(stored)
    if not isinstance(event, PodSpecAdded | PodSpecChanged) or not event.object.spec.node_name:
        return stored
    spec = msgspec.structs.replace(event.object.spec, node_name="")
    changed = msgspec.structs.replace(event, object=msgspec.structs.replace(event.object, spec=spec))
    return msgspec.structs.replace(stored, body=_stored(stored.seq, stored.ref, changed).body)


def _stored(seq: int, ref: AggregateRef, event: Event) -> StoredEvent:
    origin = Origin(causation_id=f"what-if-{seq}", correlation_id=ref.id, actor="what-if", occurred_at="")
    [new] = CATALOGUE.seal([Draft(ref, event, 0)], origin)
    return StoredEvent(seq, ref, new.headers, new.body)


def _unix(occurred_at: str) -> float:
    try:
        return datetime.fromisoformat(occurred_at).timestamp()
    except ValueError:
        return 0.0
