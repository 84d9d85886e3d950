"""When the main loop runs a cycle, and when it looks for a rise of the load between two cycles."""

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final

LOOKS: Final = 5
"""Parts into which looks divide the time between two cycles."""


class Step(Enum):
    """NOTHING: nothing is due yet."""

    NOTHING = auto()
    LOOK = auto()
    CYCLE = auto()


@dataclass(slots=True)
class CycleTimes:
    """All times are seconds of a monotonic clock."""

    cycle_seconds: float
    due: float  # Time of the next cycle
    is_looking: bool = True  # Whether looks are made
    _look: float = field(default=0.0)

    def seconds_left(self, now: float) -> float:
        """Until the next step; negative if it is late."""
        return (self._look if self._has_look else self.due) - now

    def step(self, now: float) -> Step:
        if now >= self.due:
            return Step.CYCLE
        return Step.LOOK if self._has_look and now >= self._look else Step.NOTHING

    def done(self, step: Step, now: float) -> None:
        """A step ended. A cycle that took long is followed by a rest, not by the cycles that were missed."""
        if step is Step.CYCLE:
            self.due = max(self.due + self.cycle_seconds, now + self.cycle_seconds / 2)
        self._look = now + self.cycle_seconds / LOOKS

    @property
    def _has_look(self) -> bool:
        """A look shortly before a cycle is left out: the cycle sees the same."""
        return self.is_looking and self._look < self.due - self.cycle_seconds / LOOKS / 2
