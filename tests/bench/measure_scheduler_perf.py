"""The scheduler's table: workloads of kube-scheduler's scheduler_perf, decided and durable through a real log.

    python -m tests.bench scheduler_perf --only basic,gangs --scale 0.1 --runs 1 --profile

Every row is the median of several runs, each on a fresh log with a fresh scheduler. docs/benchmarks.md says what the
rows are; the parts are in `bench.scheduler_perf`.
"""

import asyncio
import statistics
import sys
import traceback
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

from bench.options import BenchOptions
from bench.results import Better, Result, RowsWithoutResult
from bench.scheduler_perf.checks import NotWhatItIsAbout
from bench.scheduler_perf.cluster import NotPlaced
from bench.scheduler_perf.engine import Decisions, decide_all
from bench.scheduler_perf.hardware import BOUND, FRAGMENTATION, HARDWARE, bound
from bench.scheduler_perf.latency import steady_latency
from bench.scheduler_perf.questions import answers, with_and_without
from bench.scheduler_perf.reservations import RESERVED, Reserved, basic_of, decide_beside, run_reserved
from bench.scheduler_perf.restart import Restart, restart
from bench.scheduler_perf.throughput import Throughput, run_once
from bench.scheduler_perf.workloads import BASIC, BY_KEY, WORKLOADS, MakePod, Workload

T = TypeVar("T")

RESERVATION_GROWTH = "reservation-growth"
_OWNERS_OF_EACH = 15
"""Owners for which each Reservation of the row `reservation-growth` has room. Two such Reservations fit on a node."""
ENGINE, LATENCY, GROWTH, FIT, BASIC_FIT, RESTART = "engine", "latency", "growth", "fit", "basic-fit", "restart"
FEW_NODES, MANY_NODES = 1000, 15_000
ENGINE_TARGET = 20_000
REFERENCE_ENGINE = 40_000.0
"""Rate of the row `engine` on the machine for which the targets of hardware workloads are stated."""
RESTART_RATIO = 1.3
THROUGH_LOG = 0.6
"""Least rate through the log, as a part of the smaller of row `basic` and the workload's own decisions."""


def measure(options: BenchOptions) -> Iterator[Result]:
    """The rows that are asked for, in the order of the table.

    raises    InvalidOption for a row that does not exist; RowsWithoutResult at the end
    """
    rows: dict[str, Callable[[], list[Result]]] = {ENGINE: lambda: _engine(options)}
    for workload in WORKLOADS:
        rows[workload.key] = lambda workload=workload: _throughput(workload, options)
    for workload in HARDWARE:
        rows[workload.key] = lambda workload=workload: _hardware(workload, options)
    rows[FRAGMENTATION.key] = lambda: _hardware(FRAGMENTATION, replace(options, engine_only=True))
    for reserved in RESERVED:
        rows[reserved.key] = lambda reserved=reserved: _reserved(reserved, options)
    rows[RESERVATION_GROWTH] = lambda: _reservation_growth(options)
    rows[LATENCY] = lambda: _latency(options)
    rows[GROWTH] = lambda: _growth(options)
    rows[FIT] = lambda: _fit(options)
    rows[BASIC_FIT] = lambda: _basic_fit(options)
    rows[RESTART] = lambda: _restart(options)
    rows[BOUND.key] = lambda: _restart_hardware(options)
    failed: list[str] = []
    for key in options.chosen(rows):
        try:
            yield from rows[key]()
        except (NotPlaced, NotWhatItIsAbout) as error:
            failed.append(f"{key}: {error}")
            _tell(key, f"no result: {error}")
        except Exception as error:  # noqa: BLE001 - one row that fails must not hide the others
            failed.append(f"{key}: {type(error).__name__}: {error}")
            traceback.print_exc()
    if failed:
        raise RowsWithoutResult("\n".join(failed))


def _throughput(workload: Workload, options: BenchOptions) -> list[Result]:
    runs = _runs(workload.key, options, lambda: run_once(workload.at(options.scale), profile=options.profile))
    middle = _median_run(runs)
    counts = f"{sum(count for count, _ in workload.initial):,} / {workload.measured:,}"
    return [
        Result(
            name=f"{workload.title}, {counts}{_size(options)}",
            value=middle.pods_per_second,
            unit="pods/s",
            target=workload.target,
            reference=workload.gate,
            note=str(middle),
        )
    ]


def _engine(options: BenchOptions) -> list[Result]:
    sized = BY_KEY["basic"].at(options.scale)
    found: list[Decisions] = []
    for run in range(options.runs):
        found.append(decide_all(sized, profile=options.profile))
        _tell(ENGINE, f"run {run + 1} of {options.runs}: {found[-1].pods_per_second:,.0f} pods/s")
    middle = sorted(found, key=lambda run: run.pods_per_second)[(len(found) - 1) // 2]
    return [
        Result(
            name=f"basic, engine-only, 1,000 / 10,000{_size(options)}",
            value=middle.pods_per_second,
            unit="pods/s",
            target=ENGINE_TARGET,
            note=f"{middle.cpu_ms:.3f} ms CPU a decision",
        )
    ]


def _hardware(workload: Workload, options: BenchOptions) -> list[Result]:
    """Decisions alone and through the log, each beside those of plain pods, one after the other in every run.

    Rates of decisions are those of CPU time, which other programs on the machine change least.
    """
    sized, basic = workload.at(options.scale), BY_KEY["basic"].at(options.scale)
    engines: list[tuple[float, float]] = []
    logs: list[tuple[Throughput, Throughput]] = []
    for run in range(options.runs):
        plain = decide_all(basic)
        engines.append((1000 / plain.cpu_ms, 1000 / decide_all(sized, profile=options.profile).cpu_ms))
        _tell(workload.key, f"run {run + 1} of {options.runs}: {engines[-1][1]:,.0f} of {engines[-1][0]:,.0f} pods/s")
        if not options.engine_only:
            logs.append((asyncio.run(run_once(basic)), asyncio.run(run_once(sized, profile=options.profile))))
            _tell(workload.key, "; ".join(_short(each) for each in logs[-1]))
    plain_rate = statistics.median(plain for plain, _ in engines)
    own_rate = statistics.median(own for _, own in engines)
    ratio = statistics.median(own / plain for plain, own in engines)
    target = (workload.engine_target or 0.0) / REFERENCE_ENGINE
    name = f"{workload.title}{_size(options)}"
    found = [
        Result(
            name=f"engine: {name}",
            value=own_rate,
            unit="pods/CPU s",
            target=target * plain_rate if target else None,
            note=f"{ratio:.3f} of row engine, {plain_rate:,.0f}; target {target:.3f}",
        )
    ]
    if logs:
        middle = _median_run([own for _, own in logs])
        slower = min(statistics.median(plain.pods_per_second for plain, _ in logs), own_rate)
        found.append(
            Result(
                name=f"through the log: {name}",
                value=middle.pods_per_second,
                unit="pods/s",
                target=THROUGH_LOG * slower,
                note=str(middle),
            )
        )
    return found


def _reserved(row: Reserved, options: BenchOptions) -> list[Result]:
    """A workload with Reservations beside plain pods, one after the other in every run."""
    pairs: list[tuple[Throughput, Throughput]] = []
    for run in range(options.runs):
        plain = asyncio.run(run_once(basic_of(row, options.scale)))
        pairs.append((plain, asyncio.run(run_reserved(row, options.scale, profile=options.profile))))
        _tell(row.key, f"run {run + 1} of {options.runs}: " + "; ".join(_short(each) for each in pairs[-1]))
    if row.is_cost:
        ratio = statistics.median(own.cpu_ms / plain.cpu_ms for plain, own in pairs)
    else:
        ratio = statistics.median(own.pods_per_second / plain.pods_per_second for plain, own in pairs)
    middle = _median_run([own for _, own in pairs])
    return [
        Result(
            name=f"{row.title}, {row.reservations:,} / {row.measured or row.reservations:,}{_size(options)}",
            value=ratio,
            unit="x CPU of basic" if row.is_cost else "of basic",
            target=row.target,
            better=Better.LOWER if row.is_cost else Better.HIGHER,
            note=f"{middle.pods_per_second:,.0f} pods/s; {middle}",
        )
    ]


def _reservation_growth(options: BenchOptions) -> list[Result]:
    few, many = 100, max(100, round(10_000 * options.scale))
    pods = few * _OWNERS_OF_EACH  # so every pod takes from a Reservation, also where there are few
    ratios: list[float] = []
    for _ in range(options.runs):
        small = decide_beside(few, 5000, pods, owners=_OWNERS_OF_EACH)
        large = decide_beside(many, 5000, pods, owners=_OWNERS_OF_EACH)
        ratios.append(large.cpu_ms / small.cpu_ms)
    return [
        Result(
            name=f"growth of an owner's decision from {few} to {many:,} Reservations",
            value=statistics.median(ratios),
            unit="x",
            target=2.0,
            better=Better.LOWER,
            note="CPU time of decisions in one process, 5,000 nodes",
        )
    ]


def _latency(options: BenchOptions) -> list[Result]:
    runs = _runs(LATENCY, options, lambda: steady_latency(options.scale, profile=options.profile))
    middle = sorted(runs, key=lambda run: run.p99_ms)[len(runs) // 2]
    return [
        Result(
            name=f"submit to placed at 1,000 pods/s, 5,000 nodes, p99{_size(options)}",
            value=middle.p99_ms,
            unit="ms",
            target=50,
            better=Better.LOWER,
            note=f"p50 {middle.p50_ms:.1f} ms, most {middle.most_ms:.1f} ms, "
            f"{middle.pods_per_second:,.0f} pods/s submitted",
        )
    ]


def _growth(options: BenchOptions) -> list[Result]:
    """Cost of a pod on many nodes over that on few; pairs of runs, so that both see the machine alike."""
    few = replace(BY_KEY["basic"], measured=5000, nodes=FEW_NODES)
    many = replace(few, nodes=MANY_NODES)

    async def pair() -> tuple[Throughput, Throughput]:
        return (
            await run_once(few.at(options.scale), profile=options.profile),
            await run_once(many.at(options.scale), profile=options.profile),
        )

    pairs = _runs(GROWTH, options, pair)
    deciding = statistics.median(large.deciding_ms / small.deciding_ms for small, large in pairs)
    cpu = statistics.median(large.cpu_ms / small.cpu_ms for small, large in pairs)
    small, large = pairs[-1]
    note = f"deciding {small.deciding_ms:.3f} -> {large.deciding_ms:.3f} ms, CPU a pod x {cpu:.2f}"
    return [
        Result(
            name=f"cost of a decision at 15,000 nodes over that at 1,000{_size(options)}",
            value=deciding,
            unit="x",
            target=2,
            better=Better.LOWER,
            note=note,
        )
    ]


def _fit(options: BenchOptions) -> list[Result]:
    runs = _runs(FIT, options, lambda: answers(options.scale, profile=options.profile))
    return [
        Result(
            name=f"capacity question: 1,000 replicas on 5,000 nodes{_size(options)}",
            value=statistics.median(run.seconds for run in runs),
            unit="s",
            target=2,
            better=Better.LOWER,
            note=f"slowest {max(run.most_seconds for run in runs):.2f} s, "
            f"pause for a fork {statistics.median(run.pause_ms for run in runs):.0f} ms "
            f"at {runs[-1].resident_mib:.0f} MiB",
        )
    ]


def _basic_fit(options: BenchOptions) -> list[Result]:
    """Rate with questions over the rate without, in pairs of runs, so that both see the machine alike."""
    pairs = _runs(BASIC_FIT, options, lambda: with_and_without(options.scale, profile=options.profile))
    middle = sorted(pairs, key=lambda pair: pair.ratio)[(len(pairs) - 1) // 2]
    return [
        Result(
            name=f"basic-long with a capacity question every 10 s over without{_size(options)}",
            value=middle.ratio,
            unit="x",
            target=0.9,
            note=str(middle),
        )
    ]


def _restart(options: BenchOptions) -> list[Result]:
    found = _restarted(RESTART, BY_KEY["basic"], BASIC, options)
    what = f"5,000 nodes, 150,000 bound pods{_size(options)}"
    return [
        Result(
            name=f"restart to first decision, {what}",
            value=found.seconds,
            unit="s",
            target=10,
            better=Better.LOWER,
            note=str(found),
        ),
        Result(
            name=f"memory of the scheduler then, {what}",
            value=found.resident_mib,
            unit="MiB",
            target=1536,
            better=Better.LOWER,
        ),
    ]


def _restart_hardware(options: BenchOptions) -> list[Result]:
    """The restart with CPUs and devices over the restart with plain pods, one after the other."""
    plain = _restarted(RESTART, BY_KEY["basic"], BASIC, options)
    found = _restarted(BOUND.key, BOUND, bound(), options)
    return [
        Result(
            name=f"restart with 150,000 bound pods, {BOUND.title}, over row restart{_size(options)}",
            value=found.seconds / plain.seconds,
            unit="x",
            target=RESTART_RATIO,
            better=Better.LOWER,
            note=f"{plain.seconds:.2f} s and {plain.resident_mib:.0f} MiB -> {found}",
        )
    ]


def _restarted(key: str, workload: Workload, pod: MakePod, options: BenchOptions) -> Restart:
    found = asyncio.run(restart(workload, pod, options.scale, options.runs, profile=options.profile))
    _tell(key, str(found))
    return found


def _runs(key: str, options: BenchOptions, once: Callable[[], Coroutine[None, None, T]]) -> Sequence[T]:
    found: list[T] = []
    for run in range(options.runs):
        found.append(asyncio.run(once()))
        _tell(key, f"run {run + 1} of {options.runs}: {_short(found[-1])}")
    return found


def _short(run: object) -> str:
    return f"{run.pods_per_second:,.0f} pods/s; {run}" if isinstance(run, Throughput) else str(run)


def _median_run(runs: Sequence[Throughput]) -> Throughput:
    """The run in the middle (the lower one of two), so that its other figures belong to the rate."""
    return sorted(runs, key=lambda run: run.pods_per_second)[(len(runs) - 1) // 2]


def _size(options: BenchOptions) -> str:
    return "" if options.scale == 1 else f" (x {options.scale:g})"


def _tell(key: str, text: str) -> None:
    sys.stderr.write(f"\n    {key}: {text}\n")
    sys.stderr.flush()
