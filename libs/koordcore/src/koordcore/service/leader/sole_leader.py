"""Leadership without an election, for a service with one instance. Appends stay safe even if there are several."""

import asyncio

from koordcore.ports.leadership import OnAcquired, OnLost, Term


class SoleLeader:
    """A candidate without an election: it leads from the start until it resigns.

    The port `Leadership` has the methods.
    """

    def __init__(self, holder: str) -> None:
        self._term = Term(holder, 1, 0.0)
        self._resigned = asyncio.Event()

    @property
    def term(self) -> Term | None:
        """See `Leadership.term`."""
        return None if self._resigned.is_set() else self._term

    @property
    def holder(self) -> str | None:
        """See `Leadership.holder`."""
        return None if self._resigned.is_set() else self._term.holder

    def subscribe(self, *, acquired: OnAcquired | None = None, lost: OnLost | None = None) -> None:
        """See `Leadership.subscribe`; the term has begun already and is only lost at the end of the process."""

    async def acquired(self) -> Term:
        """See `Leadership.acquired`."""
        if self._resigned.is_set():
            await asyncio.Event().wait()
        return self._term

    async def lost(self, term: Term) -> str:
        """See `Leadership.lost`."""
        await self._resigned.wait()
        return "resigned"

    async def campaign(self) -> None:
        """See `Leadership.campaign`."""
        await self._resigned.wait()

    def withdraw(self, reason: str) -> None:
        """See `Leadership.withdraw`; no-op, because there is no other candidate."""

    def stand(self) -> None:
        """See `Leadership.stand`; no-op."""

    async def resign(self) -> None:
        """See `Leadership.resign`."""
        self._resigned.set()
