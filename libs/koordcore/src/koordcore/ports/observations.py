"""Observations and explanations: streams whose messages may be lost. Adapters in `koordcore.bus`.

Source:
    event-bus spec, 2 (KOORD_OBS, KOORD_EXPLANATIONS), 3.3
"""

from collections.abc import AsyncIterator, Sequence
from typing import Protocol

from koordcore.events.envelope import AggregateRef, Event, Origin, StoredEvent
from koordcore.ports.eventlog import LogHead


class ObservationLog(Protocol):
    """A stream whose messages may be lost: observations or explanations."""

    async def publish(self, ref: AggregateRef, event: Event, origin: Origin) -> None:
        """Publish one message without waiting until it is stored.

        While the server is unavailable, a buffer of limited size keeps the newest messages. A message above the size
        limit is dropped.

        Args:
            ref: Aggregate that the message is about.
            event: Body of the message.
            origin: Writer, cause and basis of the message.
        """
        ...

    async def head(self) -> LogHead:
        """Return the bounds of the stream."""
        ...

    def follow(self, after: int, *, batch: int = 500) -> AsyncIterator[list[StoredEvent]]:
        """Iterate over batches of messages with a sequence above `after`, in order, forever.

        Messages that were already deleted are skipped. A batch has at most `batch` messages.
        """
        ...

    async def latest(self, refs: Sequence[AggregateRef]) -> list[StoredEvent]:
        """Return the newest kept message of each aggregate, in the order of `refs`.

        Aggregates without a message are left out.
        """
        ...
