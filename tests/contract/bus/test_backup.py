"""A backup of a running server holds every fact at its position, and an empty server takes it back."""

import asyncio
import json
import stat
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path

import pytest
from koordcore.bus.archive.taking import take_snapshots
from koordcore.bus.backup import (
    LARGEST_MANIFEST,
    MANIFEST,
    Backup,
    InvalidBackup,
    NotInBackup,
    StreamExists,
    read_backup,
    restore_backup,
    take_backup,
)
from koordcore.bus.client.connection import BusConnection, ConnectionSettings, Denied
from koordcore.bus.client.opening import connect
from koordcore.bus.factory import Bus, bus_on, with_archive
from koordcore.bus.folds.replay import position_at_time
from koordcore.bus.names import SAVED_FOLDS, BusNames
from koordcore.bus.read.stream_reader import ApiError, api, stream_info
from koordcore.bus.setup.bootstrap import Change, bootstrap
from koordcore.bus.setup.manifest import BACKUP, BOOTSTRAP, RETENTION
from koordcore.bus.setup.principals import nats_users, seed_file, shares
from koordcore.bus.setup.streams import streams
from koordcore.embedded.nats import NatsServer
from koordcore.embedded.nats_config import NatsServerConfig
from koordcore.events import CATALOGUE
from koordcore.events.envelope import AggregateRef, Draft, Origin
from koordcore.events.log import LogRestored
from koordcore.events.objects import PodSpecDeleted
from koordcore.place import Place, PlaceTrouble, open_place
from koordcore.ports.desired import DesiredNode
from koordcore.ports.eventlog import Appended, Misconfigured
from koordcore.ports.snapshots import Snapshot, state_digest
from koordcore.service.clock import SystemClock
from koordcore.values.timestamps import rfc3339, unix_nanos
from koordctl.replay.scheduler_fold import archived_folds
from support.bus.bus_worlds import SMALL, sealed
from support.bus.log_worlds import FAST
from support.servers import server_directory
from support.storage import s3_bucket
from support.until import DEADLINE_SECONDS

pytestmark = pytest.mark.nats

NAMES = BusNames("kept")
NOW = "2026-01-01T00:00:00Z"
DESIRED = DesiredNode(node="n1", as_of={"node": 1})


def _silent(stream: str, count: int) -> None:
    """Show no progress."""


def _snapshot(seq: int) -> Snapshot:
    state = b"a state"
    return Snapshot(
        fold="manager",
        seq=seq,
        code_version="",
        schema_fingerprint="x",
        taken_at=NOW,
        state=(state,),
        digest=state_digest([state]),
    )


async def test_a_folder_of_a_backup_is_open_to_its_owner_only(tmp_path: Path) -> None:
    place = open_place(str(tmp_path / "backups" / "one"), create=True)
    await place.write("file", b"a manifest")
    assert stat.S_IMODE((tmp_path / "backups" / "one").stat().st_mode) == 0o700


class Installation:
    """A server with the users of an installation, without streams."""

    def __init__(self, directory: Path) -> None:
        self._keys = directory / "keys"
        users = nats_users(NAMES, self._keys)
        self.server = NatsServer(
            NatsServerConfig(directory=directory / "nats", sync_interval="1s", users=users, shares=shares(NAMES))
        )

    @asynccontextmanager
    async def connected(self, user: str) -> AsyncGenerator[BusConnection]:
        seed = seed_file(self._keys, user)
        connection = await connect(ConnectionSettings(urls=(self.server.url,), user=user, nkey_seed_file=seed))
        try:
            yield connection
        finally:
            await connection.drain_and_close()

    async def create_streams(self) -> dict[str, Change]:
        async with self.connected(BOOTSTRAP.name) as connection:
            return await bootstrap(connection, streams(NAMES, replicas=1, sizes=SMALL))

    async def backup(self, place: Place) -> Backup:
        async with self.connected(BACKUP.name) as connection:
            return await take_backup(connection, NAMES, place, NOW, _silent)

    async def restore(self, place: Place, upto: int | datetime | None = None) -> int:
        async with self.connected(BOOTSTRAP.name) as connection:
            return await restore_backup(connection, await read_backup(place), place, _silent, upto=upto)

    @asynccontextmanager
    async def bus(self, user: str) -> AsyncGenerator[Bus]:
        async with self.connected(user) as connection:
            yield bus_on(connection, NAMES, follower=FAST)


@asynccontextmanager
async def installation() -> AsyncGenerator[Installation]:
    with server_directory() as directory:
        found = Installation(directory)
        await found.server.start()
        try:
            yield found
        finally:
            await found.server.kill()


async def facts(bus: Bus) -> list[tuple[int, str, bytes]]:
    head = await bus.events.head()
    return [
        (stored.seq, str(stored.ref), stored.body)
        async for batch in bus.events.history(0, head.last_seq)
        for stored in batch
    ]


async def append_pair(bus: Bus, name: str) -> None:
    """Append two facts that are stored together or not at all."""
    pair = [sealed("podspec", f"{name}-{half}", PodSpecDeleted(namespace="d", name=name), cause=half) for half in "ab"]
    assert isinstance(await bus.events.append(pair), Appended)


async def append(bus: Bus, first: int, count: int) -> None:
    for number in range(first, first + count):
        event = sealed("podspec", f"p{number}", PodSpecDeleted(namespace="d", name=f"p{number}"), cause=str(number))
        assert isinstance(await bus.events.append([event]), Appended)


async def test_a_backup_of_a_running_server_is_restored_on_an_empty_one(tmp_path: Path) -> None:
    folder = open_place(str(tmp_path))
    snapshot = _snapshot(5)
    async with installation() as running:
        await running.create_streams()
        async with running.bus("manager") as bus:
            await append(bus, 0, 40)
            await bus.snapshots.save(snapshot)
            await bus.desired.put(DESIRED)
            writing = asyncio.create_task(append(bus, 40, 40))
            backup = await running.backup(folder)
            await writing
            written = await facts(bus)
    assert [copy.stream for copy in backup.streams] == list(NAMES.in_backup)
    assert 40 <= backup.position <= 80
    assert await read_backup(folder) == backup

    async with installation() as fresh:
        await fresh.restore(folder)
        assert (await fresh.create_streams())[NAMES.ev] is Change.UNCHANGED
        async with fresh.bus("manager") as bus:
            assert await facts(bus) == written[: backup.position]
            assert await bus.snapshots.newest("manager", schema_fingerprint="x") == snapshot
            assert await bus.desired.get("n1") == DESIRED
            await append(bus, backup.position, 1)
            assert (await bus.events.head()).last_seq == backup.position + 1
        with pytest.raises(StreamExists, match=NAMES.snapshots):
            await fresh.restore(folder)


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    with s3_bucket() as url:
        yield url


async def test_a_backup_in_s3_is_the_one_that_was_taken(bucket: str, tmp_path: Path) -> None:
    place, folder = open_place(f"{bucket}/first"), open_place(str(tmp_path))
    async with installation() as running:
        await running.create_streams()
        async with running.bus("manager") as bus:
            await append(bus, 0, 300)
            written = await facts(bus)
            backup = await running.backup(place)
    assert await place.files() == sorted([MANIFEST, *(copy.file for copy in backup.streams)])
    async with installation() as fresh:
        assert await fresh.restore(place) == 300
        async with fresh.bus("manager") as bus:
            assert await facts(bus) == written
    # The same files, one byte changed: in a folder and in a bucket, the backup is refused.
    changed = open_place(f"{bucket}/changed")
    for name in await place.files():
        content = await place.read(name)
        await changed.write(name, content[:-1] + b"?" if name == backup.streams[-1].file else content)
        await folder.write(name, content)
    assert await read_backup(folder) == backup
    with pytest.raises(InvalidBackup, match=r"s3://.*sha256: must be"):
        await read_backup(changed)


async def test_a_store_without_the_bucket_is_named(bucket: str) -> None:
    with pytest.raises(PlaceTrouble, match=r"s3://missing/x/: .*404 Not Found"):
        await read_backup(open_place("s3://missing/x"))


async def test_a_restore_up_to_a_position_leaves_out_what_is_later(tmp_path: Path) -> None:
    place, archive = (open_place(str(tmp_path / name), create=True) for name in ("backup", "archive"))
    source = archived_folds()["manager"]
    async with installation() as running:
        await running.create_streams()
        async with running.bus("manager") as bus:
            await append(bus, 0, 20)
            for seq in (10, 20):
                await bus.snapshots.save(_snapshot(seq))
            await bus.desired.put(DESIRED)
            await append_pair(bus, "pair")  # positions 21 and 22
            await append(bus, 20, 8)
            written = await facts(bus)
        async with running.bus(RETENTION.name) as bus:
            await take_snapshots(
                bus.events, archive, NAMES.cluster, "manager", source, SystemClock(), 30, every=6, dense=100
            )
        await running.backup(place)

    for upto, last in ((15, 15), (20, 20), (21, 20), (22, 22), (30, 30)):
        async with installation() as fresh:
            assert await fresh.restore(place, upto) == last
            await fresh.create_streams()
            async with fresh.bus("manager") as bus:
                found = await facts(bus)
                assert found[:last] == written[:last]
                assert await bus.desired.get("n1") is None
                assert await bus.snapshots.sequences("manager") == [seq for seq in (10, 20) if seq <= last]
                # Positions of facts that were left out are not used again, and a fact names them.
                head = await bus.events.head()
                assert head.last_seq == (30 if last == 30 else 31)
                noted = [
                    CATALOGUE.read(event)
                    async for batch in bus.events.history(0, head.last_seq, kinds=["log"])
                    for event in batch
                ]
                assert [event.position for event in noted if isinstance(event, LogRestored)] == [last] * (last < 30)
                await append(bus, 100, 1)
                # A manager with an archive begins at the last snapshot before the moment, not at one of left out facts.
                refused: list[str] = []
                begin = await with_archive(bus, archive.name, refused.append).snapshots.newest(
                    "manager", schema_fingerprint=source.fingerprint, at_most=head.last_seq
                )
                assert begin is not None
                assert begin.seq == last // 6 * 6
                assert len(refused) == (30 - begin.seq) // 6
                with pytest.raises(ApiError, match="delete"):
                    async with fresh.connected(BOOTSTRAP.name) as connection:
                        await api(
                            connection, f"$JS.API.STREAM.MSG.DELETE.{NAMES.ev}", b'{"seq": 1}', timeout=DEADLINE_SECONDS
                        )


async def test_a_restore_up_to_a_time_ends_with_the_last_fact_that_was_stored_by_then(tmp_path: Path) -> None:
    place = open_place(str(tmp_path))
    said = datetime(2026, 1, 1, tzinfo=UTC)
    async with installation() as running:
        await running.create_streams()
        async with running.bus("manager") as bus:
            for number in range(12):
                draft = Draft(AggregateRef("podspec", f"p{number}"), PodSpecDeleted(namespace="d", name="p"), 0)
                # The clocks of the writers are wrong, each in its own way, and do not count.
                at = rfc3339(said + timedelta(days=number * 7 % 12))
                origin = Origin(causation_id=str(number), correlation_id="x", actor="test", occurred_at=at)
                assert isinstance(await bus.events.append(CATALOGUE.seal([draft], origin)), Appended)
            stored = [event.stored_at_ns async for batch in bus.events.history(0, 12) for event in batch]
        await running.backup(place)
    begin = datetime(1970, 1, 1, tzinfo=UTC)
    moments = [begin + timedelta(microseconds=nanos // 1000) for nanos in stored]
    for moment, last in ((moments[0], 1), (moments[4], 5), (moments[11], 12), (moments[11] + timedelta(days=1), 12)):
        async with installation() as fresh:
            assert await fresh.restore(place, moment) == last
            async with fresh.bus("manager") as bus:
                found = await position_at_time(bus.events, unix_nanos(moment))
                assert found == last
    async with installation() as fresh:
        with pytest.raises(NotInBackup, match="no complete append up to it"):
            await fresh.restore(place, moments[0] - timedelta(seconds=1))


async def test_a_position_that_the_backup_lacks_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    place = open_place(str(tmp_path))
    async with installation() as running:
        await running.create_streams()
        async with running.bus("manager") as bus:
            await append(bus, 0, 3)
        await running.backup(place)
    async with installation() as fresh:
        with pytest.raises(NotInBackup, match="position 4: the backup has the facts 1 to 3"):
            await fresh.restore(place, 4)
        assert await fresh.restore(place, 3) == 3


async def test_a_file_that_changes_after_it_was_checked_gives_no_stream(tmp_path: Path) -> None:
    """Whoever can write to the place may put back another file between the two readings."""
    place = open_place(str(tmp_path / "a"), create=True)
    other = open_place(str(tmp_path / "b"), create=True)
    async with installation() as running:
        await running.create_streams()
        async with running.bus("manager") as bus:
            await append(bus, 0, 3)
            await running.backup(place)
            await append(bus, 3, 3)
        await running.backup(other)
    checked = await read_backup(place)
    facts_of = checked.streams[-1].file
    (tmp_path / "a" / facts_of).write_bytes((tmp_path / "b" / facts_of).read_bytes())
    async with installation() as fresh, fresh.connected(BOOTSTRAP.name) as connection:
        with pytest.raises(InvalidBackup, match=f"{facts_of}: (size|sha256): must be"):
            await restore_backup(connection, checked, place, _silent)
        assert await stream_info(connection, NAMES.ev) is None


async def test_a_backup_leaves_out_streams_of_snapshots_that_the_bootstrap_has_not_created_yet(tmp_path: Path) -> None:
    place = open_place(str(tmp_path / "copy"), create=True)
    absent = set(map(NAMES.snapshots_of, SAVED_FOLDS))
    specs = streams(NAMES, replicas=1, sizes=SMALL)
    async with installation() as running:
        async with running.connected(BOOTSTRAP.name) as connection:
            await bootstrap(connection, [spec for spec in specs if spec.name not in absent])
        async with running.bus("manager") as bus:
            await append(bus, 0, 3)
        taken = await running.backup(place)
        assert [copy.stream for copy in taken.streams] == [name for name in NAMES.in_backup if name not in absent]
    async with installation() as fresh:
        assert await fresh.restore(place, 2) == 2
        assert {name for name, change in (await fresh.create_streams()).items() if change is Change.CREATED} >= absent


async def test_a_backup_does_not_leave_out_the_facts(tmp_path: Path) -> None:
    specs = streams(NAMES, replicas=1, sizes=SMALL)
    async with installation() as running:
        async with running.connected(BOOTSTRAP.name) as connection:
            await bootstrap(connection, [spec for spec in specs if not spec.holds_facts])
        with pytest.raises(ApiError, match="10059"):
            await running.backup(open_place(str(tmp_path / "copy"), create=True))


async def test_the_user_of_backups_changes_nothing() -> None:
    async with installation() as running:
        await running.create_streams()
        async with running.connected(BACKUP.name) as connection:
            for subject in (f"$JS.API.STREAM.RESTORE.{NAMES.ev}", f"$JS.API.STREAM.PURGE.{NAMES.ev}"):
                with pytest.raises(Denied):
                    await api(connection, subject, b"{}", timeout=DEADLINE_SECONDS)
        async with running.bus(BACKUP.name) as bus:
            with pytest.raises(Misconfigured, match="permission denied"):
                await append(bus, 0, 1)


async def test_a_manifest_with_fields_of_another_version_agrees_with_its_digest(tmp_path: Path) -> None:
    later = tmp_path / MANIFEST
    (tmp_path / "a").write_bytes(b"")
    entry = {"stream": "S", "file": "a", "size": 0, "sha256": sha256(b"").hexdigest(), "messages": 0}
    entry |= {"first": 0, "last": 0, "config": {}, "state": {}, "later": [1]}
    document = {"cluster": "kept", "more": {"x": 1}, "taken_at": NOW, "server": "2", "streams": [entry], "version": 1}
    digest = sha256(json.dumps(document, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
    later.write_text(json.dumps({"digest": digest, **document}))
    assert (await read_backup(open_place(str(tmp_path)))).digest == digest
    later.write_text(json.dumps({"digest": digest, **document, "more": {"x": 2}}))
    with pytest.raises(InvalidBackup, match="digest: must be"):
        await read_backup(open_place(str(tmp_path)))


async def test_a_changed_file_is_refused(tmp_path: Path) -> None:
    folder = tmp_path
    async with installation() as running:
        await running.create_streams()
        async with running.bus("manager") as bus:
            await append(bus, 0, 3)
        backup = await running.backup(open_place(str(folder)))
    manifest = (folder / MANIFEST).read_text()
    for old, new in (
        (f'"messages": {backup.streams[-1].messages}', '"messages": 2'),
        ('"cluster": "', '"cluster": "x'),
        ('"allow_direct": true', '"allow_direct": false'),
    ):
        assert old in manifest
        (folder / MANIFEST).write_text(manifest.replace(old, new))
        with pytest.raises(InvalidBackup, match="digest: must be"):
            await read_backup(open_place(str(folder)))
    (folder / MANIFEST).write_text(manifest.replace(backup.digest, ""))
    assert (await read_backup(open_place(str(folder)))).digest == "", "a backup of an earlier version has none"
    (folder / MANIFEST).write_text(manifest + " " * LARGEST_MANIFEST)
    with pytest.raises(PlaceTrouble, match="size: must be at most"):
        await read_backup(open_place(str(folder)))
    (folder / MANIFEST).write_text(manifest)
    assert await read_backup(open_place(str(folder))) == backup
    file = folder / backup.streams[-1].file
    content = file.read_bytes()
    file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(InvalidBackup, match="sha256: must be"):
        await read_backup(open_place(str(folder)))
    file.write_bytes(content[:-1])
    with pytest.raises(InvalidBackup, match="size: must be"):
        await read_backup(open_place(str(folder)))
    (folder / MANIFEST).unlink()
    with pytest.raises(InvalidBackup, match="not a complete backup"):
        await read_backup(open_place(str(folder)))
