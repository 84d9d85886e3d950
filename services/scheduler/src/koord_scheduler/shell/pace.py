"""The pace of small appends.

An atomic append costs the log server about as much for one fact as for many. So small appends begin at most 50 times a
second, and the decisions made meanwhile share the next one.
"""

import asyncio
from collections.abc import Callable
from typing import Final

BETWEEN_APPENDS_SECONDS: Final = 0.02
"""Minimum time from the start of any append to the start of the next small one."""


class Pace:
    """Tells when the next small append may begin. If none began for 20 ms, the next may begin at once.

    Args:
        due: Called when an append that had to wait may begin.
    """

    def __init__(self, due: Callable[[], None]) -> None:
        self._due = due
        self._next_at = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def began(self) -> None:
        """Record that an append begins."""
        self._next_at = asyncio.get_running_loop().time() + BETWEEN_APPENDS_SECONDS

    def may_begin(self) -> bool:
        """Return whether a small append may begin now. If not, `due` is called when it may."""
        loop = asyncio.get_running_loop()
        if self._timer is None and loop.time() < self._next_at:
            self._timer = loop.call_at(self._next_at, self._is_due)
        return self._timer is None

    def _is_due(self) -> None:
        self._timer = None
        self._due()
