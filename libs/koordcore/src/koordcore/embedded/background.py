"""Start a program that runs a supervisor, detached from the terminal.

The program that is started calls `Supervisor.run_until_stopped`; this side only waits for the state
file to say ready. It is stopped with `stack.stop_stack`.
"""

import asyncio
import os
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from koordcore.embedded.errors import AlreadyRunningError, StartError
from koordcore.embedded.process import POLL_SECONDS, log_tail
from koordcore.embedded.stack import Phase, Stack, read_stack


async def start_in_background(
    argv: tuple[str, ...],
    *,
    state_file: Path,
    log_file: Path,
    env: Mapping[str, str] | None = None,
    seconds: float = 60.0,
) -> Stack:
    """Start a program that runs a `Supervisor`, detached from the terminal. Wait until its processes are ready.

    If a process was ready and has ended since, the start still succeeds. The returned stack is then DEGRADED, and the
    supervisor restarts the process.

    Args:
        argv: Program and arguments, e.g. (sys.executable, "-m", "koordctl", ...). It must use `state_file`.
        state_file: File in which the supervisor records its processes.
        log_file: File to which the program's stdout and stderr are appended.
        env: Variables that are added to the environment; None: none.
        seconds: Time until the processes must be ready.

    Returns:
        Status of the processes.

    Raises:
        AlreadyRunningError: A live supervisor already uses the state file.
        StartError: The program ended, or was not ready after `seconds` and was told to stop. The message has the
            reason.
    """
    before = read_stack(state_file)
    if before is not None and before.is_live:
        raise AlreadyRunningError(what=f"the stack of {state_file}", pid=before.supervisor.pid)
    daemon = _launch_detached(argv, log_file=log_file, env=env or {})
    deadline = time.monotonic() + seconds
    while True:
        stack = read_stack(state_file)
        ours = stack if stack is not None and stack.supervisor.pid == daemon.pid else None
        if ours is not None and ours.phase in (Phase.READY, Phase.DEGRADED):
            return ours
        if daemon.poll() is not None:
            reason = ours.error if ours is not None and ours.error else f"ended with exit code {daemon.returncode}"
            raise StartError(name="stack", reason=reason, log_file=log_file, log_tail=log_tail(log_file))
        if time.monotonic() > deadline:
            daemon.terminate()
            raise StartError(
                name="stack", reason=f"not ready within {seconds:g} s", log_file=log_file, log_tail=log_tail(log_file)
            )
        await asyncio.sleep(POLL_SECONDS)


def _launch_detached(argv: tuple[str, ...], *, log_file: Path, env: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start a process in its own session, detached from our terminal, and return it."""
    log_file.parent.mkdir(parents=True, exist_ok=True)
    with log_file.open("ab") as log:
        return subprocess.Popen(
            argv,
            env={**os.environ, **env},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
