"""Decides when a table is searched for entries that nobody needs any more. See docs/decisions/0038."""

from typing import Final

_FEWEST: Final = 1024


class Forgetting:
    """Tells the owner of a table when to search it: each time the table has doubled since the last search.

    So the cost of a search, per entry that was added, is constant on average. This holds even if the search finds
    nothing to forget. A table with at most 1024 entries is never searched.
    """

    __slots__ = ("_most",)

    def __init__(self) -> None:
        self._most = _FEWEST

    def is_due(self, entries: int) -> bool:
        """Return whether a table with this number of entries must be searched now."""
        return entries > self._most

    def searched(self, left: int) -> None:
        """Record that the table was searched, and that this number of entries is left."""
        self._most = max(_FEWEST, 2 * left)
