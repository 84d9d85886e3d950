"""A log on real nats-servers whose block files are damaged, and the folds that look at it.

Each case works on a copy of a prepared store: facts in several blocks, and snapshots of a fold.
"""

import asyncio
import contextlib
import json
import os
import shutil
import signal
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Final

from koordcore.bus.client.connection import BusConnection, ConnectionSettings, NoAnswer, NotConnected
from koordcore.bus.client.opening import connect
from koordcore.bus.factory import Bus, bus_on
from koordcore.bus.folds.snapshot_keeper import SnapshotKeeper
from koordcore.bus.names import BusNames
from koordcore.bus.read.replicas import difference, losses, read_copies
from koordcore.bus.read.stream_reader import ApiError, api, patient_api, stream_info
from koordcore.bus.setup.bootstrap import bootstrap
from koordcore.bus.setup.streams import MIB, streams
from koordcore.embedded.errors import EmbeddedError
from koordcore.embedded.nats import NatsServer
from koordcore.embedded.nats_config import NatsServerConfig
from koordcore.ports.eventlog import LogHead, Misconfigured
from koordcore.service.clock import SystemClock
from support.bus.bus_worlds import SMALL
from support.bus.nats_cluster import NatsCluster
from support.faults.block_files import blocks_of, forget_index, messages_of
from support.faults.facts import Truth, Writer
from support.faults.folds import FOLD, FOLLOWER, SNAPSHOT_EVENTS, SOURCE, Fold, Outcome, Verdict, stopped, together
from support.until import DEADLINE_SECONDS, until

NAMES: Final = BusNames("faults")
SIZES: Final = replace(SMALL, ev=30 * MIB)
"""With a stream of facts that has blocks of 4 MiB."""
_BLOCKS: Final = 3
_STOPPED_SERVER: Final = "the server"
FROM_ZERO: Final = "from zero"
_RESTARTED: Final = "restarted"
_COPIES: Final = "comparison of copies"
_GROWN: Final = "after more facts"
_SILENT_SECONDS: Final = 3.0
_ANSWER_SECONDS: Final = 10.0


class When(StrEnum):
    """At which moment the files are damaged."""

    STOPPED = "stopped"  # after a clean stop; then the server starts
    KILLED = "killed"  # after new facts and kill -9; then the server starts
    LOAD = "under load"  # while facts are appended; then kill -9 and a start
    PAUSED = "paused"  # while facts are appended and the server has SIGSTOP; then SIGCONT, a clean stop and a start


@dataclass(frozen=True, slots=True)
class Prepared:
    """A store that cases copy.

    Attributes:
        folder: Folder of the servers, which do not run.
        older: Copy of the blocks of the first server from a time when half of the facts were written.
        truth: The facts in the store.
        replicas: Number of servers.
    """

    folder: Path
    older: Path
    truth: Truth
    replicas: int


def server_in(folder: Path) -> NatsServer:
    """One nats-server on a folder."""
    config = NatsServerConfig(
        name="faults", directory=folder / "faults", sync_interval="1s", ready_seconds=DEADLINE_SECONDS
    )
    return NatsServer(config)


class Servers:
    """One server, or a cluster of three.

    Attributes:
        members: All servers. The files of the first one are damaged.
    """

    def __init__(self, folder: Path, replicas: int) -> None:
        self._cluster = NatsCluster(folder, name="faults", sync_interval="1s") if replicas > 1 else None
        self.members: Sequence[NatsServer] = self._cluster.servers if self._cluster else (server_in(folder),)

    @property
    def damaged(self) -> NatsServer:
        """The server whose files are damaged."""
        return self.members[0]

    @property
    def urls(self) -> tuple[str, ...]:
        """Addresses of all servers."""
        return tuple(server.url for server in self.members)

    async def start(self) -> None:
        """Start every server that does not run, and wait until they answer.

        Raises:
            EmbeddedError: A server ended.
        """
        if self._cluster is not None:
            await self._cluster.start()
        else:
            await self.damaged.start()

    async def kill(self, *, alone: bool = False) -> None:
        """Send SIGKILL to all servers. `alone`: only to the one whose files are damaged."""
        await asyncio.gather(*(server.kill() for server in self._hit(alone=alone)))

    async def stop(self, *, alone: bool = False) -> None:
        """Stop all servers cleanly. `alone`: only the one whose files are damaged."""
        await asyncio.gather(*(server.stop() for server in self._hit(alone=alone)))

    def _hit(self, *, alone: bool) -> Sequence[NatsServer]:
        return [self.damaged] if alone else self.members

    def signal_damaged(self, number: signal.Signals) -> None:
        """Send a signal to the server whose files are damaged."""
        assert self.damaged.pid is not None
        os.kill(self.damaged.pid, number)


async def prepare(folder: Path, replicas: int) -> Prepared:
    """Write facts in several blocks, and snapshots of a fold; then stop the servers."""
    servers, truth = Servers(folder, replicas), Truth()
    older = folder / "older"
    await servers.start()
    connection = await connected_to(servers.urls)
    try:
        await _declare(connection, replicas)
        bus = bus_on(connection, NAMES, follower=FOLLOWER)
        fold, writer = Fold("saving", bus, saves_every=SNAPSHOT_EVENTS), Writer(bus.events, truth)
        messages = messages_of(servers.damaged.config.directory, NAMES.ev)
        copied = False
        while len(blocks_of(messages)) <= _BLOCKS:
            await writer.write(10)
            if not copied and len(blocks_of(messages)) == _BLOCKS - 1:
                await servers.stop()
                shutil.copytree(messages, older)
                await servers.start()
                copied = True
        await writer.write(20)
        await fold.reaches(truth.last, DEADLINE_SECONDS)
        # The newest snapshot has all facts, so that it tells when the log loses some of them.
        keeper = SnapshotKeeper(FOLD, SOURCE, bus.snapshots, SystemClock())
        await keeper.save(fold.runner.state, truth.last, truth.at[truth.last].event_id)
        await fold.end()
    finally:
        await connection.drain_and_close()
        await servers.stop()
    return Prepared(folder, older, truth, replicas)


@dataclass(slots=True)
class Damage:
    """What a case does to the store.

    Attributes:
        name: What happens, in words.
        to: Changes the files in the folder of messages. Its second argument is the older copy of this folder.
        keeps_index: Whether `index.db` stays. The server then believes it where it can.
        alone: Whether only the damaged server is stopped or killed. Else all are, as by a power cut.
        stream: Name of the stream whose files change.
    """

    name: str
    to: Callable[[Path, Path], None]
    keeps_index: bool = True
    alone: bool = False
    stream: str = NAMES.ev


@dataclass(slots=True)
class Result:
    """What came of a case: the verdicts of each moment, in order."""

    moments: list[tuple[str, list[Verdict]]] = field(default_factory=list[tuple[str, list[Verdict]]])
    # Those who cannot know, at the last moment, that the log has lost its tail: they never had the lost facts.
    unaware: set[str] = field(default_factory=lambda: {FROM_ZERO, _COPIES})

    @property
    def outcome(self) -> Outcome:
        """The worst outcome of all moments."""
        outcomes = [together(verdicts, unaware=self.unaware) for _, verdicts in self.moments]
        worst = (Outcome.WRONG, Outcome.SILENT, Outcome.WORDLESS, Outcome.STOPPED)
        return next((found for found in worst if found in outcomes), Outcome.EQUAL)

    def __str__(self) -> str:
        return "\n".join(f"  {moment}: {verdict}" for moment, verdicts in self.moments for verdict in verdicts)


async def run_case(prepared: Prepared, damage: Damage, when: When, folder: Path) -> Result:
    """Damage a copy of the prepared store at a moment, and ask the folds what they make of it."""
    shutil.copytree(prepared.folder, folder, ignore=shutil.ignore_patterns("older", "*.log"), dirs_exist_ok=True)
    case = _Case(prepared, damage, folder)
    try:
        async with case.running():
            await case.run(when)
    finally:
        await case.servers.kill()
    return case.result


@contextlib.asynccontextmanager
async def running_copy(prepared: Prepared, folder: Path) -> AsyncGenerator[Bus]:
    """A bus on servers with a copy of the prepared store."""
    shutil.copytree(prepared.folder, folder, ignore=shutil.ignore_patterns("older", "*.log"), dirs_exist_ok=True)
    servers = Servers(folder, prepared.replicas)
    await servers.start()
    try:
        connection = await connected_to(servers.urls)
        try:
            yield bus_on(connection, NAMES, follower=FOLLOWER)
        finally:
            await connection.drain_and_close()
    finally:
        await servers.kill()


class _Case:
    def __init__(self, prepared: Prepared, damage: Damage, folder: Path) -> None:
        self.servers = Servers(folder, prepared.replicas)
        self.result = Result()
        self._prepared = prepared
        self._damage = damage
        self._truth = prepared.truth.copy()
        self._replicas = prepared.replicas

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """The servers run, and a fold follows the log."""
        await self.servers.start()
        self._messages = messages_of(self.servers.damaged.config.directory, self._damage.stream)
        self._connection = await connected_to(self.servers.urls)
        self._bus = bus_on(self._connection, NAMES, follower=FOLLOWER)
        self._live = Fold("live", self._bus)
        self._writer = Writer(self._bus.events, self._truth, first=10_000)
        try:
            assert await self._live.reaches(self._truth.last, DEADLINE_SECONDS), self._live.sentence
            yield
        finally:
            await self._live.end()
            await self._connection.drain_and_close()

    async def run(self, when: When) -> None:
        match when:
            case When.STOPPED:
                await self.servers.stop(alone=self._damage.alone)
                self._hurt()
            case When.KILLED:
                await self._writer.write(5)
                await self._live.reaches(self._truth.last, DEADLINE_SECONDS)
                await self.servers.kill(alone=self._damage.alone)
                self._hurt()
            case When.LOAD:
                async with self._load():
                    self._hurt()
                    await asyncio.sleep(0.3)
                await self._look("while it runs")
                await self.servers.kill(alone=self._damage.alone)
            case When.PAUSED:
                async with self._load():
                    self.servers.signal_damaged(signal.SIGSTOP)
                    self._hurt()
                    self.servers.signal_damaged(signal.SIGCONT)
                    await asyncio.sleep(0.3)
                await self._look("while it runs")
                await self.servers.stop(alone=self._damage.alone)
        if not await self._started():
            return
        await self._look("after the start")
        # Others go on, whatever the folds say.
        await Writer(self._bus.events, self._truth, first=20_000).write_within(30, _ANSWER_SECONDS)
        await self._look(_GROWN)
        if self._replicas > 1 and await self._lets_damaged_lead():
            await self._look("led by the damaged server")

    async def _lets_damaged_lead(self) -> bool:
        """Let the damaged server lead the stream of facts. Return False if it does not take over."""
        name = self.servers.damaged.config.name
        request = json.dumps({"placement": {"preferred": name}}).encode()

        async def leads() -> bool:
            info = await stream_info(self._connection, NAMES.ev, patient_api)
            if info is not None and info["cluster"].get("leader") == name:
                return True
            with contextlib.suppress(ApiError, NoAnswer, NotConnected):
                await api(self._connection, f"$JS.API.STREAM.LEADER.STEPDOWN.{NAMES.ev}", request)
            await asyncio.sleep(0.3)
            return False

        with contextlib.suppress(AssertionError):
            return await until(leads, "the damaged server leads", seconds=_ANSWER_SECONDS)
        return False

    def _hurt(self) -> None:
        self._damage.to(self._messages, self._prepared.older)
        if not self._damage.keeps_index:
            forget_index(self._messages)

    @contextlib.asynccontextmanager
    async def _load(self) -> AsyncGenerator[None]:
        """Facts are appended inside the block. At its end, the last one has its answer, if the log answers."""
        stop = asyncio.Event()
        loading = asyncio.create_task(self._writer.run(stop))
        begun_at = self._truth.last
        await until(lambda: self._truth.last > begun_at + 5)
        yield
        stop.set()
        await asyncio.wait({loading}, timeout=_ANSWER_SECONDS)
        loading.cancel()
        await asyncio.gather(loading, return_exceptions=True)

    async def _started(self) -> bool:
        """Start the servers and declare the streams, as each installation does. Return False if that was refused."""
        try:
            await self.servers.start()
            connection = await connected_to(self.servers.urls)
            try:
                await _declare(connection, self._replicas)
            finally:
                await connection.drain_and_close()
        except EmbeddedError as error:
            self.result.moments.append(("at the start", [stopped(_STOPPED_SERVER, str(error))]))
        except Exception as error:  # noqa: BLE001 - whatever the bootstrap refuses with
            self.result.moments.append(("at the start", [stopped("bootstrap", f"{type(error).__name__}: {error}")]))
        else:
            return True
        return False

    async def _look(self, moment: str) -> None:
        bounds = await self._bounds()
        head = bounds.last_seq if bounds is not None else None
        if head is not None and await self._newest_snapshot() < min(self._truth.rewritten, default=head + 1):
            self.result.unaware.add(_RESTARTED)
        others = [Fold(_RESTARTED, self._bus), Fold(FROM_ZERO, self._bus, snapshots=False)]
        verdicts = await asyncio.gather(*(fold.judge(self._truth, head) for fold in (self._live, *others)))
        # Each copy of three is read many times: once is enough, while the damaged server follows.
        copies = await self._copies() if self._replicas == 1 or moment == _GROWN else []
        self.result.moments.append((moment, [*verdicts, *copies]))
        for fold in others:
            await fold.end()

    async def _copies(self) -> list[Verdict]:
        """What a comparison of the servers' copies says: each fact that a copy lacks must be named.

        It knows nothing of the facts before the first position and behind the last one.
        """
        try:
            copies = await read_copies(self._connection, NAMES.ev, NAMES.prefix("ev"), silent_seconds=_SILENT_SECONDS)
        except (ApiError, Misconfigured, NoAnswer, NotConnected) as error:
            return [Verdict(_COPIES, Outcome.STOPPED, str(error))]
        said = losses(copies) or difference(copies)
        if said:
            return [Verdict(_COPIES, Outcome.STOPPED, said)]
        bounds = await self._bounds()  # afterwards: a server may notice by the reading that its first block is gone
        size = None if bounds is None else bounds.last_seq - bounds.first_seq + 1
        outcome = Outcome.EQUAL if all(copy.messages == size for copy in copies) else Outcome.WRONG
        return [Verdict(_COPIES, outcome, f"{[copy.messages for copy in copies]} messages, bounds {bounds}")]

    async def _newest_snapshot(self) -> int:
        return max(await self._bus.snapshots.sequences(FOLD), default=0)

    async def _bounds(self) -> LogHead | None:
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                return await self._bus.events.head()
        except (NoAnswer, NotConnected, Misconfigured, TimeoutError):
            return None


async def connected_to(urls: tuple[str, ...]) -> BusConnection:
    """A connection that is made again soon after each loss."""
    return await connect(
        ConnectionSettings(urls=urls, user="test", reconnect_wait_seconds=0.05, connect_seconds=DEADLINE_SECONDS)
    )


async def _declare(connection: BusConnection, replicas: int) -> None:
    """Declare the streams as each start of an installation does."""
    await bootstrap(connection, streams(NAMES, replicas=replicas, sizes=SIZES))
