"""Named checks of liveness and readiness for `/healthz` and `/readyz` (`koordcore.service.web.http`).

Liveness fails if a restart would help. Readiness fails if the service does not do its work now. Checks do not wait:
they read a state that another task maintains.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

Check = Callable[[], str | None]  # Function that returns None if everything is well, else the reason in one sentence


@dataclass(frozen=True, slots=True)
class CheckResult:
    name: str
    ok: bool  # Whether it passed
    reason: str  # Why it failed; empty if it passed


class Condition:
    """A readiness check whose result other code sets with `met` and `unmet`. Use: `bus =
    health.readiness_condition("bus", "not connected yet")`, later `bus.met()`.
    """

    __slots__ = ("_reason",)

    def __init__(self, reason: str) -> None:
        self._reason: str | None = reason

    def met(self) -> None:
        """Let this readiness check pass from now on."""
        self._reason = None

    def unmet(self, reason: str) -> None:
        """Let this readiness check fail from now on, with this reason."""
        self._reason = reason

    def __call__(self) -> str | None:
        """Return None if the condition is met, else the reason."""
        return self._reason


LONGEST_INTERVALS: Final = 3  # Intervals of a loop that one piece of its work may take
LEAST_SECONDS: Final = 120.0  # Seconds that a piece of work may take at least, however short the interval is
# How many times as long the first piece of work may take: caches are empty, and a first look may find much to do.
FIRST_FACTOR: Final = 3


class WorkWatch:
    """A liveness check of work that a loop repeats. It fails while one piece of work takes so long that it must hang.
    Use: `watch = health.watch_work("cycle", interval)`, later `with watch:` around each piece of work. Waiting for the
    next piece, for the log or for leadership stays outside, because a restart does not end it.

    Only seconds in which the event loop runs count (`Health.second_passed`). So a machine or a process that sleeps does
    not fail the check. Work that blocks the event loop needs no watch: the probe gets no answer then.

    Args:
        interval: Seconds between two pieces of work, in the time of the host.
    """

    __slots__ = ("_limit", "_seconds", "_usual")

    def __init__(self, interval: float) -> None:
        self._usual = max(LONGEST_INTERVALS * interval, LEAST_SECONDS)
        self._limit = FIRST_FACTOR * self._usual
        self._seconds: float | None = None

    def __enter__(self) -> None:
        self._seconds = 0.0

    def __exit__(self, *_: object) -> None:
        self._seconds, self._limit = None, self._usual

    def pass_seconds(self, seconds: float) -> None:
        """Count seconds towards the present piece of work. No-op between two pieces."""
        if self._seconds is not None:
            self._seconds += seconds

    def __call__(self) -> str | None:
        """Return None if no piece of work takes too long, else the reason."""
        if self._seconds is None or self._seconds <= self._limit:
            return None
        return f"its work has not ended for {self._seconds:.0f} s, and {self._limit:.0f} s are the most"


class Health:
    """The liveness and readiness checks of one process, in the order in which they were added."""

    def __init__(self) -> None:
        self._liveness: dict[str, Check] = {}
        self._readiness: dict[str, Check] = {}
        self._watches: list[WorkWatch] = []

    def add_liveness(self, name: str, check: Check) -> None:
        """Add a check to `/healthz`. The name must be new. The check returns None if it passes, else the reason."""
        _add(self._liveness, name, check)

    def add_readiness(self, name: str, check: Check) -> None:
        """Add a check to `/readyz`. The name must be new. The check returns None if it passes, else the reason."""
        _add(self._readiness, name, check)

    def readiness_condition(self, name: str, reason: str) -> Condition:
        """Add a readiness check whose result other code sets, and return it. At first it fails with this reason."""
        condition = Condition(reason)
        self.add_readiness(name, condition)
        return condition

    def watch_work(self, name: str, interval: float) -> WorkWatch:
        """Add a liveness check of work that a loop repeats, and return it. `interval`: seconds between two pieces of
        work, in the time of the host.
        """
        watch = WorkWatch(interval)
        self._watches.append(watch)
        self.add_liveness(name, watch)
        return watch

    def second_passed(self) -> None:
        """Count a second towards all watched work. The task that watches the event loop calls this each second."""
        for watch in self._watches:
            watch.pass_seconds(1.0)

    def liveness(self) -> list[CheckResult]:
        return [_ask(name, check) for name, check in self._liveness.items()]

    def readiness(self) -> list[CheckResult]:
        return [_ask(name, check) for name, check in self._readiness.items()]

    def is_ready(self) -> bool:
        return all(result.ok for result in self.readiness())


def _add(checks: dict[str, Check], name: str, check: Check) -> None:
    if name in checks:
        raise AssertionError(f"check {name!r} is registered twice")
    checks[name] = check


def _ask(name: str, check: Check) -> CheckResult:
    try:
        reason = check()
    except Exception as error:  # noqa: BLE001  a check that fails is an answer, and the endpoint must not fail with it
        reason = f"the check failed: {type(error).__name__}: {error}"
    return CheckResult(name, reason is None, reason or "")
