"""When a table is searched for entries that nobody needs any more, and the deleted pods. See docs/decisions/0038."""

from typing import Final

_FEWEST: Final = 1024


class Forgetting:
    """Tells the owner of a table when to search it: each time the table has doubled since the last search. So the cost
    of a search, per entry that was added, is constant on average. This holds even if the search finds nothing to
    forget. A table with at most 1024 entries is never searched.
    """

    __slots__ = ("_most",)

    def __init__(self) -> None:
        self._most = _FEWEST

    def is_due(self, entries: int) -> bool:
        return entries > self._most

    def searched(self, left: int) -> None:
        self._most = max(_FEWEST, 2 * left)


class DeletedPods:
    """For each deleted pod, the position of the last event of its aggregate, so that a repeated event has no effect."""

    def __init__(self) -> None:
        self.seqs: dict[str, int] = {}  # Uid -> position in the log
        self._forgetting = Forgetting()

    def seq_of(self, uid: str) -> int:
        """0 if the pod is not recorded as deleted."""
        return self.seqs.get(uid, 0)

    def note(self, uid: str, seq: int) -> None:
        """Store the position `seq` for the pod unless a later one is stored."""
        self.seqs[uid] = max(seq, self.seqs.get(uid, 0))

    def prune(self, position: int) -> None:
        """Remove pods whose last event is folded. No-op until `Forgetting` requires a search. In a what-if run, the
        fold never reaches these events. So a search at each call would find nothing to forget.
        """
        if self._forgetting.is_due(len(self.seqs)):
            self.seqs = {uid: seq for uid, seq in self.seqs.items() if seq > position}
            self._forgetting.searched(len(self.seqs))
