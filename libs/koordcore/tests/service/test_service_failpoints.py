"""A failpoint kills at the passage that the environment names, and nowhere else."""

import os
import signal
import subprocess
import sys

import pytest

PROGRAM = """
from koordcore.service.failpoints import failpoint
for number in range(5):
    failpoint("other")
    print(number, flush=True)
    failpoint("here")
"""


def run(armed: str) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "KOORD_FAILPOINT": armed}
    return subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(("armed", "printed"), [("here", 1), ("here:3", 3)])
def test_process_dies_at_the_named_passage(armed: str, printed: int) -> None:
    done = run(armed)
    assert done.returncode == -signal.SIGKILL
    assert len(done.stdout.splitlines()) == printed


@pytest.mark.parametrize("armed", ["", "elsewhere:1"])
def test_other_failpoints_do_nothing(armed: str) -> None:
    done = run(armed)
    assert (done.returncode, len(done.stdout.splitlines())) == (0, 5)


def test_unreadable_count_stops_the_process_at_once() -> None:
    done = run("here:soon")
    assert done.returncode == 1
    assert "KOORD_FAILPOINT" in done.stderr
