"""Runs a function on a copy of this process, while this process continues.

    fork -> child: low priority, no shared sockets, no signals of the parent -> work -> pipe -> ends without finalizers
         -> parent: reads the pipe in its event loop; kills the child at the deadline

The child has one thread, the one that forked. It must not use the event loop, locks of other threads, or connections.
A pure function of the state needs none of them. The kernel copies only the pages of memory that either side changes.
"""

import asyncio
import contextlib
import ctypes
import gc
import os
import signal
import time
import traceback
from collections.abc import Callable
from typing import Final, NamedTuple, NoReturn

_LIBC: Final = ctypes.CDLL(None, use_errno=True)
_PR_SET_PDEATHSIG: Final = 1
_NICER_BY: Final = 5
"""Increase of the child's nice value: a third of the CPU weight.

At 19, a child on a busy machine lived for up to 46 s. Meanwhile the parent copies each page that it changes. At 5, the
child lived for at most 4 s.
"""
_CHUNK: Final = 1 << 16
_REAP_SECONDS: Final = 0.002
_DONE: Final = b"+"
_FAILED: Final = b"-"


class ForkFailed(Exception):
    """Raised if the forked process ended without a result. The message gives the reason."""


class ForkRaised(ForkFailed):
    """The function raised an exception. The message is its trace. Another attempt would fail in the same way."""


class Forked(NamedTuple):
    """The result of a function that ran on a copy of this process."""

    result: bytes  # What it returned
    pause_seconds: float  # Time in which this process stood still for the fork, in seconds of the host


async def in_fork(work: Callable[[], bytes]) -> Forked:
    """Run a function in a forked copy of this process, at a low priority, and return its result. Other tasks of this
    process continue meanwhile. If the caller is cancelled, for example by a timeout, the forked process is killed.
    `work`: the function. Its changes of memory stay in the copy. Raises ForkRaised: the function raised an exception;
    ForkFailed: The forked process ended without a result, for example because it was killed.
    """
    began = time.monotonic()
    pid, reader = _fork(work)
    pause = time.monotonic() - began
    try:
        received = await _read(reader)
        status = await _reaped(pid)
        pid = 0
    finally:
        os.close(reader)
        if pid:
            os.kill(pid, signal.SIGKILL)
            await _reaped(pid)
    return Forked(_result(received, status), pause)


def in_fork_and_wait(work: Callable[[], bytes]) -> bytes:
    """Run a function in a forked copy of this process, block until it ends, and return its result. Only a forked
    process may call it, because it blocks all tasks. Raises ForkRaised: the function raised an exception; ForkFailed:
    The forked process ended without a result, for example because it was killed.
    """
    pid, reader = _fork(work)
    os.set_blocking(reader, True)
    with open(reader, "rb") as pipe:  # noqa: PTH123
        received = pipe.read()
    return _result(received, os.waitpid(pid, 0)[1])


def _result(received: bytes, status: int) -> bytes:
    code = os.waitstatus_to_exitcode(status)
    if received.startswith(_FAILED):
        raise ForkRaised(received[1:].decode(errors="replace"))
    if code or not received.startswith(_DONE):
        raise ForkFailed(f"it ended with signal {-code}" if code < 0 else f"it ended with status {code}")
    return received[1:]


def _fork(work: Callable[[], bytes]) -> tuple[int, int]:
    """Fork, and return the child's process id and the readable end of its pipe."""
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    parent = os.getpid()
    # A signal between the fork and the reset of the handlers would reach the parent's event loop through its socket.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        pid = os.fork()
        if pid == 0:
            _child(work, writer, parent)
    except OSError:
        os.close(reader)
        raise
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        os.close(writer)
    return pid, reader


def _child(work: Callable[[], bytes], writer: int, parent: int) -> NoReturn:
    status = 1
    try:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        # Without this, a port or connection that the parent closes would stay open until the child ends.
        _close_all_but(writer)
        os.nice(_NICER_BY)
        _end_first_without_memory()
        gc.disable()  # a collection would touch, and so copy, every object
        result = _DONE + work()
        status = 0
    except BaseException:  # noqa: BLE001 - nothing may leave the child except through the pipe
        result = _FAILED + traceback.format_exc().encode()
    try:
        _write(writer, result)
    finally:
        os._exit(status)


def _close_all_but(kept: int) -> None:
    for number in map(int, os.listdir("/proc/self/fd")):  # noqa: PTH208 - names, not paths
        if number > 2 and number != kept:
            with contextlib.suppress(OSError):
                os.close(number)


def _end_first_without_memory() -> None:
    """Let the kernel end this process before others if memory runs out."""
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:  # noqa: PTH123
        file.write("1000")


def _write(writer: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(writer, rest) :]


async def _read(reader: int) -> bytes:
    """Return everything that the child writes until it ends."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()
    parts: list[bytes] = []

    def readable() -> None:
        try:
            part = os.read(reader, _CHUNK)
        except BlockingIOError:
            return
        if part:
            parts.append(part)
        elif not ended.done():
            ended.set_result(None)

    loop.add_reader(reader, readable)
    try:
        await ended
    finally:
        loop.remove_reader(reader)
    return b"".join(parts)


async def _reaped(pid: int) -> int:
    """Wait until the child has ended, and return its wait status."""
    while True:
        found, status = os.waitpid(pid, os.WNOHANG)  # noqa: ASYNC222 - returns at once
        if found:
            return status
        await asyncio.sleep(_REAP_SECONDS)
