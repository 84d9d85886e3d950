"""The last cycle of a node has ended before the agent says farewell."""

import asyncio
import threading

import pytest
from koord_agent.shell.node import threads
from koord_agent.shell.node.threads import in_thread
from support.until import until


async def test_a_cancelled_task_waits_for_the_end_of_its_thread() -> None:
    began, go_on, ended = threading.Event(), threading.Event(), threading.Event()

    def cycle() -> None:
        began.set()
        go_on.wait(60)
        ended.set()

    task = asyncio.create_task(in_thread(cycle))
    await until(began.is_set)
    task.cancel()
    await asyncio.wait((task,), timeout=0.05)
    assert not task.done()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended.is_set()


async def test_a_thread_that_hangs_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "FINISH_SECONDS", 0.01)
    began, go_on = threading.Event(), threading.Event()

    def hang() -> None:
        began.set()
        go_on.wait(60)

    task = asyncio.create_task(in_thread(hang))
    await until(began.is_set)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    go_on.set()
