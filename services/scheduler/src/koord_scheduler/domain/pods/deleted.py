"""Sequences of pods that were deleted before the fold has reached their last event."""

from typing import Final

_MOST_KEPT: Final = 1024


class DeletedPods:
    """Last sequence of each deleted pod's aggregate, so that a repeated event changes nothing.

    Attributes:
        seqs: Uid -> sequence.
    """

    def __init__(self) -> None:
        self.seqs: dict[str, int] = {}

    def seq_of(self, uid: str) -> int:
        """Return the last known sequence of a deleted pod, 0 if none is known."""
        return self.seqs.get(uid, 0)

    def note(self, uid: str, seq: int) -> None:
        """Remember a sequence unless a later one is known."""
        self.seqs[uid] = max(seq, self.seqs.get(uid, 0))

    def prune(self, position: int) -> None:
        """Forget sequences that the fold has passed, once there are many.

        Args:
            position: Last folded sequence.
        """
        if len(self.seqs) > _MOST_KEPT:
            self.seqs = {uid: seq for uid, seq in self.seqs.items() if seq > position}
