"""What the log has come to, while the demo runs: counts for the progress bar, taken from types and ids alone.

Nothing is decoded and nothing here decides about invariants: that is `invariants`, from the events themselves.
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import NamedTuple

from koordcore.events.envelope import StoredEvent

from koordctl.access.log import OpenLog

KINDS = ("pod", "nodepolicy", "nodestate", "eviction")


class PodCounts(NamedTuple):
    """Pods by what has become of them."""

    sent: int
    total: int
    placed: int
    evicted: int

    @property
    def pending(self) -> int:
        """Sent, without a place, and still wanting one."""
        return self.sent - self.placed - self.evicted


@dataclass(slots=True)
class Tail:
    """Live counts.

    placed       uids that hold a place
    explained    uids with at least one verdict
    evicted      uids of pods that made room for others, and are gone
    overcommit   subject tokens of nodes whose batch resources were published
    """

    placed: set[str] = field(default_factory=set[str])
    explained: set[str] = field(default_factory=set[str])
    evicted: set[str] = field(default_factory=set[str])
    overcommit: set[str] = field(default_factory=set[str])
    suppressions: int = 0
    moved: asyncio.Event = field(default_factory=asyncio.Event)

    async def follow(self, log: OpenLog) -> None:
        """Counts for ever; cancel to stop."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._read(log.bus.events.follow(0, kinds=KINDS)))
            group.create_task(self._read(log.bus.explanations.follow(0)))

    async def _read(self, batches: AsyncIterator[list[StoredEvent]]) -> None:
        async for batch in batches:
            for stored in batch:
                self.see(stored)
            self.moved.set()

    def see(self, stored: StoredEvent) -> None:
        """Takes one fact or verdict."""
        match stored.type:
            case "PodPlaced":
                self.placed.add(stored.ref.id)
            case "PodReleased":
                self.placed.discard(stored.ref.id)
            case "PodUnschedulable" | "DecisionAbandoned":
                self.explained.add(stored.ref.id)
            case "PodEvicted":
                self.evicted.add(stored.ref.id)
            case "NodeOvercommitComputed":
                self.overcommit.add(stored.ref.id)
            case "BeCpuSuppressed":
                self.suppressions += 1
            case _:
                pass

    def unanswered(self, submitted: int) -> int:
        """How many submitted pods have neither a place nor a verdict, and are not gone."""
        return submitted - len(self.placed | self.explained | self.evicted)

    def counts(self, sent: int, total: int) -> PodCounts:
        """The counts for the progress bar when so many of so many were sent."""
        return PodCounts(sent=sent, total=total, placed=len(self.placed), evicted=len(self.evicted - self.placed))
