"""An election in a thread: no work of the main loop delays a renewal, and a main loop that is stuck leads no more."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

import pytest
from koordcore.ports.leadership import Leadership, Term
from koordcore.service.clock import SystemClock
from koordcore.service.leader.election import LeaseElection
from koordcore.service.leader.lease import (
    LeaseRecord,
    LeaseStore,
    LeaseTimes,
    LeaseUnavailable,
    SeenLease,
    WrittenLease,
)
from koordcore.service.leader.lease_kv import KvLeaseStore
from koordcore.service.leader.lease_thread import MustNotLead, OpenElection, ThreadedLeadership
from support.bus.plain_client import plain_client
from support.leases.places import MemoryLeaseStore, kv_bucket
from support.until import until

BRIEF = LeaseTimes(duration=1.6, renew_deadline=1.0, retry=0.05)
BUCKET = "leader_thread"
RENEWALS = 40
"""Renewals of about two renew deadlines."""


class Counted:
    """A store that counts writes."""

    def __init__(self, store: LeaseStore) -> None:
        self._store = store
        self.writes = 0

    async def read(self) -> SeenLease:
        return await self._store.read()

    async def write(self, record: LeaseRecord, version: str, *, acquiring: bool) -> WrittenLease:
        written = await self._store.write(record, version, acquiring=acquiring)
        self.writes += 1
        return written


class Process:
    """One candidate, with what its main loop was told."""

    def __init__(self, name: str, url: str, shared: MemoryLeaseStore, *, stuck_seconds: float = 600.0) -> None:
        self.name, self.url, self.shared = name, url, shared
        self.told: list[tuple[str, int]] = []
        self.stores: list[Counted] = []
        self.closed: list[asyncio.Event] = []
        self.refusals = 0
        self.leadership = ThreadedLeadership(name, self.opens, clock=SystemClock(), stuck_seconds=stuck_seconds)
        self.leadership.subscribe(
            acquired=lambda term: self.told.append(("acquired", term.epoch)),
            lost=lambda term, _: self.told.append(("lost", term.epoch)),
        )
        self.task = asyncio.create_task(self.leadership.campaign())

    @asynccontextmanager
    async def opens(self, must_not_lead: MustNotLead) -> AsyncGenerator[OpenElection]:
        if self.refusals:
            self.refusals -= 1
            raise LeaseUnavailable("refused")
        self.closed.append(asyncio.Event())
        if not self.url:
            yield self.election(self.shared, must_not_lead)
            return
        async with plain_client(self.url) as client:
            js = client.jetstream()  # pyright: ignore[reportUnknownMemberType]  untyped options
            yield self.election(
                KvLeaseStore(js, bucket=BUCKET, key="leader.demo", ttl_real_seconds=None), must_not_lead
            )

    def election(self, store: LeaseStore, must_not_lead: MustNotLead) -> OpenElection:
        self.stores.append(Counted(store))
        election = LeaseElection(
            self.stores[-1], holder=self.name, clock=SystemClock(), times=BRIEF, must_not_lead=must_not_lead
        )
        return OpenElection(election, self.closed[-1].wait)

    async def leads(self) -> Term:
        return await asyncio.wait_for(self.leadership.acquired(), 60)

    async def end(self) -> None:
        self.task.cancel()
        await asyncio.wait((self.task,))


Start = Callable[..., Process]


@pytest.fixture(params=["memory", pytest.param("kv", marks=pytest.mark.nats)])
def place(request: pytest.FixtureRequest) -> str:
    return request.getfixturevalue("nats_url") if request.param == "kv" else ""


@pytest.fixture
async def start(place: str) -> AsyncGenerator[Start]:
    shared, processes = MemoryLeaseStore(), list[Process]()

    def begin(name: str, **options: float) -> Process:
        processes.append(Process(name, place, shared, **options))
        return processes[-1]

    async with kv_bucket(place, BUCKET) if place else plain() as _:
        yield begin
        for process in processes:
            await process.end()


@asynccontextmanager
async def plain() -> AsyncGenerator[None]:
    yield


def block_until(condition: Callable[[], bool]) -> None:
    """Work of the main loop that yields to nobody. It ends by the deadline of the test."""
    while not condition():
        sum(range(1000))


async def test_the_candidate_is_the_port(start: Start) -> None:
    candidate: Leadership = start("a").leadership
    assert candidate.term is None


async def test_a_blocked_main_loop_keeps_its_term(start: Start) -> None:
    first = start("a")
    term = await first.leads()
    second = start("b")
    await until(lambda: second.leadership.holder == "a")
    block_until(lambda: first.stores[0].writes > RENEWALS)
    assert first.leadership.term is term
    await until(lambda: second.leadership.holder == "a")
    assert (first.told, second.told) == ([("acquired", term.epoch)], [])


async def test_a_main_loop_that_is_stuck_for_too_long_leads_no_more_and_leads_again_when_it_works(start: Start) -> None:
    first = start("a", stuck_seconds=0.3)
    term = await first.leads()
    block_until(lambda: first.leadership.term is None)
    assert await first.leadership.lost(term) == "the event loop has been stuck for 0 s"
    again = await first.leads()
    assert again.epoch > term.epoch
    assert first.told == [("acquired", term.epoch), ("lost", term.epoch), ("acquired", again.epoch)]


async def test_a_release_lets_another_lead_and_withdrawing_ends_the_term_at_once(start: Start) -> None:
    first, second = start("a"), None
    term = await first.leads()
    second = start("b")
    await until(lambda: second.leadership.holder == "a")
    first.leadership.withdraw("its log is outdated")
    assert first.leadership.term is None
    assert await first.leadership.lost(term) == "its log is outdated"
    await second.leads()
    first.leadership.stand()
    await second.leadership.resign()
    await second.task
    assert second.leadership.term is None
    assert (await first.leads()).epoch > term.epoch


async def test_withdrawing_before_the_election_is_open_lets_no_term_begin(start: Start) -> None:
    first = start("a")
    first.leadership.withdraw("its log is outdated")
    await until(lambda: first.leadership._election)  # pyright: ignore[reportPrivateUsage]
    first.leadership.stand()
    await first.leads()


async def test_a_connection_that_was_closed_for_good_is_opened_again(start: Start) -> None:
    first = start("a")
    first.refusals = 1
    term = await first.leads()
    loop = first.leadership._thread_loop  # pyright: ignore[reportPrivateUsage]
    assert loop is not None
    loop.call_soon_threadsafe(first.closed[0].set)
    assert await first.leadership.lost(term) == "the campaign ended"
    assert (await first.leads()).epoch > term.epoch


async def test_an_error_of_our_own_code_ends_the_campaign(start: Start) -> None:
    first = start("a")
    await first.leads()

    async def broken() -> SeenLease:
        raise AssertionError("broken")

    first.stores[0].write = broken  # type: ignore[method-assign,assignment]  # pyright: ignore
    with pytest.raises(TypeError):
        await asyncio.wait_for(asyncio.shield(first.task), 60)
    assert first.leadership.term is None


async def test_ending_before_the_thread_runs_and_twice(start: Start) -> None:
    first, second = start("a"), start("b")
    await asyncio.sleep(0)
    first.task.cancel()
    await second.leadership.resign()
    await second.leadership.resign()
    await asyncio.wait((first.task, second.task))
    await second.leadership.campaign()
    assert second.leadership.term is None
