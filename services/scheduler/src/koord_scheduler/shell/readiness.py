"""Readiness: whether the scheduler may decide pods now, and waiting until it may."""

import asyncio
from typing import Final, Protocol

from koordcore.ports.clock import Clock

from koord_scheduler.shell.publishing import Publisher

MOST_LAG_SECONDS: Final = 5.0
"""Longest lag of the fold, in seconds, at which decisions are taken.

The log would refuse most later ones (event-bus spec, 8).
"""


class Fold(Protocol):
    """The task that applies the events of the log to the scheduler's state, as the main loop sees it.
    `koordcore.bus.folds.runner.FoldRunner` implements it.
    """

    @property
    def halted(self) -> object | None:
        """Return the reason why the fold stopped, such as an event that cannot be decoded; None if it runs."""
        ...

    @property
    def lag_seconds(self) -> float:
        """Return the age in seconds of the oldest event of the log that is not applied to the state."""
        ...

    async def caught_up(self) -> None:
        """Wait until all events that were in the log when the process started are applied to the state."""
        ...

    async def reached(self, seq: int) -> None:
        """Wait until the event at position `seq` of the log is applied to the state."""
        ...


def may_decide(fold: Fold, publisher: Publisher) -> bool:
    """Return True if the scheduler may decide pods now. It may not if the fold has halted or lags, if the log is full,
    or if too many appends are in flight.
    """
    is_behind = fold.halted is not None or fold.lag_seconds > MOST_LAG_SECONDS
    return not (is_behind or publisher.is_full or publisher.is_busy())


async def woken_or_due(wakeup: asyncio.Event, clock: Clock, due: float | None) -> None:
    """Wait until `wakeup` (not cleared here) is set, or `clock` reaches `due` in Unix seconds; None: `wakeup` only."""
    if due is None:
        await wakeup.wait()
        return
    waiting = {asyncio.ensure_future(wakeup.wait()), asyncio.ensure_future(clock.wait_until(due))}
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in waiting:
            task.cancel()
