"""The pace of small appends: decisions of a moment share one, because each append costs the log server much."""

import asyncio
from collections.abc import Callable
from typing import Final

BETWEEN_APPENDS_SECONDS: Final = 0.02
"""Least time from the begin of an append to the begin of the next small one."""


class Pace:
    """Tells when the next small append may begin. After a pause, one may begin at once.

    Args:
        due: Called when an append may begin that had to wait.
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
