"""Whether a commit is slower than another one, on a machine whose speed varies.

    python -m tests.bench pairs --base DIR [--other DIR] [--row engine] [--pairs 10] [--scale 1]

Each pair runs a row of the scheduler's table once in either checkout, in alternating order. The ratio of a pair
compares runs that saw the machine alike. The table shows the mean ratio with its 95 % interval.
"""

import argparse
import json
import math
import os
import statistics
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich.console import Console

ONE_RUN: Final = Path(__file__).with_name("one_run.py")
# Quantile 0.975 of Student's distribution by degrees of freedom, from 1.
_STUDENT: Final = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131),
    *(2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What one run took.

    Attributes:
        cpu_ms: CPU milliseconds of the scheduler per pod.
        pods_per_second: Pods that were decided per second of real time.
    """

    cpu_ms: float
    pods_per_second: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A mean ratio and its 95 % interval."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        """Return the figures as the table shows them."""
        return f"{self.mean:.4f} ({self.low:.4f} to {self.high:.4f})"


def ratio_interval(ratios: Sequence[float]) -> Interval:
    """Return the geometric mean of ratios of pairs with its 95 % interval.

    Args:
        ratios: One positive ratio for each pair, at least two.
    """
    logs = [math.log(ratio) for ratio in ratios]
    mean = statistics.fmean(logs)
    freedom = len(logs) - 1
    student = _STUDENT[freedom - 1] if freedom <= len(_STUDENT) else 1.96
    half = student * statistics.stdev(logs) / math.sqrt(len(logs))
    return Interval(mean=math.exp(mean), low=math.exp(mean - half), high=math.exp(mean + half))


def run(checkout: Path, row: str, scale: float, *, compiled: bool) -> Cost:
    """Run a row once in a checkout.

    Raises:
        CalledProcessError: The run failed; its message is on standard error.
    """
    paths = [checkout / "tests", *([checkout / "var" / "compiled" / "site"] if compiled else [])]
    done = subprocess.run(
        [str(checkout / ".venv" / "bin" / "python"), "-P", str(ONE_RUN), row, str(scale)],
        cwd=checkout,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(str(path) for path in paths)},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return Cost(**json.loads(done.stdout.splitlines()[-1]))


def main(words: Sequence[str]) -> int:
    """Measure the pairs and print the ratios; return the exit status.

    Args:
        words: The command line after `pairs`.
    """
    parser = argparse.ArgumentParser(prog="python -m tests.bench pairs", description=__doc__)
    parser.add_argument("--base", type=Path, required=True, help="checkout to compare with, after `make setup`")
    parser.add_argument("--other", type=Path, default=Path(), help="checkout to judge; default: this one")
    parser.add_argument("--row", default="engine", help="row of scheduler_perf")
    parser.add_argument("--pairs", type=int, default=10, help="runs of each checkout, at least 2")
    parser.add_argument("--scale", type=float, default=1.0, help="factor of nodes and pods, for quick runs")
    given = parser.parse_args(words)
    if given.pairs < 2 or given.scale <= 0:
        parser.error("--pairs must be at least 2 and --scale above 0")
    base, other = given.base.resolve(), given.other.resolve()
    compiled = all((checkout / "var" / "compiled" / "site").is_dir() for checkout in (base, other))
    console = Console(highlight=False)
    console.print(f"{given.row} x {given.scale:g}, {'compiled' if compiled else 'interpreted'}: {other} over {base}")
    costs: dict[Path, list[Cost]] = {base: [], other: []}
    for pair in range(given.pairs):
        for checkout in (base, other) if pair % 2 == 0 else (other, base):
            costs[checkout].append(run(checkout, given.row, given.scale, compiled=compiled))
        before, after = costs[base][-1], costs[other][-1]
        console.print(
            f"pair {pair + 1}: {before.cpu_ms:.4f} -> {after.cpu_ms:.4f} ms CPU a pod, "
            f"{before.pods_per_second:,.0f} -> {after.pods_per_second:,.0f} pods/s"
        )
    pairs = list(zip(costs[base], costs[other], strict=True))
    console.print(f"CPU a pod: {ratio_interval([after.cpu_ms / before.cpu_ms for before, after in pairs])}")
    rates = ratio_interval([after.pods_per_second / before.pods_per_second for before, after in pairs])
    console.print(f"pods/s:    {rates}")
    return 0
