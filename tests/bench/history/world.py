"""A generated history in real servers: nats-server, Postgres and the projector as processes of their own.

The servers' files stay in the folder, and the next run uses them again if it asks for the same history.
"""

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, replace
from pathlib import Path

import httpx
import msgspec
from bench.history.log import write_facts
from koordcore.bus.client.opening import connect
from koordcore.bus.factory import BusSettings, bootstrap_bus
from koordcore.bus.names import BusNames
from koordcore.bus.setup.streams import StreamSizes, streams
from koordcore.embedded.nats import NatsServer
from koordcore.embedded.nats_config import GIB, NatsServerConfig
from koordcore.embedded.ports import free_ports
from koordcore.embedded.postgres import PostgresConfig, PostgresServer
from support.projector.busy_month import Month

CLUSTER = "dev"
BYTES_OF_A_FACT = 1_000
"""Space of a fact in the stream before compression, which the stream's limit counts."""
PROGRESS_SECONDS = 20.0
START_SECONDS = 300.0
"""Longest start of a server: nats-server reads a store of ten million messages first."""

_IN_BATCHES = """
from koord_projector.__main__ import main
from koord_projector.projecting import rebuilding
rebuilding.WORTH_EVENTS = 1 << 62
main()
"""


class History(msgspec.Struct, frozen=True, kw_only=True):
    """What a folder holds: the arguments of its generated log."""

    facts: int
    nodes: int
    seed: int = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """What a step took.

    Attributes:
        seconds: Time on the clock.
        cpu_seconds: CPU time of the process that did it.
        server_cpu_seconds: CPU time of the server meanwhile: nats-server for the log, Postgres for the rebuild.
        done: Whether it was done now; False: it was found done.
    """

    seconds: float
    cpu_seconds: float
    server_cpu_seconds: float
    done: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """The running servers.

    Attributes:
        history: The generated log.
        nats_url: Address of the log.
        projector_url: Address of the projector; "" if it does not run.
        dsn: Address of Postgres; "" if it does not run.
        written: What it took to write the log.
        rebuilt: What it took to rebuild the projector's tables from the log.
    """

    history: History
    nats_url: str
    projector_url: str
    dsn: str
    written: Spent
    rebuilt: Spent

    def environment(self) -> dict[str, str]:
        """Return the environment in which the command `koord` finds these servers."""
        return {
            **os.environ,
            "KOORD_NATS": self.nats_url,
            "KOORD_PROJECTOR": self.projector_url,
            "KOORD_CLUSTER": CLUSTER,
        }


_NOTHING = Spent(seconds=0, cpu_seconds=0, server_cpu_seconds=0, done=False)


@contextlib.asynccontextmanager
async def world(
    folder: Path, history: History, say: Callable[[str], None], *, has_tables: bool = True
) -> AsyncGenerator[World]:
    """Write the history into the log if the folder does not hold it yet, rebuild the tables, and run the projector.

    Without `has_tables`, only the log exists.
    """
    await asyncio.to_thread(_make, folder)
    size = max(2 * GIB, history.facts * BYTES_OF_A_FACT)
    sizes = StreamSizes(ev=size)
    nats = NatsServer(
        NatsServerConfig(
            directory=folder / "nats",
            sync_interval="1s",
            max_file_store_bytes=sizes.file_store() + 2 * GIB,
            ready_seconds=START_SECONDS,
        )
    )
    await nats.start()
    try:
        written = await _written(folder, nats.url, history, sizes, say)
        log = World(history=history, nats_url=nats.url, projector_url="", dsn="", written=written, rebuilt=_NOTHING)
        if not has_tables:
            yield log
            return
        postgres = PostgresServer(
            PostgresConfig(data_dir=folder / "postgres", synchronous_commit=False, shared_buffers_mb=128)
        )
        await postgres.start()
        try:
            async with projector_process(folder, nats.url, postgres.dsn, history.facts, say) as (url, rebuilt):
                yield replace(log, projector_url=url, dsn=postgres.dsn, rebuilt=rebuilt)
        finally:
            await postgres.stop()
    finally:
        await nats.stop()


def _make(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o755)  # Postgres runs as another user if this one is root


async def _written(folder: Path, url: str, history: History, sizes: StreamSizes, say: Callable[[str], None]) -> Spent:
    marker, wanted = folder / "history.json", msgspec.json.encode(history)
    if marker.exists():
        if marker.read_bytes() != wanted:
            raise ValueError(f"{marker}: must be {wanted.decode()}, got {marker.read_text()}; take another folder")
        return _NOTHING
    settings = BusSettings(urls=(url,), cluster=CLUSTER)
    await bootstrap_bus(settings, sizes=sizes)
    names = BusNames(CLUSTER)
    spec = next(each for each in streams(names, replicas=1, sizes=sizes) if each.name == names.ev)
    connection = await connect(settings.connection())
    began, cpu, told = time.perf_counter(), time.process_time(), time.perf_counter()

    def progress(position: int) -> None:
        nonlocal told
        if time.perf_counter() - told > PROGRESS_SECONDS:
            told = time.perf_counter()
            say(f"log: {position:,} of {history.facts:,} facts, {position / (told - began):,.0f} a second")

    try:
        month = Month(facts=history.facts, nodes=history.nodes, seed=history.seed)
        await write_facts(connection, names, spec, month.batches(), progress)
    finally:
        await connection.drain_and_close()
    marker.write_bytes(wanted)
    return Spent(
        seconds=time.perf_counter() - began,
        cpu_seconds=time.process_time() - cpu,
        server_cpu_seconds=_cpu_of("nats-server", folder),
        done=True,
    )


@contextlib.asynccontextmanager
async def projector_process(
    folder: Path, nats_url: str, dsn: str, facts: int, say: Callable[[str], None], *, in_batches: bool = False
) -> AsyncGenerator[tuple[str, Spent]]:
    """Run the projector as a process, and wait until it has folded the log.

    Args:
        folder: Folder of the history. The process writes its output to `projector.log` in it.
        nats_url: Address of the log.
        dsn: Address of Postgres, whose files are in `folder`, too.
        facts: Number of facts in the log.
        say: Receives a line of progress every 20 seconds.
        in_batches: Whether the projector replays the log in batches instead of rebuilding its tables by COPY.

    Yields:
        Its address, and what it took from its start until it was ready.

    Raises:
        RuntimeError: The projector ended.
    """
    (port,) = free_ports(1)
    url = f"http://127.0.0.1:{port}"
    words = ["--cluster", CLUSTER, "--nats-urls", nats_url, "--http-port", str(port), "--log-level", "info"]
    began, before = time.perf_counter(), _postgres_cpu(folder)
    with (folder / "projector.log").open("ab") as log:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, *(("-c", _IN_BATCHES) if in_batches else ("-m", "koord_projector")), *words),
            stdout=log,
            stderr=log,
            env={**os.environ, "KOORD_PROJECTOR_DSN": dsn},
        )
    try:
        async with httpx.AsyncClient(base_url=url, trust_env=False, timeout=30) as client:
            told, first = began, -1
            while True:
                if process.returncode is not None:
                    raise RuntimeError(f"the projector ended: see {folder / 'projector.log'}")
                status = await _status(client)
                if status is not None and first < 0:
                    first = status["position"]
                if status is not None and status["position"] == facts and await _is_ready(client):
                    break
                if time.perf_counter() - told > PROGRESS_SECONDS:
                    told = time.perf_counter()
                    say(f"projector: {'starting' if status is None else status['trouble'] or status['position']}")
                await asyncio.sleep(0.2)
        yield (
            url,
            Spent(
                seconds=time.perf_counter() - began,
                cpu_seconds=_process_cpu(process.pid),
                server_cpu_seconds=_postgres_cpu(folder) - before,
                done=first < facts,
            ),
        )
    finally:
        process.send_signal(signal.SIGTERM)
        await process.wait()


async def _is_ready(client: httpx.AsyncClient) -> bool:
    """Return whether the tables are current. While they are made again, the earlier rows have a position, too."""
    return (await client.get("/readyz")).is_success


async def _status(client: httpx.AsyncClient) -> dict[str, int] | None:
    try:
        response = await client.get("/api/status")
    except httpx.HTTPError:
        return None
    return response.json() if response.is_success else None


def _process_cpu(pid: int) -> float:
    """Return the CPU time of a process with its ended children: the fold of a rebuild, sessions of Postgres."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return sum(int(fields[at]) for at in (11, 12, 13, 14)) / os.sysconf("SC_CLK_TCK")


def _cpu_of(program: str, folder: Path) -> float:
    """Return the CPU time of the running processes of a program whose command line names the folder."""
    total = 0.0
    for each in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = each.joinpath("cmdline").read_bytes().decode(errors="replace")
            if program in words and str(folder) in words:
                total += _process_cpu(int(each.name))
    return total


def _postgres_cpu(folder: Path) -> float:
    """Return the CPU time of Postgres with its ended sessions, of the process group of its postmaster."""
    total = 0.0
    for each in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError):
            words = each.joinpath("cmdline").read_bytes().decode(errors="replace")
            if "postgres" in words and str(folder / "postgres") in words:
                total += _process_cpu(int(each.name))
                total += sum(_process_cpu(int(child)) for child in _children(int(each.name)))
    return total


def _children(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
