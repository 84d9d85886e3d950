"""What an `EventLog` takes and what it refuses: expectations, batches, racing writers, and its limits."""

import asyncio
from collections import Counter

import pytest
from koordcore.events import CATALOGUE
from koordcore.events.envelope import AggregateRef, NewEvent
from koordcore.events.nodestate import PodsStarted
from koordcore.ports.eventlog import (
    LARGEST_APPEND,
    Appended,
    Conflict,
    EventLog,
    Full,
    Misconfigured,
    TooLarge,
)
from support.bus.log_worlds import LogWorld
from support.bus.told_log import MEMORY, R1, everything, new, stored
from support.until import DEADLINE_SECONDS


async def test_an_event_comes_back_as_it_was_appended(world: LogWorld):
    log = await world.handle()
    event = new("n1", pods=("uid-1", "uid-2"))
    outcome = await stored(log, event)
    assert (outcome.last_seq, outcome.seqs) == (1, (1,))
    (found,) = await everything(log)
    assert (found.seq, found.ref, found.body) == (1, event.ref, event.body)
    assert found.event_id == event.event_id
    assert CATALOGUE.read(found) == PodsStarted(pods=["uid-1", "uid-2"])
    last = await log.last_of(event.ref)
    assert last is not None
    assert (last.seq, dict(last.headers).items() >= event.headers.items()) == (1, True)
    assert last.stored_at_ns == found.stored_at_ns > 0


@pytest.mark.parametrize("place", [MEMORY, R1], indirect=True)
async def test_an_append_that_was_not_sent_again_is_no_repetition(world: LogWorld):
    assert await stored(await world.handle(), new("n1")) == Appended(last_seq=1, seqs=(1,))


async def test_an_event_names_the_one_before_it_in_its_aggregate(world: LogWorld):
    log = await world.handle()
    await stored(log, new("n1"))
    await stored(log, new("n1", 1, cause="d"), new("n2", cause="d"))  # in a batch, too
    assert [event.expected_last for event in await everything(log)] == [0, 1, 0]


async def test_an_empty_log_has_no_events(world: LogWorld):
    log = await world.handle()
    assert await log.head() == (1, 0)
    assert await log.last_of(AggregateRef("pod", "x")) is None
    assert await log.read_aggregate(AggregateRef("pod", "x")) == []
    assert await everything(log) == []


async def test_a_stale_expectation_is_refused_with_the_actual_position(world: LogWorld):
    log = await world.handle()
    await stored(log, new("n1"))
    await stored(log, new("n1", 1, cause="d"))
    outcome = await log.append([new("n1", 1, cause="e")])
    assert outcome == Conflict(((AggregateRef("nodestate", "n1"), 2),))
    assert (await log.head()).last_seq == 2


async def test_an_expectation_ahead_of_the_aggregate_is_refused(world: LogWorld):
    log = await world.handle()
    await stored(log, new("n1"))
    assert await log.append([new("n2", 1, cause="d")]) == Conflict(((AggregateRef("nodestate", "n2"), 0),))


async def test_of_two_racing_writers_exactly_one_wins(world: LogWorld):
    first, second = await world.handle(), await world.handle()
    expected = 0
    for turn in range(25):
        outcomes = await asyncio.gather(
            first.append([new("n1", expected, cause=f"a{turn}")]),
            second.append([new("n1", expected, cause=f"b{turn}")]),
        )
        winners = [outcome for outcome in outcomes if isinstance(outcome, Appended)]
        assert len(winners) == 1, outcomes
        assert sum(isinstance(outcome, Conflict) for outcome in outcomes) == 1
        expected = winners[0].last_seq
    assert len(await everything(first)) == 25


async def test_contending_writers_that_refold_lose_no_event(world: LogWorld):
    ref = AggregateRef("nodestate", "n1")

    async def write(log: EventLog, name: str) -> None:
        for turn in range(6):
            while True:
                last = await log.last_of(ref)
                event = new("n1", last.seq if last is not None else 0, cause=f"{name}{turn}")
                if isinstance(await log.append([event]), Appended):
                    break

    async with asyncio.timeout(DEADLINE_SECONDS), asyncio.TaskGroup() as group:
        for name in "abcd":
            group.create_task(write(await world.handle(), name))
    log = await world.handle()
    assert len({event.event_id for event in await everything(log)}) == 24


async def test_a_batch_is_stored_whole_and_without_foreign_events_between(world: LogWorld):
    log = await world.handle()
    single = asyncio.gather(*(log.append([new(f"s{i}", cause=f"s{i}")]) for i in range(20)))
    outcome = await stored(log, *(new(f"n{i}") for i in range(50)))
    await single
    assert outcome.seqs == tuple(range(outcome.seqs[0], outcome.seqs[0] + 50))
    assert outcome.last_seq == outcome.seqs[-1]
    by_seq = {event.seq: event.ref.id for event in await everything(log)}
    assert [by_seq[seq] for seq in outcome.seqs] == [f"n{i}" for i in range(50)]


@pytest.mark.parametrize("stale_at", [0, 1, 2])
async def test_a_batch_with_one_stale_expectation_stores_nothing(world: LogWorld, stale_at: int):
    log = await world.handle()
    await stored(log, new("moved"))
    events = [new(f"n{i}", cause="d") for i in range(3)]
    events[stale_at] = new("moved", 0, cause="d")
    assert await log.append(events) == Conflict(((AggregateRef("nodestate", "moved"), 1),))
    assert (await log.head()).last_seq == 1


async def test_of_racing_batches_on_one_node_exactly_one_is_stored(world: LogWorld):
    first, second = await world.handle(), await world.handle()
    node = AggregateRef("nodestate", "shared")
    expected = 0
    for turn in range(15):
        outcomes = await asyncio.gather(
            first.append([new(f"a{turn}", cause=f"a{turn}"), new("shared", expected, cause=f"a{turn}")]),
            second.append([new(f"b{turn}", cause=f"b{turn}"), new("shared", expected, cause=f"b{turn}")]),
        )
        assert sum(isinstance(outcome, Appended) for outcome in outcomes) == 1, outcomes
        last = await first.last_of(node)
        assert last is not None
        expected = last.seq
    kinds = Counter(event.ref.id[0] for event in await everything(first))
    assert kinds["s"] == kinds["a"] + kinds["b"] == 15


async def test_a_batch_of_a_thousand_is_stored(world: LogWorld):
    log = await world.handle()
    outcome = await stored(log, *(new(f"n{i}") for i in range(1000)))
    assert outcome.seqs == tuple(range(1, 1001))
    assert len(await everything(log)) == 1000


@pytest.mark.parametrize(
    "events",
    [
        pytest.param([], id="nothing"),
        pytest.param([new("n")] * (LARGEST_APPEND + 1), id="too many"),
        pytest.param([new("n"), new("n", 1, cause="d")], id="an aggregate twice"),
        pytest.param([new("a.b")], id="a dot in the id"),
        pytest.param([new("a b")], id="a blank in the id"),
        pytest.param([new("*")], id="a wildcard"),
    ],
)
async def test_an_append_that_cannot_be_right_is_a_bug(world: LogWorld, events: list[NewEvent]):
    log = await world.handle()
    with pytest.raises(Misconfigured):
        await log.append(events)
    assert (await log.head()).last_seq == 0


@pytest.mark.parametrize("beside", [0, 2], ids=["alone", "in a batch"])
async def test_an_event_that_is_too_large_is_refused_and_disturbs_nobody(world: LogWorld, beside: int):
    log = await world.handle()
    large = new("large", pods=("p" * 1_048_000,))
    others = [new(f"n{number}") for number in range(beside)]

    async def append_large() -> None:
        with pytest.raises(TooLarge, match=r"large: an event of 1,048,\d{3} bytes; the log takes 1,0") as raised:
            await log.append([*others, large])
        assert raised.value.refs == {large.ref}

    _, appended = await asyncio.gather(append_large(), log.append([new("m")]))
    assert isinstance(appended, Appended)
    assert (await log.head()).last_seq == 1
    await stored(log, new("almost", pods=("p" * 1_040_000,)))


async def test_a_full_log_refuses_new_facts_and_keeps_the_old_ones(world: LogWorld):
    log = await world.handle()
    await stored(log, new("n0"))
    await world.make_full()
    outcome: object = None
    appended = 1
    for i in range(1, 60):
        outcome = await log.append([new(f"n{i}")])
        if not isinstance(outcome, Appended):
            break
        appended += 1
    assert isinstance(outcome, Full), outcome
    assert isinstance(await log.append([new("x1"), new("x2")]), Full)
    assert [event.ref.id for event in await everything(log)] == [f"n{i}" for i in range(appended)]
