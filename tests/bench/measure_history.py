"""Past moments, audit and what-ifs on a generated history: ten million facts, a month of 200 nodes.

    python -m tests.bench history --scale 0.1                     one million facts
    python -m tests.bench history --only rebuild --scale 0.03     by COPY beside the replay in batches
    python -m tests.bench history --only replay --scale 0.03      a past position, from an archived snapshot and whole
    python -m tests.bench history --only what-if                  a day of 1,000 nodes, on a log of its own

The servers' files stay in `var/bench`. A later run with the same scale uses them, so it measures only the questions. It
runs only if it is named, because ten million facts take an hour and 20 GiB.
"""

import asyncio
import os
import random
import resource
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import httpx
from bench.history.world import History, Spent, World, projector_process, world
from bench.options import BenchOptions
from bench.results import Better, Result
from koordcore.embedded.postgres import PostgresConfig, PostgresServer
from support.projector.busy_month import FACTS_OF_A_NODE_MINUTE
from support.servers import fresh_database, run_now

FACTS = 10_000_000
NODES = 200
DAY_NODES = 1_000
MOMENTS = 8
PAIRS = 3
ROWS = ("log", "as-of", "audit", "rebuild", "replay", "what-if")
FOLDER = Path("var/bench")


def measure(options: BenchOptions) -> Iterator[Result]:
    """Measure the chosen rows."""
    rows = options.chosen(ROWS)
    month = History(facts=int(FACTS * options.scale), nodes=NODES)
    if set(rows) - {"rebuild", "replay", "what-if"}:
        yield from run_now(_month(month, rows))
    if "rebuild" in rows:
        yield run_now(_rebuild(month))
    if "replay" in rows:
        yield from run_now(_replay(month))
    if "what-if" in rows:
        nodes = max(10, int(DAY_NODES * options.scale))
        yield from run_now(_day(History(facts=int(FACTS_OF_A_NODE_MINUTE * nodes * 24 * 60), nodes=nodes)))


def _say(text: str) -> None:
    sys.stderr.write(f"{time.strftime('%H:%M:%S')} {text}\n")


async def _month(history: History, rows: Sequence[str]) -> list[Result]:
    results: list[Result] = []
    async with world(FOLDER / f"history-{history.facts}-{history.nodes}", history, _say) as servers:
        results += _log(servers)
        if "as-of" in rows:
            results += await asyncio.to_thread(_as_of, servers)
        if "audit" in rows:
            results += await asyncio.to_thread(_audit, servers)
    return results


async def _rebuild(history: History) -> Result:
    """Let a new projector make its tables in both ways, in alternating order."""
    folder, spent = FOLDER / f"history-{history.facts}-{history.nodes}", dict[bool, list[Spent]]()
    async with world(folder, history, _say, has_tables=False) as log:
        postgres = PostgresServer(
            PostgresConfig(data_dir=folder / "postgres-pairs", synchronous_commit=False, shared_buffers_mb=128)
        )
        await postgres.start()
        try:
            for pair in range(PAIRS):
                for in_batches in (True, False) if pair % 2 == 0 else (False, True):
                    with fresh_database(postgres.dsn) as dsn:
                        async with projector_process(
                            folder, log.nats_url, dsn, history.facts, _say, in_batches=in_batches
                        ) as (_, one):
                            _say(f"{'in batches' if in_batches else 'by COPY'}: {one.seconds:.1f} s")
                            spent.setdefault(in_batches, []).append(one)
        finally:
            await postgres.stop()
    batches, copied = (sum(each.seconds for each in spent[way]) for way in (True, False))
    ways = "; ".join(
        f"{name} {', '.join(f'{each.seconds:.1f}' for each in spent[way])} s, CPU per fact"
        f" {sum(each.cpu_seconds for each in spent[way]) / PAIRS / history.facts * 1e6:.0f} us, Postgres"
        f" {sum(each.server_cpu_seconds for each in spent[way]) / PAIRS / history.facts * 1e6:.0f} us"
        for way, name in ((True, "in batches"), (False, "by COPY"))
    )
    note = f"{history.facts:,} facts: {ways}; load {os.getloadavg()[0]:.0f}"
    return Result(
        name="history: rebuild by COPY, times in batches", value=batches / copied, unit="x", target=3, note=note
    )


async def _replay(history: History) -> list[Result]:
    """Archive the log, and rebuild a position at 95 % of it: from an archived snapshot, and from the first fact."""
    folder, results = FOLDER / f"history-{history.facts}-{history.nodes}", list[Result]()
    archive, position = str(folder / "archive"), str(history.facts * 95 // 100)
    async with world(folder, history, _say, has_tables=False) as servers:
        before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        await asyncio.to_thread(_koord, servers, "bus", "archive", archive, "--keep", "0s")
        _say(f"archived in {time.perf_counter() - began:,.0f} s, CPU of the command {_cpu_since(before):.0f} s")
        for name, words in (("from an archived snapshot", ()), ("from the first fact", ("--whole",))):
            before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
            said = await asyncio.to_thread(
                _koord, servers, "replay", "--speed-report", "--to", position, *words, archive=archive
            )
            results.append(
                Result(
                    name=f"history: koord replay --to {position} {name}",
                    value=time.perf_counter() - began,
                    unit="s",
                    target=None if words else 10,
                    better=Better.LOWER,
                    note=f"{said.partition(' in ')[0]}, CPU of the command {_cpu_since(before):.1f} s",
                )
            )
    return results


def _log(servers: World) -> list[Result]:
    """Return the rates of writing the log and of the rebuild, if this run did them."""
    facts, found = servers.history.facts, list[Result]()
    for name, spent, server in (
        ("history: log written", servers.written, "nats-server"),
        ("history: tables rebuilt from the log", servers.rebuilt, "Postgres"),
    ):
        if spent.done:
            own, other = (seconds / facts * 1e6 for seconds in (spent.cpu_seconds, spent.server_cpu_seconds))
            note = f"{facts:,} facts in {spent.seconds:,.0f} s; CPU per fact {own:.1f} us, {server} {other:.1f} us"
            found.append(Result(name=name, value=facts / spent.seconds, unit="events/s", note=note))
    return found


def _as_of(servers: World) -> list[Result]:
    chosen = random.Random(3).sample(range(1, servers.history.facts + 1), MOMENTS)
    results: list[Result] = []
    for kind in ("nodes", "pods", "elasticquotas"):
        words = [("get", kind, "--as-of", str(position)) for position in chosen]
        results.append(_slowest(servers, f"history: koord get {kind} --as-of", words, 2.0))
    return results


def _audit(servers: World) -> list[Result]:
    chosen = random.Random(5)
    nodes = [f"node-{chosen.randrange(servers.history.nodes):04}" for _ in range(MOMENTS)]
    filters = [
        *(("audit", "--node", node, "-o", "json") for node in nodes),
        *(("audit", "--reason", f"cpu usage {60 + number}") for number in range(3)),
        ("audit", "--pod", "web/web-0000120"),
        ("audit", "--since", "2026-10-01T01:00:00Z", "--until", "2026-10-01T02:00:00Z"),
        ("audit", "--plugin", "LowNodeLoad", "--action", "evict", "--node", nodes[0]),
    ]
    return [
        _slowest(servers, "history: koord audit with a filter", filters, 1.0),
        _searches(servers, nodes),
    ]


def _searches(servers: World, nodes: Sequence[str]) -> Result:
    """Ask the search of the dashboard for parts of names, positions and ids of facts."""
    texts = [*nodes[:3], "web-00001", "elasticquotas", str(servers.history.facts // 2), "job-0000012", "team-web"]
    seconds: list[float] = []
    with httpx.Client(base_url=servers.projector_url, trust_env=False, timeout=60) as client:
        for text in texts:
            for at in ("", str(servers.history.facts // 3)):
                began = time.perf_counter()
                client.get("/api/search", params={"text": text, "at": at}).raise_for_status()
                seconds.append(time.perf_counter() - began)
    return _worst("history: search of the dashboard", seconds, 1.0)


def _slowest(servers: World, name: str, commands: Sequence[Sequence[str]], target: float) -> Result:
    """Run commands as a user does, each in a process of its own."""
    seconds: list[float] = []
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    for words in commands:
        began = time.perf_counter()
        _koord(servers, *words)
        seconds.append(time.perf_counter() - began)
    own = _cpu_since(before) / len(commands)
    return _worst(name, seconds, target, f", CPU of the command {own:.2f} s")


def _cpu_since(before: resource.struct_rusage) -> float:
    """Return the CPU seconds of commands that have ended since `before`."""
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _worst(name: str, seconds: Sequence[float], target: float, more: str = "") -> Result:
    ordered = sorted(seconds)
    note = f"{len(ordered)} questions, median {ordered[len(ordered) // 2]:.2f} s{more}"
    return Result(name=f"{name}, worst", value=ordered[-1], unit="s", target=target, better=Better.LOWER, note=note)


async def _day(history: History) -> list[Result]:
    """Decide a day of 1,000 nodes again, with the scheduler's and with the manager's rules."""
    results: list[Result] = []
    folder = FOLDER / f"history-{history.facts}-{history.nodes}"
    async with world(folder, history, _say, has_tables=False) as servers:
        for service in ("scheduler", "manager"):
            before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
            await asyncio.to_thread(_koord, servers, "replay", f"--rerun-{service}", "-o", "json", status=None)
            seconds, own = time.perf_counter() - began, _cpu_since(before)
            results.append(
                Result(
                    name=f"history: a day of {history.nodes:,} nodes, koord replay --rerun-{service}",
                    value=seconds,
                    unit="s",
                    target=300,
                    better=Better.LOWER,
                    note=f"{history.facts:,} facts, CPU of the command {own:.0f} s",
                )
            )
    return results


def _koord(servers: World, *words: str, status: int | None = 0, archive: str = "") -> str:
    """Run a command, and return its standard output."""
    done = subprocess.run(
        [sys.executable, "-m", "koordctl", *words],
        env={**servers.environment(), "KOORD_ARCHIVE": archive},
        capture_output=True,
        text=True,
        check=False,
    )
    if (status is not None and done.returncode != status) or "Traceback" in done.stderr:
        raise RuntimeError(f"koord {' '.join(words)}: status {done.returncode}\n{done.stderr}")
    return done.stdout
