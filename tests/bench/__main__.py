"""`make bench`: runs every measurement (or those named on the command line), prints them beside their targets.

A measurement is a module of this folder with a function `measure() -> Iterable[Result]`. Results go to
`var/bench/results.json` as a list of {name, value, unit, target, better}. Numbers are never a test: the exit status is
1 only when a measurement could not be made.
"""

import importlib
import os
import platform
import sys
import time
import traceback
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from bench.results import Result  # noqa: E402 - the tests' folder is put on the path above

OUTPUT = Path("var/bench/results.json")


def _modules() -> list[str]:
    return sorted(path.stem for path in HERE.glob("measure_*.py"))


def main() -> int:
    """Measures, prints, writes; returns the exit status."""
    console = Console()
    wanted = sys.argv[1:] or _modules()
    results: list[Result] = []
    failed = False
    for name in wanted:
        stem = name if name.startswith("measure_") else f"measure_{name}"
        began = time.monotonic()
        console.print(f"==> {stem.removeprefix('measure_')} ...", end=" ")
        try:
            results.extend(importlib.import_module(f"bench.{stem}").measure())
        except Exception:  # noqa: BLE001 - one broken measurement must not hide the others
            failed = True
            console.print("[red]failed[/red]")
            traceback.print_exc()
            continue
        console.print(f"{time.monotonic() - began:.1f} s")
    OUTPUT.parent.mkdir(parents=True, exist_ok=True)
    OUTPUT.write_bytes(msgspec.json.format(msgspec.json.encode(results), indent=2))
    table = Table(title=f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}")
    for column in ("measurement", "result", "target", ""):
        table.add_column(column, justify="right" if column in ("result", "target") else "left")
    for result in results:
        target = "-" if result.target is None else f"{'≥' if result.better == 'higher' else '≤'} {result.target:,g}"
        mark = {True: "[green]reached[/green]", False: "[red]missed[/red]", None: ""}[result.is_reached]
        table.add_row(result.name, f"{result.value:,.4g} {result.unit}", target, mark)
    console.print(table)
    console.print(f"written to {OUTPUT}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
