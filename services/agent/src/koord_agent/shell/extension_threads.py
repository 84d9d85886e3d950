"""Threads for the code of installed packages: one for each thing that is registered: what hangs holds up itself.

A round of the agent waits for an answer for a moment only; a thread that is still busy is told of and left alone.
"""

import threading
from collections.abc import Callable
from typing import Any, Final, TypeVar

from koord_agent.domain.extension_points import Point
from koord_agent.domain.extensions import ExtensionFailed, failure

T = TypeVar("T")
CALL_SECONDS: Final = 0.5
"""How long a round waits for an answer."""
LONG_CALL_SECONDS: Final = 10.0
"""The same where nobody else waits, or a runtime is asked to do something."""
_LONG: Final = (Point.HTTP, Point.EVICTION)


class ThreadGuard:
    """See `domain.extensions.Guard`. May be shared by threads; calls of one extension follow each other."""

    def __init__(self, *, call_seconds: float = CALL_SECONDS, long_call_seconds: float = LONG_CALL_SECONDS) -> None:
        self._call_seconds = call_seconds
        self._long_call_seconds = long_call_seconds
        self._workers: dict[tuple[Point, str], _Worker] = {}
        self._lock = threading.Lock()

    def call(self, point: Point, name: str, function: Callable[[], T]) -> T:
        """See `Guard.call`."""
        worker = self._worker(point, name)
        seconds = self._long_call_seconds if point in _LONG else self._call_seconds
        if not worker.begin(function):
            raise ExtensionFailed(f"{point} {name}: still busy with an earlier call")
        if not worker.wait(seconds):
            raise ExtensionFailed(f"{point} {name}: no answer within {seconds:g} s")
        return worker.take()

    def poll(self, point: Point, name: str, function: Callable[[], T], *, due: bool) -> T | None:
        """See `Guard.poll`."""
        worker = self._worker(point, name)
        try:
            return worker.take() if worker.is_done else None
        finally:
            if due and not worker.begin(function):
                raise ExtensionFailed(f"{point} {name}: still busy with an earlier call")

    def _worker(self, point: Point, name: str) -> "_Worker":
        with self._lock:
            worker = self._workers.get((point, name))
            if worker is None:
                worker = self._workers[point, name] = _Worker(point, name)
            return worker


class _Worker:
    """A thread that makes one call at a time. It ends with the process."""

    def __init__(self, point: Point, name: str) -> None:
        self._point = point
        self._name = name
        self._call: Callable[[], Any] | None = None
        self._result: Any = None
        self._failed: str = ""
        self._busy = False
        self._is_answered = False
        self._changed = threading.Condition()
        threading.Thread(target=self._run, name=f"{point} {name}", daemon=True).start()

    @property
    def is_done(self) -> bool:
        """Whether an answer waits to be taken."""
        with self._changed:
            return self._is_answered

    def begin(self, call: Callable[[], Any]) -> bool:
        """Make a call, an answer that nobody took is dropped; False while an earlier one goes on."""
        with self._changed:
            if self._busy:
                return False
            self._call, self._busy, self._is_answered = call, True, False
            self._changed.notify_all()
            return True

    def wait(self, seconds: float) -> bool:
        """Whether the answer came in time."""
        with self._changed:
            return self._changed.wait_for(lambda: self._is_answered, seconds)

    def take(self) -> Any:
        """The answer. Raises ExtensionFailed if that is what it is."""
        with self._changed:
            self._is_answered = False
            result, self._result = self._result, None
            if self._failed:
                raise ExtensionFailed(self._failed)
            return result

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._call is not None)
                call, self._call = self._call, None
            assert call is not None, "it waited for one"
            result, failed = None, ""
            try:
                result = call()
            except BaseException as error:  # noqa: BLE001 - sys.exit() of a package ends this call, not the agent
                failed = failure(self._point, self._name, error)
            with self._changed:
                self._result, self._failed = result, failed
                self._busy, self._is_answered = False, True
                self._changed.notify_all()
