"""Observations and explanations: streams whose messages may be lost. Adapters in `koordcore.bus`.

Source:
    event-bus spec, 2 (KOORD_OBS, KOORD_EXPLANATIONS), 3.3
"""

from collections.abc import AsyncIterator, Sequence
from typing import Protocol

from koordcore.events.envelope import AggregateRef, Event, Origin, StoredEvent
from koordcore.ports.eventlog import LogHead


class ObservationLog(Protocol):
    """A stream whose messages may be lost ("obs" or "explanations"); publishing does not wait."""

    async def publish(self, ref: AggregateRef, event: Event, origin: Origin) -> None:
        """Publish one message without waiting for storage.

        While the server is unavailable, a ring keeps the newest messages. Messages that exceed the size limit are
        dropped.
        """
        ...

    async def head(self) -> LogHead:
        """Return bounds of the stream."""
        ...

    def follow(self, after: int, *, batch: int = 500) -> AsyncIterator[list[StoredEvent]]:
        """Iterate over batches in order from `after` + 1 or the oldest kept message.

        Trimmed messages are skipped.
        """
        ...

    async def latest(self, refs: Sequence[AggregateRef]) -> list[StoredEvent]:
        """Return the newest kept message of each aggregate that has one, in the order of `refs`."""
        ...
