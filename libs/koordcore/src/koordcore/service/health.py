"""Named checks of liveness and readiness for `/healthz` and `/readyz` (`koordcore.service.web.http`).

Liveness fails if a restart would help. Readiness fails if the service does not do its work now. Checks do not wait:
they read a state that another task maintains.
"""

from collections.abc import Callable
from dataclasses import dataclass

Check = Callable[[], str | None]
"""Function that returns None if everything is well, else the reason in one sentence."""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """Result of one liveness or readiness check.

    Attributes:
        name: Name of the check.
        ok: Whether it passed.
        reason: Why it failed; empty if it passed.
    """

    name: str
    ok: bool
    reason: str


class Condition:
    """A readiness check whose result other code sets with `met` and `unmet`.

    Use: `bus = health.readiness_condition("bus", "not connected yet")`, later `bus.met()`.
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


class Health:
    """The liveness and readiness checks of one process, in the order in which they were added."""

    def __init__(self) -> None:
        self._liveness: dict[str, Check] = {}
        self._readiness: dict[str, Check] = {}

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

    def liveness(self) -> list[CheckResult]:
        """Run every liveness check and return the results in order."""
        return [_ask(name, check) for name, check in self._liveness.items()]

    def readiness(self) -> list[CheckResult]:
        """Run every readiness check and return the results in order."""
        return [_ask(name, check) for name, check in self._readiness.items()]

    def is_ready(self) -> bool:
        """Return whether every readiness check passes."""
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
