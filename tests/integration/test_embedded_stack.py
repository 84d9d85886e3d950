# pyright: reportUnknownMemberType=false
# nats-py types its **options as unknown.
"""Log and store together, as `koord up` runs them: hard to kill, nothing lost."""

import asyncio
import dataclasses
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from koordcore.embedded.identity import is_alive, send_signal
from koordcore.embedded.nats import NatsServer
from koordcore.embedded.nats_config import NatsServerConfig
from koordcore.embedded.postgres import PostgresConfig, PostgresServer
from koordcore.embedded.process import RestartPolicy
from koordcore.embedded.stack import Phase, Stack, start_in_background, stop_stack
from koordcore.embedded.supervisor import Supervisor
from nats.js.api import StreamConfig
from support.bus.plain_client import plain_client
from support.servers import server_directory
from support.until import DEADLINE_SECONDS, until

pytestmark = [pytest.mark.nats, pytest.mark.postgres]

DAEMON = """
import asyncio, dataclasses, sys
from pathlib import Path
from koordcore.embedded.nats import NatsServer
from koordcore.embedded.nats_config import NatsServerConfig
from koordcore.embedded.postgres import PostgresConfig, PostgresServer
from koordcore.embedded.supervisor import Supervisor

var = Path(sys.argv[1])
log = NatsServer(NatsServerConfig(name="nats", directory=var / "nats"))
store = PostgresServer(PostgresConfig(data_dir=var / "postgres"))
specs = [dataclasses.replace(spec, ready_seconds=float(sys.argv[2])) for spec in (log.spec(), store.spec())]
supervisor = Supervisor(specs, state_file=var / "run" / "stack.json", log=print)
asyncio.run(supervisor.run_until_stopped())
"""


@pytest.fixture
def var() -> Iterator[Path]:
    with server_directory() as directory:
        yield directory / "var"


def servers(var: Path) -> tuple[NatsServer, PostgresServer]:
    log = NatsServer(NatsServerConfig(name="nats", directory=var / "nats"))
    return log, PostgresServer(PostgresConfig(data_dir=var / "postgres"))


async def append(url: str, count: int) -> int:
    """Append facts; the last sequence."""
    async with plain_client(url) as connection:
        log = connection.jetstream(timeout=DEADLINE_SECONDS)
        await log.add_stream(StreamConfig(name="EV", subjects=["ev.>"]))
        return [(await log.publish("ev.pod", b"x")).seq for _ in range(count)][-1]


async def last_sequence(url: str) -> int:
    async with plain_client(url) as connection:
        return (await connection.jetstream(timeout=DEADLINE_SECONDS).stream_info("EV")).state.last_seq


def insert(dsn: str, count: int) -> None:
    with psycopg.connect(dsn) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS row_of_fact (seq int)")
        connection.execute("INSERT INTO row_of_fact SELECT generate_series(1, %s)", (count,))


def count_rows(dsn: str) -> int:
    with psycopg.connect(dsn) as connection:
        row = connection.execute("SELECT count(*) FROM row_of_fact").fetchone()
    assert row is not None
    return int(row[0])


async def test_killed_servers_come_back_with_all_that_was_acknowledged(var: Path) -> None:
    log, store = servers(var)
    quick = RestartPolicy(first_delay_seconds=0.05, max_delay_seconds=0.5)
    specs = [
        dataclasses.replace(spec, restart=quick, ready_seconds=DEADLINE_SECONDS) for spec in (log.spec(), store.spec())
    ]
    async with Supervisor(specs, state_file=var / "run" / "stack.json") as supervisor:
        assert await append(log.url, 50) == 50
        await asyncio.to_thread(insert, store.dsn, 1000)

        await asyncio.gather(supervisor.kill("nats"), supervisor.kill("postgres"))
        for name in ("nats", "postgres"):
            await supervisor.wait_ready(name, seconds=DEADLINE_SECONDS, after_restarts=1)

        assert await last_sequence(log.url) == 50
        assert await asyncio.to_thread(count_rows, store.dsn) == 1000
        assert supervisor.status().phase is Phase.READY


async def test_stack_whose_supervisor_was_killed_starts_again_with_its_data(var: Path) -> None:
    first = await up(var)
    log_url, store_url = (_url(first, name) for name in ("nats", "postgres"))
    await append(log_url, 10)
    await asyncio.to_thread(insert, with_password(store_url, var), 10)
    send_signal(first.supervisor, signal.SIGKILL)
    await until(lambda: not first.is_live)

    second = await up(var)

    try:
        assert all(status.process and not is_alive(status.process) for status in first.processes)
        assert await last_sequence(_url(second, "nats")) == 10
        assert await asyncio.to_thread(count_rows, with_password(_url(second, "postgres"), var)) == 10
    finally:
        assert await stop_stack(var / "run" / "stack.json", seconds=DEADLINE_SECONDS) is True
    assert all(status.process and not is_alive(status.process) for status in second.processes)


async def up(var: Path) -> Stack:
    return await start_in_background(
        (sys.executable, "-c", DAEMON, str(var), str(DEADLINE_SECONDS)),
        state_file=var / "run" / "stack.json",
        log_file=var / "log" / "up.log",
        seconds=DEADLINE_SECONDS,
    )


def _url(stack: Stack, name: str) -> str:
    status = stack.find(name)
    assert status is not None
    return status.urls["client" if name == "nats" else name]


def with_password(url: str, var: Path) -> str:
    return url.replace("koord@", f"koord:{(var / 'postgres.password').read_text().strip()}@")
