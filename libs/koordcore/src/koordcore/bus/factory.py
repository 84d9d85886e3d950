"""Create all bus adapters of a service at once, for its composition root.

async with open_bus(BusSettings(urls=..., cluster="demo", user="scheduler", ...)) as bus: ...
bus = unconnected_bus(...)  for a process that has to answer requests before there is a server; then `connect_bus`
bus = memory_bus()          the same ports without a server
"""

import contextlib
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from koordcore.bus.adapters import memory
from koordcore.bus.adapters.desired import JetStreamDesiredStore, JetStreamPushFeed
from koordcore.bus.adapters.logs import JetStreamEventLog, JetStreamObservationLog
from koordcore.bus.adapters.snapshots import JetStreamSnapshotStore
from koordcore.bus.archive.archived_log import ArchivedEventLog
from koordcore.bus.archive.archived_snapshots import ArchivedSnapshots, SnapshotStoreWithArchive
from koordcore.bus.client.connection import BusConnection, ConnectionSettings, TlsClientFiles
from koordcore.bus.client.opening import connect, open_connection
from koordcore.bus.metrics import NO_METRICS, BusMetrics
from koordcore.bus.names import BusNames
from koordcore.bus.read.feed import DEFAULTS, FollowerSettings
from koordcore.bus.setup.bootstrap import (
    Change,
    bootstrap,
    bootstrap_consumers,
    consumers,
    require_version,
    until_created,
)
from koordcore.bus.setup.streams import StreamSizes, streams
from koordcore.place import open_place
from koordcore.ports.desired import DesiredStore, PushFeed
from koordcore.ports.eventlog import EventLog, ObservationLog
from koordcore.ports.snapshots import SnapshotStore


@dataclass(frozen=True, slots=True, kw_only=True)
class BusSettings:
    """Addresses and credentials with which a service connects to the log of its cluster."""

    urls: tuple[str, ...]  # URLs of one or more NATS servers
    cluster: str  # Id of the Kubernetes cluster (letters, digits, `-`)
    user: str = "any"  # Name of the NATS user, for example "scheduler". It determines the inbox prefix.
    instance: str = ""  # Name of this instance of the service
    nkey_seed_file: Path | None = None  # File with the secret key of the user. None: connect without a key.
    token_file: Path | None = None  # File with a token that the issuer of credentials checks; None: no token
    tls: TlsClientFiles | None = None  # Files for TLS; None: no TLS
    connect_seconds: float | None = 30.0  # Seconds after which the connection attempt is given up; None: never
    # Whether to wait until the streams of the cluster exist. The user must have the right to read the stream of facts.
    awaits_streams: bool = False
    follower: FollowerSettings = field(default_factory=lambda: DEFAULTS)  # Limits for reading streams
    archive: str = ""  # Place of the archive that has the facts that the stream has dropped; "" if there is none

    def connection(self) -> ConnectionSettings:
        return ConnectionSettings(
            urls=self.urls,
            name=self.instance or self.user,
            user=self.user,
            nkey_seed_file=self.nkey_seed_file,
            token_file=self.token_file,
            tls=self.tls,
            connect_seconds=self.connect_seconds,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Bus:
    """All adapters of the log that one process uses, by port."""

    names: BusNames
    events: EventLog  # Log of facts
    observations: ObservationLog  # Stream of observations
    explanations: ObservationLog  # Stream of explanations
    audit: ObservationLog  # Stream of audit records
    desired: DesiredStore  # Store with the desired states of nodes
    pushes: PushFeed  # Subscription of an agent to the facts of its node
    snapshots: SnapshotStore
    metrics: BusMetrics  # Receives measurements
    connection: BusConnection | None = None  # Connection to the NATS server; None if the adapters are in memory
    # Snapshots of the archive, which `snapshots` finds, too; None: there is no archive.
    archived_snapshots: ArchivedSnapshots | None = None


def memory_bus(cluster: str = "memory", *, log: memory.MemoryLog | None = None) -> Bus:
    """Return adapters that keep everything in the memory of this process. `log`: facts to share with other buses, as
    services share a server; None: a new empty log.
    """
    shared = log or memory.MemoryLog()
    return Bus(
        names=BusNames(cluster),
        events=memory.MemoryEventLog(shared),
        observations=memory.MemoryObservationLog(),
        explanations=memory.MemoryObservationLog(),
        audit=memory.MemoryObservationLog(),
        desired=memory.MemoryDesiredStore(),
        pushes=memory.MemoryPushFeed(shared),
        snapshots=memory.MemorySnapshotStore(),
        metrics=NO_METRICS,
    )


def unconnected_bus(settings: BusSettings, *, metrics: BusMetrics = NO_METRICS) -> Bus:
    """Return the adapters over a connection that `connect_bus` opens later.

    Raises:
        InvalidName: The cluster id contains characters that a subject cannot have.
        PlaceTrouble: The place of the archive does not exist.
    """
    names = BusNames(settings.cluster)
    bus = bus_on(BusConnection(settings.connection()), names, metrics=metrics, follower=settings.follower)
    return with_archive(bus, settings.archive) if settings.archive else bus


async def connect_bus(bus: Bus, settings: BusSettings, waits: Callable[[str], None] = lambda _: None) -> None:
    """Open the connection of an unconnected bus. If the call raises or is cancelled, the connection is closed. `waits`:
    Called with the reason, again and again, while there is no server or stream. The delays grow.

    Raises:
        ConnectRefused: The server refuses the user or the TLS settings, or a file with a secret cannot be read.
        NotConnected: No server was reached in time, or the server closed the connection for good.
        ServerTooOld: The server lacks atomic batches.
        Denied: `awaits_streams` is set, and the user may not read the stream of facts.
        ApiError: `awaits_streams` is set, and the server refuses to say whether the stream of facts exists.
    """
    connection = bus.connection
    assert connection is not None, "a bus in memory has no connection"
    await open_connection(connection, waits)
    try:
        require_version(connection.server_version)
        if settings.awaits_streams:
            await until_created(connection, bus.names, waits)
    except BaseException:
        await connection.drain_and_close()
        raise


@contextlib.asynccontextmanager
async def open_bus(settings: BusSettings, *, metrics: BusMetrics = NO_METRICS) -> AsyncGenerator[Bus]:
    """Connect to the NATS server and provide the adapters. At the end of the context, flush and close the connection.
    Leave the context only after the last append was acknowledged.

    Raises:
        InvalidName: As `unconnected_bus`, and `PlaceTrouble` likewise.
        ConnectRefused: As `connect_bus`, and its other errors likewise.
    """
    bus = unconnected_bus(settings, metrics=metrics)
    await connect_bus(bus, settings)
    assert bus.connection is not None, "a bus of a server has a connection"
    try:
        yield bus
    finally:
        await bus.connection.drain_and_close()


def with_archive(bus: Bus, archive: str, refused: Callable[[str], None] | None = None) -> Bus:
    """Return adapters whose history of facts begins in an archive, and which find its snapshots. `refused`: called with
    one sentence about each archived snapshot that is not usable; None: log it.

    Raises:
        PlaceTrouble: The place does not exist.
    """
    place = open_place(archive)
    events = ArchivedEventLog(bus.events, place)
    archived = ArchivedSnapshots(place, events, refused)
    snapshots = SnapshotStoreWithArchive(bus.snapshots, archived)
    return replace(bus, events=events, snapshots=snapshots, archived_snapshots=archived)


def bus_on(
    connection: BusConnection,
    names: BusNames,
    *,
    metrics: BusMetrics = NO_METRICS,
    follower: FollowerSettings = DEFAULTS,
) -> Bus:
    """Return the adapters over an open connection. `follower`: time limits for reading streams."""
    return Bus(
        names=names,
        events=JetStreamEventLog(connection, names, metrics=metrics, follower=follower),
        observations=JetStreamObservationLog(connection, names, "obs", metrics=metrics, follower=follower),
        explanations=JetStreamObservationLog(connection, names, "explanations", metrics=metrics, follower=follower),
        audit=JetStreamObservationLog(connection, names, "audit", metrics=metrics, follower=follower),
        desired=JetStreamDesiredStore(connection, names),
        pushes=JetStreamPushFeed(connection, names),
        snapshots=JetStreamSnapshotStore(connection, names),
        metrics=metrics,
        connection=connection,
    )


async def bootstrap_bus(
    settings: BusSettings, *, replicas: int = 1, sizes: StreamSizes | None = None, new_log: bool = False
) -> dict[str, Change]:
    """Create streams, buckets, stores and consumers of the cluster, or change those that exist (the bootstrap job).
    `sizes`: largest size of each stream; None: the defaults. `new_log`: see `bootstrap`.

    Returns:
        Name of the stream or of the durable consumer -> change.

    Raises:
        ConnectRefused: The server refuses the user, the TLS settings or the version.
        NotConnected: No server was reached in time.
        ServerTooOld: The server does not support atomic batches.
        StreamDiffers: A stream exists with other values in fields that must not change automatically.
        FactsGone: The stream of facts does not exist although it did, and `new_log` is not set.
        ApiError: The server refused: too little space or missing permissions.
    """
    names = BusNames(settings.cluster)
    connection = await connect(settings.connection())
    try:
        created = await bootstrap(connection, streams(names, replicas=replicas, sizes=sizes), new_log=new_log)
        return {**created, **await bootstrap_consumers(connection, consumers(names))}
    finally:
        await connection.drain_and_close()
