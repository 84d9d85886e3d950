"""Count the recorded decisions that were repeated, and those with the recorded result."""

from dataclasses import dataclass


@dataclass(slots=True)
class Tally:
    """Numbers of decisions in the window.

    Attributes:
        recorded: Recorded decisions.
        rerun: Decisions that the re-run made.
        same: Recorded decisions that the re-run made with the same result.
        not_retained: Recorded decisions that were not repeated, because their reports or samples are gone.
    """

    recorded: int = 0
    rerun: int = 0
    same: int = 0
    not_retained: int = 0

    @property
    def explained(self) -> bool:
        """Whether every decision that could be repeated had the recorded result."""
        return self.recorded == self.same + self.not_retained
