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
        """The only term, from the start of the process until `resign`; then None."""
        return None if self._resigned.is_set() else self._term

    @property
    def holder(self) -> str | None:
        """Name of this process until `resign`; then None."""
        return None if self._resigned.is_set() else self._term.holder

    def subscribe(self, *, acquired: OnAcquired | None = None, lost: OnLost | None = None) -> None:
        """No-op: the only term has begun already, and ends with the process."""

    async def acquired(self) -> Term:
        """Return the term at once. After `resign`, wait forever."""
        if self._resigned.is_set():
            await asyncio.Event().wait()
        return self._term

    async def lost(self, term: Term) -> str:
        """Wait for `resign`, and return "resigned"."""
        await self._resigned.wait()
        return "resigned"

    async def campaign(self) -> None:
        """Wait for `resign`, because there is no other candidate."""
        await self._resigned.wait()

    def withdraw(self, reason: str) -> None:
        """No-op, because there is no other candidate."""

    def stand(self) -> None:
        """No-op, because a sole leader never withdraws."""

    async def resign(self) -> None:
        """End the term."""
        self._resigned.set()
