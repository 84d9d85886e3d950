"""`EventLog` and `ObservationLog` on JetStream.

Facts: appender, stream reader and follower over one connection. Observations and explanations are published without
waiting for storage. While the server is unavailable, a ring buffer keeps the newest ones, which are sent after the
reconnect.

Source: event-bus spec, 2 (KOORD_OBS, KOORD_EXPLANATIONS), 3.2, 3.3, 4, 8 (what is shed first).
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Sequence

from koordcore.bus.client.connection import BusConnection
from koordcore.bus.client.wire import encode_headers, hpub
from koordcore.bus.metrics import NO_METRICS, BusMetrics
from koordcore.bus.names import BusNames
from koordcore.bus.read.feed import DEFAULTS, FollowerSettings
from koordcore.bus.read.follower import Follower
from koordcore.bus.read.stream_reader import StreamReader
from koordcore.bus.setup.streams import LARGEST_RECORD, LARGEST_REPORT
from koordcore.bus.write.append import PUBLISH_SECONDS, Appender
from koordcore.events import CATALOGUE
from koordcore.events.envelope import AggregateRef, Draft, Event, NewEvent, Origin, StoredEvent, without_id
from koordcore.ports.eventlog import AppendOutcome, LogHead


class JetStreamEventLog:
    """The log of facts of one cluster on NATS: stream `KOORD_EV_<cluster>`. The port `EventLog` describes its
    methods.
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
            pushes=f"{names.prefix('push')}>",
            metrics=metrics,
            settings=follower,
        )

    async def append(self, events: Sequence[NewEvent], *, deadline: float = 30.0) -> AppendOutcome:
        """Append all events or none. Repeat until the server's answer is known, for at most `deadline` real seconds."""
        return await self._appender.append(events, deadline)

    async def read_aggregate(self, ref: AggregateRef, *, after: int = 0) -> list[StoredEvent]:
        """Return the events of one aggregate with a sequence above `after`, in order. The leader of the stream
        answers.
        """
        return await self._reader.of_subject(self._names.subject("ev", ref), after=after)

    async def last_of(self, ref: AggregateRef) -> StoredEvent | None:
        return await self._reader.last_of(self._names.subject("ev", ref))

    async def at(self, seq: int) -> StoredEvent | None:
        return await self._follower.at(seq)

    async def head(self) -> LogHead:
        return await self._reader.head()

    def follow(
        self, after: int, *, kinds: Sequence[str] | None = None, batch: int = 500
    ) -> AsyncIterator[list[StoredEvent]]:
        """Yield batches of all later events forever."""
        return self._follower.follow(after, kinds=kinds, batch=batch)

    def history(
        self, after: int, upto: int, *, kinds: Sequence[str] | None = None, batch: int = 500
    ) -> AsyncIterator[list[StoredEvent]]:
        return self._follower.history(after, upto, kinds=kinds, batch=batch)


log = logging.getLogger("koordcore.bus")

RING = 10_000
# If more bytes than this are unsent in the socket, observations wait in the ring, so that facts are sent first.
UNSENT_BYTES = 4 * 1024 * 1024
_LARGEST = {"obs": LARGEST_REPORT, "audit": LARGEST_RECORD}  # Bytes of a message, by class
_READS_AT_ONCE = 32
TELL_SECONDS = 10.0  # Time between two lines about observations that are too large


class JetStreamObservationLog:
    """One NATS stream whose messages may be lost: observations or explanations. The port `ObservationLog` has the
    methods.

    Args:
        class_: "obs", "explanations" or "audit".
        ring: Number of messages that are kept while there is no connection. If it is full, a new message replaces the
            oldest one.
    """

    def __init__(
        self,
        connection: BusConnection,
        names: BusNames,
        class_: str,
        *,
        ring: int = RING,
        metrics: BusMetrics = NO_METRICS,
        follower: FollowerSettings = DEFAULTS,
    ) -> None:
        self._connection = connection
        self._names = names
        self._class = class_
        self._ring: deque[bytes] = deque(maxlen=ring)
        self.dropped = 0
        self._metrics = metrics
        self._too_large = 0  # Since it was told last
        self._told_at = float("-inf")
        stream = names.stream_of(class_)
        self._reader = StreamReader(connection, stream, names.prefix(class_))
        self._follower = Follower(
            connection,
            stream=stream,
            prefix=names.prefix(class_),
            reader=self._reader,
            gaps_are_normal=True,
            metrics=metrics,
            settings=follower,
        )
        connection.on_reconnect(self._send_ring)

    async def publish(self, ref: AggregateRef, event: Event, origin: Origin) -> None:
        """Send one observation without waiting for an answer. The call never blocks, and raises only `InvalidName` (a
        bug). While there is no connection, a ring keeps the newest observations. An observation that is too large for
        the server is dropped.
        """
        new = CATALOGUE.seal([Draft(ref, event, 0)], origin)[0]
        # The server must not compare the id: whoever computes it ahead would keep this observation out of the stream.
        subject, header = self._names.subject(self._class, ref), encode_headers(without_id(new.headers))
        size = len(header) + len(new.body)
        most = self._connection.max_payload
        if size > min(most, _LARGEST.get(self._class, most)):
            self._drop("too-large")
            self._tell_too_large(subject, size)
            return
        command = hpub(subject, "", header, new.body)
        if self._is_open() and not self._ring:
            self._connection.write(command)
            return
        if len(self._ring) == self._ring.maxlen:
            self._drop("away")
        self._ring.append(command)
        self._send_ring()

    def _drop(self, reason: str) -> None:
        self.dropped += 1
        self._metrics.observation_dropped(self._class, reason)

    def _tell_too_large(self, subject: str, size: int) -> None:
        """Log one line at once, and then one in `TELL_SECONDS` with the number since the line before."""
        self._too_large += 1
        now = asyncio.get_running_loop().time()
        if now - self._told_at >= TELL_SECONDS:
            log.warning("observation_too_large subject=%.300s bytes=%d dropped=%d", subject, size, self._too_large)
            self._too_large, self._told_at = 0, now

    async def head(self) -> LogHead:
        return await self._reader.head()

    def follow(self, after: int, *, batch: int = 500) -> AsyncIterator[list[StoredEvent]]:
        """Yield batches of later observations forever.
        Those that the stream has dropped are left out without an error.
        """
        return self._follower.follow(after, batch=batch)

    async def latest(self, refs: Sequence[AggregateRef]) -> list[StoredEvent]:
        gate = asyncio.Semaphore(_READS_AT_ONCE)

        async def newest(ref: AggregateRef) -> StoredEvent | None:
            async with gate:
                return await self._reader.last_of(self._names.subject(self._class, ref))

        found = await asyncio.gather(*(newest(ref) for ref in refs))
        return [event for event in found if event is not None]

    def _send_ring(self) -> None:
        while self._ring and self._is_open():
            self._connection.write(self._ring.popleft())

    def _is_open(self) -> bool:
        return self._connection.is_connected and self._connection.client.pending_data_size < UNSENT_BYTES
