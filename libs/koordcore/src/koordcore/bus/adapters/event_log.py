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
        """Append all events or none. Repeat until the server's answer is known, for at most `deadline` real seconds."""
        return await self._appender.append(events, deadline)

    async def read_aggregate(self, ref: AggregateRef, *, after: int = 0) -> list[StoredEvent]:
        """Return the events of one aggregate with a sequence above `after`, in order.

        The leader of the stream answers.
        """
        return await self._reader.of_subject(self._names.subject("ev", ref), after=after)

    async def last_of(self, ref: AggregateRef) -> StoredEvent | None:
        """Return the newest event of one aggregate; None if it has none. The leader of the stream answers."""
        return await self._reader.last_of(self._names.subject("ev", ref))

    async def head(self) -> LogHead:
        """Return the first and the last sequence of the stream of facts."""
        return await self._reader.head()

    def follow(
        self, after: int, *, kinds: Sequence[str] | None = None, batch: int = 500
    ) -> AsyncIterator[list[StoredEvent]]:
        """Yield batches of all later events forever, through a consumer that is created again after each failure."""
        return self._follower.follow(after, kinds=kinds, batch=batch)

    def history(
        self, after: int, upto: int, *, kinds: Sequence[str] | None = None, batch: int = 500
    ) -> AsyncIterator[list[StoredEvent]]:
        """Yield batches of the events from `after` + 1 to `upto`, and end."""
        return self._follower.history(after, upto, kinds=kinds, batch=batch)
