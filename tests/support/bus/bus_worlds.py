"""A whole cluster's streams on one server, for the ports beside the log."""

import itertools
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import NamedTuple

from koordcore.bus.client.connection import BusConnection, ConnectionSettings
from koordcore.bus.client.opening import connect
from koordcore.bus.factory import Bus, bus_on
from koordcore.bus.names import BusNames
from koordcore.bus.setup.bootstrap import bootstrap
from koordcore.bus.setup.streams import MIB, StreamSizes, streams
from koordcore.events import CATALOGUE
from koordcore.events.envelope import AggregateRef, Draft, Event, NewEvent, Origin
from support.bus.log_worlds import FAST
from support.until import DEADLINE_SECONDS

_clusters = itertools.count(1)
SMALL = StreamSizes(
    ev=8 * MIB,
    obs=8 * MIB,
    cmd=MIB,
    explanations=8 * MIB,
    dlq=MIB,
    adv=MIB,
    desired=8 * MIB,
    leader=MIB,
    snapshots=32 * MIB,
    saved=8 * MIB,
)


class Place(NamedTuple):
    """A bus on a server of which nothing else is known."""

    url: str
    connection: BusConnection
    bus: Bus


@asynccontextmanager
async def opened(url: str) -> AsyncGenerator[Place]:
    """Streams of a cluster of its own; removed afterwards, since they reserve space."""
    connection = await connect(
        ConnectionSettings(urls=(url,), user="test", reconnect_wait_seconds=0.05, connect_seconds=DEADLINE_SECONDS)
    )
    names = BusNames(f"b{os.getpid()}-{next(_clusters)}")
    try:
        await bootstrap(connection, streams(names, replicas=1, sizes=SMALL))
        yield Place(url, connection, bus_on(connection, names, follower=FAST))
    finally:
        if connection.is_connected:
            for spec in streams(names, replicas=1):
                await connection.request(f"$JS.API.STREAM.DELETE.{spec.name}", timeout=DEADLINE_SECONDS)
        await connection.drain_and_close()


_ACTORS = {"nodestate": "agent", "criproxy": "criproxy"}


def origin(cause: str = "c", actor: str = "test/1") -> Origin:
    return Origin(causation_id=cause, correlation_id="x", actor=actor, occurred_at="2026-01-01T00:00:00.000000Z")


def sealed(kind: str, id_: str, event: Event, expected: int = 0, cause: str = "c") -> NewEvent:
    actor = f"{_ACTORS.get(kind, 'test')}/{id_}"
    return CATALOGUE.seal([Draft(AggregateRef(kind, id_), event, expected)], origin(cause, actor))[0]
