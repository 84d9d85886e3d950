"""On a real kernel: best-effort processes that burn every CPU are held to their budget beside a process that serves."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.root, pytest.mark.slow]

MEASURE = Path(__file__).parents[4] / "examples" / "protection" / "measure.py"


@pytest.mark.deep
def test_best_effort_that_burns_every_cpu_is_held_to_its_budget_while_requests_go_on(
    tmp_path: Path,
) -> None:
    if os.geteuid() != 0 or not os.access("/sys/fs/cgroup", os.W_OK):
        pytest.skip("needs root and a writable cgroup file system")
    picture = tmp_path / "protection.svg"
    done = subprocess.run(
        [sys.executable, str(MEASURE), "--seconds", "6", "--rounds", "1", "--json", "--picture", str(picture)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    if "needs root" in done.stderr:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr
    assert picture.read_text().startswith("<svg")
    measured = json.loads(done.stdout)
    off, on = measured["off"], measured["on"]
    print(f"p99 {off['p99_ms']} -> {on['p99_ms']} ms, best effort {off['be_cores']} -> {on['be_cores']} cores")
    assert off["lowest_be_quota_us"] == -1
    assert on["lowest_be_quota_us"] > 0
    assert on["be_cores"] < off["be_cores"] * 0.8
    assert on["be_rounds_per_second"] < off["be_rounds_per_second"]
    assert min(off["requests"], on["requests"]) > 50
