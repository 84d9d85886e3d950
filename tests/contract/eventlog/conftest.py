"""The contract of `EventLog`: the same tests in memory, on one server, and on three servers with R3 (most of them only
in `make test-all`).

source    event-bus spec, 3.2, 4, 8
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
from koordcore.embedded.nats import NatsServer
from support.bus.log_worlds import LogWorld, MemoryWorld, ServerWorld
from support.bus.nats_cluster import NatsCluster
from support.bus.told_log import MEMORY, R1, R3, R3_IN_DEEP

Server = NatsServer | NatsCluster


@pytest.fixture(params=[MEMORY, R1, R3_IN_DEEP])
def place(request: pytest.FixtureRequest) -> Server | None:
    """Where the log is; None: in memory. Servers are shared by all tests of a worker."""
    return None if request.param == "memory" else _shared_server(request)


@pytest.fixture(params=[R1, R3_IN_DEEP])
def shared_server(request: pytest.FixtureRequest) -> Server:
    return _shared_server(request)


@pytest.fixture(params=[R1, R3])
def mortal_server(request: pytest.FixtureRequest) -> Server:
    return request.getfixturevalue("fresh_nats_server" if request.param == "r1" else "nats_cluster")


@pytest.fixture
async def world(place: Server | None) -> AsyncGenerator[LogWorld]:
    if place is None:
        yield MemoryWorld()
        return
    async with _opened(place) as found:
        yield found


@pytest.fixture
async def servers(shared_server: Server) -> AsyncGenerator[ServerWorld]:
    """A world with a server that is shared: it must not be killed."""
    async with _opened(shared_server) as found:
        yield found


@pytest.fixture
async def mortal(mortal_server: Server) -> AsyncGenerator[ServerWorld]:
    """A world whose servers may be killed, if they are started again."""
    async with _opened(mortal_server) as found:
        yield found


def _shared_server(request: pytest.FixtureRequest) -> Server:
    return request.getfixturevalue("nats_server" if request.param == "r1" else "nats_cluster")


@asynccontextmanager
async def _opened(server: Server) -> AsyncGenerator[ServerWorld]:
    found = ServerWorld(server)
    await found.open()
    try:
        yield found
    finally:
        await found.close()
