"""Counts of pods for the progress bar of the demo, from the types and ids of new events.

No event is decoded. The rules are checked by `invariants`, from the events themselves.
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import NamedTuple

from koordcore.events.envelope import StoredEvent

from koordctl.access.log import OpenLog

KINDS = ("pod", "nodepolicy", "nodestate", "eviction")


class PodCounts(NamedTuple):
    sent: int
    total: int
    placed: int
    evicted: int
    ended: int = 0

    @property
    def pending(self) -> int:
        """Pods that were submitted and are neither placed nor evicted nor ended."""
        return self.sent - self.placed - self.evicted - self.ended


@dataclass(slots=True)
class Tail:
    placed: set[str] = field(default_factory=set[str])  # Uids of placed pods
    released: set[str] = field(default_factory=set[str])  # Uids of pods that were placed and have left their node
    explained: set[str] = field(default_factory=set[str])  # Uids with at least one explanation
    evicted: set[str] = field(default_factory=set[str])  # Uids of pods that were evicted for others
    # Subject tokens (encoded names) of nodes with published batch resources.
    overcommit: set[str] = field(default_factory=set[str])
    devices: set[str] = field(default_factory=set[str])  # Subject tokens of nodes whose devices are published
    suppressions: int = 0  # Number of changes of best-effort quotas
    moved: asyncio.Event = field(default_factory=asyncio.Event)  # Set after each batch

    async def follow(self, log: OpenLog) -> None:
        """Read new events of the log and count pods, until the task is cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._read(log.bus.events.follow(0, kinds=KINDS)))
            group.create_task(self._read(log.bus.explanations.follow(0)))

    async def _read(self, batches: AsyncIterator[list[StoredEvent]]) -> None:
        async for batch in batches:
            for stored in batch:
                self.see(stored)
            self.moved.set()

    def see(self, stored: StoredEvent) -> None:
        match stored.type:
            case "PodPlaced":
                self.placed.add(stored.ref.id)
                self.released.discard(stored.ref.id)
            case "PodReleased":
                self.placed.discard(stored.ref.id)
                self.released.add(stored.ref.id)
            case "PodUnschedulable" | "DecisionAbandoned":
                self.explained.add(stored.ref.id)
            case "PodEvicted":
                self.evicted.add(stored.ref.id)
            case "NodeOvercommitComputed":
                self.overcommit.add(stored.ref.id)
            case "NodeDevicesComputed":
                self.devices.add(stored.ref.id)
            case "BeCpuSuppressed":
                self.suppressions += 1
            case _:
                pass

    def unanswered(self, submitted: int) -> int:
        """Number of submitted pods that were neither placed nor explained nor evicted."""
        return submitted - len(self.placed | self.released | self.explained | self.evicted)

    def counts(self, sent: int, total: int) -> PodCounts:
        """For the progress bar. A pod that was placed again after an eviction counts as placed, not as evicted.

        Args:
            sent: Pods submitted so far.
            total: Pods that will be submitted.
        """
        return PodCounts(
            sent=sent,
            total=total,
            placed=len(self.placed),
            evicted=len(self.evicted - self.placed),
            ended=len(self.released - self.evicted),
        )
