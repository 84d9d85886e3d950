"""Koordstream and kube-scheduler on one real API server, one after the other: bound pods per second, and their cost.

One etcd and one kube-apiserver run for all rows. In each run of a row, kube-scheduler places the pods first, then a new
log, manager and scheduler do. Both may send 5,000 requests per second. docs/benchmarks.md describes the rows.

    python -m tests.bench kubernetes --only plain --runs 3

Source:
    issue text: as fast as the API server
"""

import asyncio
import statistics
import sys
from collections.abc import Iterator, Sequence

import uvloop
from bench.kubernetes_perf.machine import Machine, running_machine
from bench.kubernetes_perf.rows import BY_KEY, LARGE, ROWS, Row
from bench.kubernetes_perf.sides import OURS, THEIRS, Start, koordstream, kube_scheduler
from bench.kubernetes_perf.throughput import Run, clear
from bench.kubernetes_perf.throughput import measure as measure_row
from bench.options import BenchOptions
from bench.results import Better, Result, RowsWithoutResult


def measure(options: BenchOptions) -> Iterator[Result]:
    """Measure the rows that are asked for; all but `large` by default."""
    chosen = options.chosen(BY_KEY)
    if not options.only:
        chosen = [key for key in chosen if key != LARGE.key]
    results: list[Result] = []
    failed: list[str] = []
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_measure(chosen, options, results, failed))
    yield from results
    if failed:
        raise RowsWithoutResult("\n".join(failed))


async def _measure(chosen: Sequence[str], options: BenchOptions, results: list[Result], failed: list[str]) -> None:
    """Measure the rows, and add their results, or what was wrong with a row, to the lists."""
    async with running_machine() as machine:
        for row in (row for row in (*ROWS, LARGE) if row.key in chosen):
            try:
                results += await _row(machine, row, options)
            except Exception as error:  # noqa: BLE001 - one broken row must not hide the others
                failed.append(f"{row.key}: {type(error).__name__}: {error}")
                _tell(failed[-1])


async def _row(machine: Machine, row: Row, options: BenchOptions) -> list[Result]:
    nodes = range(max(1, round(row.nodes * options.scale)))
    await machine.register([row.node(number) for number in nodes])
    for path, make in row.of_node:
        await machine.ensure(path, [make(number) for number in nodes])
    runs: dict[str, list[Run]] = {THEIRS: [], OURS: []}
    for number in range(options.runs):
        for start in [kube_scheduler, koordstream] if row.ratio is not None else [koordstream]:
            found = await _run(machine, start, row, options, f"{row.key}-{number}")
            _tell(f"{row.key}, {found.side}: {found}")
            runs[found.side].append(found)
    ours = _middle(runs[OURS])
    size = "" if options.scale == 1 else f" (x {options.scale:g})"
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
            value=statistics.median(ratios),
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


async def _run(machine: Machine, start: Start, row: Row, options: BenchOptions, name: str) -> Run:
    await clear(machine)
    async with start(machine) as side:
        return await measure_row(machine, side, row, options.scale, f"{name}-{side.name[:1]}")


def _middle(runs: Sequence[Run]) -> Run:
    """Return the run with the median rate (the lower one of two), so that its other figures belong to it."""
    return sorted(runs, key=lambda run: run.per_second)[(len(runs) - 1) // 2]


def _tell(text: str) -> None:
    sys.stderr.write(f"\n    {text}\n")
    sys.stderr.flush()
