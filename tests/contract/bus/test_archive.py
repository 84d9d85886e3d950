"""Facts that the stream has dropped are read from the archive, and nothing is dropped that a fold still needs."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from pathlib import Path

import msgspec
import pytest
from koordcore.bus.archive.archived_log import ArchivedEventLog, NotTrimmable, archive_facts, trim, trimmable_to
from koordcore.bus.archive.files import LIST, Archive, InvalidArchive, read_list, write_list
from koordcore.bus.archive.taking import take_snapshots
from koordcore.bus.client.connection import BusConnection, ConnectionSettings
from koordcore.bus.client.opening import connect
from koordcore.bus.factory import bus_on
from koordcore.bus.folds.skips import recorded_skips
from koordcore.bus.names import BusNames
from koordcore.bus.setup.bootstrap import bootstrap
from koordcore.bus.setup.manifest import BOOTSTRAP, INSTALLED, RETENTION
from koordcore.bus.setup.principals import nats_users, seed_file, shares
from koordcore.bus.setup.streams import streams
from koordcore.embedded.nats import NatsServer
from koordcore.embedded.nats_config import NatsServerConfig
from koordcore.events.envelope import StoredEvent
from koordcore.events.log import EventSkipped
from koordcore.events.objects import PodSpecAdded, PodSpecDeleted
from koordcore.place import Place, PlaceTrouble, open_place
from koordcore.ports.eventlog import Appended, EventLog, HistoryGone, Misconfigured
from koordcore.ports.snapshots import Snapshot, state_digest
from koordcore.protocol.objects import ObjectMeta, Pod
from koordcore.service.clock import SystemClock
from koordcore.state import ClusterState
from koordctl.replay.scheduler_fold import archived_folds
from koordctl.scheduler import scheduler_configuration
from support.bus.bus_worlds import SMALL, opened, sealed
from support.bus.bus_worlds import Place as BusPlace
from support.bus.installed_server import koord
from support.bus.snapshots import of_a_scheduler, of_the_cluster
from support.depth import first_of
from support.servers import server_directory
from support.storage import s3_bucket

pytestmark = pytest.mark.nats


@pytest.fixture
async def world(nats_url: str) -> AsyncGenerator[BusPlace]:
    async with opened(nats_url) as found:
        yield found


@pytest.fixture
async def world_of_command(world: BusPlace, nats_url: str, tmp_path: Path) -> tuple[dict[str, str], Path]:
    """Environment of a command on a log of 20 facts that has dropped 12 of them, and the place of the archive."""
    log, names = world.bus.events, world.bus.names
    await append(log, 0, 20)
    await archive_facts(log, open_place(str(tmp_path)), names.cluster, 15, _silent)
    await trim(world.connection, names, 12)
    return {"KOORD_NATS": nats_url, "KOORD_CLUSTER": names.cluster}, tmp_path


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    with s3_bucket() as url:
        yield url


@pytest.fixture(params=["folder", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "folder":
        return open_place(str(tmp_path))
    return open_place(f"{request.getfixturevalue('bucket')}/{tmp_path.name}")


def _silent(position: int) -> None:
    """Show no progress."""


async def append(log: EventLog, first: int, count: int) -> None:
    for number in range(first, first + count):
        event = sealed("podspec", f"p{number}", PodSpecDeleted(namespace="d", name="é\tp"), cause=str(number))
        assert isinstance(await log.append([event]), Appended)


async def facts(log: EventLog, after: int = 0, upto: int | None = None) -> list[StoredEvent]:
    end = (await log.head()).last_seq if upto is None else upto
    return [event async for batch in log.history(after, end, batch=7) for event in batch]


async def test_a_list_is_read_without_a_list_of_all_files(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    async def files(prefix: str = "") -> list[str]:
        raise AssertionError(f"the files of {prefix!r} are listed")

    monkeypatch.setattr(place, "files", files)
    assert await read_list(place) is None
    await write_list(place, Archive(cluster="c", parts=[]))
    assert await read_list(place) == Archive(cluster="c", parts=[])


async def test_a_missing_bucket_is_not_an_empty_archive(bucket: str) -> None:
    assert bucket
    with pytest.raises(PlaceTrouble, match=r"s3://missing/x/archive\.json: no such bucket"):
        await read_list(open_place("s3://missing/x"))


def snapshot(fold: str, seq: int) -> Snapshot:
    return Snapshot(
        fold=fold,
        seq=seq,
        code_version="",
        schema_fingerprint="x",
        taken_at="",
        state=(b"s",),
        digest=state_digest([b"s"]),
    )


async def test_dropped_facts_are_read_from_the_archive(world: BusPlace, place: Place) -> None:
    log, names = world.bus.events, world.bus.names
    await append(log, 0, 50)
    before = await facts(log)
    archive = await archive_facts(log, place, names.cluster, 23, _silent, facts_of_part=10)
    assert [(part.first, part.last, part.facts) for part in archive.parts] == [(1, 10, 10), (11, 20, 10), (21, 23, 3)]
    # A later run goes on where the last one ended, and writes nothing twice.
    files = await place.files()
    archive = await archive_facts(log, place, names.cluster, 40, _silent, facts_of_part=10)
    assert (archive.first, archive.last) == (1, 40)
    assert set(files) < set(await place.files())
    assert await read_list(place) == archive

    await trim(world.connection, names, 35)
    assert (await log.head()).first_seq == 36
    with pytest.raises(HistoryGone):
        await facts(log)
    whole = ArchivedEventLog(log, place)
    assert await facts(whole) == before
    for after, upto in ((0, 5), (9, 12), (30, 38), (34, 35), (35, 36), (40, 50), (20, 20)):
        assert await facts(whole, after, upto) == before[after:upto]
    state, expected = ClusterState(), ClusterState()
    for event in before:
        expected.apply(event)
    async for batch in whole.follow(0):
        for event in batch:
            state.apply(event)
        if state.position == 50:
            break
    assert state.hash() == expected.hash()


async def test_what_is_dropped_while_the_archive_is_read_is_read_from_it_too(world: BusPlace, tmp_path: Path) -> None:
    log, place, names = world.bus.events, open_place(str(tmp_path)), world.bus.names
    await append(log, 0, 50)
    before = await facts(log)
    await archive_facts(log, place, names.cluster, 40, _silent, facts_of_part=10)
    await trim(world.connection, names, 15)
    whole = ArchivedEventLog(log, place)

    async def read(batches: AsyncIterator[list[StoredEvent]], drop: int) -> list[StoredEvent]:
        """Events up to position 50; after the first batch, the stream drops those up to `drop`."""
        found = list(await anext(batches))
        await trim(world.connection, names, drop)
        async for batch in batches:
            found += batch
            if found[-1].seq == 50:
                break
        return found

    assert await read(whole.history(0, 50, batch=7), 25) == before
    assert await read(whole.follow(0, batch=7), 35) == before
    with pytest.raises(HistoryGone, match=r"events 36\.\.45 are gone"):
        await read(whole.history(0, 50, batch=7), 45)


async def test_an_order_to_skip_that_the_stream_has_dropped_is_found_in_the_archive(
    world: BusPlace, tmp_path: Path
) -> None:
    log, place, names = world.bus.events, open_place(str(tmp_path)), world.bus.names
    await append(log, 0, 4)
    skips = [
        sealed("fold", fold, EventSkipped(seq=2, reason="unreadable", operator="me"), cause=fold) for fold in ("f", "g")
    ]
    for skip in skips:
        assert isinstance(await log.append([skip]), Appended)
    await append(log, 4, 4)
    await archive_facts(log, place, names.cluster, 8, _silent)
    await trim(world.connection, names, 8)
    whole = ArchivedEventLog(log, place)
    assert await recorded_skips(whole, "f") == set()
    assert await recorded_skips(whole, "f", halted_at=2) == {2}
    assert await recorded_skips(log, "f", halted_at=9) == set()


async def test_the_command_copies_old_facts_and_drops_those_that_snapshots_contain(
    world: BusPlace, nats_url: str, bucket: str
) -> None:
    await append(world.bus.events, 0, 20)
    await world.bus.snapshots.save(of_the_cluster(await facts(world.bus.events), 12))
    await world.bus.snapshots.save(snapshot("scheduler", 12))
    place = f"{bucket}/{world.bus.names.cluster}"
    log = {"KOORD_NATS": nats_url, "KOORD_CLUSTER": world.bus.names.cluster}
    # The facts are dated January 2026, and were stored just now: their age is that of the server.
    assert "has the facts 0 to 0" in await asyncio.to_thread(koord, "bus", "archive", place, "--keep", "2160h", env=log)
    words = ("bus", "archive", place, "--keep", "0s", "--trim")
    said = await asyncio.to_thread(koord, *words, env=log)
    assert f"{place} has the facts 1 to 20 in 1 files\n" in said
    assert "the log has dropped the facts up to 12\n" in said
    assert (await world.bus.events.head()).first_seq == 13


async def added(log: EventLog, count: int) -> None:
    """Append facts that each change the state of the cluster."""
    for number in range(count):
        name = f"p{number}"
        event = PodSpecAdded(object=Pod(metadata=ObjectMeta(name=name, namespace="d", uid=name)))
        assert isinstance(await log.append([sealed("podspec", name, event, cause=name)]), Appended)


@pytest.mark.parametrize("every", first_of([0, 5]), ids=["from the first fact", "from an archived snapshot"])
@pytest.mark.deep
async def test_the_log_drops_nothing_while_a_snapshot_differs_from_what_folding_gives(
    world: BusPlace, nats_url: str, tmp_path: Path, every: int
) -> None:
    log, snapshots = world.bus.events, world.bus.snapshots
    await added(log, 20)
    events = await facts(log)
    await snapshots.save(snapshot("scheduler", 18))
    environment = {"KOORD_NATS": nats_url, "KOORD_CLUSTER": world.bus.names.cluster}
    words = ("bus", "archive", str(tmp_path), "--keep", "0s", "--trim", "--snapshot-facts", str(every))

    async def trimmed() -> tuple[int, int, str]:
        """Status, position of the last fact that the log has dropped, and what the command printed."""
        status, said = await asyncio.to_thread(told, *words, **environment)
        return status, (await log.head()).first_seq - 1, " ".join(said.split())

    await snapshots.save(snapshot("manager", 17))
    *outcome, said = await trimmed()
    assert (outcome, "the manager has no snapshot of this version" in said) == ([1, 0], True)
    await snapshots.save(of_the_cluster(events, 16))
    await snapshots.save(msgspec.structs.replace(of_the_cluster(events[1:], 17), seq=18))
    *outcome, said = await trimmed()
    assert (outcome, "another state than the manager's snapshots at 18." in said) == ([1, 0], True)
    for seq in (18, 19):
        await snapshots.save(of_the_cluster(events, seq))
    *outcome, said = await trimmed()
    assert (outcome, "the log has dropped the facts up to 18" in said) == ([0, 18], True), said


@pytest.mark.parametrize("every", [0, 5], ids=["from the first fact", "from an archived snapshot"])
@pytest.mark.deep
async def test_the_log_drops_nothing_while_the_schedulers_snapshot_differs_from_what_folding_gives(
    world: BusPlace, nats_url: str, tmp_path: Path, every: int
) -> None:
    log, snapshots, configuration = world.bus.events, world.bus.snapshots, scheduler_configuration(None)
    await added(log, 20)
    events = await facts(log)
    await snapshots.save(of_the_cluster(events, 19))
    environment = {"KOORD_NATS": nats_url, "KOORD_CLUSTER": world.bus.names.cluster}
    words = ("bus", "archive", str(tmp_path), "--keep", "0s", "--trim", "--snapshot-facts", str(every))

    async def trimmed() -> tuple[int, int, str]:
        """Status, position of the last fact that the log has dropped, and what the command printed."""
        status, said = await asyncio.to_thread(told, *words, **environment)
        return status, (await log.head()).first_seq - 1, " ".join(said.split())

    await snapshots.save(msgspec.structs.replace(of_a_scheduler(configuration, events[1:], 16), seq=17))
    *outcome, said = await trimmed()
    assert (outcome, "other facts than the scheduler's snapshot at 17." in said) == ([1, 0], True), said
    await snapshots.save(of_a_scheduler(configuration, events, 18))
    *outcome, said = await trimmed()
    assert (outcome, "the log has dropped the facts up to 18" in said) == ([0, 18], True), said


@pytest.mark.deep
def test_a_command_says_which_facts_have_left_the_log(world_of_command: tuple[dict[str, str], Path]) -> None:
    environment, place = world_of_command
    status, said = told("events", "--since", "3", **environment)
    assert (status, "events 3..12 are gone; the stream begins at 13" in said) == (1, True)
    status, said = told("events", "--since", "3", **environment, KOORD_ARCHIVE=str(place))
    assert (status, [line.split()[0] for line in said.splitlines()]) == (0, [str(each) for each in range(3, 21)])
    status, said = told("events", **environment)
    assert (status, len(said.splitlines())) == (0, 8)
    _, said = told("explain", "pod", "p15", "--uid", "p15", **environment)
    assert "facts 1..12 are not in the log any more: what they say about this pod is missing here" in " ".join(
        said.split()
    )


def told(*words: str, **environment: str) -> tuple[int, str]:
    """Run `koord`, and return its exit status and what it printed on both of its streams."""
    done = subprocess.run(
        [sys.executable, "-m", "koordctl", *words],
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout


@pytest.mark.deep
async def test_commands_begin_at_the_nearest_snapshot_of_the_archive(
    world: BusPlace, nats_url: str, tmp_path: Path
) -> None:
    log, names = world.bus.events, world.bus.names
    await added(log, 40)
    place = tmp_path / "archive"
    environment = {"KOORD_NATS": nats_url, "KOORD_CLUSTER": names.cluster, "KOORD_ARCHIVE": str(place)}

    async def said(*words: str) -> str:
        status, text = await asyncio.to_thread(told, *words, **environment)
        assert status == 0, text
        return text

    place.mkdir()
    archived = await said("bus", "archive", str(place), "--keep", "0s", "--snapshot-facts", "10")
    assert [line.split()[:4] for line in archived.splitlines()[-2:]] == [
        ["manager", "4", "10", "40"],
        ["scheduler", "4", "10", "40"],
    ]
    whole = await said("replay", "--to", "37", "--whole")
    assert "folded 37 events to position 37 " in whole
    await trim(world.connection, names, 33)  # so the last fact of the snapshot is in the archive only
    short = await said("replay", "--to", "37")
    assert "folded 7 events from the snapshot at 30 to position 37 " in short
    assert "EVENT AFTER 30" in short
    hashes = [line for text in (whole, short) for line in text.splitlines() if line.startswith("hash ")]
    assert hashes == [hashes[0]] * 2
    rerun = json.loads(await said("replay", "--rerun-scheduler", "--from", "36", "-o", "json"))
    assert rerun["startedAt"] == 30
    (newest,) = place.glob("snapshots/manager/000000000030-*")
    newest.write_bytes(newest.read_bytes()[:-1])
    short = await said("replay", "--to", "37")
    assert f"a snapshot of the archive is not used: {newest}: sha256: must be" in short
    assert "folded 17 events from the snapshot at 20 to position 37 " in short
    assert hashes[0] in short


async def test_an_archive_that_lacks_facts_or_has_changed_is_refused(world: BusPlace, place: Place) -> None:
    log, names = world.bus.events, world.bus.names
    await append(log, 0, 20)
    await archive_facts(log, place, names.cluster, 10, _silent, facts_of_part=5)
    await trim(world.connection, names, 12)
    whole = ArchivedEventLog(log, place)
    with pytest.raises(HistoryGone):
        await facts(whole)
    with pytest.raises(HistoryGone):
        await archive_facts(log, place, names.cluster, 20, _silent)
    assert [event.seq for event in await facts(whole, 0, 10)] == list(range(1, 11))
    name = (await place.files("facts"))[0]
    content = await place.read(name)
    await place.write(name, content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(InvalidArchive, match=r"facts/0+1-0+5\.jsonl\.gz: sha256: must be"):
        await facts(whole, 0, 3)
    with pytest.raises(InvalidArchive, match="cluster: must be other, got"):
        await archive_facts(log, place, "other", 20, _silent)
    await place.write(LIST, b"{}")
    with pytest.raises(InvalidArchive, match=LIST):
        await read_list(place)


async def test_facts_of_another_log_are_not_continued(world: BusPlace, tmp_path: Path) -> None:
    log, place, names = world.bus.events, open_place(str(tmp_path)), world.bus.names
    await append(log, 0, 12)
    await archive_facts(log, place, names.cluster, 10, _silent, facts_of_part=5)
    archive = await read_list(place)
    assert archive is not None
    others = [*archive.parts[:-1], msgspec.structs.replace(archive.parts[-1], ends_at="2025-01-01T00:00:00.000000Z")]
    await place.write(LIST, msgspec.json.encode(msgspec.structs.replace(archive, parts=others)))
    with pytest.raises(InvalidArchive, match=r"last fact, of 2025-.*, is not at position 10 of this log; name a new"):
        await archive_facts(log, place, names.cluster, 12, _silent)
    await place.write(LIST, msgspec.json.encode(archive))
    assert (await archive_facts(log, place, names.cluster, 12, _silent)).last == 12
    behind = [*archive.parts, msgspec.structs.replace(archive.parts[-1], first=11, last=20)]
    await place.write(LIST, msgspec.json.encode(msgspec.structs.replace(archive, parts=behind)))
    with pytest.raises(InvalidArchive, match="is not at position 20"):
        await archive_facts(log, place, names.cluster, 12, _silent)


async def test_nothing_is_dropped_that_a_fold_needs(world: BusPlace, tmp_path: Path) -> None:
    log, place = world.bus.events, open_place(str(tmp_path))
    await append(log, 0, 20)
    archive = await archive_facts(log, place, world.bus.names.cluster, 15, _silent)
    with pytest.raises(NotTrimmable, match="manager"):
        await trimmable_to(archive, world.bus.snapshots)
    await world.bus.snapshots.save(snapshot("manager", 18))
    with pytest.raises(NotTrimmable, match="scheduler"):
        await trimmable_to(archive, world.bus.snapshots)
    await world.bus.snapshots.save(snapshot("scheduler", 9))
    assert await trimmable_to(archive, world.bus.snapshots) == 9
    await world.bus.snapshots.save(snapshot("scheduler", 20))
    assert await trimmable_to(archive, world.bus.snapshots) == 15


async def test_the_user_of_the_archive_drops_facts_and_appends_none(tmp_path: Path) -> None:
    names = BusNames("kept")
    with server_directory() as directory:
        users = nats_users(names, directory / "keys", INSTALLED)
        server = NatsServer(
            NatsServerConfig(directory=directory / "nats", sync_interval="1s", users=users, shares=shares(names))
        )
        await server.start()

        async def connected(user: str) -> BusConnection:
            seed = seed_file(directory / "keys", user)
            return await connect(ConnectionSettings(urls=(server.url,), user=user, nkey_seed_file=seed))

        try:
            connection = await connected(BOOTSTRAP.name)
            await bootstrap(connection, streams(names, replicas=1, sizes=SMALL))
            await connection.drain_and_close()
            connection = await connected("manager")
            await append(bus_on(connection, names).events, 0, 10)
            for fold in ("manager", "scheduler"):
                saving = await connected(fold)
                await bus_on(saving, names).snapshots.save(snapshot(fold, 6))
                await saving.drain_and_close()
            await connection.drain_and_close()
            connection = await connected(RETENTION.name)
            bus = bus_on(connection, names)
            archive = await archive_facts(bus.events, open_place(str(tmp_path)), names.cluster, 8, _silent)
            await trim(connection, names, await trimmable_to(archive, bus.snapshots))
            assert (await bus.events.head()).first_seq == 7
            place, folds = open_place(str(tmp_path)), archived_folds()
            for fold, source in folds.items():
                events = ArchivedEventLog(bus.events, place)
                found = await take_snapshots(
                    events, place, names.cluster, fold, source, SystemClock(), 10, every=4, dense=100
                )
                assert [each.position for each in found] == [4, 8]
            with pytest.raises(Misconfigured, match="permission denied"):
                await append(bus.events, 10, 1)
            await connection.drain_and_close()
        finally:
            await server.kill()
