"""How many recorded decisions were taken again, and how many of them alike."""

from dataclasses import dataclass


@dataclass(slots=True)
class Tally:
    """Decisions in the window.

    recorded    that the log has
    anew        that were taken here
    same        recorded ones that were taken here alike
    not_kept    recorded ones that rest on reports or samples that are not kept any more
    """

    recorded: int = 0
    anew: int = 0
    same: int = 0
    not_kept: int = 0

    @property
    def explained(self) -> bool:
        """Whether every recorded decision that could be taken again was taken alike."""
        return self.recorded == self.same + self.not_kept
