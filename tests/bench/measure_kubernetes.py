"""Koordstream and kube-scheduler on one real API server, one after the other: bound pods per second, and their cost.

One etcd and one kube-apiserver run for all rows. In each run of a row, both sides place the same pods: kube-scheduler,
and a new log, manager and scheduler. An API server becomes slower with each pod that it has ever had, because the
history in etcd and the heap of kube-apiserver grow. So the sides change their order from run to run; use an even number
of runs. Both may send 5,000 requests per second. docs/benchmarks.md describes the rows.

    python -m tests.bench kubernetes --only plain --runs 3
    python -m tests.bench kubernetes --only affinity,spread --nodes 2000 --runs 1

Source:
    issue text: as fast as the API server
"""

import asyncio
import statistics
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial

import uvloop
from bench.kubernetes_perf.machine import Machine, running_machine
from bench.kubernetes_perf.moments import SHORT_LEASE, failover, median, percentile, shipped_seconds, steady_latencies
from bench.kubernetes_perf.rows import BY_KEY, ON_5000_NODES, Row
from bench.kubernetes_perf.sides import OURS, THEIRS, Start, koordstream, kube_scheduler
from bench.kubernetes_perf.throughput import Run, clear, clear_all, fill, place_initial
from bench.kubernetes_perf.throughput import measure as measure_row
from bench.options import BenchOptions
from bench.results import Better, Result, RowsWithoutResult

LATENCY, SHIPPED, FAILOVER = "latency", "shipped", "failover"


def measure(options: BenchOptions) -> Iterator[Result]:
    """Measure the rows that are asked for; by default all but those on 5,000 nodes."""
    moments = {LATENCY: _latency, FAILOVER: _failover, SHIPPED: _shipped}
    chosen = options.chosen([*BY_KEY, *moments])
    if not options.only:
        chosen = [key for key in chosen if key not in {row.key for row in ON_5000_NODES}]
    results: list[Result] = []
    failed: list[str] = []
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        nodes = options.nodes
        rows = [
            partial(_row, row=row if nodes is None else row.on(nodes)) for row in BY_KEY.values() if row.key in chosen
        ]
        rows += [row for key, row in moments.items() if key in chosen]
        runner.run(_measure(rows, options, results, failed))
    yield from results
    if failed:
        raise RowsWithoutResult("\n".join(failed))


MeasureRow = Callable[[Machine, BenchOptions], Awaitable[list[Result]]]


async def _measure(rows: Sequence[MeasureRow], options: BenchOptions, results: list[Result], failed: list[str]) -> None:
    """Measure the rows, and add their results, or what was wrong with a row, to the lists."""
    async with running_machine() as machine:
        for row in rows:
            try:
                results += await row(machine, options)
            except Exception as error:  # noqa: BLE001 - one broken row must not hide the others
                failed.append(f"{type(error).__name__}: {error}")
                _tell(failed[-1])


async def _row(machine: Machine, options: BenchOptions, row: Row) -> list[Result]:
    nodes = range(max(1, round(row.nodes * options.scale)))
    await clear_all(machine)
    await machine.register([row.node(number) for number in nodes])
    for path, make in row.of_node:
        await machine.ensure(path, [make(number) for number in nodes])
    if row.is_filled:
        await fill(machine, row, options.scale)
    elif row.initial:
        async with koordstream(machine) as side:
            await place_initial(machine, side, row, options.scale)
    runs: dict[str, list[Run]] = {THEIRS: [], OURS: []}
    for number in range(options.runs):
        for start in _order(row, number):
            found = await _run(machine, start, row, options, f"{row.key}-{number}")
            _tell(f"{row.key}, {found.side}: {found}")
            runs[found.side].append(found)
    ours = _middle(runs[OURS])
    size = _size(options)
    rate = Result(
        name=f"{row.title}, bound per second{size}",
        value=ours.per_second,
        unit="/s",
        target=row.target,
        reference=None,
        note=str(ours),
    )
    if row.ratio is None:
        return [rate]
    theirs = _middle(runs[THEIRS])
    ratios = [a.per_second / b.per_second for a, b in zip(runs[OURS], runs[THEIRS], strict=True)]
    return [
        rate,
        Result(
            name=f"{row.title}, over kube-scheduler{size}",
            value=statistics.geometric_mean(ratios),
            unit="x",
            target=row.ratio,
            note=f"ratios {', '.join(f'{ratio:.2f}' for ratio in ratios)}; kube-scheduler {theirs}",
        ),
        Result(
            name=f"{row.title}, own CPU over kube-scheduler's{size}",
            value=ours.own_cpu_ms / theirs.own_cpu_ms,
            unit="x",
            better=Better.LOWER,
            note=f"{ours.own_cpu_ms:.2f} ms a pod in log, manager and scheduler; "
            f"kube-scheduler {theirs.own_cpu_ms:.2f} ms",
        ),
    ]


def _order(row: Row, number: int) -> Sequence[Start]:
    """Return the sides of a run, first one first: kube-scheduler goes first in every second run."""
    if row.ratio is None:
        return [koordstream]
    return [kube_scheduler, koordstream] if number % 2 == 0 else [koordstream, kube_scheduler]


async def _latency(machine: Machine, options: BenchOptions) -> list[Result]:
    found = await steady_latencies(machine, options.scale)
    note = f"median {median(found):.0f} ms, most {found[-1]:.0f} ms, {len(found):,} pods"
    return [
        Result(
            name=f"submitted to bound at 100 pods/s, p99{_size(options)}",
            value=percentile(found, 0.99),
            unit="ms",
            target=100,
            better=Better.LOWER,
            note=note,
        )
    ]


async def _shipped(machine: Machine, options: BenchOptions) -> list[Result]:
    runs = [await shipped_seconds(machine, options.scale) for _ in range(options.runs)]
    return [
        Result(
            name=f"2,000 pods on 200 nodes, shipped limits{_size(options)}",
            value=median(runs),
            unit="s",
            target=6,
            better=Better.LOWER,
            note=f"runs {', '.join(f'{seconds:.1f}' for seconds in runs)} s, from the first submission",
        )
    ]


async def _failover(machine: Machine, options: BenchOptions) -> list[Result]:
    """The shipped lease times, and shorter ones, with which a busy API server costs a leader its term sooner."""
    results: list[Result] = []
    for name, flags in (("shipped lease times", ()), ("lease of 3 s", SHORT_LEASE)):
        runs = [await failover(machine, options.scale, flags) for _ in range(options.runs)]
        results.append(
            Result(
                name=f"leader dies to first binding, {name}{_size(options)}",
                value=median([run.seconds for run in runs]),
                unit="s",
                target=5,
                better=Better.LOWER,
                note="; ".join(f"{run.seconds:.1f} s, another leads after {run.lead_seconds:.1f} s" for run in runs),
            )
        )
    return results


async def _run(machine: Machine, start: Start, row: Row, options: BenchOptions, name: str) -> Run:
    await clear(machine)
    async with start(machine) as side:
        return await measure_row(machine, side, row, options.scale, f"{name}-{side.name[:1]}")


def _size(options: BenchOptions) -> str:
    return "" if options.scale == 1 else f" (x {options.scale:g})"


def _middle(runs: Sequence[Run]) -> Run:
    """Return the run with the median rate (the lower one of two), so that its other figures belong to it."""
    return sorted(runs, key=lambda run: run.per_second)[(len(runs) - 1) // 2]


def _tell(text: str) -> None:
    sys.stderr.write(f"\n    {text}\n")
    sys.stderr.flush()
