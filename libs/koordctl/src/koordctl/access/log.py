"""The connection of a command to the event log.

    async with open_log() as log:
        async for batch in log.bus.events.history(0, head): ...

The address and the key come from KOORD_NATS, KOORD_NATS_SEED and KOORD_NATS_CA, else from the running stack.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncGenerator, Coroutine, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from koordcore.embedded.stack import read_stack

from koordctl.access.clients import LogTrouble, live_directory, nothing_runs, state_file
from koordctl.render.output import errors

if TYPE_CHECKING:
    from koordcore.bus.client.connection import BusConnection, ConnectionSettings
    from koordcore.bus.factory import Bus
    from koordcore.bus.names import BusNames
    from koordcore.bus.read.stream_reader import StreamReader
    from koordcore.events.envelope import AggregateRef, Event, StoredEvent
    from koordcore.events.observation import NodeUsageReported

__all__ = [
    "DEFAULT_CLUSTER",
    "LogTrouble",
    "OpenLog",
    "cluster_name",
    "key_folder",
    "mirror_info",
    "open_log",
    "operator_settings",
    "readable_report",
    "wait_for",
    "warn_of_dropped",
]

T = TypeVar("T")

DEFAULT_CLUSTER: Final = "dev"


@dataclass(frozen=True, slots=True)
class OpenLog:
    """An open connection to the event log, and the readers that use it."""

    connection: BusConnection  # The connection to NATS
    names: BusNames  # Names of the streams and subjects of this cluster
    bus: Bus  # Ports for reading and writing events
    facts: StreamReader  # Reader of single messages of the stream of facts
    explanations: StreamReader  # Reader of single messages of the stream of explanations
    obs: StreamReader  # Reader of single messages of the stream of observations (usage reports)

    async def recent(
        self, ref: AggregateRef, time: timedelta, *, after: int = 0, upto: int | None = None
    ) -> list[StoredEvent]:
        """Return the newest facts of an aggregate, in order, in a time that does not grow with the age of the log.

        Args:
            time: Facts are left out that the server stored longer than this before the newest one, or before `upto`.
            after: Only facts with a sequence above this are returned.
            upto: Largest sequence to return; None: the newest.
        """
        end = await (self.bus.events.last_of(ref) if upto is None else self.facts.at(upto))
        if end is not None:
            begin = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=end.stored_at_ns // 1000) - time
            first = await self.facts.since(self.names.subject("ev", ref), begin)
            after = max(after, end.seq if first is None else first.seq - 1)
        found = await self.bus.events.read_aggregate(ref, after=after)
        return found if upto is None else [event for event in found if event.seq <= upto]

    async def facts_of(self, kind: str, id_: str, *, after: int = 0, upto: int | None = None) -> list[StoredEvent]:
        """The facts of one aggregate in order, with positions above `after` and up to `upto`; None: the newest."""
        from koordcore.events.envelope import AggregateRef

        found = await self.bus.events.read_aggregate(AggregateRef(kind, id_), after=after)
        return found if upto is None else [event for event in found if event.seq <= upto]

    async def last_report(self, token: str) -> NodeUsageReported | None:
        """Return the newest usage report of a node, by its subject token; None if there is none that can be read."""
        from koordcore.events.envelope import AggregateRef

        stored = await self.obs.last_of(self.names.subject("obs", AggregateRef("node", token)))
        return None if stored is None else readable_report(stored)


def readable_report(stored: StoredEvent) -> NodeUsageReported | None:
    """Return the usage report in a message of a node; None if the services pass it over, because it cannot be read."""
    from koordcore.events.observation import usage_report
    from koordcore.events.registry import UnreadableEvent

    try:
        return usage_report(stored)
    except UnreadableEvent:
        return None


def key_folder(var: Path) -> Path:
    """Folder of the NATS keys of services and operators."""
    return var / "keys"


def cluster_name() -> str:
    """KOORD_CLUSTER, else the name of the embedded stack's cluster."""
    return os.environ.get("KOORD_CLUSTER", DEFAULT_CLUSTER)


def operator_settings(
    var: Path | None = None, principal: str | None = None, address: str | None = None
) -> ConnectionSettings:
    """Return address and key with which commands connect to the log.

    Args:
        var: Folder of the stack; None for the one that runs (see `live_directory`).
        principal: The service or operator whose key is used; None for the operator. KOORD_NATS_SEED must hold its key.
        address: URLs of other servers than those of KOORD_NATS, separated by commas.

    Raises:
        LogTrouble: No stack runs and no address is set.
    """
    with _without_websockets():
        from koordcore.bus.client.connection import ConnectionSettings, TlsClientFiles
    from koordcore.bus.setup.manifest import OPERATOR
    from koordcore.bus.setup.principals import seed_file

    principal = principal or OPERATOR.name
    var = var or live_directory()
    given, seed, ca = (os.environ.get(name) for name in ("KOORD_NATS", "KOORD_NATS_SEED", "KOORD_NATS_CA"))
    if given := address or given:
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
async def open_log(
    var: Path | None = None, principal: str | None = None, address: str | None = None
) -> AsyncGenerator[OpenLog]:
    """Connect to the log, and close the connection at the end of the block. Arguments: see `operator_settings`.

    Raises:
        LogTrouble: The log cannot be reached, or it refused a request.
    """
    settings = operator_settings(var, principal, address)
    from koordcore.bus.archive.files import InvalidArchive
    from koordcore.bus.client.connection import ConnectRefused, Denied, NoAnswer, NotConnected
    from koordcore.bus.client.opening import connect
    from koordcore.bus.factory import bus_on, with_archive
    from koordcore.bus.names import BusNames
    from koordcore.bus.read.stream_reader import ApiError, StreamReader
    from koordcore.place import PlaceTrouble
    from koordcore.ports.eventlog import LOG_FAULTS, HistoryGone, Misconfigured

    names, archive = BusNames(cluster_name()), os.environ.get("KOORD_ARCHIVE", "")
    try:
        connection = await connect(settings)
    except (ConnectRefused, NotConnected) as error:
        named = " at the address of KOORD_NATS" if address is None and os.environ.get("KOORD_NATS") else ""
        raise LogTrouble(f"the log{named}: {error}") from error
    bus = bus_on(connection, names)
    try:
        yield OpenLog(
            connection=connection,
            names=names,
            bus=with_archive(bus, archive, say_refused) if archive else bus,
            facts=StreamReader(connection, names.ev, names.prefix("ev"), deadline=10),
            explanations=StreamReader(connection, names.explanations, names.prefix("explanations"), deadline=10),
            obs=StreamReader(connection, names.obs, names.prefix("obs"), deadline=10),
        )
    except (NoAnswer, NotConnected, Denied, ApiError, Misconfigured, HistoryGone, *LOG_FAULTS) as error:
        raise LogTrouble(f"the log: {error}") from error
    except (InvalidArchive, PlaceTrouble) as error:
        raise LogTrouble(f"the archive: {error}") from error
    finally:
        await connection.drain_and_close()


def say_refused(sentence: str) -> None:
    errors.print(f"a snapshot of the archive is not used: {sentence}")


async def warn_of_dropped(
    log: OpenLog, what: str, found: Sequence[StoredEvent], begin: type[Event] | None = None
) -> None:
    """Say on stderr that the first facts about something are missing, because the log has dropped them.

    Args:
        what: What the facts are about, for example "this pod".
        found: The facts about it that the log has, in order.
        begin: Type of the fact with which its life begins; None: any type.
    """
    if begin is None:
        is_whole = bool(found) and not found[0].expected_last
    else:
        is_whole = any(event.type == begin.__name__ for event in found)
    first = 1 if is_whole else (await log.bus.events.head()).first_seq
    if first > 1:
        errors.print(
            f"facts 1..{first - 1} are not in the log any more: what they say about {what} is missing here."
            " The dashboard has it",
        )


async def mirror_info() -> dict[str, Any] | str | None:
    """Return what the server of the mirror says about the stream of facts; a text tells why it said nothing.

    None: there is no KOORD_MIRROR.
    """
    address = os.environ.get("KOORD_MIRROR")
    if not address:
        return None
    try:
        async with open_log(address=address) as log:
            from koordcore.bus.read.stream_reader import stream_info

            return await stream_info(log.connection, log.names.ev) or "does not exist"
    except LogTrouble as error:
        return str(error)


@contextmanager
def _without_websockets() -> Generator[None]:
    """Prevent nats-py from importing aiohttp.

    nats-py needs it for websockets only, which no command uses. This import takes longer than all others of a command.
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
    return asyncio.run(work)
