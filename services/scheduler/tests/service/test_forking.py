"""Work on a copy of the process: its result, its failures, and what the process keeps to itself."""

import asyncio
import os
import signal
import socket
import time
from pathlib import Path

import pytest
from koord_scheduler.shell.forking import ForkFailed, ForkRaised, in_fork, in_fork_and_wait
from support.until import until_blocking


async def test_result_comes_back_and_changes_of_memory_stay_in_the_copy() -> None:
    numbers = [1]

    def work() -> bytes:
        numbers.append(2)
        return b"x" * 1_000_000 + bytes(numbers)

    assert (await in_fork(work)).result == b"x" * 1_000_000 + b"\x01\x02"
    assert numbers == [1]


async def test_exception_is_told_with_its_trace() -> None:
    def work() -> bytes:
        raise LookupError("no such thing")

    with pytest.raises(ForkRaised, match="LookupError: no such thing"):
        await in_fork(work)


async def test_killed_child_is_told() -> None:
    def work() -> bytes:
        os.kill(os.getpid(), signal.SIGKILL)
        return b""

    with pytest.raises(ForkFailed, match="signal 9") as failed:
        await in_fork(work)
    assert not isinstance(failed.value, ForkRaised)


async def test_hanging_child_is_killed_at_the_deadline_and_leaves_no_zombie() -> None:
    def work() -> bytes:
        return time.sleep(3600) or b""

    async def asked() -> None:
        await in_fork(work)

    others = _children()
    task = asyncio.create_task(asked())
    await asyncio.sleep(0)
    assert len(_children() - others) == 1
    task.cancel()
    await asyncio.wait({task})
    assert task.cancelled()
    assert _children() == others


async def test_copy_keeps_no_connection_and_has_a_lower_priority() -> None:
    here, there = socket.socketpair()

    def work() -> bytes:
        try:
            os.fstat(here.fileno())
        except OSError:
            return str(os.nice(0)).encode()
        return b"the socket is open"

    with here, there:
        assert (await in_fork(work)).result == str(os.nice(0) + 5).encode()


async def test_loop_runs_while_the_copy_works(tmp_path: Path) -> None:
    end = tmp_path / "end"  # a file, because the copy keeps no pipe

    def work() -> bytes:
        until_blocking(end.exists)
        return b"done"

    asked = asyncio.create_task(in_fork(work))
    for _ in range(10):
        await asyncio.sleep(0.001)
    assert not asked.done()
    end.touch()
    assert (await asked).result == b"done"


async def test_copy_may_fork_again() -> None:
    def work() -> bytes:
        return b"".join(in_fork_and_wait(lambda number=number: bytes([number])) for number in range(3))

    assert (await in_fork(work)).result == b"\x00\x01\x02"


def _children() -> set[int]:
    with open(f"/proc/self/task/{os.getpid()}/children") as file:  # noqa: PTH123
        return set(map(int, file.read().split()))
