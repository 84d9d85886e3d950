"""CPU time of the commands that a person runs most often, beside a running stack, and of help and completion.

It is the time of the process of `koord` alone, in user and system mode, and the best of a few runs: other work on the
machine makes all of them slower, and none of them faster.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from bench.options import BenchOptions
from bench.results import Better, Result

RUNS: Final = 10
KOORD: Final = Path(sys.executable).with_name("koord")
READ, LOG, HELP, COMPLETION = 0.20, 0.30, 0.15, 0.10
COMMANDS: Final = {
    "get pods": READ,
    "get nodes": READ,
    "top node": READ,
    "top pod": READ,
    "quota tree": READ,
    "gang": READ,
    "explain pod web": LOG,
    "explain node node-1": LOG,
    "events": LOG,
    "--help": HELP,
    "get --help": HELP,
    "drain --help": HELP,
}
"""Words of a command -> most CPU seconds."""
TYPED: Final = ("koord g", "koord get --", "koord drain node-1 --")
POD: Final = b"""\
apiVersion: v1
kind: Pod
metadata: {name: web}
spec: {containers: [{name: app, image: app, resources: {requests: {cpu: 1, memory: 1Gi}}}]}
"""


def cpu_seconds(words: list[str], environment: Mapping[str, str]) -> float:
    """CPU time of one run of `koord`, which must succeed."""
    with subprocess.Popen([KOORD, *words], env=environment, stdout=subprocess.DEVNULL) as running:
        _, status, used = os.wait4(running.pid, 0)
        running.returncode = os.waitstatus_to_exitcode(status)
    if running.returncode:
        raise RuntimeError(f"koord {' '.join(words)} ended with status {running.returncode}")
    return used.ru_utime + used.ru_stime


def measure(options: BenchOptions) -> Iterator[Result]:
    """With `--scale`, fewer runs."""
    runs = max(1, round(RUNS * options.scale))
    environment = {name: value for name, value in os.environ.items() if not name.startswith("KOORD_")}
    with tempfile.TemporaryDirectory(prefix="koord-bench-") as folder:
        Path(folder).chmod(0o755)  # Postgres does not run as root
        environment["KOORD_VAR"] = str(Path(folder) / "var")
        subprocess.run([KOORD, "up", "--no-agent"], env=environment, check=True, stdout=subprocess.DEVNULL)
        try:
            subprocess.run([KOORD, "apply", "-f", "-"], env=environment, input=POD, check=True)
            _await_reports(environment)
            for words, target in COMMANDS.items():
                best = min(cpu_seconds(words.split(), environment) for _ in range(runs))
                yield _row(f"koord {words}, CPU", best, target)
        finally:
            subprocess.run([KOORD, "down"], env=environment, check=True, stdout=subprocess.DEVNULL)
    for typed in TYPED:
        asked = {
            **environment,
            "_KOORD_COMPLETE": "complete_bash",
            "COMP_WORDS": typed,
            "COMP_CWORD": str(typed.count(" ")),
        }
        yield _row(f"completion of `{typed}`, CPU", min(cpu_seconds([], asked) for _ in range(runs)), COMPLETION)


def _await_reports(environment: Mapping[str, str]) -> None:
    """Wait until the pod has a node and a usage report, so that all commands have something to show."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        shown = subprocess.run([KOORD, "top", "pod"], env=environment, check=True, stdout=subprocess.PIPE).stdout
        if b"web" in shown:
            return
        time.sleep(1)
    raise RuntimeError("no usage report of the pod within 60 s")


def _row(name: str, seconds: float, target: float) -> Result:
    return Result(name=name, value=seconds, unit="s", target=target, better=Better.LOWER)
