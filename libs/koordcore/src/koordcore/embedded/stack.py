"""Status of the processes of a stack, as a value and as the state file `stack.json`, and the start of a stack.

The `supervisor` writes the file. Another process, such as `koord down`, reads it to find and stop the stack. The file
has the start time of each process, so a reused pid is never signalled. A stack in the background is a detached program
that calls `Supervisor.run_until_stopped`; who started it waits until the file says ready.
"""

from __future__ import annotations

import fcntl
import os
import signal
import time
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import IO, TYPE_CHECKING

import msgspec

from koordcore.embedded.errors import AlreadyRunningError, EmbeddedError, StartError
from koordcore.embedded.identity import ProcessIdentity, is_alive, send_signal

if TYPE_CHECKING:
    import subprocess

STATE_VERSION = 1


class Phase(StrEnum):
    """Phases in the life of a stack: the processes that one supervisor runs."""

    STARTING = "starting"  # Not all processes are ready yet
    READY = "ready"  # All processes are ready
    DEGRADED = "degraded"  # The stack was ready. Now at least one process is being restarted or was given up.
    STOPPING = "stopping"  # The supervisor is stopping the processes
    STOPPED = "stopped"  # All processes were stopped
    FAILED = "failed"  # The start failed. The field `error` of `Stack` has the reason.


class ProcessState(StrEnum):
    WAITING = "waiting"  # Waits for processes that must be ready first
    STARTING = "starting"  # Runs and is not ready yet
    READY = "ready"  # Runs, and its readiness check has succeeded
    BACKING_OFF = "backing-off"  # Ended by itself, and will be restarted after a delay
    GIVEN_UP = "given-up"  # Ended by itself, and will not be restarted
    STOPPED = "stopped"  # The supervisor has stopped it


class ProcessStatus(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    state: ProcessState  # State in its life
    process: ProcessIdentity | None = None  # Identity of the running process. None before the first start.
    restarts: int = 0  # Number of restarts since the stack was started
    last_exit: int | None = None  # Exit code of the previous run, negative for a signal. None if no run has ended.
    last_words: str = ""  # Last error in the log of the previous run as one line; empty if none was found
    ports: dict[str, int] = {}  # Name -> port that the process serves
    urls: dict[str, str] = {}  # Name -> URL that the process serves
    log_file: str | None = None  # Path of its log; None for none
    stop_signal: int = int(signal.SIGTERM)  # Signal with which the process is stopped if its supervisor has ended
    stop_seconds: float = 10.0  # In this case, time after `stop_signal` until it is killed


class Stack(msgspec.Struct, frozen=True, kw_only=True):
    """Status of a stack (the processes that one supervisor runs) at one moment; the content of the state file."""

    phase: Phase  # Phase in its life
    supervisor: ProcessIdentity  # Identity of the process that runs the supervisor
    processes: tuple[ProcessStatus, ...] = ()  # Processes in the order of their declaration
    error: str = ""  # Why the start of the stack failed; "" if it did not fail
    version: int = STATE_VERSION

    @property
    def is_live(self) -> bool:
        """Whether the supervisor of the stack still runs."""
        return is_alive(self.supervisor)

    @property
    def orphans(self) -> tuple[ProcessStatus, ...]:
        """Processes that still run although their supervisor has ended."""
        if self.is_live:
            return ()
        return tuple(status for status in self.processes if status.process is not None and is_alive(status.process))

    def as_seen(self) -> Stack:
        """Return the stack with the states that its processes have now. A supervisor cannot write the state file while
        the disk is full. So a process that has ended may be recorded as ready; it will be restarted.
        """
        if not self.is_live:
            return self
        seen = tuple(
            msgspec.structs.replace(status, state=ProcessState.BACKING_OFF)
            if status.state is ProcessState.READY and status.process is not None and not is_alive(status.process)
            else status
            for status in self.processes
        )
        phase = Phase.DEGRADED if self.phase is Phase.READY and seen != self.processes else self.phase
        return msgspec.structs.replace(self, processes=seen, phase=phase)

    def find(self, name: str) -> ProcessStatus | None:
        return next((status for status in self.processes if status.name == name), None)


def write_stack(state_file: Path, stack: Stack) -> None:
    """Write the status of a stack to its state file, atomically and with mode 0600.

    Raises:
        OSError: It cannot be written, for example because the disk is full. The file keeps its earlier content.
    """
    state_file.parent.mkdir(parents=True, exist_ok=True)
    fresh = state_file.with_name(state_file.name + ".new")
    fresh.touch(mode=0o600)
    try:
        fresh.write_bytes(msgspec.json.format(msgspec.json.encode(stack), indent=2))
        fresh.replace(state_file)
    except OSError:
        fresh.unlink(missing_ok=True)
        raise


def read_stack(state_file: Path) -> Stack | None:
    """Return the recorded stack, even if its supervisor has ended; None if the file does not exist.

    Raises:
        EmbeddedError: Another version has written the file.
    """
    try:
        content = state_file.read_bytes()
    except FileNotFoundError:
        return None
    try:
        stack = msgspec.json.decode(content, type=Stack)
    except msgspec.DecodeError as error:
        raise EmbeddedError(f"{state_file} is not a stack state file: {error}") from error
    if stack.version != STATE_VERSION:
        raise EmbeddedError(f"{state_file} has version {stack.version}; this program knows {STATE_VERSION}")
    return stack


def forget_stack(state_file: Path) -> None:
    """Delete the state file. No-op if it does not exist."""
    state_file.unlink(missing_ok=True)


class StackLock:
    """Lock on a state file that its supervisor holds, so that only one supervisor uses the file. The kernel releases
    the lock when the process ends, even by a kill.
    """

    def __init__(self, state_file: Path) -> None:
        self._state_file = state_file
        self._file: IO[bytes] | None = None

    @property
    def is_held(self) -> bool:
        return self._file is not None

    def acquire(self) -> None:
        """Take the lock.

        Raises:
            AlreadyRunningError: A live supervisor holds the lock. The message names it.
        """
        assert self._file is None, "a stack is started once at a time"
        self._state_file.parent.mkdir(parents=True, exist_ok=True)
        file = self._state_file.with_name(self._state_file.name + ".lock").open("ab")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            file.close()
            running = read_stack(self._state_file)
            pid = 0 if running is None else running.supervisor.pid
            raise AlreadyRunningError(what=f"the stack of {self._state_file}", pid=pid) from error
        self._file = file

    def release(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


async def stop_stack(state_file: Path, *, seconds: float = 60.0) -> bool:
    """Stop the stack of a state file from another process, and remove the file. A live supervisor gets the stop signal
    and stops its processes in reverse order. It is killed after `seconds`. Then processes that outlived their
    supervisor are stopped in reverse order.

    Returns:
        False if nothing ran.
    """
    stack = read_stack(state_file)
    if stack is None:
        return False
    assert stack.supervisor.pid != os.getpid(), "a supervisor stops itself by stop()"
    ran = stack.is_live
    if ran:
        await _stop_process(stack.supervisor, signal.SIGTERM, seconds)
        stack = read_stack(state_file) or stack
    ran = await stop_orphans(stack) or ran
    forget_stack(state_file)
    return ran


async def stop_orphans(stack: Stack) -> bool:
    """Stop the processes that still run although their supervisor has ended, in reverse order.

    Returns:
        False if there were none.
    """
    orphans = stack.orphans
    for orphan in reversed(orphans):
        assert orphan.process is not None, "an orphan was started once"
        await _stop_process(orphan.process, signal.Signals(orphan.stop_signal), orphan.stop_seconds)
    return bool(orphans)


async def _stop_process(process: ProcessIdentity, number: signal.Signals, seconds: float) -> None:
    """Send a signal, wait, then kill. The end is detected by polling, because it is not our child."""
    import asyncio

    from koordcore.embedded.process import POLL_SECONDS

    send_signal(process, number)
    deadline = time.monotonic() + seconds
    while is_alive(process):
        if time.monotonic() > deadline:
            send_signal(process, signal.SIGKILL)
            deadline = float("inf")
        await asyncio.sleep(POLL_SECONDS)


async def start_in_background(
    argv: tuple[str, ...],
    *,
    state_file: Path,
    log_file: Path,
    env: Mapping[str, str] | None = None,
    seconds: float = 60.0,
) -> Stack:
    """Start a program that runs a `Supervisor`, detached from the terminal. Wait until its processes are ready. If a
    process was ready and has ended since, the start still succeeds. The returned stack is then DEGRADED, and the
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
    import asyncio

    from koordcore.embedded.process import POLL_SECONDS, log_tail

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
            raise StartError(
                name="stack",
                reason=reason,
                log_file=log_file,
                log_tail=log_tail(log_file),
                exit_status=max(1, daemon.returncode),
            )
        if time.monotonic() > deadline:
            daemon.terminate()
            raise StartError(
                name="stack", reason=f"not ready within {seconds:g} s", log_file=log_file, log_tail=log_tail(log_file)
            )
        await asyncio.sleep(POLL_SECONDS)


def _launch_detached(argv: tuple[str, ...], *, log_file: Path, env: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start a process in its own session, detached from our terminal, and return it."""
    import subprocess

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
