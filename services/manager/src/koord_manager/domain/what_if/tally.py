"""How many recorded decisions were recomputed, and how many of them equally."""

from dataclasses import dataclass


@dataclass(slots=True)
class Tally:
    """Decisions in the window.

    Attributes:
        recorded: Recorded decisions.
        anew: Decisions made here.
        same: Recorded decisions with the same result here.
        not_kept: Recorded decisions whose reports or samples are not retained.
    """

    recorded: int = 0
    rerun: int = 0
    same: int = 0
    not_retained: int = 0

    @property
    def explained(self) -> bool:
        """Whether every recorded decision that could be recomputed had the same result."""
        return self.recorded == self.same + self.not_retained
