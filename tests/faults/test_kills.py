"""A short run of the load and kill suite on three nats-servers; `python -m tests.faults` runs it as long as wanted."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SEED = "20261128"

pytestmark = [pytest.mark.nats, pytest.mark.postgres, pytest.mark.slow, pytest.mark.deep]


def test_kills_pauses_and_partitions_lose_no_acknowledged_fact_and_place_no_pod_twice() -> None:
    words = ["-m", "tests.faults", "--kills", "20", "--nodes", "3", "--seed", SEED]
    done = subprocess.run([sys.executable, *words], cwd=ROOT, capture_output=True, text=True, check=False, timeout=1000)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"seed {SEED}" in done.stdout
    assert " 20 kills " in done.stdout
    assert "1 checks, 0 wrong" in done.stdout
