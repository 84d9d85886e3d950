"""The pace of small appends.

An atomic append costs the log server about as much for one fact as for many. So small appends begin at most 50 times a
second, and the decisions made meanwhile share the next one. At more than 200 decisions a second, 20 appends are enough.
"""

import asyncio
from collections.abc import Callable
from typing import Final

BETWEEN_APPENDS_SECONDS: Final = 0.02
"""Minimum time from the start of any append to the start of the next small one."""
AFTER_MANY_SECONDS: Final = 0.05
"""The same time after an append of more than `FEW` decisions."""
FEW: Final = 4
"""Most decisions of an append after which the short pause is enough: fewer than 200 decisions a second."""


class Pace:
    """Tells when the next small append may begin. If none began for a while, the next may begin at once.

    Args:
        due: Called when an append that had to wait may begin.
    """

    def __init__(self, due: Callable[[], None]) -> None:
        self._due = due
        self._next_at = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def began(self, decisions: int) -> None:
        """Record that an append with this number of decisions begins. The next small one waits 20 or 50 ms from now."""
        pause = BETWEEN_APPENDS_SECONDS if decisions <= FEW else AFTER_MANY_SECONDS
        self._next_at = asyncio.get_running_loop().time() + pause

    def may_begin(self) -> bool:
        """Return whether a small append may begin now. If False, `due` is called as soon as it may."""
        loop = asyncio.get_running_loop()
        if self._timer is None and loop.time() < self._next_at:
            self._timer = loop.call_at(self._next_at, self._is_due)
        return self._timer is None

    def _is_due(self) -> None:
        self._timer = None
        self._due()
