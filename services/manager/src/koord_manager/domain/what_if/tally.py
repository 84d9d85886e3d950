"""Count the recorded decisions that were repeated, and those with the recorded result."""

from dataclasses import dataclass


@dataclass(slots=True)
class Tally:
    """Numbers of decisions of one kind in the window of a re-run.

    Attributes:
        recorded: Decisions in the recording.
        rerun: Decisions that the re-run made.
        same: Recorded decisions that the re-run made with an equal result.
        not_retained: Recorded decisions that were not repeated, because their reports or samples are gone.
    """

    recorded: int = 0
    rerun: int = 0
    same: int = 0
    not_retained: int = 0

    @property
    def explained(self) -> bool:
        """Whether every recorded decision that could be repeated had the recorded result."""
        return self.recorded == self.same + self.not_retained
