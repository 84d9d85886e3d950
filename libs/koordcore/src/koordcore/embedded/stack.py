"""What runs in a stack, as a value and as the state file `stack.json`.

The `supervisor` writes the file; another process (`koord get`, `koord down`) reads it here and finds
and stops the stack. Processes are recorded with their start times, so a recycled pid is never signalled.
"""

import asyncio
import fcntl
import os
import signal
import time
from enum import StrEnum
from pathlib import Path
from typing import IO

import msgspec

from koordcore.embedded.errors import AlreadyRunningError, EmbeddedError
from koordcore.embedded.identity import ProcessIdentity, is_alive, send_signal
from koordcore.embedded.process import POLL_SECONDS

STATE_VERSION = 1


class Phase(StrEnum):
    """Phases of the life of a stack."""

    STARTING = "starting"
    READY = "ready"
    DEGRADED = "degraded"
    """Was ready; at least one process is down and being restarted, or was given up."""
    STOPPING = "stopping"
    STOPPED = "stopped"
    FAILED = "failed"
    """The start failed; `error` says why."""


class ProcessState(StrEnum):
    """States of the life of one process."""

    WAITING = "waiting"
    """For the processes that it comes after."""
    STARTING = "starting"
    READY = "ready"
    BACKING_OFF = "backing-off"
    """Ended by itself; restarted when its delay is over."""
    GIVEN_UP = "given-up"
    """Ended by itself and is not restarted."""
    STOPPED = "stopped"


class ProcessStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One process of the stack.

    Attributes:
        process: None before the first start.
        restarts: Starts after the first, since the stack came up.
        last_exit: Exit code of the previous run, negative for a signal; None: never ended.
        last_words: The last error in the log of that run, in one line; empty: none was found.
        stop_signal: How to stop it, for who stops orphans.
        stop_seconds: How to stop it, for who stops orphans.
    """

    name: str
    state: ProcessState
    process: ProcessIdentity | None = None
    restarts: int = 0
    last_exit: int | None = None
    last_words: str = ""
    ports: dict[str, int] = {}
    urls: dict[str, str] = {}
    log_file: str | None = None
    stop_signal: int = int(signal.SIGTERM)
    stop_seconds: float = 10.0


class Stack(msgspec.Struct, frozen=True, kw_only=True):
    """The whole stack at one moment; processes in the order of their declaration."""

    phase: Phase
    supervisor: ProcessIdentity
    processes: tuple[ProcessStatus, ...] = ()
    error: str = ""
    version: int = STATE_VERSION

    @property
    def is_live(self) -> bool:
        """Whether the supervisor still runs."""
        return is_alive(self.supervisor)

    @property
    def orphans(self) -> tuple[ProcessStatus, ...]:
        """Processes that outlived their supervisor."""
        if self.is_live:
            return ()
        return tuple(status for status in self.processes if status.process is not None and is_alive(status.process))

    def find(self, name: str) -> ProcessStatus | None:
        """Return the process of that name."""
        return next((status for status in self.processes if status.name == name), None)


def write_stack(state_file: Path, stack: Stack) -> None:
    """Replace the state file; a reader sees the old or the new one, never half of it. Mode 0600."""
    state_file.parent.mkdir(parents=True, exist_ok=True)
    fresh = state_file.with_name(state_file.name + ".new")
    fresh.touch(mode=0o600)
    fresh.write_bytes(msgspec.json.format(msgspec.json.encode(stack), indent=2))
    fresh.replace(state_file)


def read_stack(state_file: Path) -> Stack | None:
    """Return the recorded stack, live or not; None when there is no file.

    Raises:
        EmbeddedError: The file is not of this version.
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
    """Remove the state file, if there is one."""
    state_file.unlink(missing_ok=True)


class StackLock:
    """Held by the one live supervisor of a state file; the kernel releases it when that process ends in any way."""

    def __init__(self, state_file: Path) -> None:
        self._state_file = state_file
        self._file: IO[bytes] | None = None

    @property
    def is_held(self) -> bool:
        """Whether this object holds the lock."""
        return self._file is not None

    def acquire(self) -> None:
        """Take the lock.

        Raises:
            AlreadyRunningError: Naming the live supervisor.
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
        """Give the lock back."""
        if self._file is not None:
            self._file.close()
            self._file = None


async def stop_stack(state_file: Path, *, seconds: float = 60.0) -> bool:
    """Stop the recorded stack from another process and remove its file; False when nothing ran.

    A live supervisor is asked to stop and does it in order; it is killed after `seconds`. Orphans of a
    dead one are stopped one by one in reverse order.
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
    """Stop what outlived a dead supervisor, in reverse order; whether there was anything."""
    orphans = stack.orphans
    for orphan in reversed(orphans):
        assert orphan.process is not None, "an orphan was started once"
        await _stop_process(orphan.process, signal.Signals(orphan.stop_signal), orphan.stop_seconds)
    return bool(orphans)


async def _stop_process(process: ProcessIdentity, number: signal.Signals, seconds: float) -> None:
    """Signal, wait, kill. The process is not our child, so its end is seen by looking."""
    send_signal(process, number)
    deadline = time.monotonic() + seconds
    while is_alive(process):
        if time.monotonic() > deadline:
            send_signal(process, signal.SIGKILL)
            deadline = float("inf")
        await asyncio.sleep(POLL_SECONDS)
