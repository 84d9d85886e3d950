"""Appends to an `EventLog` after the facts before them were trimmed, or end an earlier life of the name."""

from koordcore.bus.client.connection import BusConnection
from koordcore.bus.names import BusNames
from koordcore.bus.read.stream_reader import StreamReader
from koordcore.bus.write.append import Appender
from koordcore.events.drain import DrainForgotten
from koordcore.events.envelope import AggregateRef, StoredEvent
from koordcore.events.objects import PodSpecDeleted
from koordcore.ports.eventlog import (
    Appended,
    Conflict,
)
from support.bus.log_worlds import LogWorld, ServerWorld
from support.bus.told_log import folded, new, sealed, stored


async def test_an_aggregate_whose_facts_were_trimmed_takes_its_next_fact(world: LogWorld):
    log = await world.handle()
    await stored(log, *(new(f"n{i}") for i in range(6)))
    await world.trim(4)
    await stored(log, folded(new("n0", 1, cause="d"), 4))
    await stored(log, folded(new("n1", 2, cause="d"), 6), folded(new("n4", 5, cause="e"), 6))
    # Somebody else has appended since, so the aggregate has a newer fact than the writer knows.
    outcome = await log.append([folded(new("n0", 1, cause="f"), 6)])
    assert outcome == Conflict(((AggregateRef("nodestate", "n0"), 7),))
    # A writer that is behind the trimmed facts does not know whether its own is the last one.
    outcome = await log.append([folded(new("n2", 3, cause="g"), 3)])
    assert outcome == Conflict(((AggregateRef("nodestate", "n2"), 0),))
    # A fact that was never there.
    outcome = await log.append([folded(new("n9", 8, cause="h"), 9)])
    assert outcome == Conflict(((AggregateRef("nodestate", "n9"), 0),))
    # In one append with a conflict, nothing is stored.
    outcome = await log.append([folded(new("n3", 4, cause="i"), 6), folded(new("n1", 2, cause="i"), 6)])
    assert isinstance(outcome, Conflict)
    assert (await log.head()).last_seq == 9


async def test_a_name_that_returns_takes_its_next_fact_from_a_writer_that_has_folded_the_last_one(world: LogWorld):
    log = await world.handle()
    drain, pod = AggregateRef("drain", "d"), AggregateRef("podspec", "u")
    await stored(
        log,
        sealed(drain, DrainForgotten(), 0, cause="a"),
        sealed(pod, PodSpecDeleted(namespace="a", name="b"), 0, cause="a"),
    )
    # A writer that has not folded the last fact of the name does not know the object that it is about.
    outcome = await log.append([folded(sealed(drain, DrainForgotten(), 0, cause="b"), 0)])
    assert outcome == Conflict(((drain, 1),))
    # A uid does not return: the aggregate must be new.
    outcome = await log.append([folded(sealed(pod, PodSpecDeleted(namespace="a", name="b"), 0, cause="c"), 2)])
    assert outcome == Conflict(((pod, 2),))
    # In one append with a conflict, nothing is stored.
    both = [folded(sealed(ref, DrainForgotten(), 0, cause="d"), 2) for ref in (drain, pod)]
    assert isinstance(await log.append(both), Conflict)
    event = folded(sealed(drain, DrainForgotten(), 0, cause="e"), 2)
    first = await stored(log, event, folded(new("n"), 2))
    again = await stored(log, event, folded(new("n"), 2))
    assert (first.seqs, again.seqs, again.duplicate) == ((3, 4), (3, 4), True)
    # Now the log has a newer fact than the writer.
    outcome = await log.append([folded(sealed(drain, DrainForgotten(), 0, cause="f"), 2)])
    assert outcome == Conflict(((drain, 3),))


class WatchedReader(StreamReader):
    """Keeps the positions from which it was asked for the next fact of an aggregate."""

    def __init__(self, connection: BusConnection, names: BusNames) -> None:
        super().__init__(connection, names.ev, names.prefix("ev"))
        self.asked: list[int] = []

    async def next_of(self, subject: str, seq: int) -> StoredEvent | None:
        self.asked.append(seq)
        return await super().next_of(subject, seq)


async def test_the_facts_of_earlier_lives_of_a_name_are_not_read(servers: ServerWorld):
    log, connection = await servers.handle(), await servers.connection()
    reader = WatchedReader(connection, servers.names)
    appender = Appender(connection, servers.names, reader)
    drain = AggregateRef("drain", "d")
    for last in range(5):
        await stored(log, sealed(drain, DrainForgotten(), last, cause=f"{last}"))
    event = folded(sealed(drain, DrainForgotten(), 0, cause="new"), 5)
    await stored(log, event)
    await stored(log, sealed(drain, DrainForgotten(), 6, cause="later"))
    assert await appender.append([event], 10) == Appended(last_seq=6, seqs=(6,), duplicate=True)
    assert reader.asked == [6]


async def test_a_fact_of_an_earlier_life_is_another_one_although_it_has_the_same_id(world: LogWorld):
    log = await world.handle()
    drain = AggregateRef("drain", "d")
    event = sealed(drain, DrainForgotten(), 0, cause="a")
    await stored(log, event)
    await stored(log, sealed(drain, DrainForgotten(), 1, cause="b"))
    assert await log.append([folded(event, 1)]) == Conflict(((drain, 2),))


async def test_a_repeated_append_after_trimming_is_stored_once(world: LogWorld):
    log = await world.handle()
    await stored(log, *(new(f"n{i}") for i in range(4)))
    await world.trim(3)
    event = folded(new("n1", 2, cause="d"), 4)
    first = await stored(log, event)
    again = await stored(log, event)
    assert (again.seqs, again.duplicate) == (first.seqs, True)
