"""The scheduler as machine code decides what it decides as Python (docs/decisions/0013): the same tests pass."""

import fcntl
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

pytestmark = [
    pytest.mark.deep,
    pytest.mark.slow,
    pytest.mark.timeout(1500),
    pytest.mark.xdist_group("compiled scheduler"),
    pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler"),
    pytest.mark.skipif(
        not Path(sysconfig.get_path("include"), "Python.h").exists(), reason="needs the header files of Python"
    ),
]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The compiled scheduler, in a folder of its own: whoever runs `make bench` meanwhile replaces `var/compiled`."""
    own = tmp_path_factory.getbasetemp()
    folder = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "compiled"
    with folder.with_suffix(".lock").open("w") as lock:  # workers that run in parallel build it once
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / ".built").exists():
            made = subprocess.run(["make", "compiled", f"COMPILED={folder}"], cwd=ROOT, capture_output=True, text=True)
            assert made.returncode == 0, made.stdout + made.stderr
    return folder / "site"


@pytest.fixture(scope="module")
def environment(site: Path) -> dict[str, str]:
    """Of a process that finds the compiled scheduler first."""
    workers = [name for name in os.environ if name.startswith("PYTEST_")]
    return {name: text for name, text in os.environ.items() if name not in workers} | {"PYTHONPATH": str(site)}


def test_what_runs_is_machine_code(environment: dict[str, str], site: Path) -> None:
    program = "from koord_scheduler.domain.engine import engine; print(engine.__file__)"
    answer = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    ).stdout.strip()
    assert Path(answer).is_relative_to(site)
    assert Path(answer).suffix == ".so"


@pytest.mark.parametrize(
    "tests",
    [
        ("services/scheduler/tests", "-m", "not nats"),
        ("tests/conformance", "--vectors", "tests/conformance/vectors/scheduler"),
    ],
    ids=["its own tests", "vectors"],
)
def test_machine_code_passes(environment: dict[str, str], tests: tuple[str, ...]) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", *tests]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, reasons_first(done.stdout)


def reasons_first(told: str) -> str:
    """The lines of a run that say what failed, and then its end: of a long message, CI shows the begin only."""
    reasons = [line for line in told.splitlines() if line.startswith(("FAILED", "ERROR", "E  "))]
    return "\n".join((*reasons[:40], told[-10_000:]))
