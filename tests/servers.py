"""Real servers for tests: NATS (one node, three nodes) and Postgres, each test worker with its own.

`from servers import ...` for the functions; the fixtures are registered in `conftest.py`.

    nats_server         NatsServer      one per worker; do not kill it, use `fresh_nats_server` for that
    nats_url            str             its url
    fresh_nats_server   NatsServer      one per test, may be killed and restarted
    nats_cluster        NatsCluster     three nodes, one per worker
"""

import asyncio
import contextlib
import shutil
import tempfile
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import TypeVar

import pytest
from koordcore.embedded.nats import NatsServer
from koordcore.embedded.nats_cluster import NatsCluster
from koordcore.embedded.nats_config import NatsServerConfig

T = TypeVar("T")


def run_now(work: Coroutine[object, object, T]) -> T:
    """Run a coroutine to its end outside any event loop, leaving the current loop of the thread as it is."""
    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(work)
    finally:
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()


@contextlib.contextmanager
def server_directory() -> Iterator[Path]:
    """A folder that every user may traverse (Postgres refuses to run as root), removed afterwards."""
    directory = Path(tempfile.mkdtemp(prefix="koord-test-"))
    directory.chmod(0o755)
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@contextlib.contextmanager
def running_nats_server(*, sync_interval: str = "1s") -> Iterator[NatsServer]:
    """A NATS server without authentication in a folder of its own."""
    with server_directory() as directory:
        server = NatsServer(NatsServerConfig(name="test", directory=directory / "nats", sync_interval=sync_interval))
        run_now(server.start())
        try:
            yield server
        finally:
            run_now(server.kill())


@contextlib.contextmanager
def running_nats_cluster(*, size: int = 3, sync_interval: str = "1s") -> Iterator[NatsCluster]:
    """A NATS cluster without authentication in a folder of its own."""
    with server_directory() as directory:
        cluster = NatsCluster(directory, size=size, name="test", sync_interval=sync_interval)
        try:
            run_now(cluster.start())
            yield cluster
        finally:
            run_now(cluster.kill())


@pytest.fixture(scope="session")
def nats_server() -> Iterator[NatsServer]:
    """One server for all tests of a worker; tests keep apart by cluster names or subjects of their own."""
    with running_nats_server() as server:
        yield server


@pytest.fixture(scope="session")
def nats_url(nats_server: NatsServer) -> str:
    """Where to connect to the shared server."""
    return nats_server.url


@pytest.fixture
def fresh_nats_server() -> Iterator[NatsServer]:
    """An empty server for one test, which may kill and restart it."""
    with running_nats_server() as server:
        yield server


@pytest.fixture(scope="session")
def nats_cluster() -> Iterator[NatsCluster]:
    """Three servers for all tests of a worker; a test that kills one starts it again."""
    with running_nats_cluster() as cluster:
        yield cluster
