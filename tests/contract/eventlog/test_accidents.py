"""What goes wrong while an `EventLog` is followed: poison, lost consumers, silence, and servers that die."""

import asyncio

from koordcore.bus.folds.foldable import FoldSource
from koordcore.bus.folds.runner import FoldRunner
from koordcore.events.envelope import AggregateRef, NewEvent
from koordcore.events.log import EventSkipped
from koordcore.ports.eventlog import (
    Appended,
)
from koordcore.service.clock import SystemClock
from koordcore.state import ClusterState
from koordcore.state.cluster import schema_fingerprint
from support.bus.log_worlds import LogWorld, ServerWorld
from support.bus.told_log import everything, new, sealed, stored, take
from support.until import DEADLINE_SECONDS, until


async def test_a_fold_halts_before_a_poison_event_and_goes_on_after_a_recorded_skip(world: LogWorld):
    log = await world.handle()
    poison = NewEvent(AggregateRef("pod", "p1"), {"Nats-Msg-Id": "poison", "Koord-Type": "Nonsense"}, b"{]", 0)
    await stored(log, new("n1"))
    await stored(log, poison)
    await stored(log, new("n2"))
    source = FoldSource(ClusterState, ClusterState.restore, schema_fingerprint())
    runner = FoldRunner("contract", log, source, SystemClock(), halted_poll_seconds=0.02)
    running = asyncio.ensure_future(runner.run())

    async def is_halted() -> bool:
        return runner.halted is not None

    await until(is_halted)
    assert runner.halted is not None
    assert runner.halted.seq == 2
    assert (runner.position, runner.is_caught_up) == (1, False)
    assert runner.state.get(AggregateRef("nodestate", "n1")) is not None
    skip = EventSkipped(seq=2, reason="unreadable", operator="tester")
    await stored(log, sealed(AggregateRef("fold", "contract"), skip, 0, cause="skip"))
    async with asyncio.timeout(DEADLINE_SECONDS):
        await runner.reached(4)
    assert runner.halted is None
    assert runner.state.get(AggregateRef("nodestate", "n2")) is not None
    running.cancel()
    again = FoldRunner("contract", log, source, SystemClock())
    running = asyncio.ensure_future(again.run())
    async with asyncio.timeout(DEADLINE_SECONDS):
        await again.reached(4)
    assert again.state.hash() == runner.state.hash()
    running.cancel()


async def test_a_follower_makes_no_consumer(servers: ServerWorld):
    """Whoever may make a consumer may let the server write to any subject."""
    log = await servers.handle()
    following = asyncio.ensure_future(take(log.follow(0), 2))
    await stored(log, new("n1"))
    await everything(log)
    assert await servers.consumers() == []
    await stored(log, new("n2"))
    assert [event.seq for event in await following] == [1, 2]


async def test_a_follower_that_hears_nothing_asks_again(servers: ServerWorld):
    writer = await servers.handle()
    deaf, proxy = await servers.lossy_handle()
    await stored(writer, new("n1"))
    seen: list[int] = []

    async def follow() -> None:
        async for batch in deaf.follow(0):
            seen.extend(event.seq for event in batch)

    following = asyncio.ensure_future(follow())
    await until(lambda: seen == [1])
    proxy.swallow = True  # the connection stands, but messages are lost
    await stored(writer, new("n2"))
    await until(lambda: b".n2" in proxy.swallowed)
    proxy.swallow = False
    await stored(writer, new("n3"))
    await until(lambda: len(seen) >= 3)
    assert seen == [1, 2, 3]
    following.cancel()


async def test_kill_and_restart_while_appending_and_following_loses_nothing(mortal: ServerWorld):
    log, writer = await mortal.handle(), await mortal.handle()
    following = asyncio.ensure_future(take(log.follow(0), 60, seconds=2 * DEADLINE_SECONDS))
    acknowledged: list[Appended] = []

    async def write() -> None:
        for i in range(60):
            acknowledged.append(await stored(writer, new(f"n{i}")))

    writing = asyncio.ensure_future(write())

    async def is_under_way() -> bool:
        return len(acknowledged) > 10

    await until(is_under_way)
    again = await mortal.crash()
    await again()
    await writing
    seen = await following
    assert [event.seq for event in seen] == list(range(1, 61))
    assert [event.ref.id for event in seen] == [f"n{i}" for i in range(60)]
    assert sorted(seq for outcome in acknowledged for seq in outcome.seqs) == list(range(1, 61))
