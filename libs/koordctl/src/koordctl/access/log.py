"""The connection of a command to the event log, and the state of the cluster rebuilt from all its events.

    async with open_log() as log:
        async for batch in log.bus.events.history(0, head): ...

The address and the key come from KOORD_NATS, KOORD_NATS_SEED and KOORD_NATS_CA, else from the running stack.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Iterable
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from koordcore.embedded.stack import read_stack
from koordcore.events.control import EventSkipped
from koordcore.events.envelope import Event, StoredEvent
from koordcore.events.registry import CATALOGUE, UnreadableEvent
from koordcore.ports.eventlog import EventLog
from koordcore.ports.observations import ObservationLog
from koordcore.state import ClusterState

from koordctl.access.clients import live_directory, nothing_runs, state_file
from koordctl.access.trouble import LogTrouble

if TYPE_CHECKING:
    from koordcore.bus.client.connection import BusConnection, ConnectionSettings
    from koordcore.bus.factory import Bus
    from koordcore.bus.names import BusNames
    from koordcore.bus.read.stream_reader import StreamReader

__all__ = [
    "DEFAULT_CLUSTER",
    "LogTrouble",
    "OpenLog",
    "cluster_name",
    "key_folder",
    "open_log",
    "operator_settings",
    "wait_for",
]

T = TypeVar("T")

DEFAULT_CLUSTER: Final = "dev"


@dataclass(frozen=True, slots=True)
class OpenLog:
    """An open connection to the event log, and the readers that use it.

    Attributes:
        connection: The connection to NATS.
        names: Names of the streams and subjects of this cluster.
        bus: Ports for reading and writing events.
        facts: Reader of single messages of the stream of facts.
        explanations: Reader of single messages of the stream of explanations.
        obs: Reader of single messages of the stream of observations (usage reports).
    """

    connection: BusConnection
    names: BusNames
    bus: Bus
    facts: StreamReader
    explanations: StreamReader
    obs: StreamReader


def key_folder(var: Path) -> Path:
    """Return the folder below `var` in which the stack keeps the NATS keys of services and operators."""
    return var / "keys"


def cluster_name() -> str:
    """Return KOORD_CLUSTER, else the name of the embedded stack's cluster."""
    return os.environ.get("KOORD_CLUSTER", DEFAULT_CLUSTER)


def operator_settings(var: Path | None = None, principal: str | None = None) -> ConnectionSettings:
    """Return address and key with which commands connect to the log.

    Args:
        var: Folder of the stack, or None for the one that runs (see `live_directory`).
        principal: Name of the service or operator whose key is used; None for the operator. KOORD_NATS_SEED must hold
            the key of this principal.

    Raises:
        LogTrouble: No stack runs and no address is set.
    """
    with _without_websockets():
        from koordcore.bus.client.connection import ConnectionSettings
        from koordcore.bus.client.tls import TlsClientFiles
    from koordcore.bus.setup.manifest import OPERATOR
    from koordcore.bus.setup.principals import seed_file

    principal = principal or OPERATOR.name
    var = var or live_directory()
    given, seed, ca = (os.environ.get(name) for name in ("KOORD_NATS", "KOORD_NATS_SEED", "KOORD_NATS_CA"))
    if given:
        return ConnectionSettings(
            urls=tuple(given.split(",")),
            name="koord",
            user=principal,
            nkey_seed_file=Path(seed) if seed else None,
            tls=TlsClientFiles(ca=Path(ca)) if ca else None,
            connect_seconds=5,
        )
    stack = read_stack(state_file(var))
    nats = stack.find("nats") if stack is not None and stack.is_live else None
    if nats is None:
        raise LogTrouble(nothing_runs("log", var, "KOORD_NATS=nats://host:port"))
    return ConnectionSettings(
        urls=(nats.urls["client"],),
        name="koord",
        user=principal,
        nkey_seed_file=seed_file(key_folder(var), principal),
        connect_seconds=5,
    )


@asynccontextmanager
async def open_log(var: Path | None = None, principal: str | None = None) -> AsyncGenerator[OpenLog]:
    """Connect to the log, and close the connection at the end of the block.

    Args:
        var: Folder of the stack, or None for the one that runs.
        principal: Name of the service or operator whose key is used; None for the operator.

    Raises:
        LogTrouble: The log cannot be reached, or it refused a request.
    """
    settings = operator_settings(var, principal)
    from koordcore.bus.archive.files import InvalidArchive
    from koordcore.bus.client.connection import ConnectRefused, Denied, NoAnswer, NotConnected, connect
    from koordcore.bus.factory import bus_on, with_archive
    from koordcore.bus.names import BusNames
    from koordcore.bus.read.stream_reader import ApiError, StreamReader
    from koordcore.place import PlaceTrouble
    from koordcore.ports.eventlog import HistoryGone, Misconfigured

    names, archive = BusNames(cluster_name()), os.environ.get("KOORD_ARCHIVE", "")
    try:
        connection = await connect(settings)
    except (ConnectRefused, NotConnected) as error:
        raise LogTrouble(f"the log: {error}") from error
    try:
        yield OpenLog(
            connection=connection,
            names=names,
            bus=with_archive(bus_on(connection, names), archive) if archive else bus_on(connection, names),
            facts=StreamReader(connection, names.ev, names.prefix("ev"), deadline=10),
            explanations=StreamReader(connection, names.explanations, names.prefix("explanations"), deadline=10),
            obs=StreamReader(connection, names.obs, names.prefix("obs"), deadline=10),
        )
    except (NoAnswer, NotConnected, Denied, ApiError, Misconfigured, HistoryGone) as error:
        raise LogTrouble(f"the log: {error}") from error
    except (InvalidArchive, PlaceTrouble) as error:
        raise LogTrouble(f"the archive: {error}") from error
    finally:
        await connection.drain_and_close()


@contextmanager
def _without_websockets() -> Generator[None]:
    """Prevent nats-py from importing aiohttp.

    nats-py needs aiohttp for websockets only, which no command uses. This import takes longer than all others of a
    command.
    """
    if "aiohttp" in sys.modules:
        yield
        return
    sys.modules["aiohttp"] = None  # pyright: ignore[reportArgumentType]  # the import system's word for "not there"
    try:
        yield
    finally:
        del sys.modules["aiohttp"]


def wait_for(work: Coroutine[object, object, T]) -> T:
    """Run an asynchronous function of a command to its end and return its result."""
    return asyncio.run(work)


BATCH = 1000


@dataclass(slots=True)
class Folded:
    """The state of the cluster rebuilt from the log, with the number of events, the duration and hashes of the state.

    Attributes:
        state: The state at the last position.
        events: Number of folded events, without the positions that an operator skipped.
        by_type: Event type -> number of events.
        seconds: Real time for reading, folding and hashing.
        hash: Hash of the state at the last position.
        hashes: Position -> hash of the state there, for each position in `marks` of `fold_to` and the last one.
    """

    state: ClusterState = field(default_factory=ClusterState)
    events: int = 0
    by_type: dict[str, int] = field(default_factory=dict[str, int])
    seconds: float = 0.0
    hash: str = ""
    hashes: dict[int, str] = field(default_factory=dict[int, str])

    @property
    def events_per_second(self) -> float:
        """Number of events that were applied per second of real time."""
        return self.events / self.seconds if self.seconds > 0 else 0.0


async def fold_to(
    log: EventLog,
    upto: int,
    *,
    marks: Iterable[int] = (),
    see: Callable[[StoredEvent, Event], None] | None = None,
    progress: Callable[[int], None] | None = None,
) -> Folded:
    """Rebuild the state of the cluster from the events of the log up to position `upto`.

    Args:
        log: The stream of facts.
        upto: Last position to fold.
        marks: Positions at which the hash of the state is kept; all at most `upto`.
        see: Called with every stored event and its decoded form, in order.
        progress: Called with the position after every batch.

    Raises:
        LogTrouble: An event cannot be decoded and no operator has skipped it. The message names the event.
    """
    folded = Folded()
    began = time.perf_counter()
    skipped: set[int] | None = None
    marked = frozenset(marks)
    if 0 in marked:
        folded.hashes[0] = folded.state.hash()
    if upto > 0:
        async for batch in log.history(0, upto, batch=BATCH):
            for stored in batch:
                try:
                    event = folded.state.apply(stored)
                except UnreadableEvent as error:
                    skipped = await skipped_positions(log) if skipped is None else skipped
                    if stored.seq not in skipped:
                        raise LogTrouble(
                            f"{error}; a recorded skip lets the fold continue: koord bus skip --help"
                        ) from error
                    folded.state.skip(stored.seq)
                    event = None
                if event is not None:
                    folded.events += 1
                    folded.by_type[stored.type] = folded.by_type.get(stored.type, 0) + 1
                    if see is not None:
                        see(stored, event)
                if stored.seq in marked:
                    folded.hashes[stored.seq] = folded.state.hash()
            if progress is not None:
                progress(folded.state.position)
    folded.state.skip(upto)
    folded.hash = folded.hashes[upto] = folded.state.hash()
    folded.seconds = time.perf_counter() - began
    return folded


async def skipped_positions(log: EventLog) -> set[int]:
    """Return the positions of the events that an operator told the services to skip (`koord bus skip`)."""
    head = await log.head()
    found: set[int] = set()
    async for batch in log.history(0, head.last_seq, kinds=["fold"]):
        for stored in batch:
            event = CATALOGUE.read(stored)
            if isinstance(event, EventSkipped):
                found.add(event.seq)
    return found


async def everything_kept(stream: ObservationLog) -> list[StoredEvent]:
    """Return every message that the stream still has, in order. Messages older than its retention are deleted."""
    head = await stream.head()
    found: list[StoredEvent] = []
    if head.last_seq == 0 or head.first_seq > head.last_seq:
        return found
    async for batch in stream.follow(0):
        found += batch
        if found and found[-1].seq >= head.last_seq:
            break
    return found
