"""Real servers for tests: NATS (one node, three nodes) and Postgres, each test worker with its own.

`from servers import ...` for the functions; the fixtures are registered in `conftest.py`.

    nats_server         NatsServer      one per worker; do not kill it, use `fresh_nats_server` for that
    nats_url            str             its url
    fresh_nats_server   NatsServer      one per test, may be killed and restarted
    nats_cluster        NatsCluster     three nodes, one per worker
    postgres_dsn        str             a fresh, empty database per test, dropped afterwards

Set KOORD_TEST_DSN to a `postgresql://` address whose user may create databases to test on that server
instead of the one from the wheel.
"""

import asyncio
import contextlib
import os
import secrets
import shutil
import tempfile
import urllib.parse
from collections.abc import Coroutine, Generator, Iterator
from pathlib import Path
from typing import TypeVar

import psycopg
import pytest
from koordcore.embedded.nats import NatsServer
from koordcore.embedded.nats_config import NatsServerConfig
from koordcore.embedded.postgres import PostgresConfig, PostgresServer
from psycopg import sql
from support.bus.nats_cluster import NatsCluster
from support.until import DEADLINE_SECONDS

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
def server_directory() -> Generator[Path]:
    """A folder that every user may traverse (Postgres refuses to run as root), removed afterwards."""
    directory = Path(tempfile.mkdtemp(prefix="koord-test-"))
    directory.chmod(0o755)
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@contextlib.contextmanager
def running_nats_server(*, sync_interval: str = "1s") -> Generator[NatsServer]:
    """A NATS server without authentication in a folder of its own."""
    with server_directory() as directory:
        config = NatsServerConfig(
            name="test",
            directory=directory / "nats",
            sync_interval=sync_interval,
            ready_seconds=DEADLINE_SECONDS,
        )
        server = NatsServer(config)
        run_now(server.start())
        try:
            yield server
        finally:
            run_now(server.kill())


@contextlib.contextmanager
def running_nats_cluster(*, size: int = 3, sync_interval: str = "1s") -> Generator[NatsCluster]:
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


@contextlib.contextmanager
def running_postgres(*, synchronous_commit: bool = False) -> Generator[PostgresServer]:
    """An empty Postgres in a folder of its own."""
    with server_directory() as directory:
        server = PostgresServer(
            PostgresConfig(
                data_dir=directory / "postgres",
                synchronous_commit=synchronous_commit,
                shared_buffers_mb=16,
                ready_seconds=DEADLINE_SECONDS,
            )
        )
        try:
            run_now(server.start())
            yield server
        finally:
            run_now(server.stop())


def with_database(dsn: str, database: str) -> str:
    """The same server's address with another database."""
    return urllib.parse.urlsplit(dsn)._replace(path=f"/{database}").geturl()


@contextlib.contextmanager
def fresh_database(server_dsn: str) -> Generator[str]:
    """A new empty database on the server; yields its dsn and drops it afterwards, open sessions included."""
    name = f"test_{secrets.token_hex(6)}"
    with psycopg.connect(server_dsn, autocommit=True) as admin:
        admin.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    try:
        yield with_database(server_dsn, name)
    finally:
        drop_database(server_dsn, name)


def drop_database(server_dsn: str, name: str) -> None:
    """Drops a database, open sessions included; nothing if it does not exist.

    `DROP DATABASE ... WITH (FORCE)` fails if an autovacuum worker is at work in the database: the worker belongs to the
    superuser, and our role may not end it. A plain drop does end the worker, and waits for sessions that are ending.
    """
    database = sql.Identifier(name)
    sessions = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s AND usename = current_user"
    gone = contextlib.suppress(psycopg.errors.InvalidCatalogName)
    with gone, psycopg.connect(server_dsn, autocommit=True) as admin:
        admin.execute(sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS false").format(database))
        admin.execute(sessions, [name])
        admin.execute(sql.SQL("DROP DATABASE {}").format(database))


@pytest.fixture(scope="session")
def postgres_server_dsn() -> Iterator[str]:
    """The server that test databases are made on: KOORD_TEST_DSN when set, else one from the wheel per worker."""
    external = os.environ.get("KOORD_TEST_DSN")
    if external:
        yield external
        return
    with running_postgres() as server:
        yield server.dsn


@pytest.fixture
def postgres_dsn(postgres_server_dsn: str) -> Iterator[str]:
    """A fresh database for one test."""
    with fresh_database(postgres_server_dsn) as dsn:
        yield dsn
