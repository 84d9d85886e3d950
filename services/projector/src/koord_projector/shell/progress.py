"""Progress of the projector. The cycle sets it; health, metrics, API and live tails read it."""

import asyncio
from dataclasses import dataclass, field
from datetime import datetime

from koordcore.service.health import Condition


@dataclass(slots=True, kw_only=True)
class Progress:
    """The progress of one projector: positions up to which it has folded and archived.

    Its loops set it; health checks, metrics, API and live tails read it.

    Attributes:
        ready: Readiness check of the fold in `/readyz`.
        position: Position of the newest committed fact.
        occurred_at: Time of that fact; "" before the first.
        head: Position of the newest fact of the log at the last check.
        observations: Position up to which observations are archived.
        explanations: Position up to which explanations are archived.
        trouble: Reason why the fold has stopped; "" while it runs.
        rebuild_wanted: Set when an operator requested a rebuild.
        has_folded: Whether this process has had the tables in its own version.
        free_looks: How often in a row no projector folded, while this one stood by for another version.
    """

    ready: Condition
    position: int = 0
    occurred_at: str = ""
    head: int = 0
    observations: int = 0
    explanations: int = 0
    trouble: str = ""
    rebuild_wanted: asyncio.Event = field(default_factory=asyncio.Event)
    has_folded: bool = False
    free_looks: int = 0
    _committed: asyncio.Event = field(default_factory=asyncio.Event)

    def committed(self, position: int, occurred_at: str) -> None:
        """Record a committed transaction with facts up to `position`, and wake tasks that wait in `news`."""
        self.position = position
        if occurred_at:
            self.occurred_at = occurred_at
        self.head = max(self.head, position)
        self._committed.set()
        self._committed = asyncio.Event()

    async def news(self) -> None:
        """Wait until the next transaction with facts is committed."""
        await self._committed.wait()

    def halt(self, trouble: str) -> None:
        """Record that the fold has stopped before an event, with the reason. Rows stay readable."""
        self.trouble = trouble
        self.ready.unmet(trouble)

    def going_on(self) -> None:
        """Record that the fold continues after a halt. It becomes ready when it has reached the head of the log."""
        self.trouble = ""
        self.look()

    def look(self) -> None:
        """Update the readiness check: ready if the fold has not stopped and has reached the newest fact once."""
        if not self.trouble and self.position >= self.head:
            self.ready.met()

    async def rebuild_wanted_within(self, seconds: float) -> bool:
        """Wait up to `seconds` real seconds for an operator's request to rebuild the tables.

        Return whether there is one.
        """
        try:
            async with asyncio.timeout(seconds):
                await self.rebuild_wanted.wait()
        except TimeoutError:
            return False
        return True

    def lag_seconds(self, now: datetime) -> float:
        """Return the age in seconds of the last committed fact if the log has newer facts; else 0.

        It is also 0 if the time of the fact is invalid.
        """
        if self.position >= self.head or not self.occurred_at:
            return 0.0
        try:
            return max(0.0, (now - datetime.fromisoformat(self.occurred_at)).total_seconds())
        except (ValueError, TypeError):
            return 0.0
