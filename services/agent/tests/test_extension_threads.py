"""Code of installed packages that hangs, fails or exits holds up itself and is told; controllers are begun again."""

import asyncio
import contextlib
import threading

import pytest
from koord_agent.domain.extension_points import Point
from koord_agent.domain.extensions import ExtensionFailed, Extensions
from koord_agent.shell.extension_controllers import controller_components
from koord_agent.shell.extension_threads import ThreadGuard
from koordcore.service.logging import logger

LOG = logger("agent")


@pytest.fixture
def guard() -> ThreadGuard:
    return ThreadGuard(call_seconds=0.05, long_call_seconds=10)


def exits() -> None:
    raise SystemExit(3)


def fails() -> None:
    raise ValueError("not today")


def test_what_hangs_is_given_up_and_others_answer_meanwhile(guard: ThreadGuard) -> None:
    go_on = threading.Event()
    with pytest.raises(ExtensionFailed, match="strategy slow: no answer within"):
        guard.call(Point.STRATEGY, "slow", go_on.wait)
    with pytest.raises(ExtensionFailed, match="strategy slow: still busy"):
        guard.call(Point.STRATEGY, "slow", go_on.wait)
    assert guard.call(Point.HTTP, "/quick", lambda: 7) == 7
    go_on.set()


def test_a_late_answer_is_not_taken_for_that_of_the_next_call(guard: ThreadGuard) -> None:
    go_on, ended = threading.Event(), threading.Event()

    def late() -> str:
        go_on.wait()
        ended.set()
        return "late"

    with pytest.raises(ExtensionFailed):
        guard.call(Point.STRATEGY, "slow", late)
    go_on.set()
    ended.wait()
    answers: list[str] = []
    while not answers:  # until its thread has put the late answer down
        with contextlib.suppress(ExtensionFailed):  # still busy
            answers.append(guard.call(Point.STRATEGY, "slow", lambda: "new"))
    assert answers == ["new"]


def test_an_exit_or_an_error_ends_the_call_only(guard: ThreadGuard) -> None:
    with pytest.raises(ExtensionFailed, match="callback out: SystemExit: 3"):
        guard.call(Point.CALLBACK, "out", exits)
    with pytest.raises(ExtensionFailed, match="callback out: ValueError: not today"):
        guard.call(Point.CALLBACK, "out", fails)
    assert guard.call(Point.CALLBACK, "out", lambda: "still there") == "still there"


def test_what_takes_its_time_is_begun_when_due_and_its_answer_given_once(guard: ThreadGuard) -> None:
    go_on, ended = threading.Event(), threading.Event()

    def collect() -> str:
        go_on.wait()
        ended.set()
        return "found"

    assert guard.poll(Point.COLLECTOR, "c", collect, due=True) is None
    assert guard.poll(Point.COLLECTOR, "c", collect, due=False) is None
    with pytest.raises(ExtensionFailed, match="collector c: still busy"):
        guard.poll(Point.COLLECTOR, "c", collect, due=True)
    go_on.set()
    ended.wait()
    found: list[str] = []
    while not found:
        answer = guard.poll(Point.COLLECTOR, "c", collect, due=False)
        found.extend(() if answer is None else (answer,))
    assert found == ["found"]
    assert guard.poll(Point.COLLECTOR, "c", collect, due=False) is None


async def test_a_controller_that_fails_or_ends_is_told_and_begun_again() -> None:
    extensions = Extensions()
    lives: list[int] = []
    third = asyncio.Event()
    ours = asyncio.get_running_loop()

    async def run() -> None:
        lives.append(len(lives))
        match len(lives):
            case 1:
                raise RuntimeError("first")
            case 2:
                raise SystemExit(1)
            case _:
                ours.call_soon_threadsafe(third.set)
                await asyncio.Event().wait()

    extensions.add_controller("c", run)
    (component,) = controller_components(extensions, LOG, first_pause_seconds=0)
    assert component.run is not None
    task = asyncio.ensure_future(component.run())
    await third.wait()
    assert extensions.failures[Point.CONTROLLER, "c"] == 2
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_controller_that_blocks_its_thread_holds_up_nobody() -> None:
    extensions = Extensions()
    blocked, go_on = asyncio.Event(), threading.Event()
    ours = asyncio.get_running_loop()

    async def run() -> None:
        ours.call_soon_threadsafe(blocked.set)
        go_on.wait()

    extensions.add_controller("c", run)
    (component,) = controller_components(extensions, LOG)
    assert component.run is not None
    task = asyncio.ensure_future(component.run())
    await blocked.wait()  # this loop goes on
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    go_on.set()
