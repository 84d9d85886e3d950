"""Observations and explanations: streams whose messages may be lost. Adapters in `koordcore.bus`.

Source:
    event-bus spec, 2 (KOORD_OBS, KOORD_EXPLANATIONS), 3.3
"""

from collections.abc import AsyncIterator, Sequence
from typing import Protocol

from koordcore.events.envelope import AggregateRef, Event, Origin, StoredEvent
from koordcore.ports.eventlog import LogHead


class ObservationLog(Protocol):
    """One of the lossy streams ("obs" or "explanations"): published without waiting, followed like the log."""

    async def publish(self, ref: AggregateRef, event: Event, origin: Origin) -> None:
        """Publish one message without waiting for storage. While the bus is away, a ring keeps the newest messages.

        What is larger than the bus takes is dropped.
        """
        ...

    async def head(self) -> LogHead:
        """Return bounds of the stream."""
        ...

    def follow(self, after: int, *, batch: int = 500) -> AsyncIterator[list[StoredEvent]]:
        """Return batches in order from after + 1 or from the oldest that is kept; gaps by retention are normal."""
        ...

    async def latest(self, refs: Sequence[AggregateRef]) -> list[StoredEvent]:
        """Return the newest kept message of each aggregate that has one, in the order asked."""
        ...
