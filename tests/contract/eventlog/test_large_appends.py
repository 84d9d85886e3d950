"""Appends of more events than a server takes by default: a gang on 2,000 nodes is one atomic append.

source    event-bus spec, 1 and 4.2; decision 0081
"""

import asyncio
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest
from koordcore.bus.adapters.logs import JetStreamEventLog
from koordcore.bus.adapters.memory import MemoryEventLog, MemoryLog
from koordcore.embedded.nats import NatsServer
from koordcore.embedded.nats_config import NatsServerConfig, render
from koordcore.events.envelope import AggregateRef, NewEvent
from koordcore.ports.eventlog import MOST_AT_ONCE, Appended, Conflict, Full, TooMany
from support.bus.log_worlds import LogWorld, ServerWorld
from support.bus.told_log import R1, R3_IN_DEEP, everything, new, stored
from support.until import DEADLINE_SECONDS, until

GANG = 2 * 2_000 + 1
"""A placement and a node for each member, and the gang."""


def events_of(gang: str, count: int = GANG) -> list[NewEvent]:
    return [new(f"{gang}-{i}", cause=gang) for i in range(count)]


async def test_a_large_append_is_stored_whole_and_without_foreign_events_between(world: LogWorld):
    log, other = await world.handle(), await world.handle()
    single = asyncio.gather(*(other.append([new(f"s{i}", cause=f"s{i}")]) for i in range(200)))
    outcome = await stored(log, *events_of("g"))
    await single
    assert outcome.seqs == tuple(range(outcome.seqs[0], outcome.seqs[0] + GANG))
    by_seq = {event.seq: event.ref.id for event in await everything(log)}
    assert [by_seq[seq] for seq in outcome.seqs] == [f"g-{i}" for i in range(GANG)]
    assert len(by_seq) == GANG + 200


@pytest.mark.parametrize("stale_at", [0, MOST_AT_ONCE, GANG - 1])
async def test_a_large_append_with_one_stale_expectation_stores_nothing(world: LogWorld, stale_at: int):
    log = await world.handle()
    await stored(log, new("moved"))
    events = events_of("g")
    events[stale_at] = new("moved", 0, cause="g")
    assert await log.append(events) == Conflict(((AggregateRef("nodestate", "moved"), 1),))
    assert (await log.head()).last_seq == 1


async def test_of_racing_large_appends_with_one_common_aggregate_exactly_one_is_stored(world: LogWorld):
    first, second = await world.handle(), await world.handle()
    racing = [[*events_of(gang), new("shared", cause=gang)] for gang in ("a", "b")]
    outcomes = await asyncio.gather(first.append(racing[0]), second.append(racing[1]))
    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["Appended", "Conflict"]
    assert len(await everything(first)) == GANG + 1


async def test_a_repeated_large_append_gives_the_first_answer_again(world: LogWorld):
    log = await world.handle()
    first = await stored(log, *events_of("g"))
    assert await log.append(events_of("g")) == Appended(first.last_seq, first.seqs, duplicate=True)
    assert (await log.head()).last_seq == GANG


async def test_a_large_append_of_which_only_a_part_has_room_stores_nothing(servers: ServerWorld):
    log = await servers.handle()
    await stored(log, new("before"))
    info = await servers.call(f"$JS.API.STREAM.INFO.{servers.names.ev}")
    smaller = {**info["config"], "max_bytes": 300 * 1024}
    await servers.call(f"$JS.API.STREAM.UPDATE.{servers.names.ev}", smaller)
    assert isinstance(await log.append(events_of("g")), Full)
    assert [event.ref.id for event in await everything(log)] == ["before"]
    await stored(log, *events_of("small", 300))


def limited(directory: Path, most: int) -> NatsServer:
    return NatsServer(NatsServerConfig(directory=directory / "nats", sync_interval="1s", max_batch=most))


@pytest.mark.nats
async def test_servers_that_take_fewer_events_store_none_and_their_setting_is_named(tmp_path: Path):
    server = limited(tmp_path, MOST_AT_ONCE)
    await server.start()
    try:
        world = ServerWorld(server)
        await world.open()
        log = await world.handle()
        with pytest.raises(TooMany) as refused:
            await log.append(events_of("g"))
        assert str(refused.value) == (
            "4001 events at once, and the log stores at most 1000:"
            " raise jetstream.limits.batch.max_msgs in the configuration of its servers"
        )
        assert (await log.head()).last_seq == 0
        await stored(log, *events_of("small", MOST_AT_ONCE))
        await world.close()
    finally:
        await server.kill()


async def test_a_log_in_memory_refuses_more_events_likewise():
    log = MemoryEventLog(MemoryLog(max_batch=10))
    with pytest.raises(TooMany):
        await log.append(events_of("g", 11))
    assert (await log.head()).last_seq == 0
    assert isinstance(await log.append(events_of("g", 10)), Appended)


@pytest.mark.nats
async def test_a_running_server_takes_large_appends_after_a_reload(tmp_path: Path):
    server = limited(tmp_path, MOST_AT_ONCE)
    await server.start()
    try:
        world = ServerWorld(server)
        await world.open()
        log = await world.handle()
        file = server.config.directory / f"{server.config.name}.conf"
        file.write_text(render(replace(server.config, max_batch=NatsServerConfig(directory=tmp_path).max_batch)))
        assert server.pid is not None
        os.kill(server.pid, signal.SIGHUP)

        async def is_stored() -> bool:
            try:
                return isinstance(await log.append(events_of("g")), Appended)
            except TooMany:
                return False

        await until(is_stored)
        await world.close()
    finally:
        await server.kill()


async def is_under_way(task: "asyncio.Task[object]", seconds: float) -> bool:
    """Whether the task still runs after so long."""
    await asyncio.wait((task,), timeout=seconds)
    return not task.done()


@pytest.mark.parametrize("mortal_server", [R1, R3_IN_DEEP], indirect=True)
@pytest.mark.deep
async def test_a_kill_of_the_server_at_any_moment_leaves_a_large_append_whole(mortal: ServerWorld):
    """The writer lives. It sends again, so the events are stored once, whatever the server had of them."""
    log = await mortal.handle()
    cut = 0
    for turn in range(12):
        before = (await log.head()).last_seq
        appending = asyncio.ensure_future(log.append(events_of(f"g{turn}"), deadline=2 * DEADLINE_SECONDS))
        cut += await is_under_way(appending, 0.03 * turn)
        await (await mortal.crash())()
        outcome = await appending
        assert isinstance(outcome, Appended)
        assert outcome.seqs == tuple(range(before + 1, before + 1 + GANG))
        assert [event.ref.id for event in await everything(log, before)] == [f"g{turn}-{i}" for i in range(GANG)]
    assert cut >= 3, "kills met the append"


@pytest.mark.parametrize("mortal_server", [R1, R3_IN_DEEP], indirect=True)
@pytest.mark.deep
async def test_a_writer_and_a_server_that_die_together_leave_all_of_a_large_append_or_nothing(mortal: ServerWorld):
    log, found = await mortal.handle(), list[int]()
    for turn in range(16):
        before = (await log.head()).last_seq
        connection = await mortal.connection()
        doomed = JetStreamEventLog(connection, mortal.names)
        appending = asyncio.ensure_future(doomed.append(events_of(f"g{turn}")))
        await is_under_way(appending, 0.02 * turn)
        appending.cancel()
        await asyncio.wait((appending,))
        await (await mortal.crash())()
        found.append((await log.head()).last_seq - before)
    assert set(found) == {0, GANG}, found
