"""The last cycle of a node has ended before the agent says farewell."""

import asyncio
import gc
import threading

import pytest
from koord_agent.shell.node import threads
from koord_agent.shell.node.threads import finished_in_thread
from support.until import let_run, until


async def test_a_cancelled_task_waits_for_the_end_of_its_thread() -> None:
    began, go_on, ended = threading.Event(), threading.Event(), threading.Event()

    def cycle() -> None:
        began.set()
        go_on.wait(60)
        ended.set()

    task = asyncio.create_task(finished_in_thread(cycle))
    await until(began.is_set)
    task.cancel()
    await let_run()
    assert not task.done()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended.is_set()


async def test_a_task_that_is_cancelled_again_still_waits_and_a_late_error_is_no_news() -> None:
    forgotten: list[dict[str, object]] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _loop, context: forgotten.append(context))
    began, go_on = threading.Event(), threading.Event()

    def cycle() -> None:
        began.set()
        go_on.wait(60)
        raise ValueError("too late")

    task = asyncio.create_task(finished_in_thread(cycle))
    await until(began.is_set)
    for _ in range(3):
        task.cancel()
        await let_run()
        assert not task.done()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    del task
    gc.collect()
    assert forgotten == []


async def test_a_function_without_a_thread_does_not_run_later(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_room(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    ran: list[str] = []
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", no_room)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            await finished_in_thread(ran.append, "first")
    await finished_in_thread(ran.append, "second")
    await finished_in_thread(ran.append, "third")
    assert ran == ["second", "third"]


async def test_a_thread_that_hangs_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "FINISH_SECONDS", 0.01)
    began, go_on = threading.Event(), threading.Event()

    def hang() -> None:
        began.set()
        go_on.wait(60)

    task = asyncio.create_task(finished_in_thread(hang))
    await until(began.is_set)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    go_on.set()
