"""One contract for every place that a lease can be kept in: memory, a real NATS server, an API server over HTTP.

Time is moved by hand, one clock per candidate, so that a process can be paused; the servers are real.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest
from koordcore.service.leader.lease import LeaseRecord, LeaseStore, SeenLease, WrittenLease, unique_holder
from koordcore.service.leader.lease_kubernetes import KubernetesLeaseStore, ServiceAccountHttp
from koordcore.service.leader.lease_kv import KvLeaseStore
from koordcore.values.override import override
from support.leases.candidates import TAKE_OVER, TIMES, Candidate, NewStore, World
from support.leases.places import MemoryLeaseStore, api_server, kv_bucket
from support.until import DEADLINE_SECONDS


@pytest.fixture(params=["memory", pytest.param("kv", marks=pytest.mark.nats), "kubernetes"])
def kept_in(request: pytest.FixtureRequest) -> tuple[str, str]:
    """What keeps the lease, and its address. Not a coroutine: the server's own fixture runs a loop."""
    kind: str = request.param
    return kind, request.getfixturevalue("nats_url") if kind == "kv" else ""


@pytest.fixture
async def new_store(kept_in: tuple[str, str], tmp_path: Path) -> AsyncGenerator[NewStore]:
    """Makes stores of one lease, each as its own process would have it."""
    match kept_in:
        case ("memory", _):
            shared = MemoryLeaseStore()
            yield lambda: shared
        case ("kv", url):
            async with kv_bucket(url, "leader_contract") as js:
                yield lambda: KvLeaseStore(js, bucket="leader_contract", key="leader.demo", ttl_real_seconds=None)
        case _:
            async with api_server(tmp_path / "token") as (_, url):
                https: list[ServiceAccountHttp] = []

                def make() -> LeaseStore:
                    https.append(ServiceAccountHttp(url, ca_file=None, token_file=tmp_path / "token"))
                    return KubernetesLeaseStore(https[-1], namespace="koordinator-system", name="demo")

                yield make
                for http in https:
                    await http.close()


@pytest.fixture
async def world(new_store: NewStore) -> AsyncGenerator[World]:
    made = World(new_store)
    yield made
    await made.end()


async def test_the_first_candidate_leads_and_keeps_leading(world: World) -> None:
    first = await world.add("a")
    second = await world.add("b")
    assert world.leaders() == [first]
    term = first.election.term
    assert term is not None
    assert term.holder == "a"
    assert term.epoch >= 1
    await world.pass_time(60, step=1)
    assert first.election.term == term
    assert second.election.term is None
    assert second.election.holder == "a"
    assert (first.told, second.told) == ([("acquired", term.epoch)], [])


async def test_candidates_that_start_together_elect_one(world: World) -> None:
    for index in range(5):
        world.candidates.append(Candidate(f"c{index}", world.new_store(), seed=index))
    await world.settle()
    await world.pass_time(3)
    assert len(world.leaders()) == 1
    assert {c.election.holder for c in world.candidates} == {world.leaders()[0].name}


async def test_a_dead_leader_is_followed_after_its_lease_expired(world: World) -> None:
    first, second = await world.add("a"), await world.add("b")
    await world.pass_time(3 * TIMES.retry)  # so that it has renewed
    await first.die()
    await world.pass_time(TIMES.duration - TIMES.retry - 0.5)
    assert world.leaders() == []
    await world.pass_time(TAKE_OVER - TIMES.duration + TIMES.retry + 0.5)
    assert world.leaders() == [second]
    assert second.terms[0].epoch > first.terms[0].epoch
    assert first.told[-1] == ("lost", first.terms[0].epoch)


async def test_a_graceful_release_hands_over_without_waiting_for_the_lease(world: World) -> None:
    first, second = await world.add("a"), await world.add("b")
    await first.election.resign()
    assert first.told[-1][0] == "lost"
    await asyncio.wait_for(asyncio.shield(first.task), DEADLINE_SECONDS)  # the campaign ends by itself
    await world.pass_time(1.2 * TIMES.retry + 0.5)
    assert world.leaders() == [second]
    assert second.terms[0].epoch > first.terms[0].epoch
    await first.election.campaign()  # after resigning it stands no more
    assert world.leaders() == [second]


async def test_a_paused_leader_has_lost_when_it_runs_again(world: World) -> None:
    first, second = await world.add("a"), await world.add("b")
    await world.pass_time(3 * TIMES.retry)  # so that it has renewed
    term = first.terms[0]
    first.paused = True
    await world.pass_time(TAKE_OVER)
    assert world.leaders() == [second]
    first.resume()
    assert first.election.term is None  # at once, before its tasks ran
    await world.settle()
    assert await first.election.lost(term) == "not renewed for 10 s"
    await world.pass_time(20)
    assert world.leaders() == [second]
    assert first.told == [("acquired", term.epoch), ("lost", term.epoch)]


async def test_a_cut_off_leader_gives_up_before_anybody_takes_over(world: World) -> None:
    first, second = await world.add("a"), await world.add("b")
    await world.pass_time(3 * TIMES.retry)  # so that it has renewed
    first.store.cut = True
    await world.pass_time(TIMES.renew_deadline + 0.5)
    assert world.leaders() == []
    assert first.told[-1][0] == "lost"
    await world.pass_time(TAKE_OVER - TIMES.renew_deadline)
    assert world.leaders() == [second]
    first.store.cut = False
    await world.pass_time(30, step=1)
    assert world.leaders() == [second]
    assert first.election.holder == "b"


async def test_a_short_cut_is_survived(world: World) -> None:
    first, _ = await world.add("a"), await world.add("b")
    term = first.election.term
    first.store.cut = True
    await world.pass_time(TIMES.renew_deadline - TIMES.retry - 1)
    first.store.cut = False
    await world.pass_time(20)
    assert first.election.term == term


async def test_a_lost_answer_to_a_renewal_does_not_end_the_term(world: World) -> None:
    first, _ = await world.add("a"), await world.add("b")
    term = first.election.term
    for _ in range(3):
        first.store.lose_next_answer = True
        await world.pass_time(3 * TIMES.retry)
        assert not first.store.lose_next_answer
    assert first.election.term == term


async def test_a_lost_answer_to_the_taking_is_noticed(world: World) -> None:
    first = Candidate("a", world.new_store())
    first.store.lose_next_answer = True
    world.candidates.append(first)
    await world.settle()
    assert first.election.term is None
    await world.pass_time(1.2 * TIMES.retry + 0.5)
    assert world.leaders() == [first]


async def test_a_restarted_process_waits_like_anybody_else(world: World) -> None:
    first = await world.add(unique_holder("a"))
    await first.die()
    again = await world.add(unique_holder("a"))
    await world.pass_time(TIMES.duration - 1)
    assert world.leaders() == []
    await world.pass_time(TAKE_OVER - TIMES.duration + 1)
    assert world.leaders() == [again]


async def test_waiting_for_leadership_and_its_end(world: World) -> None:
    first, second = await world.add("a"), await world.add("b")
    assert await first.election.acquired() == first.election.term
    waiting = asyncio.create_task(second.election.acquired())
    term = first.terms[0]
    ending = asyncio.create_task(first.election.lost(term))
    await first.election.resign()
    assert await ending == "resigned"
    await world.pass_time(1.2 * TIMES.retry + 0.5)
    assert await waiting == second.election.term
    with pytest.raises(AssertionError):
        await second.election.lost(term)


async def test_any_faults_never_give_two_leaders(world: World, kept_in: tuple[str, str]) -> None:
    """Random walks through cuts, pauses, deaths, restarts and resignations; `World.check` looks after every half
    second.
    """
    chance = Random(7)
    for index in range(3):
        await world.add(f"c{index}")
    turns = 100 if kept_in[0] == "memory" else 16
    for turn in range(turns):
        for healing in world.candidates:
            if chance.random() < 0.5:
                healing.store.cut = False
                if healing.paused:
                    healing.resume()
        candidate = chance.choice(world.leaders() or world.candidates)
        match chance.randrange(6):
            case 0:
                candidate.store.cut = True
            case 1:
                candidate.paused = True
            case 2:
                candidate.store.lose_next_answer = True
            case 3 if not candidate.paused and not candidate.store.cut:
                await candidate.election.resign()
            case 4:
                await candidate.die()
            case _:
                pass
        if candidate.task.done():
            world.candidates.remove(candidate)
            await world.add(f"again-{turn}")
        await world.pass_time(chance.choice([0.5, 3.0, 12.0, 20.0]), step=1)
    for candidate in world.candidates:
        candidate.store.cut = False
        if candidate.paused:
            candidate.resume()
    await world.pass_time(TAKE_OVER)
    assert len(world.leaders()) == 1
    assert len(world.epochs) > turns / 10


async def test_a_candidate_that_withdraws_leaves_the_lease_to_another_until_it_stands(world: World) -> None:
    first, second = await world.add("a"), await world.add("b")
    ending = asyncio.create_task(first.election.lost(first.terms[0]))
    first.election.withdraw("its log is outdated")
    assert await ending == "its log is outdated"
    await world.pass_time(2.4 * TIMES.retry + 0.5)
    assert world.leaders() == [second]

    await second.election.resign()
    await world.pass_time(TAKE_OVER)
    assert world.leaders() == []
    first.election.stand()
    await world.pass_time(1.2 * TIMES.retry + 0.5)
    assert world.leaders() == [first]


@pytest.mark.parametrize("times", [1, 2])
async def test_a_candidate_that_withdraws_while_it_takes_the_lease_never_leads(world: World, times: int) -> None:
    first = Candidate("a", world.new_store())
    first.store.on_write = lambda: [first.election.withdraw("its log is outdated") for _ in range(times)]
    world.candidates.append(first)
    await world.settle()
    second = await world.add("b")
    await world.pass_time(2.4 * TIMES.retry + 0.5)
    assert first.told == []
    assert world.leaders() == [second], "the lease was released, so nobody waits until it expires"

    first.store.on_write = None
    first.election.stand()
    await second.election.resign()
    await world.pass_time(1.2 * TIMES.retry + 0.5)
    assert world.leaders() == [first]


async def test_a_leader_that_withdraws_twice_or_resigns_then_releases_its_lease(world: World) -> None:
    first, second = await world.add("a"), await world.add("b")
    for reason in ("its log is outdated", "its log is outdated still"):
        first.election.withdraw(reason)
    await world.pass_time(2.4 * TIMES.retry + 0.5)
    assert world.leaders() == [second]

    first.election.stand()
    second.election.withdraw("its log is outdated")
    await second.election.resign()
    await world.pass_time(1.2 * TIMES.retry + 0.5)
    assert world.leaders() == [first]


async def test_a_leader_whose_lease_was_deleted_leads_again_in_a_later_term() -> None:
    shared = MemoryLeaseStore()
    world = World(lambda: shared)
    leader = await world.add("a")
    shared.seen = SeenLease(None, "0")
    await world.pass_time(2.4 * TIMES.retry + 0.5)
    before, again = leader.terms
    assert leader.election.term == again
    assert again.epoch > before.epoch
    ending = asyncio.create_task(leader.election.lost(again))
    await world.settle()
    assert not ending.done(), "the end of the earlier term is not the end of this one"
    await world.end()
    assert await ending


class DeafStore(MemoryLeaseStore):
    """A store whose first answer to the named request meets a cancellation, which is lost.

    asyncio.wait_for of Python 3.11 does so, with which the client of NATS waits for an answer.
    """

    def __init__(self, request: str) -> None:
        super().__init__()
        self._deaf_at = request
        self.waits = asyncio.Event()

    @override
    async def read(self) -> SeenLease:
        await self._answer("read")
        return await super().read()

    @override
    async def write(self, record: LeaseRecord, version: str, *, acquiring: bool) -> WrittenLease:
        await self._answer("write")
        return await super().write(record, version, acquiring=acquiring)

    async def _answer(self, request: str) -> None:
        if request == self._deaf_at and not self.waits.is_set():
            self.waits.set()
            with suppress(asyncio.CancelledError):
                await asyncio.Event().wait()


@pytest.mark.parametrize("request_of_store", ["read", "write"])
@pytest.mark.parametrize("resigns", [True, False], ids=["resign", "cancel"])
async def test_a_campaign_ends_though_its_cancellation_is_lost(request_of_store: str, *, resigns: bool) -> None:
    store = DeafStore(request_of_store)
    candidate = Candidate("a", store)
    await store.waits.wait()
    if resigns:
        await candidate.election.resign()
    else:
        candidate.task.cancel()
    await asyncio.wait((candidate.task,))
    for _ in range(5):
        await candidate.clock.advance(TIMES.retry, turns=3)
    assert asyncio.all_tasks() == {asyncio.current_task()}, "nothing renews the lease any more"
    assert (candidate.told, candidate.election.term) == ([], None)
    if resigns or request_of_store == "read":
        assert store.seen.record is None or store.seen.record.holder == "", "nobody has to wait until it expires"
