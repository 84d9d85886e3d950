"""Code of installed packages that hangs, fails or exits holds up itself and is told; controllers are begun again."""

import asyncio
import contextlib
import gc
import threading

import pytest
from koord_agent.domain.extending.extension_points import Point
from koord_agent.domain.extending.extensions import ExtensionFailed, Extensions, NotAsked
from koord_agent.shell.extending.extension_controllers import LONGEST_PAUSE_SECONDS, controller_components
from koord_agent.shell.extending.extension_threads import ThreadGuard
from koordcore.service.telemetry.logging import logger
from support.until import DEADLINE_SECONDS

LOG = logger("agent")


@pytest.fixture
def guard() -> ThreadGuard:
    """A guard for calls that end: it waits for them on the slowest machine, too."""
    return ThreadGuard(call_seconds=DEADLINE_SECONDS, long_call_seconds=DEADLINE_SECONDS)


@pytest.fixture
def hasty() -> ThreadGuard:
    """A guard with a short limit for calls that hang, and that of `guard` for HTTP pages."""
    return ThreadGuard(call_seconds=0.05, long_call_seconds=DEADLINE_SECONDS)


def exits() -> None:
    raise SystemExit(3)


def fails() -> None:
    raise ValueError("not today")


def test_what_hangs_is_given_up_and_others_answer_meanwhile(hasty: ThreadGuard) -> None:
    go_on = threading.Event()
    with pytest.raises(ExtensionFailed, match="strategy slow: no answer within"):
        hasty.call(Point.STRATEGY, "slow", go_on.wait)
    hasty.start_cycle()
    with pytest.raises(ExtensionFailed, match="strategy slow: still busy"):
        hasty.call(Point.STRATEGY, "slow", go_on.wait)
    assert hasty.call(Point.HTTP, "/quick", lambda: 7) == 7
    go_on.set()


def test_a_late_answer_is_not_taken_for_that_of_the_next_call(hasty: ThreadGuard) -> None:
    go_on, ended = threading.Event(), threading.Event()

    def late() -> str:
        go_on.wait()
        ended.set()
        return "late"

    with pytest.raises(ExtensionFailed):
        hasty.call(Point.STRATEGY, "slow", late)
    go_on.set()
    ended.wait()
    answers: list[str] = []
    while not answers:  # until its thread has put the late answer down
        hasty.start_cycle()
        with contextlib.suppress(ExtensionFailed):  # still busy
            answers.append(hasty.call(Point.STRATEGY, "slow", lambda: "new"))
    assert answers == ["new"]


def test_callers_at_once_get_their_own_answers_or_are_refused(guard: ThreadGuard) -> None:
    callers, calls = 4, 300
    wrong: list[tuple[object, object]] = []
    answered: list[int] = []
    together = threading.Barrier(callers)

    def ask(caller: int) -> None:
        together.wait()
        for number in range(calls):
            mine = (caller, number)
            with contextlib.suppress(ExtensionFailed):  # busy with another's
                answer = guard.call(Point.HTTP, "/page", lambda mine=mine: mine)
                answered.append(caller)
                if answer != mine:
                    wrong.append((mine, answer))

    threads = [threading.Thread(target=ask, args=(caller,)) for caller in range(callers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert answered


def test_an_answer_waits_for_its_caller_while_another_asks(guard: ThreadGuard) -> None:
    go_on, begun = threading.Event(), threading.Event()
    answers: list[str] = []

    def first() -> str:
        begun.set()
        go_on.wait()
        return "first"

    caller = threading.Thread(target=lambda: answers.append(guard.call(Point.HTTP, "/page", first)))
    caller.start()
    begun.wait()
    with pytest.raises(ExtensionFailed, match="still busy"):
        guard.call(Point.HTTP, "/page", lambda: "second")
    go_on.set()
    caller.join()
    assert answers == ["first"]


class Takes:
    """A clock that goes on only where an extension works, so many seconds for a call."""

    def __init__(self, seconds: float) -> None:
        self.now = 0.0
        self.calls = 0
        self._seconds = seconds

    def __call__(self) -> float:
        return self.now

    def work(self) -> int:
        self.calls += 1
        self.now += self._seconds
        return self.calls


@pytest.mark.parametrize(
    ("point", "seconds", "asked"),
    [(Point.POD_FILTER, 2 * DEADLINE_SECONDS, 3), (Point.EVICTION, 4 * DEADLINE_SECONDS, 3)],
)
def test_a_round_waits_so_long_for_an_extension_however_often_it_asks(point: Point, seconds: float, asked: int) -> None:
    takes = Takes(seconds)
    guard = ThreadGuard(clock=takes, call_seconds=5 * DEADLINE_SECONDS, long_call_seconds=10 * DEADLINE_SECONDS)
    extensions = Extensions(guard=guard)
    for rounds in (1, 2):
        guard.start_cycle()
        told: list[str] = []
        for _ in range(110):
            try:
                extensions.call(point, "slow", takes.work)
            except NotAsked:
                pass
            except ExtensionFailed as failed:
                told.append(str(failed))
        assert len(told) == 1
        assert "of a cycle are spent" in told[0]
        assert takes.calls == asked * rounds
        assert extensions.failures[point, "slow"] == rounds
        assert guard.call(point, "another", lambda: 7) == 7


def test_what_hangs_is_waited_for_once_in_a_round(hasty: ThreadGuard) -> None:
    go_on = threading.Event()
    extensions = Extensions(guard=hasty)
    for told in ("no answer within the 0.05 s of a cycle", "still busy"):
        hasty.start_cycle()
        with pytest.raises(ExtensionFailed, match=told):
            extensions.call(Point.POLICIES, "hangs", go_on.wait)
        with pytest.raises(NotAsked):
            extensions.call(Point.POLICIES, "hangs", go_on.wait)
    assert extensions.failures[Point.POLICIES, "hangs"] == 2
    go_on.set()


def test_pages_have_no_round_to_spend() -> None:
    takes = Takes(0.9 * DEADLINE_SECONDS)
    guard = ThreadGuard(clock=takes, long_call_seconds=DEADLINE_SECONDS)
    assert [guard.call(Point.HTTP, "/page", takes.work) for _ in range(5)] == [1, 2, 3, 4, 5]


def test_an_exit_or_an_error_ends_the_call_only(guard: ThreadGuard) -> None:
    with pytest.raises(ExtensionFailed, match="callback out: SystemExit: 3"):
        guard.call(Point.CALLBACK, "out", exits)
    guard.start_cycle()
    with pytest.raises(ExtensionFailed, match="callback out: ValueError: not today"):
        guard.call(Point.CALLBACK, "out", fails)
    guard.start_cycle()
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


async def test_a_controller_that_fails_or_ends_is_told_once_and_begun_again(caplog: pytest.LogCaptureFixture) -> None:
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
    del task, component
    gc.collect()
    assert caplog.messages == [], "asyncio has nothing left to tell"


async def test_a_controller_that_ran_for_long_is_begun_again_as_soon_as_at_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    extensions, pauses, now, lives = Extensions(), list[float](), [0.0], [0.5] * 8 + [LONGEST_PAUSE_SECONDS, 0.5]

    async def run() -> None:
        now[0] += lives.pop(0)
        raise RuntimeError

    async def pause(seconds: float) -> None:
        pauses.append(seconds)
        if not lives:
            raise asyncio.CancelledError

    extensions.add_controller("c", run)
    (component,) = controller_components(extensions, LOG, clock=lambda: now[0])
    assert component.run is not None
    monkeypatch.setattr(f"{controller_components.__module__}.sleep", pause)
    with pytest.raises(asyncio.CancelledError):
        await component.run()
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60, 1, 2]


async def test_a_controller_without_a_thread_is_begun_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    extensions, whole = Extensions(), threading.Thread.start
    lives = asyncio.Event()
    ours = asyncio.get_running_loop()

    def no_room(thread: threading.Thread) -> None:
        monkeypatch.setattr(threading.Thread, "start", whole)
        raise RuntimeError("can't start new thread")

    async def run() -> None:
        ours.call_soon_threadsafe(lives.set)
        await asyncio.Event().wait()

    monkeypatch.setattr(threading.Thread, "start", no_room)
    extensions.add_controller("c", run)
    (component,) = controller_components(extensions, LOG, first_pause_seconds=0)
    assert component.run is not None
    task = asyncio.ensure_future(component.run())
    waits = asyncio.ensure_future(lives.wait())
    await asyncio.wait((task, waits), return_when=asyncio.FIRST_COMPLETED)
    assert lives.is_set()
    assert extensions.failures[Point.CONTROLLER, "c"] == 1
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    del task, component
    gc.collect()
    assert caplog.messages == [], "asyncio has nothing left to tell"


def test_an_extension_without_a_thread_fails_and_is_called_again(
    guard: ThreadGuard, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_room(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", no_room)
        with pytest.raises(ExtensionFailed, match="can't start new thread"):
            guard.call(Point.STRATEGY, "s", lambda: 1)
    assert guard.call(Point.STRATEGY, "s", lambda: 1) == 1


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
