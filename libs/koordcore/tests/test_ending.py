"""Tasks end also if a cancellation is lost, and their exceptions are nobody's."""

import asyncio

import pytest
from koordcore import ending
from koordcore.ending import end_tasks


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ending, "AGAIN_SECONDS", 0.01)


async def deaf(times: int) -> None:
    """Lose so many cancellations, as `asyncio.wait_for` may, and sleep again."""
    while times >= 0:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            times -= 1


async def test_a_task_that_loses_its_cancellation_is_cancelled_again() -> None:
    task = asyncio.create_task(deaf(2))
    await asyncio.sleep(0)
    await end_tasks(task)
    assert task.done()


async def test_tasks_that_failed_or_never_began_are_ended() -> None:
    async def fails() -> None:
        raise ValueError("x")

    failed = asyncio.create_task(fails())
    await asyncio.sleep(0)
    never = asyncio.create_task(asyncio.sleep(3600))
    await end_tasks(failed, never)
    assert (failed.done(), never.cancelled()) == (True, True)


async def test_a_caller_that_is_cancelled_still_waits_for_the_end() -> None:
    task = asyncio.create_task(deaf(3))
    caller = asyncio.create_task(end_tasks(task))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert task.done()
