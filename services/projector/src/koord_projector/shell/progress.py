"""Progress of the projector: set by the cycle, read by health, metrics and the API, awaited by live event tails."""

import asyncio
from dataclasses import dataclass, field
from datetime import datetime

from koordcore.service.health import Condition


@dataclass(slots=True, kw_only=True)
class Progress:
    """The progress of one projector.

    Attributes:
        position: Newest fact whose rows are committed.
        occurred_at: Its own time, "" before the first.
        head: Newest fact of the log when it was last asked.
        trouble: Why the fold does not go on, "" when it does.
        ready: Readiness of the fold, in `/readyz`.
    """

    ready: Condition
    position: int = 0
    occurred_at: str = ""
    head: int = 0
    observations: int = 0
    explanations: int = 0
    trouble: str = ""
    rebuild_wanted: asyncio.Event = field(default_factory=asyncio.Event)
    _committed: asyncio.Event = field(default_factory=asyncio.Event)

    def committed(self, position: int, occurred_at: str) -> None:
        """Record a committed transaction with facts up to `position`, and wake live tails."""
        self.position = position
        if occurred_at:
            self.occurred_at = occurred_at
        self.head = max(self.head, position)
        self._committed.set()
        self._committed = asyncio.Event()

    async def news(self) -> None:
        """Wait until the next commit."""
        await self._committed.wait()

    def halt(self, trouble: str) -> None:
        """Record that the fold is halted; rows stay readable."""
        self.trouble = trouble
        self.ready.unmet(trouble)

    def going_on(self) -> None:
        """Record that the fold goes on; it is ready once it has caught up."""
        self.trouble = ""
        self.look()

    def look(self) -> None:
        """Update readiness: the fold is not halted and has reached the newest known fact once."""
        if not self.trouble and self.position >= self.head:
            self.ready.met()

    async def rebuild_wanted_within(self, seconds: float) -> bool:
        """Wait for a request to rebuild, at most so many real seconds; return whether there is one."""
        try:
            async with asyncio.timeout(seconds):
                await self.rebuild_wanted.wait()
        except TimeoutError:
            return False
        return True

    def lag_seconds(self, now: datetime) -> float:
        """Return age of the newest folded event while newer ones wait; 0 when none does or its time cannot be read."""
        if self.position >= self.head or not self.occurred_at:
            return 0.0
        try:
            return max(0.0, (now - datetime.fromisoformat(self.occurred_at)).total_seconds())
        except (ValueError, TypeError):
            return 0.0
