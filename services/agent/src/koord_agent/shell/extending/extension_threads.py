"""Threads for installed packages, one for each extension, so that a blocked extension only blocks itself.

A cycle waits briefly for each answer. A thread that is still busy is reported and left alone.
"""

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, Final, TypeVar

from koord_agent.domain.extending.extension_points import Point
from koord_agent.domain.extending.extensions import ExtensionFailed, NotAsked
from koord_agent.domain.failure import failure

T = TypeVar("T")
CALL_SECONDS: Final = 0.5
"""Time for all calls of an extension in one cycle."""
LONG_CALL_SECONDS: Final = 10.0
"""Time for all evictions of a cycle, and for one HTTP request."""
_LONG: Final = (Point.HTTP, Point.EVICTION)


class ThreadGuard:
    """A `Guard` that calls each extension in a thread of its own, and waits only a limited time for the answer.

    Several threads may use it. While an extension is busy with a call, a further call raises ExtensionFailed.

    Args:
        clock: Returns monotonic seconds.
    """

    def __init__(
        self,
        *,
        call_seconds: float = CALL_SECONDS,
        long_call_seconds: float = LONG_CALL_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._call_seconds = call_seconds
        self._long_call_seconds = long_call_seconds
        self._clock = clock
        self._workers: dict[tuple[Point, str], _Worker] = {}
        self._spent: dict[tuple[Point, str], float] = {}
        self._given_up: set[tuple[Point, str]] = set()
        self._lock = threading.Lock()

    def start_cycle(self) -> None:
        with self._lock:
            self._spent.clear()
            self._given_up.clear()

    def call(self, point: Point, name: str, function: Callable[[], T]) -> T:
        seconds = self._long_call_seconds if point in _LONG else self._call_seconds
        if point is Point.HTTP:  # belongs to no round
            return self._answer(point, name, function, seconds, f"{seconds:g} s")
        with self._lock:
            if (point, name) in self._given_up:
                raise NotAsked(f"{point} {name}: not called again in this cycle")
            left = seconds - self._spent.get((point, name), 0.0)
        begun = self._clock()
        try:
            if left <= 0:
                self._give_up(point, name)
                raise ExtensionFailed(
                    f"{point} {name}: the {seconds:g} s of a cycle are spent, further calls are skipped"
                )
            return self._answer(point, name, function, left, f"the {seconds:g} s of a cycle")
        finally:
            with self._lock:
                self._spent[point, name] = self._spent.get((point, name), 0.0) + self._clock() - begun

    def poll(self, point: Point, name: str, function: Callable[[], T], *, due: bool) -> T | None:
        worker = self._worker(point, name)
        try:
            answer = worker.take()
            return None if answer is None else answer.result()
        finally:
            if due and worker.begin(function, polled=True) is None:
                raise _busy(point, name)

    def _answer(self, point: Point, name: str, function: Callable[[], T], seconds: float, within: str) -> T:
        answer = self._worker(point, name).begin(function)
        if answer is None:
            self._give_up(point, name)
            raise _busy(point, name)
        try:
            return answer.result(seconds)
        except TimeoutError as error:  # of the wait: what the call raises is an ExtensionFailed
            self._give_up(point, name)
            raise ExtensionFailed(f"{point} {name}: no answer within {within}") from error

    def _give_up(self, point: Point, name: str) -> None:
        if point is not Point.HTTP:
            with self._lock:
                self._given_up.add((point, name))

    def _worker(self, point: Point, name: str) -> "_Worker":
        with self._lock:
            worker = self._workers.get((point, name))
            if worker is None:
                try:
                    worker = self._workers[point, name] = _Worker(point, name)
                except RuntimeError as error:  # the machine has no room for another thread; the next call tries again
                    raise ExtensionFailed(f"{point} {name}: {error}") from error
            return worker


class _Worker:
    """A daemon thread that makes one call at a time."""

    def __init__(self, point: Point, name: str) -> None:
        self._point = point
        self._name = name
        self._calls: SimpleQueue[tuple[Callable[[], Any], Future[Any]]] = SimpleQueue()
        self._newest: Future[Any] | None = None
        self._polled: Future[Any] | None = None
        self._lock = threading.Lock()
        threading.Thread(target=self._run, name=f"{point} {name}", daemon=True).start()

    def begin(self, call: Callable[[], T], *, polled: bool = False) -> Future[T] | None:
        """None while an earlier call is running. `take` returns the result of a `polled` call."""
        with self._lock:
            if self._newest is not None and not self._newest.done():
                return None
            answer: Future[T] = Future()
            self._newest = answer
            self._polled = answer if polled else None
            self._calls.put((call, answer))
            return answer

    def take(self) -> Future[Any] | None:
        """The finished future of a polled call, once; None if there is none."""
        with self._lock:
            answer = self._polled
            if answer is None or not answer.done():
                return None
            self._polled = None
            return answer

    def _run(self) -> None:
        while True:
            call, answer = self._calls.get()
            try:
                result = call()
            except BaseException as error:  # noqa: BLE001 - sys.exit() of a package ends this call, not the agent
                answer.set_exception(ExtensionFailed(failure(f"{self._point} {self._name}", error)))
            else:
                answer.set_result(result)
            del call, answer


def _busy(point: Point, name: str) -> ExtensionFailed:
    return ExtensionFailed(f"{point} {name}: still busy with an earlier call")
