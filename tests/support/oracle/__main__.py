"""Compares random cases with kube-scheduler: `PYTHONPATH=tests .venv/bin/python -m support.oracle --help`."""

import argparse
import json
import sys
from pathlib import Path

from support.oracle.lines import running
from support.oracle.program import Oracle
from support.oracle.trying import Tally, compare, compare_seed


def main() -> int:
    """Return 1 if a difference is not wanted."""
    parser = argparse.ArgumentParser(prog="support.oracle", description=__doc__)
    parser.add_argument("--first", type=int, default=0, metavar="SEED")
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--case", type=Path, metavar="FILE", help="only the case that a failing test printed")
    asked = parser.parse_args()
    tally = Tally()
    with running(Oracle) as oracle:
        if asked.case:
            compare(oracle, json.loads(asked.case.read_text())["case"], tally)
            print(*tally.differences, sep="\n")
            return 1 if tally.differences else 0
        for seed in range(asked.first, asked.first + asked.cases):
            if reproduced := compare_seed(oracle, seed, tally):
                print(reproduced, flush=True)
            if tally.cases % 1000 == 0:
                print(
                    f"{tally.cases} cases, {tally.verdicts} verdicts, {len(tally.differences)} differences", flush=True
                )
    print(f"{tally.cases} cases, {tally.verdicts} verdicts, {tally.accepted} accept, {tally.invalid} invalid pods")
    for name, counts in (("refusals", tally.by_plugin), ("wanted", tally.wanted), ("invalid", tally.errors)):
        print(name, *(f"  {count:8} {what}" for what, count in counts.most_common(30)), sep="\n")
    print(f"{len(tally.differences)} differences that are not wanted")
    return 1 if tally.differences else 0


if __name__ == "__main__":
    sys.exit(main())
