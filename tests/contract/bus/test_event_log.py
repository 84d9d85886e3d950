"""The contract of `EventLog`: the same tests in memory, on one server, and on three servers with R3.

source    event-bus spec, 3.2, 4, 8
"""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import msgspec
import pytest
from koordcore.bus.client.connection import BusConnection
from koordcore.bus.folds.foldable import FoldSource
from koordcore.bus.folds.runner import FoldRunner
from koordcore.bus.names import BusNames
from koordcore.bus.read.stream_reader import StreamReader
from koordcore.bus.write.append import Appender
from koordcore.embedded.nats import NatsServer
from koordcore.events import CATALOGUE
from koordcore.events.agents.nodestate import PodsStarted
from koordcore.events.control import EventSkipped
from koordcore.events.descheduling.drain import DrainForgotten
from koordcore.events.envelope import HEADER_BASED_ON, AggregateRef, Draft, Event, NewEvent, Origin, StoredEvent
from koordcore.events.objects.mirror import PodSpecDeleted
from koordcore.ports.eventlog import (
    Appended,
    Conflict,
    EventLog,
    Full,
    HistoryGone,
    Misconfigured,
    TooLarge,
    Unavailable,
)
from koordcore.service.clock import SystemClock
from koordcore.state import ClusterState
from koordcore.state.cluster import schema_fingerprint
from support.bus.log_worlds import FAST, LogWorld, MemoryWorld, ServerWorld
from support.bus.nats_cluster import NatsCluster
from support.until import DEADLINE_SECONDS, until

MEMORY = pytest.param("memory")
R1 = pytest.param("r1", marks=pytest.mark.nats)
R3 = pytest.param("r3", marks=[pytest.mark.nats, pytest.mark.xdist_group("r3")])


Server = NatsServer | NatsCluster


@pytest.fixture(params=[MEMORY, R1, R3])
def place(request: pytest.FixtureRequest) -> Server | None:
    """Where the log is; None: in memory. Servers are shared by all tests of a worker."""
    return None if request.param == "memory" else _shared_server(request)


@pytest.fixture(params=[R1, R3])
def shared_server(request: pytest.FixtureRequest) -> Server:
    return _shared_server(request)


@pytest.fixture(params=[R1, R3])
def mortal_server(request: pytest.FixtureRequest) -> Server:
    return request.getfixturevalue("fresh_nats_server" if request.param == "r1" else "nats_cluster")


@pytest.fixture
async def world(place: Server | None) -> AsyncGenerator[LogWorld]:
    if place is None:
        yield MemoryWorld()
        return
    async with _opened(place) as found:
        yield found


@pytest.fixture
async def servers(shared_server: Server) -> AsyncGenerator[ServerWorld]:
    """A world with a server that is shared: it must not be killed."""
    async with _opened(shared_server) as found:
        yield found


@pytest.fixture
async def mortal(mortal_server: Server) -> AsyncGenerator[ServerWorld]:
    """A world whose servers may be killed, if they are started again."""
    async with _opened(mortal_server) as found:
        yield found


def _shared_server(request: pytest.FixtureRequest) -> Server:
    return request.getfixturevalue("nats_server" if request.param == "r1" else "nats_cluster")


@asynccontextmanager
async def _opened(server: Server) -> AsyncGenerator[ServerWorld]:
    found = ServerWorld(server)
    await found.open()
    try:
        yield found
    finally:
        await found.close()


def new(
    id_: str, expected: int = 0, *, cause: str = "c", pods: tuple[str, ...] = ("p",), kind: str = "nodestate"
) -> NewEvent:
    return sealed(AggregateRef(kind, id_), PodsStarted(pods=list(pods)), expected, cause=cause)


def sealed(ref: AggregateRef, event: Event, expected: int, *, cause: str) -> NewEvent:
    origin = Origin(causation_id=cause, correlation_id="x", actor="test/1", occurred_at="2026-01-01T00:00:00.000000Z")
    return CATALOGUE.seal([Draft(ref, event, expected)], origin)[0]


def folded(event: NewEvent, upto: int) -> NewEvent:
    """The event as a writer decides it that has folded the log up to a position."""
    return msgspec.structs.replace(event, headers={**event.headers, HEADER_BASED_ON: str(upto)})


async def stored(log: EventLog, *events: NewEvent) -> Appended:
    outcome = await log.append(list(events), deadline=DEADLINE_SECONDS)
    assert isinstance(outcome, Appended), outcome
    return outcome


async def everything(log: EventLog, after: int = 0, **options: object) -> list[StoredEvent]:
    head = await log.head()
    return [event async for batch in log.history(after, head.last_seq, **options) for event in batch]  # type: ignore[arg-type]


async def take(
    batches: AsyncIterator[list[StoredEvent]], count: int, *, seconds: float = DEADLINE_SECONDS
) -> list[StoredEvent]:
    found: list[StoredEvent] = []
    async with asyncio.timeout(seconds):
        async for batch in batches:
            found += batch
            if len(found) >= count:
                break
    return found


# --- appending ---


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
        pytest.param([new(f"n{i}") for i in range(1001)], id="too many"),
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


# --- repetition ---


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


# --- reading ---


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


# --- accidents ---


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


async def test_a_follower_goes_on_when_the_server_forgets_its_consumer(servers: ServerWorld):
    log, writer = await servers.handle(), await servers.handle()
    following = asyncio.ensure_future(take(log.follow(0), 7))
    forgotten: list[str] = []

    async def forgets_another() -> bool:
        # one of three servers answers, which may know less, or more, than another did a moment before
        consumers = [name for name in await servers.consumers() if name not in forgotten]
        if len(consumers) != 1:
            return False
        await servers.call(f"$JS.API.CONSUMER.DELETE.{servers.names.ev}.{consumers[0]}")
        forgotten.extend(consumers)
        return True

    for turn in range(3):
        await stored(writer, new(f"a{turn}"), new(f"b{turn}"))
        await until(forgets_another)
    await stored(writer, new("last"))
    assert [event.seq for event in await following] == [1, 2, 3, 4, 5, 6, 7]


async def test_a_follower_leaves_no_consumer_behind(servers: ServerWorld):
    log = await servers.handle()
    await stored(log, new("n1"))
    await take(log.follow(0), 1)
    await everything(log)

    async def has_none() -> bool:
        return not await servers.consumers()

    await until(has_none)


async def test_a_follower_that_hears_nothing_starts_again(servers: ServerWorld):
    writer = await servers.handle()
    deaf, proxy = await servers.lossy_handle()
    await stored(writer, new("n1"))
    batches = deaf.follow(0)
    assert [event.seq for event in await take(batches, 1)] == [1]
    known = set(await servers.consumers())

    async def made_another() -> set[str]:
        return set(await servers.consumers()) - known

    following = asyncio.ensure_future(take(deaf.follow(1), 2))
    known |= await until(made_another)
    proxy.swallow = True  # the connection stands, but messages and heartbeats are lost
    await stored(writer, new("n2"))
    await until(lambda: b".n2" in proxy.swallowed)
    proxy.swallow = False
    await stored(writer, new("n3"))
    assert [event.seq for event in await following] == [2, 3]


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
