"""One run of one row of the scheduler's table in the checkout that PYTHONPATH names; prints its cost as JSON.

`bench.pairs` starts it with the interpreter of each checkout, so it uses only names that older commits have, too.
"""

import asyncio
import json
import sys

from bench.scheduler_perf.engine import decide_all
from bench.scheduler_perf.throughput import run_once
from bench.scheduler_perf.workloads import BY_KEY


def main() -> None:
    """Measure the row and the scale on the command line."""
    row, scale = sys.argv[1], float(sys.argv[2])
    workload = BY_KEY["basic" if row == "engine" else row].at(scale)
    found = decide_all(workload) if row == "engine" else asyncio.run(run_once(workload))
    print(json.dumps({"cpu_ms": found.cpu_ms, "pods_per_second": found.pods_per_second}))


if __name__ == "__main__":
    main()
