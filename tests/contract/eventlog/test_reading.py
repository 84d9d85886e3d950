"""How an `EventLog` is read: one aggregate, the history up to a position, some kinds, and what follows."""

import asyncio
from dataclasses import replace

import pytest
from koordcore.events.envelope import AggregateRef
from koordcore.events.log import EventSkipped
from koordcore.ports.eventlog import (
    HistoryGone,
)
from support.bus.log_worlds import FAST, LogWorld
from support.bus.told_log import everything, new, sealed, stored, take


async def test_an_aggregate_is_read_in_order_after_a_position(world: LogWorld):
    log = await world.handle()
    expected = 0
    for turn in range(5):
        await stored(log, new("other", expected - 1 if expected else 0, cause=f"o{turn}"))
        expected = (await stored(log, new("n1", expected, cause=f"c{turn}"))).last_seq
    ref = AggregateRef("nodestate", "n1")
    assert [event.seq for event in await log.read_aggregate(ref)] == [2, 4, 6, 8, 10]
    assert [event.seq for event in await log.read_aggregate(ref, after=4)] == [6, 8, 10]
    assert await log.read_aggregate(ref, after=10) == []


async def test_a_follower_restarted_at_every_position_sees_the_rest(world: LogWorld):
    log = await world.handle()
    await stored(log, *(new(f"n{i}") for i in range(12)))
    whole = await everything(log)
    assert [event.seq for event in whole] == list(range(1, 13))
    for position in range(13):
        assert await everything(log, position) == whole[position:]


@pytest.mark.parametrize("batch", [1, 7, 500])
async def test_batches_hold_at_most_what_was_asked_and_miss_nothing(world: LogWorld, batch: int):
    log = await world.handle()
    await stored(log, *(new(f"n{i}") for i in range(100)))
    sizes: list[int] = []
    seqs: list[int] = []
    async for events in log.history(0, 100, batch=batch):
        sizes.append(len(events))
        seqs += [event.seq for event in events]
    assert seqs == list(range(1, 101))
    assert 1 <= min(sizes) <= max(sizes) <= batch


async def test_history_ends_at_its_position(world: LogWorld):
    log = await world.handle()
    await stored(log, *(new(f"n{i}") for i in range(30)))
    assert [event.seq async for batch in log.history(3, 17, batch=4) for event in batch] == list(range(4, 18))
    assert [event async for batch in log.history(17, 17) for event in batch] == []


async def test_history_waits_for_a_position_that_does_not_exist_yet(world: LogWorld):
    log = await world.handle()
    await stored(log, new("n1"))
    reading = asyncio.ensure_future(take(log.history(0, 3), 3))
    await stored(log, new("n2"))
    await stored(log, new("n3"))
    await stored(log, new("n4"))
    assert [event.seq for event in await reading] == [1, 2, 3]


async def test_kinds_are_filtered_and_history_ends_although_nothing_follows(world: LogWorld):
    log = await world.handle()
    for i in range(4):
        await stored(log, new(f"n{i}", kind="nodestate"))
        await stored(
            log, sealed(AggregateRef("fold", f"f{i}"), EventSkipped(seq=1, reason="r", operator="o"), 0, cause="c")
        )
    assert [event.seq for event in await everything(log, kinds=["nodestate"])] == [1, 3, 5, 7]
    assert [event.seq for event in await everything(log, kinds=["fold", "nodestate"])] == list(range(1, 9))
    assert await everything(log, kinds=["pod"]) == []
    assert [event.seq for event in await take(log.follow(2, kinds=["fold"]), 3)] == [4, 6, 8]


async def test_a_follower_sees_events_as_they_come(world: LogWorld):
    log, writer = await world.handle(), await world.handle()
    following = asyncio.ensure_future(take(log.follow(0), 40))
    for i in range(20):
        await stored(writer, new(f"a{i}"), new(f"b{i}"))
    assert [event.seq for event in await following] == list(range(1, 41))


async def test_history_that_was_trimmed_is_reported(world: LogWorld):
    log = await world.handle()
    await stored(log, *(new(f"n{i}") for i in range(10)))
    await world.trim(4)
    assert await log.head() == (5, 10)
    assert [event.seq for event in await everything(log, 4)] == [5, 6, 7, 8, 9, 10]
    with pytest.raises(HistoryGone) as gone:
        await take(log.follow(3), 1)
    assert (gone.value.after, gone.value.first_seq) == (3, 5)
    with pytest.raises(HistoryGone):
        await everything(log, 0)


async def test_a_checkpoint_beyond_the_end_of_the_log_is_reported(world: LogWorld):
    """The stream was replaced by a shorter one: a fold that waited for it to grow would have another history."""
    log = await world.handle(follower=replace(FAST, went_back_seconds=0.5))
    await stored(log, new("n1"))
    with pytest.raises(HistoryGone):
        await take(log.follow(7), 1)
