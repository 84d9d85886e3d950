"""One bad object or controller is held apart: what is decided of it waits and is tried again, all else goes on.

    attempt(controller, name, decide) -> what was decided; None: it failed, and nothing of it was decided

What was published of a failing object stays as it is. It is tried again 1 s later, then after 2, 4 ... 300 s, and at
once when it changes. The caller says which errors stand for a bad object by what it wraps.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol, TypeVar

FIRST_DELAY_SECONDS: Final = 1.0
LONGEST_DELAY_SECONDS: Final = 300.0
FORGOTTEN_SECONDS: Final = 600.0
"""A failing object that nobody asks about for so long after it was due does not exist any more."""

T = TypeVar("T")


class Attempt(Protocol):
    """Decides one object of a controller, see `Isolation.attempt`."""

    def __call__(self, controller: str, name: str, decide: Callable[[], T]) -> T | None:
        """What was decided; None: it failed."""
        ...


def directly(controller: str, name: str, decide: Callable[[], T]) -> T | None:
    """An `Attempt` that holds nothing apart: the error is the caller's."""
    del controller, name
    return decide()


class Failure(NamedTuple):
    """One decision that failed.

    name            of the object; "": the controller's whole step
    delay_seconds   until it is tried again, unless it changes before
    is_news         whether it failed for the first time, or when it was due; else it changed meanwhile and still fails
    """

    controller: str
    name: str
    error: Exception
    times: int
    delay_seconds: float
    is_news: bool


@dataclass(slots=True)
class _Standing:
    times: int
    delay: float
    due: float


class Isolation:
    """What fails at present, and when it is tried again. Lives as long as the process: nothing of it is a fact."""

    def __init__(self) -> None:
        self._now = 0.0
        self._standing: dict[tuple[str, str], _Standing] = {}
        self._failures: list[Failure] = []

    def begin(self, now: float) -> None:
        """A round begins. now: seconds"""
        self._now = now
        for key in [key for key, standing in self._standing.items() if now - standing.due > FORGOTTEN_SECONDS]:
            del self._standing[key]

    def attempt(self, controller: str, name: str, decide: Callable[[], T]) -> T | None:
        """What was decided of an object; None when it failed, which is remembered."""
        try:
            decided = decide()
        except Exception as error:  # noqa: BLE001 - whatever is wrong with one object is not the others' business
            self.failed(controller, name, error)
            return None
        self.mended(controller, name)
        return decided

    def failed(self, controller: str, name: str, error: Exception) -> None:
        """A decision failed."""
        standing = self._standing.get((controller, name))
        is_news = standing is None or self._now >= standing.due
        if standing is None:
            standing = self._standing[controller, name] = _Standing(0, 0.0, 0.0)
        if is_news:
            standing.times += 1
            standing.delay = min(standing.delay * 2 or FIRST_DELAY_SECONDS, LONGEST_DELAY_SECONDS)
            standing.due = self._now + standing.delay
        self._failures.append(Failure(controller, name, error, standing.times, standing.delay, is_news))

    def mended(self, controller: str, name: str) -> None:
        """A decision was made; nothing happens when it had not failed."""
        if self._standing:
            self._standing.pop((controller, name), None)

    def is_held(self, controller: str, name: str) -> bool:
        """Whether something failed and is not to be tried yet."""
        standing = self._standing.get((controller, name))
        return standing is not None and self._now < standing.due

    def due(self, *controllers: str) -> set[str]:
        """Names of the controllers' objects that failed and are to be tried again now."""
        return {
            name
            for (controller, name), standing in self._standing.items()
            if controller in controllers and name and self._now >= standing.due
        }

    def failing(self) -> Iterator[tuple[str, str]]:
        """(controller, name) of everything that failed and has not been decided since."""
        yield from self._standing

    def take_failures(self) -> list[Failure]:
        """What failed since this was last asked."""
        failures, self._failures = self._failures, []
        return failures
