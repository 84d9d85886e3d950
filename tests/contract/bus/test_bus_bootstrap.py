"""The bootstrap job on a real server: creates, repeats, changes what is safe, refuses the rest."""

import asyncio
import json
from collections.abc import AsyncGenerator
from dataclasses import replace

import pytest
from koordcore.bus.client.connection import BusConnection, ConnectionSettings, Denied
from koordcore.bus.client.opening import connect
from koordcore.bus.factory import BusSettings, bootstrap_bus, connect_bus, open_bus, unconnected_bus
from koordcore.bus.metrics import BusMetrics
from koordcore.bus.names import SAVED_FOLDS, BusNames
from koordcore.bus.read.log_size import LogRoom, watch_log_size
from koordcore.bus.read.stream_reader import ApiError, patient_api
from koordcore.bus.setup.bootstrap import Change, FactsGone, StreamDiffers, bootstrap
from koordcore.bus.setup.manifest import BOOTSTRAP, EMBEDDED
from koordcore.bus.setup.streams import StreamSizes, streams
from koordcore.embedded.nats import NatsServer
from koordcore.embedded.nats_config import NatsServerConfig
from koordcore.events.envelope import AggregateRef
from koordcore.events.objects import NamespaceObserved, PriorityClassDeleted
from koordcore.protocol.objects import Namespace, ObjectMeta
from support.bus.bus_worlds import SMALL, sealed
from support.bus.guarded import JUDGE, Guarded
from support.servers import server_directory
from support.until import DEADLINE_SECONDS, until

pytestmark = pytest.mark.nats

NAMES = BusNames("boot")


@pytest.fixture
async def guarded() -> AsyncGenerator[Guarded]:
    with server_directory() as directory:
        found = Guarded(directory, NAMES, EMBEDDED)
        await found.start()
        try:
            yield found
        finally:
            await found.kill()


async def config_of(connection: BusConnection, stream: str) -> dict[str, object]:
    return json.loads(await patient_api(connection, f"$JS.API.STREAM.INFO.{stream}", b""))["config"]


async def test_everything_is_created_once_and_safe_changes_are_made(fresh_nats_server: NatsServer):
    settings = BusSettings(urls=(fresh_nats_server.url,), cluster="boot")
    assert set((await bootstrap_bus(settings, sizes=SMALL)).values()) == {Change.CREATED}
    assert set((await bootstrap_bus(settings, sizes=SMALL)).values()) == {Change.UNCHANGED}
    larger = StreamSizes(**{name: getattr(SMALL, name) for name in SMALL.__dataclass_fields__} | {"ev": SMALL.ev * 2})
    done = await bootstrap_bus(settings, sizes=larger)
    assert {name for name, change in done.items() if change is Change.UPDATED} == {NAMES.ev}
    async with open_bus(settings) as bus:
        assert bus.connection is not None
        config = await config_of(bus.connection, NAMES.ev)
        assert config["max_bytes"] == SMALL.ev * 2
        assert (config["allow_atomic"], config["discard"], config["deny_delete"]) == (True, "new", True)


async def test_a_stream_never_becomes_smaller(fresh_nats_server: NatsServer):
    """A manager that starts with the default sizes must not take back what `--log-size` has given."""
    settings = BusSettings(urls=(fresh_nats_server.url,), cluster="boot")
    await bootstrap_bus(settings, sizes=replace(SMALL, ev=SMALL.ev * 2))

    done = await bootstrap_bus(settings, sizes=SMALL)

    assert set(done.values()) == {Change.UNCHANGED}
    async with open_bus(settings) as bus:
        assert bus.connection is not None
        assert (await config_of(bus.connection, NAMES.ev))["max_bytes"] == SMALL.ev * 2


class LogSizes(BusMetrics):
    """Keeps what is reported of the log's size."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, int]] = []

    def log_size(self, used: int, limit: int) -> None:
        self.seen.append((used, limit))


async def test_the_size_of_the_log_and_its_limit_are_reported(fresh_nats_server: NatsServer):
    settings = BusSettings(urls=(fresh_nats_server.url,), cluster="boot")
    await bootstrap_bus(settings, sizes=SMALL)
    found, room = LogSizes(), LogRoom()
    assert room.trouble() is None
    async with open_bus(settings) as bus:
        assert bus.connection is not None
        reporting = asyncio.create_task(watch_log_size(bus.connection, NAMES, found, room, pause=0.01))
        await until(lambda: found.seen)
        await bus.events.append([sealed("priorityclass", "gone", PriorityClassDeleted(name="gone"))])
        await until(lambda: found.seen[-1][0] > found.seen[0][0])
        assert room.trouble() is None
        filler = NamespaceObserved(object=Namespace(metadata=ObjectMeta(name="x", annotations={"a": "x" * 200_000})))
        for number in range(SMALL.ev * 92 // 100 // 200_000):
            await bus.events.append([sealed("namespace", f"n{number}", filler, cause=str(number))])
        await until(lambda: room.trouble() is not None)
        assert "new work waits from 90% on" in str(room.trouble())
        reporting.cancel()
    assert {limit for _, limit in found.seen} == {SMALL.ev}


async def test_a_service_waits_until_the_streams_are_created(fresh_nats_server: NatsServer):
    settings = BusSettings(urls=(fresh_nats_server.url,), cluster="boot", awaits_streams=True)
    bus, reasons = unconnected_bus(settings), list[str]()
    connecting = asyncio.create_task(connect_bus(bus, settings, reasons.append))
    await until(lambda: len(reasons) > 1)
    assert not connecting.done()
    assert set(reasons) == {"waiting for the stream KOORD_EV_boot; `koord bus bootstrap` creates it"}
    await bootstrap_bus(settings, sizes=SMALL)
    await connecting

    assert (await bus.events.head()).last_seq == 0
    assert bus.connection is not None
    await bus.connection.drain_and_close()


async def lose_facts(connection: BusConnection) -> None:
    """Delete the stream of facts, as a server does that cannot read it at its start."""
    await patient_api(connection, f"$JS.API.STREAM.DELETE.{NAMES.ev}", b"")


async def last_seq(connection: BusConnection, stream: str) -> int:
    return (await state_of(connection, stream))["last_seq"]


async def state_of(connection: BusConnection, stream: str) -> dict[str, int]:
    return json.loads(await patient_api(connection, f"$JS.API.STREAM.INFO.{stream}", b""))["state"]


@pytest.mark.parametrize("evidence", ["snapshot", "desired state", "nothing but its creation"])
async def test_a_lost_stream_of_facts_is_not_created_again(fresh_nats_server: NatsServer, evidence: str):
    settings = BusSettings(urls=(fresh_nats_server.url,), cluster="boot")
    await bootstrap_bus(settings, sizes=SMALL)
    async with open_bus(settings) as bus:
        connection = bus.connection
        assert connection is not None
        # The server tells of the stream that it has created, a moment after it.
        await until(lambda: last_seq(connection, NAMES.adv))
        if evidence == "snapshot":
            await connection.request(f"$O.{NAMES.snapshot_bucket}.M.manager", b"{}")
        elif evidence == "desired state":
            await connection.request(NAMES.desired_subject("n1"), b"{}")
        await lose_facts(connection)

        with pytest.raises(FactsGone, match=r"KOORD_EV_boot is gone: .*koord restore.*--new-log"):
            await bootstrap_bus(settings, sizes=replace(SMALL, cmd=SMALL.cmd * 2))
        assert (await config_of(connection, NAMES.cmd))["max_bytes"] == SMALL.cmd, "nothing is changed either"

        done = await bootstrap_bus(settings, sizes=SMALL, new_log=True)
        assert {name for name, change in done.items() if change is not Change.UNCHANGED} == {NAMES.ev}
        assert (await bus.events.head()).last_seq == 0
        for stream in (NAMES.snapshots, NAMES.desired):
            assert (await state_of(connection, stream))["messages"] == 0, "states of the old log are gone"
        assert set((await bootstrap_bus(settings, sizes=SMALL)).values()) == {Change.UNCHANGED}


async def test_an_upgrade_goes_on_where_the_servers_lack_room_for_the_new_streams(
    caplog: pytest.LogCaptureFixture,
) -> None:
    saved = [NAMES.snapshots_of(service) for service in SAVED_FOLDS]
    specs = streams(NAMES, replicas=1, sizes=SMALL)
    before = [spec for spec in specs if spec.name not in saved]
    room = sum(spec.max_bytes for spec in before) + SMALL.saved
    with server_directory() as directory:
        config = NatsServerConfig(directory=directory, sync_interval="1s", max_file_store_bytes=room)
        async with (
            NatsServer(config) as server,
            open_bus(BusSettings(urls=(server.url,), cluster="boot", user="scheduler")) as bus,
        ):
            assert bus.connection is not None
            await bootstrap(bus.connection, before)
            changed = [replace(spec, description="changed") if spec.name == NAMES.ev else spec for spec in specs]
            first, *others = saved

            done = await bootstrap(bus.connection, changed)

            assert {stream for stream, change in done.items() if change is Change.LEFT_OUT} == set(others)
            assert (done[first], done[NAMES.ev]) == (Change.CREATED, Change.UPDATED)
            for stream in others:
                assert f"stream_left_out stream={stream} bytes={SMALL.saved}" in caplog.text
            assert "max_file_store" in caplog.text
            assert NAMES.snapshots_of("scheduler") in others
            assert await bus.snapshots.newest("scheduler", schema_fingerprint="x") is None, "services run without them"
            await patient_api(bus.connection, f"$JS.API.STREAM.DELETE.{first}", b"")
            again = await bootstrap(bus.connection, [spec for spec in changed if spec.name != first])
            assert again[others[0]] is Change.CREATED, "as soon as there is room"


async def test_a_stream_that_services_need_is_not_left_out() -> None:
    with server_directory() as directory:
        config = NatsServerConfig(directory=directory, sync_interval="1s", max_file_store_bytes=SMALL.ev)
        async with NatsServer(config) as server:
            with pytest.raises(ApiError, match="10047"):
                await bootstrap_bus(BusSettings(urls=(server.url,), cluster="boot"), sizes=SMALL)


async def test_a_new_log_begins_on_a_server_with_users_too(guarded: Guarded) -> None:
    states = (NAMES.desired, *NAMES.with_snapshots)
    subjects = (NAMES.desired_subject("n1"), *(f"$O.{stream.removeprefix('OBJ_')}.M.x" for stream in states[1:]))
    async with guarded.connected(JUDGE) as judge:
        for subject in subjects:
            await judge.request(subject, b"{}")
        await lose_facts(judge)
        async with guarded.connected(BOOTSTRAP.name) as connection:
            with pytest.raises(Denied):
                await connection.request(f"$JS.API.STREAM.PURGE.{NAMES.audit}", b"{}", timeout=DEADLINE_SECONDS)
        async with guarded.connected(BOOTSTRAP.name) as connection:
            done = await bootstrap(connection, streams(NAMES, replicas=1, sizes=SMALL), new_log=True)
        assert {name for name, change in done.items() if change is not Change.UNCHANGED} == {NAMES.ev}
        assert [(await state_of(judge, stream))["last_seq"] for stream in states] == [1] * len(states)
        assert [(await state_of(judge, stream))["messages"] for stream in states] == [0] * len(states)


async def test_an_interrupted_first_bootstrap_is_completed_whatever_agents_and_users_have_written(
    fresh_nats_server: NatsServer,
):
    settings = BusSettings(urls=(fresh_nats_server.url,), cluster="boot")
    connection = await connect(ConnectionSettings(urls=settings.urls))
    *others, _ = streams(NAMES, replicas=1, sizes=SMALL)
    for count in range(1, len(others) + 1):
        await bootstrap(connection, others[:count])
    for subject in ("obs.node.n1", "audit.request.r", "cmd.descheduler.drain"):
        await connection.request(f"{NAMES.root}{subject}", b"{}")

    done = await bootstrap_bus(settings, sizes=SMALL)

    assert done[NAMES.ev] is Change.CREATED
    await connection.drain_and_close()


async def test_two_first_bootstraps_at_once_create_the_log(fresh_nats_server: NatsServer):
    settings = BusSettings(urls=(fresh_nats_server.url,), cluster="boot")
    await asyncio.gather(*(bootstrap_bus(settings, sizes=SMALL) for _ in range(4)))
    assert set((await bootstrap_bus(settings, sizes=SMALL)).values()) == {Change.UNCHANGED}


@pytest.mark.parametrize(
    ("field", "value"), [("max_age", 10**12), ("discard", "old"), ("subjects", ["koord.boot.ev.>", "extra.>"])]
)
async def test_a_stream_that_somebody_changed_stops_the_bootstrap(
    fresh_nats_server: NatsServer, field: str, value: object
):
    connection = await connect(ConnectionSettings(urls=(fresh_nats_server.url,)))
    specs = streams(NAMES, replicas=1, sizes=SMALL)
    await bootstrap(connection, specs)
    changed = {**await config_of(connection, NAMES.ev), field: value}
    await patient_api(connection, f"$JS.API.STREAM.UPDATE.{NAMES.ev}", json.dumps(changed).encode())
    with pytest.raises(StreamDiffers, match=f"KOORD_EV_boot.*{field}"):
        await bootstrap(connection, streams(NAMES, replicas=1, sizes=replace(SMALL, cmd=SMALL.cmd * 2)))
    assert (await config_of(connection, NAMES.ev))[field] == value
    assert (await config_of(connection, NAMES.cmd))["max_bytes"] == SMALL.cmd
    await connection.drain_and_close()


async def test_a_compressed_log_is_read_after_it_is_not_compressed_any_more(fresh_nats_server: NatsServer):
    settings = BusSettings(urls=(fresh_nats_server.url,), cluster="boot")
    plain = streams(NAMES, replicas=1, sizes=SMALL)
    compressed = [replace(spec, compression="s2") if spec.name == NAMES.ev else spec for spec in plain]
    connection = await connect(ConnectionSettings(urls=settings.urls))
    await bootstrap(connection, compressed)
    async with open_bus(settings) as bus:
        for number in range(2):
            await bus.events.append([sealed("priorityclass", f"c{number}", PriorityClassDeleted(name="c"))])
            assert (await bootstrap(connection, plain))[NAMES.ev] is (Change.UNCHANGED if number else Change.UPDATED)
        assert (await config_of(connection, NAMES.ev)).get("compression", "none") == "none"
        found = [await bus.events.last_of(AggregateRef("priorityclass", f"c{number}")) for number in range(2)]
        assert [stored and stored.seq for stored in found] == [1, 2]
    await connection.drain_and_close()


async def test_the_streams_of_a_log_with_one_account_are_changed_and_keep_their_messages(
    fresh_nats_server: NatsServer,
) -> None:
    now = streams(NAMES, replicas=1, sizes=SMALL)
    before: dict[str, dict[str, object]] = {
        **{stream: {"duplicate_window_seconds": 120} for stream in (NAMES.obs, NAMES.explanations)},
        NAMES.leader: {"allow_rollup": True},
        NAMES.desired: {"allow_rollup": True},
        NAMES.snapshots: {"subjects": tuple(f"$O.{NAMES.snapshot_bucket}.{part}.>" for part in ("C", "M"))},
        **{
            stream: {"allow_direct": False, "duplicate_window_seconds": 120}
            for stream in (NAMES.audit, NAMES.dlq, NAMES.adv)
        },
    }
    async with open_bus(BusSettings(urls=(fresh_nats_server.url,), cluster=NAMES.cluster)) as bus:
        connection = bus.connection
        assert connection is not None
        await bootstrap(connection, [replace(spec, **before.get(spec.name, {})) for spec in now])  # type: ignore[arg-type]
        for subject in (f"$O.{NAMES.snapshot_bucket}.M.x", f"$KV.{NAMES.leader_bucket}.leader.x"):
            await connection.request(subject, b"{}")
        done = await bootstrap(connection, now)
        assert {name for name, change in done.items() if change is Change.UPDATED} == set(before)
        for stream in (NAMES.snapshots, NAMES.leader):
            assert (await state_of(connection, stream))["messages"] == 1
        again = await bootstrap(connection, now)
        assert set(again.values()) == {Change.UNCHANGED}
