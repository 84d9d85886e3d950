"""Folds and commands over a real server whose disk has lost or changed facts: they stop and say which, or recover.

Never: ready with another state.
"""

import asyncio
import shutil
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from koordcore.bus.client.connection import BusConnection, ConnectionSettings
from koordcore.bus.client.opening import connect
from koordcore.bus.factory import Bus, bus_on
from koordcore.bus.folds import runner as runners
from koordcore.bus.folds import snapshot_keeper
from koordcore.bus.folds.foldable import FoldSource
from koordcore.bus.folds.runner import FoldRunner
from koordcore.bus.names import BusNames
from koordcore.bus.read.direct import messages_of
from koordcore.bus.read.feed import FollowerSettings
from koordcore.bus.read.follower import Follower
from koordcore.bus.read.stream_reader import StreamReader
from koordcore.bus.setup.bootstrap import bootstrap
from koordcore.bus.setup.streams import streams
from koordcore.embedded.nats import NatsServer
from koordcore.embedded.nats_config import NatsServerConfig
from koordcore.events.envelope import StoredEvent
from koordcore.events.nodestate import PodsStarted
from koordcore.ports.eventlog import Appended, LogChanged, LogDamaged
from koordcore.ports.snapshots import Snapshot, state_digest
from koordcore.service.clock import SystemClock
from support.bus.bus_worlds import SMALL, sealed
from support.bus.installed_server import told
from support.servers import server_directory
from support.until import DEADLINE_SECONDS, until

pytestmark = pytest.mark.nats

NAMES = BusNames("dev")
SOON = FollowerSettings(idle_seconds=0.3, compare_seconds=0.3, unreadable_seconds=0.3, went_back_seconds=0.5)


class Ids:
    """A fold that keeps the names of all aggregates in order."""

    def __init__(self, seen: list[str] | None = None) -> None:
        self.seen = seen or []

    def apply(self, stored: StoredEvent) -> object:
        self.seen.append(stored.ref.id)
        return stored.ref.id

    def skip(self, seq: int) -> None:
        return

    def snapshot(self) -> Iterator[bytes]:
        return iter([",".join(self.seen).encode()])


def restored(data: bytes) -> Ids:
    return Ids(data.decode().split(","))


SOURCE = FoldSource(Ids, restored, "v1")


class World:
    """A server with the streams of a cluster, and what can happen to its disk."""

    def __init__(self, server: NatsServer, connection: BusConnection) -> None:
        self.server = server
        self.connection = connection

    @property
    def bus(self) -> Bus:
        return bus_on(self.connection, NAMES, follower=SOON)

    def runner(self) -> FoldRunner[Ids]:
        return FoldRunner("f", self.bus.events, SOURCE, SystemClock(), snapshots=self.bus.snapshots)

    async def append(self, *names: str, text: str = "p") -> None:
        for name in names:
            event = sealed("nodestate", name, PodsStarted(pods=[text]), cause=name)
            assert isinstance(await self.bus.events.append([event]), Appended)

    async def save(self, *seen: str, fact_id: str | None = None) -> None:
        """Save a snapshot of a fold that has seen these events."""
        last = await self.bus.events.at(len(seen))
        assert last is not None
        state = (",".join(seen).encode(),)
        snapshot = Snapshot(
            fold="f",
            seq=len(seen),
            code_version="",
            schema_fingerprint="v1",
            taken_at="",
            state=state,
            digest=state_digest(state),
            fact_id=last.event_id if fact_id is None else fact_id,
        )
        await self.bus.snapshots.save(snapshot)

    @property
    def blocks(self) -> list[Path]:
        return sorted(Path(self.server.config.directory).glob(f"**/{NAMES.ev}/msgs/*.blk"), key=lambda each: each.name)

    @asynccontextmanager
    async def stopped(self) -> AsyncGenerator[Path]:
        """The server is stopped meanwhile. Yields the folder of the stream of facts."""
        await self.server.stop()
        yield self.blocks[0].parent.parent
        await self.server.start()
        await until(lambda: self.connection.is_connected)

    def copied(self, to: Path) -> None:
        shutil.rmtree(to, ignore_errors=True)
        shutil.copytree(self.blocks[0].parent.parent, to)

    async def roll_back(self, older: Path) -> None:
        """The disk has an older copy of the stream."""
        async with self.stopped() as folder:
            shutil.rmtree(folder)
            shutil.copytree(older, folder)


@pytest.fixture
async def world() -> AsyncGenerator[World]:
    with server_directory() as directory:
        async with NatsServer(NatsServerConfig(directory=directory, sync_interval="always")) as server:
            settings = ConnectionSettings(urls=(server.url,), user="test", reconnect_wait_seconds=0.05)
            connection = await connect(settings)
            await bootstrap(connection, streams(NAMES, replicas=1, sizes=SMALL))
            try:
                yield World(server, connection)
            finally:
                await connection.drain_and_close()


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (runners, snapshot_keeper):
        monkeypatch.setattr(module, "WENT_BACK_SECONDS", 0.5)
    monkeypatch.setattr(runners, "MENDING_POLL_SECONDS", 0.2)


@asynccontextmanager
async def running(runner: FoldRunner[Ids]) -> AsyncGenerator[None]:
    task = asyncio.ensure_future(runner.run())
    try:
        async with asyncio.timeout(DEADLINE_SECONDS):
            yield
    finally:
        task.cancel()
        await asyncio.wait({task})


async def halted(runner: FoldRunner[Ids]) -> str:
    await until(lambda: runner.halted is not None)
    return runner.trouble() or ""


def flip(file: Path, text: bytes) -> None:
    content = bytearray(file.read_bytes())
    at = content.find(text)
    assert at >= 0
    content[at] ^= 1
    file.write_bytes(content)


async def test_a_fold_halts_before_a_lost_fact_and_goes_on_when_the_disk_has_it_again(
    world: World, tmp_path: Path
) -> None:
    await world.append("a", "b", "c", "d", text="before")
    await world.append("lost", text="somebody")
    await world.append("x", "y")
    async with world.stopped():
        world.copied(tmp_path / "whole")
        flip(world.blocks[0], b"somebody")
    runner = world.runner()
    async with running(runner):
        told = await halted(runner)
        assert told.startswith("halted before event 5: expected the fact 5, got 6: positions must be consecutive")
        assert "docs/runbook.md, 'Facts are lost'" in told
        assert (runner.state.seen, runner.position, runner.is_caught_up) == (["a", "b", "c", "d"], 4, False)
        await world.roll_back(tmp_path / "whole")
        await runner.reached(7)
        await until(lambda: runner.trouble() is None)
    assert runner.state.seen == ["a", "b", "c", "d", "lost", "x", "y"]


async def test_a_live_fold_and_its_successor_halt_if_the_log_loses_its_end_and_grows_again(
    world: World, tmp_path: Path
) -> None:
    await world.append("a", "b")
    async with world.stopped():
        world.copied(tmp_path / "older")
    await world.append("c", "d")
    runner = world.runner()
    async with running(runner):
        await runner.caught_up()
        await world.save("a", "b", "c", "d")
        await world.roll_back(tmp_path / "older")
        await world.append("other", "than", "before")
        told = await halted(runner)
        assert runner.state.seen == ["a", "b", "c", "d"], "the lost facts are not mixed with the others"
    assert "the fact 4 was " in told
    assert "the log has lost facts and has grown again" in told
    successor = world.runner()
    async with running(successor):
        assert "the fact 4 was " in await halted(successor)
        assert not successor.is_caught_up


async def test_a_live_fold_and_its_successor_halt_if_the_log_ends_before_them(world: World, tmp_path: Path) -> None:
    await world.append("a", "b")
    async with world.stopped():
        world.copied(tmp_path / "older")
    await world.append("c", "d")
    runner = world.runner()
    async with running(runner):
        await runner.caught_up()
        await world.save("a", "b", "c", "d")
        await world.roll_back(tmp_path / "older")
        told = await halted(runner)
    assert "the log ends at 2, but this reader has its facts up to 4" in told
    successor = world.runner()
    async with running(successor):
        assert "the log ends at 2, but this reader has its facts up to 4" in await halted(successor)


class Changing(StreamReader):
    """The leader answers with another event from a moment on."""

    is_changed = False

    async def at(self, seq: int) -> StoredEvent | None:
        found = await super().at(seq)
        if found is None or not self.is_changed:
            return found
        return StoredEvent(found.seq, found.ref, {**found.headers, "Nats-Msg-Id": "other"}, found.body)


async def test_an_idle_follower_compares_its_last_event_from_time_to_time(world: World) -> None:
    await world.append("a", "b")
    reader = Changing(world.connection, NAMES.ev, NAMES.prefix("ev"))
    follower = Follower(world.connection, stream=NAMES.ev, prefix=NAMES.prefix("ev"), reader=reader, settings=SOON)

    async def follow() -> None:
        async for _ in follower.follow(0):
            reader.is_changed = True

    with pytest.raises(LogChanged, match=r"the fact 2 was .*, and is other now"):
        await asyncio.wait_for(follow(), DEADLINE_SECONDS)


@pytest.mark.parametrize("damage", ["flip", "cut"])
async def test_a_block_that_cannot_be_read_is_an_error_within_seconds(world: World, damage: str) -> None:
    big = "x" * 300_000
    await world.append(*(f"n{number}" for number in range(16)), text=big)
    async with world.stopped():
        last = world.blocks[-1]
        if damage == "cut":
            with last.open("r+b") as file:
                file.truncate(last.stat().st_size // 2)
        else:
            content = bytearray(last.read_bytes())
            content[len(content) // 2] ^= 1
            last.write_bytes(content)
    head = await world.bus.events.head()
    found: list[int] = []

    async def read() -> None:
        async for batch in world.bus.events.history(0, head.last_seq):
            found.extend(event.seq for event in batch)

    with pytest.raises(LogDamaged, match=r"expected the fact \d+, got (\d+|nothing)"):
        await asyncio.wait_for(read(), DEADLINE_SECONDS)
    assert found == list(range(1, len(found) + 1))
    assert len(found) < head.last_seq
    if damage == "cut":
        return  # the commands read in the same way
    for words in (("replay",), ("events", "--since", "1"), ("verify", "--replicas")):
        status, printed = await told(world.server.url, NAMES.cluster, *words)
        assert (status, "lost" in printed) == (1, True), printed


async def test_a_snapshot_whose_pieces_are_gone_is_passed_over(world: World) -> None:
    await world.append("a", "b", "c")
    await world.save("a")
    await world.save("a", "b")
    before = await world.bus.snapshots.newest("f", schema_fingerprint="v1")
    assert before is not None
    await _forget_pieces(world.connection, keep=1)
    folded: list[int] = []
    runner = world.runner()
    async with running(runner):
        await runner.caught_up()
        folded.append(runner.position)
    assert (before.seq, folded, runner.state.seen) == (2, [3], ["a", "b", "c"])
    found = await world.bus.snapshots.newest("f", schema_fingerprint="v1")
    assert found is not None
    assert found.seq == 1
    await _forget_pieces(world.connection, keep=0)
    runner = world.runner()
    async with running(runner):
        await runner.caught_up()
    assert runner.state.seen == ["a", "b", "c"]


async def _forget_pieces(connection: BusConnection, *, keep: int) -> None:
    """Purge the pieces of all snapshots except the oldest ones; their entries stay."""
    subject = f"$O.{NAMES.snapshot_bucket}.C.>"
    pieces = [message.headers["Nats-Subject"] async for message in messages_of(connection, NAMES.snapshots, subject)]
    for each in pieces[keep:]:
        body = f'{{"filter":"{each}"}}'.encode()
        await connection.request(f"$JS.API.STREAM.PURGE.{NAMES.snapshots}", body)


async def test_a_snapshot_of_before_without_an_id_is_loaded(world: World) -> None:
    await world.append("a", "b")
    await world.save("a", fact_id="")
    runner = world.runner()
    async with running(runner):
        await runner.caught_up()
    assert runner.state.seen == ["a", "b"]


async def test_a_snapshot_names_the_last_fact_of_its_fold(world: World) -> None:
    await world.append("a", "b")
    runner = FoldRunner("f", world.bus.events, SOURCE, SystemClock(), snapshots=world.bus.snapshots, snapshot_events=1)

    async def saved() -> list[int]:
        return await world.bus.snapshots.sequences("f")

    async with running(runner):
        await runner.caught_up()
        await until(saved)
    snapshot, last = await world.bus.snapshots.newest("f", schema_fingerprint="v1"), await world.bus.events.at(2)
    assert snapshot is not None
    assert last is not None
    assert (snapshot.seq, snapshot.fact_id) == (2, last.event_id)
