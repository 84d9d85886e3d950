"""The load and kill suite on three nats-servers, as long as wanted.

    python -m tests.faults --kills 1000
    python -m tests.faults --hours 8 --seed 7

The seed decides the kinds, targets and order of all faults. It is printed, so that a run can be repeated. The exit
status is 1 if a rule was broken.
"""

import argparse
import asyncio
import logging
import random
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from support.embedded_stack import var_folder  # noqa: E402 - the tests' folder is put on the path above
from support.faults.killing import Killing, Report  # noqa: E402
from support.faults.three_servers import three_servers  # noqa: E402


def options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--kills", type=int, default=None, help="end after so many kills")
    parser.add_argument("--hours", type=float, default=None, help="end after so many hours")
    parser.add_argument("--seed", type=int, default=None, help="decides the faults; default: at random")
    parser.add_argument("--nodes", type=int, default=6, help="simulated nodes")
    given = parser.parse_args()
    if given.kills is None and given.hours is None:
        parser.error("--kills or --hours is needed")
    return given


async def run(given: argparse.Namespace, seed: int) -> Report:
    """Run the suite, and print a line now and then."""
    with var_folder() as var:
        async with three_servers(var, nodes=given.nodes) as system:
            killing = Killing(system, var, seed=seed, say=lambda line: print(line, flush=True))
            return await killing.run(kills=given.kills, hours=given.hours)


def main() -> int:
    """Run the suite. Return the exit status."""
    given = options()
    seed = random.SystemRandom().randrange(1_000_000) if given.seed is None else given.seed
    logging.disable(logging.ERROR)
    print(f"seed {seed}", flush=True)
    report = asyncio.run(run(given, seed))
    print("kills by process:", ", ".join(f"{name} {count}" for name, count in sorted(report.targets.items())))
    for sentence in report.wrong:
        print(f"WRONG: {sentence}")
    return 1 if report.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
