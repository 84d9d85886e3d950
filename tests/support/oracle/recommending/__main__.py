"""Compares random histories with the autoscaler: `PYTHONPATH=tests .venv/bin/python -m support.oracle.recommending`."""

import argparse
import json
import sys
from pathlib import Path

from support.oracle.lines import running
from support.oracle.recommending.program import Recommender
from support.oracle.recommending.trying import Tally, compare, compare_seed


def main() -> int:
    """Return 1 if there is a difference."""
    parser = argparse.ArgumentParser(prog="support.oracle.recommending", description=__doc__)
    parser.add_argument("--first", type=int, default=0, metavar="SEED")
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--case", type=Path, metavar="FILE", help="only the case that a failing test printed")
    asked = parser.parse_args()
    tally = Tally()
    with running(Recommender) as recommender:
        if asked.case:
            compare(recommender, json.loads(asked.case.read_text())["case"], tally)
            print(*tally.differences, sep="\n")
            return 1 if tally.differences else 0
        for seed in range(asked.first, asked.first + asked.cases):
            if reproduced := compare_seed(recommender, seed, tally):
                print(reproduced, flush=True)
    print(f"{tally.cases} cases, {tally.verdicts} verdicts, {tally.rounded} of them rounded otherwise")
    print(f"{tally.learned} targets decided by samples")
    print(f"{len(tally.differences)} differences")
    return 1 if tally.differences else 0


if __name__ == "__main__":
    sys.exit(main())
