"""The check whether this instance leads, and has folded everything that was written before its term."""

import asyncio
from collections.abc import Callable
from typing import Final

from koordcore.bus.client.connection import NoAnswer, NotConnected
from koordcore.bus.folds.runner import FoldRunner
from koordcore.ports.eventlog import EventLog
from koordcore.ports.leadership import Leadership, Term
from koordcore.service.telemetry.logging import Logger

from koord_descheduler.shell.folding import ViewFold

FOLLOWER_SECONDS: Final = 0.5
"""Pause between two checks whether this instance leads, in the host's time."""


class Leading:
    """Tells when this instance may decide."""

    def __init__(self, leadership: Leadership, runner: FoldRunner[ViewFold], log: EventLog, logger: Logger) -> None:
        self._leadership = leadership
        self._runner = runner
        self._log = log
        self._logger = logger
        self._term: Term | None = None
        self._beginnings: list[Callable[[], None]] = []

    def at_each_beginning(self, begin: Callable[[], None]) -> None:
        """Register a function that is called when a term begins, before anybody decides in it.

        The log is folded then up to the head at which the term began.
        """
        self._beginnings.append(begin)

    async def term(self) -> Term:
        """Wait until this instance leads and the log was folded to its head since the term began. Return the term."""
        while True:
            term = await self._leadership.acquired()
            if await self._is_up_to_date(term):
                return term
            await asyncio.sleep(FOLLOWER_SECONDS)

    def is_over(self, term: Term) -> bool:
        return self._leadership.term != term

    async def lost(self, term: Term) -> None:
        await self._leadership.lost(term)

    async def folded(self, seq: int) -> None:
        """Wait until a position of the log is folded, or the fold has halted."""
        await self._runner.reached_or_halted(seq)

    async def _is_up_to_date(self, term: Term) -> bool:
        if self._term == term:
            return self._runner.halted is None
        try:
            head = await self._log.head()
        except (NoAnswer, NotConnected) as error:
            self._logger.warning("log_away", reason=str(error))
            return False
        if await self._runner.reached_or_halted(head.last_seq) is not None:
            return False
        if self._term != term:  # several tasks wait for one term
            for begin in self._beginnings:
                begin()
            self._term = term
        return True
