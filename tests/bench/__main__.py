"""`make bench`: runs every measurement (or those named on the command line), prints them beside their targets.

`history` and `compose` run only if they are named.

    python -m tests.bench [name ...] [--only ROW,ROW] [--scale 0.1] [--runs 3] [--nodes N] [--profile]
    python -m tests.bench pairs --base DIR [--row engine] [--pairs 10]      compares two checkouts, see `bench.pairs`

A measurement is a module of this folder with a function `measure() -> Iterable[Result]`, or `measure(options)` when it
has rows to choose from. Results go to `var/bench/results.json` as a list of {name, value, unit, target, better,
reference, note}. Numbers are never a test: the exit status is 1 only when a measurement could not be made.
"""

import argparse
import importlib
import inspect
import os
import platform
import sys
import time
import traceback
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

import msgspec
from koord_scheduler.domain.engine import engine
from rich.console import Console
from rich.table import Table

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from bench import pairs  # noqa: E402 - the tests' folder is put on the path above
from bench.options import BenchOptions, InvalidOption  # noqa: E402
from bench.results import Result, RowsWithoutResult  # noqa: E402

OUTPUT = Path("var/bench/results.json")
ONLY_WHEN_NAMED = ("measure_history", "measure_compose")
"""Measurements that take hours at full scale, or build the image as root."""


def _modules() -> list[str]:
    return sorted(path.stem for path in HERE.glob("measure_*.py") if path.stem not in ONLY_WHEN_NAMED)


def _arguments() -> tuple[list[str], BenchOptions]:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description="Measures against the targets.")
    parser.add_argument("names", nargs="*", help="measurements; none: all")
    parser.add_argument("--only", default="", help="rows of a measurement that has rows, separated by commas")
    parser.add_argument("--scale", type=float, default=1.0, help="factor of nodes and pods, for quick runs")
    parser.add_argument("--runs", type=int, default=3, help="runs of which the median is taken")
    parser.add_argument("--nodes", type=int, help="rows of `kubernetes` beside kube-scheduler: count of nodes")
    parser.add_argument("--profile", action="store_true", help="print where the measured process spent its time")
    parser.add_argument("--engine-only", action="store_true", help="rows of hardware workloads: not through the log")
    given = parser.parse_args()
    if given.scale <= 0 or given.runs < 1 or (given.nodes is not None and given.nodes < 1):
        parser.error("--scale must be above 0, --runs and --nodes at least 1")
    only = tuple(name.strip() for name in given.only.split(",") if name.strip())
    options = BenchOptions(
        only=only,
        scale=given.scale,
        runs=given.runs,
        nodes=given.nodes,
        profile=given.profile,
        engine_only=given.engine_only,
    )
    return given.names or _modules(), options


def _measured(module: ModuleType, options: BenchOptions) -> Iterable[Result]:
    return module.measure(options) if inspect.signature(module.measure).parameters else module.measure()


def _form() -> str:
    """Whether the scheduler that is measured is machine code (`make compiled`) or interpreted."""
    return "interpreted" if Path(engine.__file__).suffix == ".py" else "compiled"


def main() -> int:
    """Measures, prints, writes; returns the exit status."""
    if sys.argv[1:2] == ["pairs"]:
        return pairs.main(sys.argv[2:])
    console = Console()
    wanted, options = _arguments()
    results: list[Result] = []
    failed = False
    for name in wanted:
        stem = name if name.startswith("measure_") else f"measure_{name}"
        began = time.monotonic()
        console.print(f"==> {stem.removeprefix('measure_')} ...", end=" ")
        try:
            # One after the other: what was measured before a failure is kept.
            for result in _measured(importlib.import_module(f"bench.{stem}"), options):
                results.append(result)
        except InvalidOption as error:
            console.print(f"\n{error}", highlight=False)
            return 2
        except RowsWithoutResult as error:
            failed = True
            console.print(f"[red]some rows failed[/red]\n{error}", highlight=False)
            continue
        except Exception:  # noqa: BLE001 - one broken measurement must not hide the others
            failed = True
            console.print("[red]failed[/red]")
            traceback.print_exc()
            continue
        console.print(f"{time.monotonic() - began:.1f} s")
    OUTPUT.parent.mkdir(parents=True, exist_ok=True)
    OUTPUT.write_bytes(msgspec.json.format(msgspec.json.encode(results), indent=2))
    table = Table(
        title=f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, scheduler {_form()}"
    )
    for column in ("measurement", "result", "target", "", "kube-scheduler"):
        table.add_column(column, justify="right" if column in ("result", "target", "kube-scheduler") else "left")
    for result in results:
        target = "-" if result.target is None else f"{'≥' if result.better == 'higher' else '≤'} {result.target:,g}"
        mark = {True: "[green]reached[/green]", False: "[red]missed[/red]", None: ""}[result.is_reached]
        reference = "" if result.reference is None else f"{result.reference:,g}"
        table.add_row(result.name, f"{result.value:,.4g} {result.unit}", target, mark, reference)
    console.print(table)
    for result in results:
        if result.note:
            console.print(f"{result.name}: {result.note}", soft_wrap=True, highlight=False)
    console.print(f"written to {OUTPUT}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
