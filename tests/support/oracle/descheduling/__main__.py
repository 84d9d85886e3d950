"""Compares random cases with the descheduler: `PYTHONPATH=tests .venv/bin/python -m support.oracle.descheduling`."""

import argparse
import json
import sys
from pathlib import Path

from support.oracle.descheduling.program import Descheduler
from support.oracle.descheduling.trying import Tally, compare, compare_seed
from support.oracle.lines import running


def main() -> int:
    """Return 1 if there is a difference."""
    parser = argparse.ArgumentParser(prog="support.oracle.descheduling", description=__doc__)
    parser.add_argument("--first", type=int, default=0, metavar="SEED")
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--case", type=Path, metavar="FILE", help="only the case that a failing test printed")
    asked = parser.parse_args()
    tally = Tally()
    with running(Descheduler) as descheduler:
        if asked.case:
            compare(descheduler, json.loads(asked.case.read_text())["case"], tally)
            print(*tally.differences, sep="\n")
            return 1 if tally.differences else 0
        for seed in range(asked.first, asked.first + asked.cases):
            if reproduced := compare_seed(descheduler, seed, tally):
                print(reproduced, flush=True)
    print(f"{tally.cases} cases, {tally.verdicts} verdicts, {tally.evicted} of {tally.pods} pods evicted")
    print(f"{tally.invalid} with invalid arguments")
    print("evictions", *(f"  {count:8} {what}" for what, count in tally.by_plugin.most_common()), sep="\n")
    print(f"{len(tally.differences)} differences")
    return 1 if tally.differences else 0


if __name__ == "__main__":
    sys.exit(main())
