"""Candidates for leadership, each with its own clock and network, so that a process can be paused or cut off."""

import asyncio
from collections.abc import Awaitable, Callable
from random import Random

from koordcore.ports.leadership import Term
from koordcore.service.leader.election import LeaseElection
from koordcore.service.leader.lease import (
    LeaseRecord,
    LeaseStore,
    LeaseTimes,
    LeaseUnavailable,
    SeenLease,
    WrittenLease,
)
from support.manual_clock import ManualClock
from support.until import until

TIMES = LeaseTimes()  # 15 s, 10 s, 2 s
TAKE_OVER = TIMES.duration + 3 * TIMES.retry  # expiry, and the looks before and after it
NewStore = Callable[[], LeaseStore]
Released = Callable[[], Awaitable[None]]


class FaultyStore:
    """A store behind a network that can be cut, and that can lose answers. `on_write` is called before each answer."""

    def __init__(self, store: LeaseStore) -> None:
        self.store = store
        self.cut = False
        self.lose_next_answer = False
        self.on_write: Callable[[], object] | None = None
        self.in_flight = 0

    async def read(self) -> SeenLease:
        if self.cut:
            raise LeaseUnavailable("cut")
        self.in_flight += 1
        try:
            return await self.store.read()
        finally:
            self.in_flight -= 1

    async def write(self, record: LeaseRecord, version: str, *, acquiring: bool) -> WrittenLease:
        if self.cut:
            raise LeaseUnavailable("cut")
        self.in_flight += 1
        try:
            written = await self.store.write(record, version, acquiring=acquiring)
        finally:
            self.in_flight -= 1
        if self.on_write is not None:
            self.on_write()
        if self.lose_next_answer:
            self.lose_next_answer = False
            raise LeaseUnavailable("the answer was lost")
        return written


class Candidate:
    """A process: its election, its own clock, its network, and what it was told."""

    def __init__(self, name: str, store: LeaseStore, seed: int = 1, released: Released | None = None) -> None:
        self.name = name
        self.clock = ManualClock()
        self.store = FaultyStore(store)
        self.paused = False
        self.told: list[tuple[str, int]] = []
        self.terms: list[Term] = []
        self.election = LeaseElection(
            self.store, holder=name, clock=self.clock, times=TIMES, jitter=Random(seed), released=released
        )
        self.election.subscribe(acquired=self._on_acquired, lost=self._on_lost)
        self.task = asyncio.create_task(self.election.campaign())
        self.behind = 0.0

    def _on_acquired(self, term: Term) -> None:
        self.told.append(("acquired", term.epoch))
        self.terms.append(term)

    def _on_lost(self, term: Term, reason: str) -> None:
        assert reason
        self.told.append(("lost", term.epoch))

    def resume(self) -> None:
        """Time was gone while the process did not run."""
        self.paused = False
        self.clock.jump(self.behind)
        self.behind = 0.0

    async def die(self) -> None:
        self.task.cancel()
        await asyncio.wait((self.task,))


class World:
    """Candidates and the passing of time."""

    def __init__(self, new_store: NewStore) -> None:
        self.new_store = new_store
        self.candidates: list[Candidate] = []
        self.epochs: list[int] = []

    async def add(self, name: str) -> Candidate:
        candidate = Candidate(name, self.new_store(), seed=len(self.candidates))
        candidate.election.subscribe(acquired=lambda term: self.epochs.append(term.epoch))
        self.candidates.append(candidate)
        await self.settle()
        return candidate

    async def settle(self) -> None:
        """Wait until every candidate waits for its clock again."""
        for _ in range(5):
            await asyncio.sleep(0)
        await until(lambda: not any(c.store.in_flight for c in self.candidates if not c.paused), every=0.0005)
        for _ in range(5):
            await asyncio.sleep(0)
        self.check()

    async def pass_time(self, seconds: float, step: float = 0.5) -> None:
        left = seconds
        while left > 0:
            now = min(step, left)
            for candidate in self.candidates:
                if candidate.paused:
                    candidate.behind += now
                else:
                    await candidate.clock.advance(now, turns=3)
            await self.settle()
            left -= now

    def leaders(self) -> list[Candidate]:
        """Those who may act now: a paused process does not."""
        return [c for c in self.candidates if not c.paused and not c.task.done() and c.election.term is not None]

    def check(self) -> None:
        """Never two at once; epochs only grow."""
        assert len(self.leaders()) <= 1, [(c.name, c.election.term) for c in self.leaders()]
        assert self.epochs == sorted(set(self.epochs)), self.epochs

    async def end(self) -> None:
        for candidate in self.candidates:
            await candidate.die()
