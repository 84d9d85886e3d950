"""Facts that a test writes, and the state that they give: the oracle of the fault suite.

The writer remembers which event the log has acknowledged at which position. A fold that is ready must have the state
of exactly these events.
"""

import asyncio
import random
import string
from typing import Final

from koordcore.events import CATALOGUE
from koordcore.events.envelope import AggregateRef, Draft, NewEvent, Origin, StoredEvent
from koordcore.events.objects import PodSpecAdded, PodSpecChanged
from koordcore.ports.eventlog import Appended, EventLog, Misconfigured
from koordcore.state import ClusterState
from support.histories.objects import pod

PADDING: Final = 40_000
"""Bytes in the headers of each fact, which no state contains. A block of the server holds 4 MiB, so about 100 facts."""
CHANGED_EVERY: Final = 3
"""Every so many facts change the pod before, so that aggregates have chains of facts."""
_LETTERS: Final = string.ascii_letters + string.digits + "+/"
_ANSWER_SECONDS: Final = 5.0
_PAUSE_SECONDS: Final = 0.05


def fact(number: int, expected_last: int, *, changed: bool = False) -> NewEvent:
    """The fact that a pod was added or changed."""
    spec = pod(number, 100 + number)
    event = PodSpecChanged(object=pod(number, 200 + number)) if changed else PodSpecAdded(object=spec)
    origin = Origin(
        causation_id=f"{'changed' if changed else 'added'}-{number}",
        correlation_id=f"uid-{number}",
        actor="test/1",
        occurred_at="2026-01-01T00:00:00.000000Z",
        traceparent=f"00-{number + 1:032x}-{number + 1:016x}-01",
        tracestate="".join(random.Random(number).choices(_LETTERS, k=PADDING)),
    )
    return CATALOGUE.seal([Draft(AggregateRef("podspec", f"uid-{number}"), event, expected_last)], origin)[0]


class Truth:
    """What the log has acknowledged.

    Attributes:
        at: Position -> the event that was acknowledged there last.
        rewritten: Positions that were acknowledged for two different events: the log lost the first one.
    """

    def __init__(self) -> None:
        self.at: dict[int, NewEvent] = {}
        self.rewritten: set[int] = set()
        self._hashes: dict[int, str] = {}

    @property
    def last(self) -> int:
        """The newest acknowledged position; 0 if there is none."""
        return max(self.at, default=0)

    def acknowledge(self, position: int, event: NewEvent) -> None:
        """Remember that the log has stored an event at a position."""
        before = self.at.get(position)
        if before is not None and before.event_id != event.event_id:
            self.rewritten.add(position)
        self.at[position] = event
        self._hashes = {known: found for known, found in self._hashes.items() if known < position}

    def hash_at(self, position: int) -> str:
        """Hash of the state of the acknowledged facts up to a position."""
        if position not in self._hashes:
            state = ClusterState()
            for seq in sorted(seq for seq in self.at if seq <= position):
                event = self.at[seq]
                state.apply(StoredEvent(seq, event.ref, event.headers, event.body))
            state.skip(position)
            self._hashes[position] = state.hash()
        return self._hashes[position]

    def copy(self) -> "Truth":
        """What is acknowledged now, for a log that goes its own way from here."""
        other = Truth()
        other.at, other._hashes = dict(self.at), dict(self._hashes)
        return other


class Writer:
    """Appends facts one after the other, and repeats each one until the log has answered.

    Args:
        truth: Receives what the log acknowledges.
        first: Number of the first pod. Writers of one log have different ones.
    """

    def __init__(self, log: EventLog, truth: Truth, *, first: int = 1) -> None:
        self._log = log
        self._truth = truth
        self._number = first
        self._last = (0, 0)  # number and position of the last added pod
        self._pending: NewEvent | None = None
        self.trouble = ""  # Last answer that was no acknowledgement; "" after an acknowledgement

    async def write(self, count: int) -> None:
        """Append some facts, however long that takes."""
        for _ in range(count):
            await self._one()

    async def write_within(self, count: int, seconds: float) -> bool:
        """Append some facts. Return False if the log has not acknowledged them all in time."""
        try:
            async with asyncio.timeout(seconds):
                await self.write(count)
        except TimeoutError:
            return False
        return True

    async def run(self, stop: asyncio.Event) -> None:
        """Append facts until told to stop."""
        while not stop.is_set():
            await self._one()
            await asyncio.sleep(0.002)

    async def _one(self) -> None:
        event = self._pending or self._next()
        self._pending = event
        while True:
            try:
                outcome = await self._log.append([event], deadline=_ANSWER_SECONDS)
            except Misconfigured as error:
                self.trouble = f"Misconfigured: {error}"
                await asyncio.sleep(_PAUSE_SECONDS)
                continue
            if isinstance(outcome, Appended):
                break
            self.trouble = repr(outcome)
            if type(outcome).__name__ == "Conflict":
                # The log lost the fact before it, or knows this one: the next pod has no facts yet.
                self._last = (0, 0)
                event = self._pending = self._next()
            await asyncio.sleep(_PAUSE_SECONDS)
        self.trouble = ""
        self._pending = None
        self._truth.acknowledge(outcome.last_seq, event)
        if not event.expected_last:
            self._last = (self._number - 1, outcome.last_seq)

    def _next(self) -> NewEvent:
        number, position = self._last
        if number and number % CHANGED_EVERY == 0:
            self._last = (0, 0)
            return fact(number, position, changed=True)
        self._number += 1
        return fact(self._number - 1, 0)
