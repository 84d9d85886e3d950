"""The work queue of the manager: keys of changed objects, with per-object exponential back-off.

Controllers take keys of objects and compare each object with its policy, whatever event made the key. So a key is
queued once, however often its object changes. The operations have the names of client-go's work queue.

    add -> ready -> take -> forget       the object is up to date
                         -> fail         its decision raised: ready again after 1, 2, 4 ... 300 seconds
                         -> add          decide again in the next cycle

A change of the object (`add`) makes its key ready at once, also during a back-off. The queue is pure: `begin` sets the
time, and nothing of the queue survives a restart.
"""

import heapq
import math
from collections.abc import Callable, Container, Iterable, Iterator
from typing import Final, NamedTuple, TypeVar

FIRST_DELAY_SECONDS: Final = 1.0
LONGEST_DELAY_SECONDS: Final = 300.0

T = TypeVar("T")


class Failure(NamedTuple):
    controller: str
    name: str  # Key of the object, or empty for the controller as a whole
    error: Exception
    retries: int  # Number of failures of the object in a row
    delay_seconds: float  # Time until the next attempt, unless the object changes before
    is_new: bool  # False if the object changed during its back-off and failed again


class _BackOff:
    """Back-off of one key: number of retries, last delay in seconds, and time of the next attempt in seconds."""

    __slots__ = ("delay", "due", "is_failure", "retries")

    def __init__(self) -> None:
        self.retries = 0
        self.delay = 0.0
        self.due = 0.0
        self.is_failure = False


class WorkQueue:
    """Keys of objects that wait for a controller to decide them, first in, first out for each controller.

    A key is a controller and the name of an object. It is *ready* if it can be taken.
    """

    def __init__(
        self,
        first_delay: float = FIRST_DELAY_SECONDS,
        longest_delay: float = LONGEST_DELAY_SECONDS,
        jitter: Callable[[], float] = lambda: 1.0,
    ) -> None:
        """Create an empty queue.

        Args:
            first_delay: Seconds before the first retry; each further delay is twice as long.
            longest_delay: Upper bound of the delay in seconds.
            jitter: Returns a factor by which a delay is multiplied. It is called for each delay.
        """
        self.now = 0.0  # Time of the last `begin` in seconds
        self._first, self._longest, self._jitter = first_delay, longest_delay, jitter
        self._ready: dict[str, dict[str, float]] = {}
        self._due: dict[tuple[str, str], float] = {}
        self._timers: list[tuple[float, str, str]] = []
        self._back_offs: dict[tuple[str, str], _BackOff] = {}
        self._failures: list[Failure] = []
        # Called for each key that is taken, with its controller and the seconds that it was ready; None for no call.
        self.on_take: Callable[[str, float], None] | None = None
        self._adds: dict[str, int] = {}
        self._retries: dict[str, int] = {}

    def begin(self, now: float) -> None:
        """Begin a cycle: set the time in seconds, and make the keys ready whose timer has expired."""
        self.now = now
        while self._timers and self._timers[0][0] <= now:
            due, controller, name = heapq.heappop(self._timers)
            if self._due.get((controller, name)) == due:
                self.add(controller, name)

    def add(self, controller: str, name: str) -> None:
        """Make the key of an object ready for a controller now; no-op if it is ready already."""
        ready = self._ready.get(controller)
        if ready is None:
            ready = self._ready[controller] = {}
        if name not in ready:
            ready[name] = self.now
            self._adds[controller] = self._adds.get(controller, 0) + 1
            if self._due:
                self._due.pop((controller, name), None)

    def add_all(self, controller: str, names: Iterable[str]) -> None:
        """Make the keys of several objects ready for a controller now."""
        for name in names:
            self.add(controller, name)

    def resync(self, controller: str, names: Iterable[str]) -> None:
        """Make all keys of a periodic controller ready, except keys that still wait for a back-off after a failure."""
        for name in names:
            if (controller, name) not in self._due or not self.is_backing_off(controller, name):
                self.add(controller, name)

    def add_after(self, controller: str, name: str, due: float) -> None:
        """Make a key ready at the time `due` in seconds, instead of an earlier timer. No-op if it is ready already."""
        if name not in self._ready.get(controller, ()) and self._due.get((controller, name)) != due:
            self._due[controller, name] = due
            heapq.heappush(self._timers, (due, controller, name))

    def take(self, controller: str, limit: int | None = None, skip: Container[str] = ()) -> list[str]:
        """Remove and return ready keys of a controller, longest waiting first. Keys in `skip` stay in the queue."""
        ready = self._ready.get(controller)
        if not ready:
            return []
        names: list[str] = []
        for name in ready:
            if limit is not None and len(names) >= limit:
                break
            if name not in skip:
                names.append(name)
        for name in names:
            since = ready.pop(name)
            if self.on_take is not None:
                self.on_take(controller, self.now - since if since else 0.0)  # 0: added before the first `begin`
        return names

    def retain(self, controller: str, is_wanted: Callable[[str], bool]) -> None:
        """Remove the ready keys of a controller for which `is_wanted` returns False, without an attempt."""
        ready = self._ready.get(controller, {})
        for name in [name for name in ready if not is_wanted(name)]:
            del ready[name]

    def forget(self, controller: str, name: str) -> None:
        """End the back-off of a key because its object was decided without an error; no-op without a back-off."""
        if self._back_offs:
            self._back_offs.pop((controller, name), None)

    def add_rate_limited(
        self,
        controller: str,
        name: str,
        least_delay: float = 0.0,
        *,
        longest_delay: float = math.inf,
        requeue: bool = True,
    ) -> tuple[int, float, bool]:
        """Make a key ready after its back-off, which doubles with each retry.

        If the object changed during its back-off, the back-off goes on and the attempt does not count as a retry.

        Args:
            least_delay: Lower bound of the delay in seconds.
            longest_delay: Upper bound of the delay in seconds; it takes precedence.
            requeue: If False, start the back-off and do not make the key ready afterwards.

        Returns:
            Number of retries, delay in seconds, and whether this attempt counts as a retry.
        """
        key = (controller, name)
        back_off = self._back_offs.get(key)
        if back_off is None:
            back_off = self._back_offs[key] = _BackOff()
        is_new = self.now >= back_off.due
        if is_new:
            back_off.retries += 1
            back_off.delay = min(back_off.delay * 2 or self._first, self._longest)
            back_off.due = self.now + back_off.delay * self._jitter()
            self._retries[controller] = self._retries.get(controller, 0) + 1
        back_off.due = min(max(back_off.due, self.now + least_delay), self.now + longest_delay)
        if requeue:
            self.add_after(controller, name, back_off.due)
        return back_off.retries, back_off.delay, is_new

    def fail(self, controller: str, name: str, error: Exception) -> None:
        """Record that a decision raised an error, and make its key ready after a back-off.

        If `name` is empty, the controller failed as a whole; then only the back-off is started.
        """
        retries, delay, is_new = self.add_rate_limited(controller, name, requeue=bool(name))
        self._back_offs[controller, name].is_failure = True
        self._failures.append(Failure(controller, name, error, retries, delay, is_new))

    def attempt(self, controller: str, name: str, decide: Callable[[], T]) -> T | None:
        """Call `decide` for a key, and return its result. If it raises, record it with `fail` and return None."""
        try:
            decided = decide()
        except Exception as error:  # noqa: BLE001 - the failure of one object must not stop the others
            self.fail(controller, name, error)
            return None
        self.forget(controller, name)
        return decided

    def is_backing_off(self, controller: str, name: str) -> bool:
        back_off = self._back_offs.get((controller, name))
        return back_off is not None and self.now < back_off.due

    def retry_now(self, controller: str) -> None:
        """Make all keys of a controller ready that have a back-off, because the reason of their failure may be gone."""
        self.add_all(controller, [name for of, name in self._back_offs if of == controller])

    def failing(self) -> Iterator[tuple[str, str]]:
        """Yield (controller, name) of all objects whose last decision raised an error."""
        yield from (key for key, back_off in self._back_offs.items() if back_off.is_failure)

    def take_failures(self) -> list[Failure]:
        failures, self._failures = self._failures, []
        return failures

    def depth(self, controller: str) -> int:
        return len(self._ready.get(controller, ()))

    def longest_wait(self, controller: str) -> float:
        """Return the seconds for which the oldest ready key of a controller has waited, or 0 if no key is ready."""
        ready = self._ready.get(controller)
        return max(0.0, self.now - next(iter(ready.values()))) if ready else 0.0

    def controllers(self) -> Iterator[str]:
        yield from self._adds

    @property
    def is_empty(self) -> bool:
        """Whether no key is ready and no key waits for a timer."""
        return not (self._due or any(self._ready.values()))

    def counts(self, controller: str) -> tuple[int, int]:
        """Return how many keys of a controller were added, and how many attempts were retried."""
        return self._adds.get(controller, 0), self._retries.get(controller, 0)

    @property
    def next_due(self) -> float | None:
        """Time in seconds of the next timer, or None without timers; it may be too early, never too late."""
        while self._timers and self._due.get(self._timers[0][1:]) != self._timers[0][0]:
            heapq.heappop(self._timers)
        return self._timers[0][0] if self._timers else None
