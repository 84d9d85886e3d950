"""An append that is repeated to an `EventLog`, by the same id or after a lost answer, is stored once."""

import asyncio

import pytest
from koordcore.events.envelope import AggregateRef
from koordcore.ports.eventlog import (
    Appended,
    Conflict,
    Misconfigured,
    Unavailable,
)
from support.bus.log_worlds import LogWorld, ServerWorld
from support.bus.told_log import everything, new, stored
from support.until import DEADLINE_SECONDS, until


async def test_repeating_an_append_gives_the_first_answer_again(world: LogWorld):
    first, second = await world.handle(), await world.handle()
    event = new("n1")
    await stored(first, event)
    assert await second.append([event]) == Appended(last_seq=1, seqs=(1,), duplicate=True)
    await stored(first, new("n1", 1, cause="later"))
    assert await second.append([event]) == Appended(last_seq=1, seqs=(1,), duplicate=True)
    assert (await first.head()).last_seq == 2


async def test_repeating_a_batch_gives_the_first_answer_again(world: LogWorld):
    log = await world.handle()
    await stored(log, new("before"))
    batch = [new("n1"), new("n2")]
    await stored(log, *batch)
    await stored(log, new("n2", 3, cause="later"))
    assert await log.append(batch) == Appended(last_seq=3, seqs=(2, 3), duplicate=True)
    assert (await log.head()).last_seq == 4


async def test_an_id_with_another_payload_is_a_conflict_for_who_has_not_seen_it(world: LogWorld):
    """A decider that was killed after its append decides differently for the same cause: its decision is not stored."""
    log = await world.handle()
    await stored(log, new("n1", pods=("first",)))
    outcome = await log.append([new("n1", pods=("second",))])
    assert outcome == Conflict(((AggregateRef("nodestate", "n1"), 1),))
    assert len(await everything(log)) == 1


async def test_an_id_that_is_used_again_for_another_event_is_a_bug(world: LogWorld):
    log = await world.handle()
    await stored(log, new("n1", pods=("first",)))
    with pytest.raises(Misconfigured, match="id"):
        await log.append([new("n1", 1, pods=("second",))])
    with pytest.raises(Misconfigured, match="id"):
        await log.append([new("n2"), new("n1", 1, pods=("second",))])
    assert len(await everything(log)) == 1


@pytest.mark.parametrize("size", [1, 3])
async def test_a_lost_acknowledgement_is_found_out(servers: ServerWorld, size: int):
    log = await servers.handle()
    deaf, proxy = await servers.lossy_handle()
    events = [new(f"n{i}") for i in range(size)]
    proxy.swallow = True
    appending = asyncio.ensure_future(deaf.append(events, deadline=DEADLINE_SECONDS))

    async def is_stored() -> bool:
        return (await log.head()).last_seq == size

    await until(is_stored)
    proxy.cut()
    proxy.swallow = False
    assert await appending == Appended(last_seq=size, seqs=tuple(range(1, size + 1)), duplicate=True)
    assert (await log.head()).last_seq == size


async def test_an_append_that_nobody_answers_ends_at_its_deadline_and_may_be_repeated(servers: ServerWorld):
    log = await servers.handle()
    deaf, proxy = await servers.lossy_handle()
    event = new("n1")
    proxy.swallow = True
    assert isinstance(await deaf.append([event], deadline=0.5), Unavailable)

    async def is_stored() -> bool:
        return (await log.head()).last_seq == 1

    await until(is_stored)
    proxy.cut()
    proxy.swallow = False
    assert await stored(deaf, event) == Appended(last_seq=1, seqs=(1,), duplicate=True)
