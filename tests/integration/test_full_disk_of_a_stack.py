"""An embedded stack on a full disk: what it says of itself is true, and it goes on when there is space again."""

import json
import os
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any, Final

import pytest
from koordcore.embedded.identity import is_alive
from koordcore.embedded.nats import RESTART_FREE_BYTES
from koordcore.embedded.stack import Phase, ProcessState, Stack, read_stack
from koordctl.access.clients import state_file
from koordctl.stack.processes import StackOptions, wipe
from support.small_disk import MIB, SmallDisk, small_disk
from support.until import until

pytestmark = [pytest.mark.deep, pytest.mark.nats, pytest.mark.postgres, pytest.mark.slow]

SIZE: Final = 600
NAMESPACES: Final = 12


@pytest.fixture
def disk(tmp_path: Path) -> Generator[SmallDisk]:
    for folder in tmp_path.parents:
        if folder.owner() == "root" and folder.name.startswith("pytest"):
            folder.chmod(0o755)
    tmp_path.chmod(0o755)
    with small_disk(tmp_path / "disk", SIZE) as found:
        yield found
        koord(found, "down")
        wipe(StackOptions(var=found.path / "var"))


def koord(disk: SmallDisk, *words: str, stdin: str = "", **where: str) -> subprocess.CompletedProcess[str]:
    """Run a command. `where`: variables instead of those for the stack on the disk."""
    command = [sys.executable, "-m", "koordctl", *words]
    environment = {**os.environ, "KOORD_VAR": str(disk.path / "var"), **where}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, input=stdin)


def stack_of(disk: SmallDisk) -> Stack:
    found = read_stack(state_file(disk.path / "var"))
    assert found is not None
    return found


def broken(disk: SmallDisk) -> dict[str, dict[str, Any]]:
    """What `koord doctor` finds broken."""
    found = json.loads(koord(disk, "doctor", "-o", "json").stdout)
    return {each["check"]: each for each in found if each["verdict"] == "broken"}


def apply(disk: SmallDisk, number: int) -> int:
    """Apply a Namespace of 40 kB, and return the exit status."""
    metadata = {"name": f"n{number}", "annotations": {"a": "x" * 40_000}}
    document = json.dumps({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    return koord(disk, "apply", "-f", "-", stdin=document).returncode


async def test_a_stack_tells_the_truth_on_a_full_disk_and_goes_on_by_itself(disk: SmallDisk) -> None:
    started = koord(disk, "up", "--no-agent", "--simulated-nodes", "1")
    assert started.returncode == 0, started.stderr
    assert apply(disk, 0) == 0

    disk.fill()
    applied = [apply(disk, number) for number in range(1, 4)]
    manager = stack_of(disk).find("manager")
    assert manager is not None
    assert manager.process is not None
    os.kill(manager.process.pid, 9)
    assert applied[-1] != 0
    assert {"disk", "storing facts"} <= broken(disk).keys()
    for process in stack_of(disk).as_seen().processes:
        if process.state is ProcessState.READY:
            assert process.process is not None
            assert is_alive(process.process)

    disk.resize(SIZE + RESTART_FREE_BYTES // MIB + 64)
    disk.empty()
    await until(lambda: stack_of(disk).as_seen().phase is Phase.READY, seconds=180)
    await until(lambda: koord(disk, "status").returncode == 0, seconds=180)
    assert apply(disk, NAMESPACES) == 0
    assert broken(disk) == {}
    verified = koord(disk, "verify")
    assert verified.returncode == 0, verified.stderr
    nats = stack_of(disk).find("nats")
    assert nats is not None
    seed = str(disk.path / "var" / "keys" / "operator.seed")
    over_the_log = koord(
        disk, "verify", KOORD_VAR=str(disk.path / "none"), KOORD_NATS=nats.urls["client"], KOORD_NATS_SEED=seed
    )
    assert over_the_log.returncode == 0, over_the_log.stderr
    nights = koord(disk, "nightly", str(disk.path / "nights"), "--once")
    assert (nights.returncode, "verify: succeeded" in nights.stdout) == (0, True), nights.stdout + nights.stderr
