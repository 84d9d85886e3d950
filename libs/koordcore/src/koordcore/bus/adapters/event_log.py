"""`EventLog` on JetStream, made of appender, stream reader and follower over one connection.

Source:
    event-bus spec, 3.2, 4
"""

from collections.abc import AsyncIterator, Sequence

from koordcore.bus.client.connection import BusConnection
from koordcore.bus.metrics import NO_METRICS, BusMetrics
from koordcore.bus.names import BusNames
from koordcore.bus.read.follower import Follower
from koordcore.bus.read.follower_settings import DEFAULTS, FollowerSettings
from koordcore.bus.read.stream_reader import StreamReader
from koordcore.bus.write.append import PUBLISH_SECONDS, Appender
from koordcore.events.envelope import AggregateRef, NewEvent, StoredEvent
from koordcore.ports.eventlog import AppendOutcome, LogHead


class JetStreamEventLog:
    """The log of facts of one cluster on NATS: stream `KOORD_EV_<cluster>`.

    The port `EventLog` describes its methods.
    """

    def __init__(
        self,
        connection: BusConnection,
        names: BusNames,
        *,
        metrics: BusMetrics = NO_METRICS,
        follower: FollowerSettings = DEFAULTS,
        publish_seconds: float = PUBLISH_SECONDS,
    ) -> None:
        self._names = names
        self._reader = StreamReader(connection, names.ev, names.prefix("ev"))
        self._appender = Appender(connection, names, self._reader, metrics=metrics, publish_seconds=publish_seconds)
        self._follower = Follower(
            connection,
            stream=names.ev,
            prefix=names.prefix("ev"),
            reader=self._reader,
            metrics=metrics,
            settings=follower,
        )

    async def append(self, events: Sequence[NewEvent], *, deadline: float = 30.0) -> AppendOutcome:
        """See `EventLog.append`."""
        return await self._appender.append(events, deadline)

    async def read_aggregate(self, ref: AggregateRef, *, after: int = 0) -> list[StoredEvent]:
        """See `EventLog.read_aggregate`."""
        return await self._reader.of_subject(self._names.subject("ev", ref), after=after)

    async def last_of(self, ref: AggregateRef) -> StoredEvent | None:
        """See `EventLog.last_of`."""
        return await self._reader.last_of(self._names.subject("ev", ref))

    async def head(self) -> LogHead:
        """See `EventLog.head`."""
        return await self._reader.head()

    def follow(
        self, after: int, *, kinds: Sequence[str] | None = None, batch: int = 500
    ) -> AsyncIterator[list[StoredEvent]]:
        """See `EventLog.follow`."""
        return self._follower.follow(after, kinds=kinds, batch=batch)

    def history(
        self, after: int, upto: int, *, kinds: Sequence[str] | None = None, batch: int = 500
    ) -> AsyncIterator[list[StoredEvent]]:
        """See `EventLog.history`."""
        return self._follower.history(after, upto, kinds=kinds, batch=batch)
