"""Strict order from a checkpoint: the follower of event-bus spec, 3.2, on an ephemeral pull consumer.

Messages reach `_Feed.receive` straight from the parser (no task switch, headers parsed once), are checked for order
there, and wait in a bounded list for the fold. Pull requests overlap, so that the server never idles.

    consumer: ack none, memory, one replica, gone 60 s after its last request
    a gap in consumer sequences, silence, a reconnect, a lost consumer  ->  a new consumer at the last delivered + 1
"""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar, overload

import msgspec
from nats.nuid import NUID

from koordcore.bus.connection import BusConnection, Denied, NoAnswer, NotConnected
from koordcore.bus.metrics import NO_METRICS, BusMetrics
from koordcore.bus.reads import ApiError, StreamReader, patient_api
from koordcore.bus.wire import decode_headers, pub
from koordcore.events.envelope import AggregateRef, DeferredHeaders, StoredEvent
from koordcore.ports.eventlog import HistoryGone, LogHead, Misconfigured

_SECOND = 1_000_000_000


T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowerSettings:
    """Timing of followers, real seconds.

    heartbeat_seconds   the server speaks at least so often while a request is open
    silence_seconds     after so much silence the consumer is made anew
    request_seconds     life of one pull request
    window              messages asked for and not yet taken by the fold, at most
    went_back_seconds   how long a stream may end before the checkpoint before that is an error (a leader catches up)
    """

    heartbeat_seconds: float = 1.0
    silence_seconds: float = 2.5
    request_seconds: float = 10.0
    window: int = 2000
    went_back_seconds: float = 10.0
    inactive_seconds: float = 60.0


DEFAULTS = FollowerSettings()


class _ConsumerConfig(msgspec.Struct, omit_defaults=True):
    name: str
    deliver_policy: str
    opt_start_seq: int
    filter_subjects: list[str]
    inactive_threshold: int
    ack_policy: str = ""
    replay_policy: str = ""
    mem_storage: bool = False
    num_replicas: int = 0
    max_waiting: int = 0


class _CreateConsumer(msgspec.Struct):
    stream_name: str
    config: _ConsumerConfig
    action: str = "create"


class _Created(msgspec.Struct):
    num_pending: int = 0


class _Pull(msgspec.Struct):
    batch: int
    expires: int
    idle_heartbeat: int


_encode = msgspec.json.Encoder().encode
_decode_created = msgspec.json.Decoder(_Created).decode


class Follower:
    """Reads one stream in order. Each call of `follow` or `history` has its own consumer; calls may be concurrent."""

    def __init__(
        self,
        connection: BusConnection,
        *,
        stream: str,
        prefix: str,
        reader: StreamReader,
        gaps_are_normal: bool = False,
        metrics: BusMetrics = NO_METRICS,
        settings: FollowerSettings = DEFAULTS,
    ) -> None:
        self._connection = connection
        self._stream = stream
        self._prefix = prefix
        self._reader = reader
        self._gaps_are_normal = gaps_are_normal
        self._metrics = metrics
        self._settings = settings
        self._nuid = NUID()

    async def follow(
        self, after: int, *, kinds: Sequence[str] | None = None, batch: int = 500
    ) -> AsyncIterator[list[StoredEvent]]:
        """See `EventLog.follow`."""
        async for events in self._batches(after, None, kinds, batch):
            yield events

    async def history(
        self, after: int, upto: int, *, kinds: Sequence[str] | None = None, batch: int = 500
    ) -> AsyncIterator[list[StoredEvent]]:
        """See `EventLog.history`."""
        async for events in self._batches(after, upto, kinds, batch):
            yield events

    async def _batches(
        self, after: int, upto: int | None, kinds: Sequence[str] | None, batch: int
    ) -> AsyncIterator[list[StoredEvent]]:
        position = after
        reconnects = 0
        while upto is None or position < upto:
            # 1. is the history that we need still there?
            head = await self._require_history(position)
            if upto is not None and head.last_seq <= position:
                await asyncio.sleep(_jitter(0.05))
                continue
            # 2. a consumer of our own at the next position
            feed = _Feed(self._connection, self._stream, self._prefix, position, self._settings)
            stop_listening = self._connection.on_reconnect(feed.fail_reconnected)
            try:
                try:
                    await feed.subscribe()
                    pending = await self._create_consumer(feed, position, kinds)
                except (NoAnswer, NotConnected):
                    await asyncio.sleep(_jitter(0.1))
                    continue
                # 3. batches, until something is wrong with the consumer
                if upto is not None and pending == 0:
                    position = await self._passed(position, upto, head)
                    continue
                while True:
                    events = await feed.next_batch(batch)
                    if events is None:
                        break
                    reconnects = 0
                    if upto is not None and events[-1].seq >= upto:
                        wanted = [event for event in events if event.seq <= upto]
                        if wanted:
                            yield wanted
                        return
                    yield events
                    position = events[-1].seq
                    if upto is not None and feed.drained and head.last_seq >= upto:
                        return
                    if upto is not None and feed.drained:
                        break
            finally:
                stop_listening()
                await feed.close()
            if feed.trouble:
                self._metrics.gap(self._stream)
                reconnects += 1
                await asyncio.sleep(_jitter(min(0.02 * 2**reconnects, 1.0)))

    async def _passed(self, position: int, upto: int, head: LogHead) -> int:
        """No event of the wanted kinds up to `head`: the position moves there, or to the end of the history."""
        if head.last_seq >= upto:
            return upto
        await asyncio.sleep(_jitter(0.05))
        return max(position, head.last_seq)

    async def _require_history(self, position: int) -> LogHead:
        """Bounds of the stream once they cover `position`.

        raises    HistoryGone when events after `position` are trimmed, or when the stream ends before it for longer
                  than `went_back_seconds` (it was replaced by another one)
        """
        loop = asyncio.get_running_loop()
        end = loop.time() + self._settings.went_back_seconds
        while True:
            try:
                head = await self._reader.head()
            except NoAnswer:
                if self._connection.is_closed:
                    raise
                continue
            if self._gaps_are_normal:
                return head
            if position + 1 < head.first_seq:
                raise HistoryGone(position, head.first_seq)
            if position <= head.last_seq:
                return head
            if loop.time() >= end:
                raise HistoryGone(position, head.last_seq + 1)
            await asyncio.sleep(0.1)

    async def _create_consumer(self, feed: "_Feed", position: int, kinds: Sequence[str] | None) -> int:
        """Make the consumer and open the first requests; gives the number of messages it has to deliver."""
        name = f"f-{bytes(self._nuid.next()).decode()}"
        filters = [f"{self._prefix}>"] if kinds is None else [f"{self._prefix}{kind}.*" for kind in kinds]
        request = _CreateConsumer(
            self._stream,
            _ConsumerConfig(
                name=name,
                deliver_policy="by_start_sequence",
                opt_start_seq=position + 1,
                filter_subjects=filters,
                inactive_threshold=int(self._settings.inactive_seconds * _SECOND),
                ack_policy="none",
                replay_policy="instant",
                mem_storage=True,
                num_replicas=1,
                max_waiting=64,
            ),
        )
        try:
            data = await patient_api(
                self._connection, f"$JS.API.CONSUMER.CREATE.{self._stream}.{name}", _encode(request), deadline=5
            )
        except ApiError as error:
            # 10148: an attempt whose answer was lost made it; the next round takes a new name.
            if error.err_code in (10148, 10013):
                raise NoAnswer(str(error)) from error
            raise Misconfigured(f"{self._stream}: {error}") from error
        except Denied as error:
            raise Misconfigured(str(error)) from error
        feed.open(name)
        return _decode_created(data).num_pending


class _Feed:
    """One consumer's messages on their way from the parser to the fold."""

    def __init__(
        self, connection: BusConnection, stream: str, prefix: str, after: int, settings: FollowerSettings
    ) -> None:
        self.trouble = ""
        self.drained = False
        self._connection = connection
        self._stream = stream
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self._prefix_size = len(prefix)
        self._expected_consumer_seq = 1
        self._last_seq = after
        self._events: list[StoredEvent] = []
        self._taken = 0
        self._outstanding = 0
        self._heard = self._loop.time()
        self._wake: asyncio.Future[None] | None = None
        self._inbox = connection.client.new_inbox()
        self._subscription: int | None = None
        self._name = ""
        self._last_pending = b""

    async def subscribe(self) -> None:
        """Listen on an inbox of our own: messages of a pull carry their stream subject, not the reply address."""
        if self._connection.is_closed:
            raise NotConnected
        self._subscription = await self._connection.client.subscribe_sink(self._inbox, self._receive)

    def open(self, name: str) -> None:
        """The consumer exists: ask for messages."""
        self._name = name
        self._heard = self._loop.time()
        self._request_more()

    async def close(self) -> None:
        """No more messages wanted; the server forgets the consumer at once if it hears this, else after a minute."""
        if self._subscription is not None:
            await self._connection.client.unsubscribe_sink(self._subscription)
        if self._name:
            with contextlib.suppress(NotConnected):
                self._connection.write(pub(f"$JS.API.CONSUMER.DELETE.{self._stream}.{self._name}", "", b""))

    def fail_reconnected(self) -> None:
        """Requests and perhaps the consumer were lost with the connection."""
        self._fail("reconnected")

    async def next_batch(self, size: int) -> list[StoredEvent] | None:
        """1 to `size` events in order; None when the consumer has to be made anew (all received ones were given)."""
        while not self._events:
            if self.trouble:
                return None
            await self._wait()
        events = self._events
        if len(events) > size:
            self._events = events[size:]
            events = events[:size]
            self.drained = False
        else:
            self._events = []
            self.drained = self._pending_is_zero()
        self._taken += len(events)
        self._request_more()
        return events

    async def _wait(self) -> None:
        quiet_until = self._heard + self._settings.silence_seconds
        now = self._loop.time()
        if now >= quiet_until:
            # Our own process may have been busy: what the socket holds is read before silence is believed.
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            if not self._events and self._loop.time() >= self._heard + self._settings.silence_seconds:
                self._fail(f"silent for {now - self._heard:.1f} s")
            return
        self._wake = self._loop.create_future()
        timer = self._loop.call_at(quiet_until, self._wake_up)
        try:
            await self._wake
        finally:
            timer.cancel()
            self._wake = None

    def _wake_up(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    def _fail(self, reason: str) -> None:
        if not self.trouble:
            self.trouble = reason
        self._wake_up()

    def _pending_is_zero(self) -> bool:
        return self._last_pending == b"0"

    def _request_more(self) -> None:
        """Keep `window` messages asked for or waiting; ask in halves, so that two requests overlap."""
        half = self._settings.window // 2
        room = self._settings.window - self._outstanding - len(self._events)
        if self.trouble or room < half:
            return
        request = _Pull(
            half, int(self._settings.request_seconds * _SECOND), int(self._settings.heartbeat_seconds * _SECOND)
        )
        command = pub(f"$JS.API.CONSUMER.MSG.NEXT.{self._stream}.{self._name}", self._inbox, _encode(request))
        try:
            for _ in range(room // half):
                self._connection.write(command)
                self._outstanding += half
        except NotConnected:
            self._fail("not connected")

    def _receive(self, subject: bytes, reply: bytes, header: bytes, payload: bytes) -> None:
        if self.trouble:
            return
        self._heard = self._loop.time()
        if not reply:
            self._status(header)
            return
        # $JS.ACK.<stream>.<consumer>.<delivered>.<stream seq>.<consumer seq>.<time>.<pending>, since 2.14 also
        # $JS.ACK.<domain>.<account>.<stream>.<consumer>.<delivered>.<stream seq>.<consumer seq>.<time>.<pending>[.x]
        tokens = reply.split(b".")
        at = 5 if len(tokens) == 9 else 7
        seq = int(tokens[at])
        if int(tokens[at + 1]) != self._expected_consumer_seq or seq <= self._last_seq:
            self._fail(f"gap: consumer sequence {tokens[at + 1].decode()}, not {self._expected_consumer_seq}")
            return
        self._expected_consumer_seq += 1
        self._last_seq = seq
        self._outstanding -= 1
        self._last_pending = tokens[at + 3]
        kind, id_ = subject[self._prefix_size :].decode().split(".", 1)
        self._events.append(
            StoredEvent(seq, AggregateRef(kind, id_), EventHeaders(header), payload, int(tokens[at + 2]))
        )
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    def _status(self, block: bytes) -> None:
        """A message about a request: heartbeat, its end, or the consumer's end."""
        headers = decode_headers(block)
        status = headers.get("Status", "")
        if status == "100":
            return
        description = headers.get("Description", "")
        if status == "408" or (status == "409" and "batch completed" in description.lower()):
            self._outstanding -= int(headers.get("Nats-Pending-Messages", "0"))
            self._request_more()
            return
        self._fail(f"{status} {description}".strip())


class EventHeaders(DeferredHeaders):
    """Headers of a stored event, read when the first is asked for: a fold passes its own events over unread."""

    __slots__ = ("_block", "_read")

    def __init__(self, block: bytes) -> None:
        self._block = block
        self._read: dict[str, str] | None = None

    def has_line(self, line: bytes) -> bool:
        """See `DeferredHeaders.has_line`."""
        return line in self._block

    @overload
    def get(self, key: str, default: None = None, /) -> str | None: ...
    @overload
    def get(self, key: str, default: str, /) -> str: ...
    @overload
    def get(self, key: str, default: T, /) -> str | T: ...
    def get(self, key: str, default: object = None, /) -> object:
        """The header, or the default; not the slow way of `Mapping`."""
        return self._headers().get(key, default)

    def __getitem__(self, name: str) -> str:
        return self._headers()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._headers())

    def __len__(self) -> int:
        return len(self._headers())

    def _headers(self) -> dict[str, str]:
        if self._read is None:
            self._read = _event_headers(self._block)
        return self._read


def _event_headers(block: bytes) -> dict[str, str]:
    """The headers; the layout of `wire.encode_headers` is taken the short way."""
    if block[8:10] == b"\r\n":
        try:
            return dict([line.split(": ", 1) for line in block[10:-4].decode().split("\r\n")])  # type: ignore[arg-type]  # pairs
        except ValueError:
            pass
    return decode_headers(block)


def _jitter(seconds: float) -> float:
    return random.uniform(seconds / 2, seconds)  # noqa: S311
