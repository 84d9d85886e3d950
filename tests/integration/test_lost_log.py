"""An embedded stack whose stream of facts is lost: nothing replaces it, and nobody is ready without it."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any, Final

import pytest
from koordcore.embedded.stack import ProcessState, Stack, read_stack
from koordctl.access.clients import state_file
from support.embedded_stack import var_folder
from support.until import until

pytestmark = [pytest.mark.deep, pytest.mark.nats, pytest.mark.postgres, pytest.mark.slow]

GONE: Final = 3
"""Exit status of commands that find no stream of facts."""
OPTIONS: Final = ("--no-agent", "--simulated-nodes", "1")


@pytest.fixture
def var() -> Generator[Path]:
    with var_folder() as folder:
        yield folder
        koord(folder, "down")


def koord(var: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "koordctl", *words]
    environment = {**os.environ, "KOORD_VAR": str(var)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def lose_facts(var: Path) -> None:
    """Remove the files of the stream, as a server does that cannot read them at its start."""
    (folder,) = (var / "nats").glob("**/streams/KOORD_EV_dev")
    shutil.rmtree(folder)


def stack_of(var: Path) -> Stack:
    found = read_stack(state_file(var))
    assert found is not None
    return found.as_seen()


def problems(var: Path) -> dict[str, dict[str, Any]]:
    found = json.loads(koord(var, "doctor", "-o", "json").stdout)
    return {each["check"]: each for each in found if each["verdict"] == "broken"}


def test_a_lost_log_ends_the_start_and_is_begun_anew_only_by_order(var: Path) -> None:
    assert koord(var, "up", *OPTIONS).returncode == 0
    assert koord(var, "down").returncode == 0
    lose_facts(var)

    refused = koord(var, "up", *OPTIONS)
    assert refused.returncode == GONE
    assert "the stream of facts KOORD_EV_dev is gone" in refused.stderr
    assert not (var / "nats").exists() or not list((var / "nats").glob("**/streams/KOORD_EV_dev"))

    begun = koord(var, "up", *OPTIONS, "--new-log")
    assert begun.returncode == 0, begun.stderr
    assert koord(var, "get", "nodes").returncode == 0
    assert list(var.glob("postgres-of-the-log-before-*/PG_VERSION"))


async def test_a_log_that_is_lost_while_the_stack_runs_is_not_created_again(var: Path) -> None:
    assert koord(var, "up", *OPTIONS, "--new-log").returncode == 0
    nats = stack_of(var).find("nats")
    assert nats is not None
    assert nats.process is not None
    lose_facts(var)
    os.kill(nats.process.pid, signal.SIGKILL)

    def is_given_up() -> bool:
        found = stack_of(var).find("nats")
        return found is not None and found.state is ProcessState.GIVEN_UP

    await until(is_given_up, seconds=120)
    assert not list((var / "nats").glob("**/streams/KOORD_EV_dev"))
    assert "the stream of facts KOORD_EV_dev is gone" in koord(var, "status").stderr
    found = problems(var)
    assert "the stream of facts KOORD_EV_dev is gone" in found["process nats"]["told"]
    assert "no connection" in found["log"]["told"]
