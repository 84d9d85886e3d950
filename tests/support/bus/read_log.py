"""A log in memory that remembers where its readers began."""

from collections.abc import AsyncIterator, Sequence

from koordcore.bus.adapters.memory import MemoryEventLog, MemoryLog
from koordcore.events.envelope import StoredEvent


class ReadLog(MemoryEventLog):
    """A log that remembers behind which positions its facts of all kinds were read."""

    def __init__(self, log: MemoryLog) -> None:
        super().__init__(log)
        self.read_from: list[int] = []

    async def history(
        self, after: int, upto: int, *, kinds: Sequence[str] | None = None, batch: int = 500
    ) -> AsyncIterator[list[StoredEvent]]:
        if kinds is None:
            self.read_from.append(after)
        async for found in super().history(after, upto, kinds=kinds, batch=batch):
            yield found
