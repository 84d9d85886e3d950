"""Observations, desired state, pushes and snapshots: the same tests in memory and on a server."""

import asyncio
import base64
import hashlib
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from koordcore.bus.adapters import logs
from koordcore.bus.adapters.desired import JetStreamPushFeed
from koordcore.bus.adapters.logs import JetStreamObservationLog
from koordcore.bus.adapters.snapshots import JetStreamSnapshotStore
from koordcore.bus.client.connection import ConnectionSettings, NoAnswer, patiently
from koordcore.bus.client.opening import connect
from koordcore.bus.factory import Bus, bus_on, memory_bus
from koordcore.bus.metrics import BusMetrics
from koordcore.bus.read import direct
from koordcore.bus.read.stream_reader import StreamReader, api
from koordcore.events import CATALOGUE
from koordcore.events.envelope import AggregateRef, StoredEvent, name_token
from koordcore.events.node_ledger import NodeResourcesReturned
from koordcore.events.nodestate import PodsStarted
from koordcore.events.observation import NodeUsageReported
from koordcore.ports.desired import DesiredNode, Push
from koordcore.ports.eventlog import Appended
from koordcore.ports.snapshots import KEPT_SNAPSHOTS, Snapshot, state_digest
from support.bus.bus_worlds import SMALL, Place, opened, origin, sealed
from support.bus.lossy_proxy import LossyProxy
from support.until import DEADLINE_SECONDS, until


@pytest.fixture(params=["memory", pytest.param("server", marks=pytest.mark.nats)])
def url(request: pytest.FixtureRequest) -> str | None:
    return None if request.param == "memory" else request.getfixturevalue("nats_url")


@pytest.fixture
async def bus(url: str | None) -> AsyncGenerator[Bus]:
    if url is None:
        yield memory_bus()
        return
    async with opened(url) as place:
        yield place.bus


@pytest.fixture
async def place(nats_url: str) -> AsyncGenerator[Place]:
    async with opened(nats_url) as found:
        yield found


def report(number: int) -> NodeUsageReported:
    return NodeUsageReported(
        updated_at=f"2026-01-01T00:00:{number:02d}Z", report_interval_seconds=60, aggregate_duration_seconds=300
    )


async def observed(batches: AsyncIterator[list[StoredEvent]], count: int) -> list[StoredEvent]:
    found: list[StoredEvent] = []
    async with asyncio.timeout(DEADLINE_SECONDS):
        async for batch in batches:
            found += batch
            if len(found) >= count:
                break
    return found


async def test_observations_are_followed_in_order(bus: Bus):
    for number in range(20):
        await bus.observations.publish(AggregateRef("node", f"n{number % 3}"), report(number), origin(str(number)))
    found = await observed(bus.observations.follow(0), 20)
    assert [CATALOGUE.read(stored) for stored in found] == [report(number) for number in range(20)]
    assert [stored.seq for stored in await observed(bus.observations.follow(15), 5)] == [16, 17, 18, 19, 20]
    assert (await bus.observations.head()).last_seq == 20


async def test_an_observation_that_is_too_large_is_dropped_and_the_next_one_arrives(bus: Bus):
    ref = AggregateRef("node", "n1")
    large = msgspec.structs.replace(report(1), updated_at="x" * 1024**2)
    for event in (large, report(2)):
        await bus.observations.publish(ref, event, origin("1"))
    [stored] = await observed(bus.observations.follow(0), 1)
    assert (stored.seq, CATALOGUE.read(stored)) == (1, report(2))


async def test_the_latest_observation_of_each_aggregate_is_given(bus: Bus):
    refs = [AggregateRef("node", f"n{i}") for i in range(3)]
    for number in range(6):
        await bus.observations.publish(refs[number % 2], report(number), origin(str(number)))

    async def all_arrived() -> bool:
        return (await bus.observations.head()).last_seq == 6

    await until(all_arrived)
    found = await bus.observations.latest([refs[1], refs[2], refs[0]])
    assert [(stored.ref.id, CATALOGUE.read(stored)) for stored in found] == [("n1", report(5)), ("n0", report(4))]


class Dropped(BusMetrics):
    """Notes what was not sent."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str]] = []

    def observation_dropped(self, stream: str, reason: str) -> None:
        self.seen.append((stream, reason))


@pytest.mark.nats
async def test_every_observation_that_is_too_large_is_counted_and_told_again_later(
    place: Place, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    dropped = Dropped()
    audit = bus_on(place.connection, place.bus.names, metrics=dropped).audit
    large = msgspec.structs.replace(report(1), updated_at="x" * 1024**2)
    for _ in range(3):
        await audit.publish(AggregateRef("node", "n1"), large, origin("1"))
    monkeypatch.setattr(logs, "TELL_SECONDS", 0.0)
    await audit.publish(AggregateRef("node", "n1"), large, origin("1"))
    assert dropped.seen == [("audit", "too-large")] * 4
    told = [line.getMessage() for line in caplog.records if "observation_too_large" in line.getMessage()]
    assert [line.rpartition("=")[2] for line in told] == ["1", "3"]


@pytest.mark.nats
async def test_a_stream_without_any_message_left_begins_behind_its_end(place: Place):
    for number in range(3):
        await place.bus.observations.publish(AggregateRef("node", "n1"), report(number), origin(str(number)))
    await observed(place.bus.observations.follow(0), 3)
    assert not (await place.bus.observations.head()).is_empty
    await api(place.connection, f"$JS.API.STREAM.PURGE.{place.bus.names.obs}", b"", timeout=DEADLINE_SECONDS)
    head = await place.bus.observations.head()
    assert (head.is_empty, head.first_seq, head.last_seq) == (True, 4, 3)


@pytest.mark.nats
async def test_messages_of_many_subjects_are_found_by_when_they_were_stored(place: Place):
    names = place.bus.names
    reader = StreamReader(place.connection, names.stream_of("obs"), names.prefix("obs"))
    for number in range(6):
        kind = "node" if number % 2 else "other"
        await place.bus.observations.publish(AggregateRef(kind, f"n{number}"), report(number), origin(str(number)))
    kept = await observed(place.bus.observations.follow(0), 6)
    times = [datetime.fromtimestamp(stored.stored_at_ns / 1e9, UTC) for stored in kept]

    of_nodes = f"{names.prefix('obs')}node.*"
    moment = timedelta(microseconds=1)
    assert [stored.seq for stored in await reader.between(of_nodes, times[1] - moment, times[3] + moment)] == [2, 4]
    assert [stored.seq for stored in await reader.between(of_nodes, times[4], times[5] + moment)] == [6]
    assert await reader.between(of_nodes, times[5] + timedelta(seconds=1), times[5] + timedelta(days=1)) == []


@pytest.mark.nats
async def test_the_newest_observations_survive_an_absence_of_the_bus(place: Place):
    proxy = LossyProxy(place.url)
    await proxy.start()
    connection = await connect(ConnectionSettings(urls=(proxy.url,), user="agent", reconnect_wait_seconds=0.05))
    observations = JetStreamObservationLog(connection, place.bus.names, "obs", ring=5)
    await proxy.stop()

    async def is_away() -> bool:
        return not connection.is_connected

    await until(is_away)
    for number in range(12):
        await observations.publish(AggregateRef("node", "n1"), report(number), origin(str(number)))
    assert observations.dropped == 7
    connection.client.set_server_pool([place.url])
    found = await observed(place.bus.observations.follow(0), 5)
    assert [CATALOGUE.read(stored) for stored in found] == [report(number) for number in range(7, 12)]
    await connection.drain_and_close()


def desired(node: str, **fields: object) -> DesiredNode:
    return msgspec.structs.replace(DesiredNode(node=node), **fields)


async def test_desired_state_is_replaced_read_and_deleted(bus: Bus):
    assert await bus.desired.get("node.example.org") is None
    await bus.desired.put(desired("node.example.org", allocatable={"cpu": 4000}, as_of={"node": 3}))
    await bus.desired.put(desired("node.example.org", allocatable={"cpu": 8000}, as_of={"node": 4}))
    await bus.desired.put(desired("other"))
    found = await bus.desired.get("node.example.org")
    assert found == desired("node.example.org", allocatable={"cpu": 8000}, as_of={"node": 4})
    await bus.desired.delete("node.example.org")
    assert await bus.desired.get("node.example.org") is None
    assert await bus.desired.get("other") == desired("other")


async def put_on_node(bus: Bus, node: str, expected: int, cause: str) -> int:
    event = sealed("node", name_token(node), NodeResourcesReturned(pods=[cause]), expected, cause)
    outcome = await bus.events.append([event])
    assert isinstance(outcome, Appended)
    return outcome.last_seq


@pytest.mark.parametrize("others", [0, 30], ids=["own subscriptions", "wildcard"])
async def test_pushes_say_what_came_before_them(bus: Bus, others: int):
    feed = bus.pushes.pushes(["a.example", *(f"x{i}" for i in range(others))])
    async with asyncio.timeout(DEADLINE_SECONDS):
        assert await anext(feed) is None
        first = await put_on_node(bus, "a.example", 0, "1")
        await put_on_node(bus, "b.example", 0, "2")
        await bus.events.append([sealed("nodestate", "a_example", PodsStarted(pods=[]), 0, "3")])
        second = await put_on_node(bus, "a.example", first, "4")
        pushes = [await anext(feed), await anext(feed)]
    assert all(isinstance(push, Push) for push in pushes)
    assert [(p.event.seq, p.last_seq, p.event.ref) for p in pushes if p is not None] == [
        (first, 0, AggregateRef("node", "a_example")),
        (second, first, AggregateRef("node", "a_example")),
    ]
    assert [CATALOGUE.read(p.event) for p in pushes if p is not None] == [
        NodeResourcesReturned(pods=["1"]),
        NodeResourcesReturned(pods=["4"]),
    ]


@pytest.mark.nats
async def test_a_flush_is_answered_after_the_subscriptions_before_it(place: Place):
    proxy = LossyProxy(place.url)
    await proxy.start()
    connection = await connect(ConnectionSettings(urls=(proxy.url,), user="agent"))
    await connection.client.subscribe_sink("a.subject", connection.client.sinks[b"1"])
    await connection.client.flush()
    assert proxy.sent.index(b"SUB a.subject") < proxy.sent.rindex(b"PING")
    await connection.drain_and_close()
    await proxy.stop()


@pytest.mark.nats
async def test_after_a_reconnect_the_feed_asks_to_read_again(place: Place):
    proxy = LossyProxy(place.url)
    await proxy.start()
    connection = await connect(ConnectionSettings(urls=(proxy.url,), user="agent", reconnect_wait_seconds=0.05))
    feed = JetStreamPushFeed(connection, place.bus.names).pushes(["n1"])
    async with asyncio.timeout(DEADLINE_SECONDS):
        assert await anext(feed) is None
        proxy.cut()
        assert await anext(feed) is None
        await connection.client.flush()  # the subscriptions are sent again before what the client sends now
        seq = await put_on_node(place.bus, "n1", 0, "1")
        push = await anext(feed)
    assert push is not None
    assert push.event.seq == seq
    await connection.drain_and_close()
    await proxy.stop()


def snapshot(seq: int, *, fold: str = "f", fingerprint: str = "v1", state: bytes | None = None) -> Snapshot:
    body = (state,) if state is not None else (b"state %d " % seq * 50, b"and the rest")
    return Snapshot(
        fold=fold,
        seq=seq,
        code_version="1",
        schema_fingerprint=fingerprint,
        taken_at="2026-01-01T00:00:00Z",
        state=body,
        digest=state_digest(body),
    )


async def test_the_newest_usable_snapshot_is_loaded(bus: Bus):
    store = bus.snapshots
    assert await store.newest("f", schema_fingerprint="v1") is None
    assert await store.sequences("f") == []
    await store.save(snapshot(10))
    await store.save(snapshot(20))
    await store.save(snapshot(30, fingerprint="v2"))
    await store.save(msgspec.structs.replace(snapshot(40), state=(b"flipped",)))
    await store.save(snapshot(99, fold="g"))
    assert await store.newest("f", schema_fingerprint="v1") == snapshot(20)
    assert await store.newest("f", schema_fingerprint="v2") == snapshot(30, fingerprint="v2")
    assert await store.newest("f", schema_fingerprint="v1", at_most=19) == snapshot(10)
    assert await store.newest("f", schema_fingerprint="v1", at_most=9) is None


async def test_five_snapshots_of_each_fold_are_kept(bus: Bus):
    for seq in (1, 2, 3, 4, 5, 100, 20):
        await bus.snapshots.save(snapshot(seq))
        await bus.snapshots.save(snapshot(seq, fold="g"))
    assert await bus.snapshots.sequences("f") == [3, 4, 5, 20, 100]
    assert await bus.snapshots.sequences("g") == [3, 4, 5, 20, 100]


async def test_a_large_snapshot_comes_back_whole(bus: Bus):
    large = snapshot(7, state=bytes(range(256)) * 4000 * 3)
    await bus.snapshots.save(large)
    assert await bus.snapshots.newest("f", schema_fingerprint="v1") == large


async def test_a_state_that_is_encoded_while_it_is_stored_comes_back_whole(bus: Bus):
    whole = snapshot(7, state=bytes(range(256)) * 4000 * 3)
    ours, tasks = asyncio.current_task(), set[object]()
    state = whole.state[0]

    def pieces() -> Iterator[bytes]:
        for begin in range(0, len(state), 100_000):
            tasks.add(asyncio.current_task())
            yield state[begin : begin + 100_000]

    others: list[int] = []
    beside = asyncio.create_task(_count(others))
    await bus.snapshots.save_pieces(whole.head, pieces())
    beside.cancel()
    found = await bus.snapshots.newest("f", schema_fingerprint="v1")
    assert found is not None
    assert (found.head, b"".join(found.state), found.digest) == (whole.head, state, whole.digest)
    assert tasks == {ours}, "the state belongs to the tasks of this loop"
    assert len(others) > 5, "other tasks run between the pieces"


async def _count(turns: list[int]) -> None:
    while True:
        turns.append(1)
        await asyncio.sleep(0)


async def test_a_state_that_cannot_be_encoded_to_its_end_is_not_stored(bus: Bus):
    def pieces() -> Iterator[bytes]:
        yield bytes(300_000)  # several messages of the object are stored before the error
        raise ValueError("this pod cannot be encoded")

    await bus.snapshots.save(snapshot(7))
    with pytest.raises(ValueError, match="this pod cannot be encoded"):
        await bus.snapshots.save_pieces(snapshot(8).head, pieces())
    assert await bus.snapshots.sequences("f") == [7]
    assert await bus.snapshots.newest("f", schema_fingerprint="v1") == snapshot(7)


@asynccontextmanager
async def store_of_scheduler(place: Place) -> AsyncGenerator[JetStreamSnapshotStore]:
    """The store of a service, which has 8 MiB."""
    connection = await connect(ConnectionSettings(urls=(place.url,), user="scheduler"))
    try:
        yield JetStreamSnapshotStore(connection, place.bus.names)
    finally:
        await connection.drain_and_close()


def sized(seq: int, kib: int) -> Snapshot:
    return snapshot(seq, fold="scheduler", state=b"%d" % seq * (kib * 1024))


@pytest.mark.nats
async def test_a_store_with_room_for_as_many_snapshots_as_it_keeps_takes_one_more(place: Place) -> None:
    async with store_of_scheduler(place) as store:
        for seq in range(1, KEPT_SNAPSHOTS + 3):
            each = sized(seq, SMALL.saved // 1024 // KEPT_SNAPSHOTS - 64)
            await store.save_pieces(each.head, iter(each.state))
        assert await store.sequences("scheduler") == list(range(3, KEPT_SNAPSHOTS + 3))


@pytest.mark.nats
async def test_a_snapshot_for_which_the_store_lacks_room_takes_that_of_the_oldest(place: Place) -> None:
    async with store_of_scheduler(place) as store:
        for seq in range(1, 6):  # two of them fit
            await store.save(sized(seq, 3072))
            assert await store.newest("scheduler", schema_fingerprint="v1") == sized(seq, 3072)
        assert await store.sequences("scheduler") == [4, 5]


@pytest.mark.nats
async def test_after_a_state_that_is_encoded_only_once_and_does_not_fit_the_next_one_does(place: Place) -> None:
    async with store_of_scheduler(place) as store:
        for seq in (1, 2):
            await store.save(sized(seq, 3072))
        with pytest.raises(NoAnswer, match=r"no room for the snapshot at 3: .*the next one"):
            await store.save_pieces(sized(3, 3072).head, iter(sized(3, 3072).state))
        assert await store.newest("scheduler", schema_fingerprint="v1") == sized(2, 3072)
        await store.save_pieces(sized(4, 3072).head, iter(sized(4, 3072).state))
        assert await store.sequences("scheduler") == [2, 4]


@pytest.mark.nats
async def test_a_snapshot_that_is_larger_than_the_store_leaves_the_newest_one(place: Place) -> None:
    async with store_of_scheduler(place) as store:
        for seq in (1, 2):
            await store.save(sized(seq, 64))
        for seq in (3, 4):
            with pytest.raises(NoAnswer, match=f"no room for the snapshot at {seq}"):
                await store.save(sized(seq, SMALL.saved // 1024 + 1))
        assert await store.newest("scheduler", schema_fingerprint="v1") == sized(2, 64)


@pytest.mark.nats
async def test_a_snapshot_in_the_format_of_an_earlier_release_is_read(place: Place):
    bucket = place.bus.names.snapshot_bucket_of("test")
    store = JetStreamSnapshotStore(place.connection, place.bus.names)
    stream = f"$O.{bucket}"
    earlier = snapshot(7)
    data = msgspec.msgpack.encode(earlier)
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode()
    entry = {"name": "f/7", "nuid": "one", "size": len(data), "chunks": 1, "digest": f"SHA-256={digest}"}
    await place.connection.request(f"{stream}.C.one", data)
    await place.connection.request(
        f"{stream}.M.{base64.urlsafe_b64encode(b'f/7').decode()}", msgspec.json.encode(entry)
    )
    assert await store.newest("f", schema_fingerprint="v1") == earlier


@pytest.mark.deep
@pytest.mark.nats
async def test_a_server_that_answers_no_more_while_snapshots_are_read_is_told_and_asked_again(
    place: Place, monkeypatch: pytest.MonkeyPatch
):
    await place.bus.snapshots.save(snapshot(7))
    proxy = LossyProxy(place.url)
    await proxy.start()
    connection = await connect(ConnectionSettings(urls=(proxy.url,), user="test", reconnect_wait_seconds=0.05))
    store = JetStreamSnapshotStore(connection, place.bus.names)
    assert await store.sequences("f") == [7]
    proxy.swallow = True
    with monkeypatch.context() as patched:
        patched.setattr(direct, "SILENT_SECONDS", 0.1)
        with pytest.raises(NoAnswer, match="koord_snap"):
            await store.newest("f", schema_fingerprint="v1")
    proxy.swallow = False
    proxy.cut()
    assert await patiently(lambda: store.newest("f", schema_fingerprint="v1")) == snapshot(7)
    await connection.drain_and_close()
    await proxy.stop()
