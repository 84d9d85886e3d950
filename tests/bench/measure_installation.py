"""How long a new cluster takes from `kubectl apply -k k8s/overlays/dev` to the first bound pod, images present.

etcd, kube-apiserver, kube-controller-manager and kube-scheduler are real. The commands of the shipped pods run as
processes, each with its mounts, its environment, its network and its probes (`bench.installation`). Not run: the
agents of the nodes, and the reloader of NATS, whose program is not on this machine. Needs root, `make
test-kubernetes` and Debian's package postgresql.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench.installation.containers import POSTGRES_PROGRAMS
from bench.options import BenchOptions
from bench.results import Better, Result, RowsWithoutResult
from support.kubernetes.control_plane import missing_programs
from support.kubernetes.kube_scheduler import PROGRAM

TARGET_SECONDS = 60.0
TESTS = Path(__file__).parents[1]
ALONE = ("unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc")


def measure(options: BenchOptions) -> Iterator[Result]:
    """Yield the median of the runs; the note has the steps of that run."""
    reason = missing_programs() or (None if PROGRAM.exists() else "kube-scheduler is not built")
    if reason is None and not POSTGRES_PROGRAMS:
        reason = "Postgres with TLS is not installed (apt-get install postgresql)"
    if reason is not None:
        raise RowsWithoutResult(reason)
    runs = sorted((_one_run() for _ in range(options.runs)), key=lambda run: run[0])
    seconds, steps = runs[len(runs) // 2]
    yield Result(
        name="kubectl apply -k to the first bound pod",
        value=seconds,
        unit="s",
        target=TARGET_SECONDS,
        better=Better.LOWER,
        note=f"{steps}; load of the machine {os.getloadavg()[0]:.0f}",
    )


def _one_run() -> tuple[float, str]:
    with tempfile.TemporaryDirectory(prefix="koord-bench-") as folder:
        Path(folder).chmod(0o755)  # Postgres does not run as root
        done = subprocess.run(
            [*ALONE, sys.executable, "-m", "bench.installation.run", folder],
            env={**os.environ, "PYTHONPATH": str(TESTS)},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise RowsWithoutResult(done.stderr[-2000:])
        found = json.loads(done.stdout)
    if found["failed"]:
        raise RowsWithoutResult(f"{found['failed']}; seen: {found['seen']}")
    if found["changes"]:
        raise RowsWithoutResult(f"a second `kubectl apply` would change: {found['changes'][:2000]}")
    return found["seconds"], ", ".join(f"{what} {at:.0f} s" for at, what in found["seen"])
