"""Buffer of a NATS consumer's messages between the parser of the connection and the follower (event-bus spec, 3.2).

The parser passes messages directly to `Feed`, which checks their order and keeps them in a bounded list. Pull requests
overlap, so that the server never waits for a request. Headers are parsed at the first access.
"""

import asyncio
import contextlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, TypeVar, overload

import msgspec

from koordcore.bus.client.connection import BusConnection, NotConnected
from koordcore.bus.client.wire import decode_headers, pub
from koordcore.events import envelope
from koordcore.events.envelope import AggregateRef, DeferredHeaders, HeaderTexts, StoredEvent
from koordcore.values.override import override

T = TypeVar("T")

_TEXT: Final = r"([ -\[\]-~]*)"  # printable ASCII without the backslash
_SEALED: Final = {
    envelope.HEADER_ID: _TEXT,
    envelope.HEADER_TYPE: _TEXT,
    envelope.HEADER_SCHEMA: "([0-9]{1,9})",
    envelope.HEADER_CAUSATION: _TEXT,
    envelope.HEADER_CORRELATION: _TEXT,
    envelope.HEADER_ACTOR: _TEXT,
    envelope.HEADER_EPOCH: "([0-9]{1,18})",
    envelope.HEADER_OCCURRED_AT: _TEXT,
    envelope.HEADER_BASED_ON: "([0-9]{1,18})",
}
# The headers that `envelope.seal` writes, in its order, and the one that an append adds.
_LAYOUT: Final = re.compile(
    r"NATS/1\.0\r\n"
    + "".join(f"{name}: {value}\r\n" for name, value in _SEALED.items())
    + f"{envelope.HEADER_CONTENT_TYPE}: application/json\r\n"
    + f"(?:{envelope.HEADER_TRACEPARENT}: {_TEXT}\r\n(?:{envelope.HEADER_TRACESTATE}: [^\r\n]*\r\n)?)?"
    + f"(?:{envelope.HEADER_EXPECTED_LAST}: [0-9]*\r\n)?\r\n"
)


class EventHeaders(DeferredHeaders):
    """Headers of an event that a NATS server delivered. They are parsed at the first access. So a fold can recognise
    its own events by their id without parsing.
    """

    __slots__ = ("_block", "_read", "_texts")

    def __init__(self, block: bytes) -> None:
        self._block = block
        self._read: dict[str, str] | None = None
        self._texts: HeaderTexts | None = None

    @override
    def texts(self) -> HeaderTexts | None:
        if self._texts is None and (found := _LAYOUT.fullmatch(self._block.decode("latin-1"))):
            self._texts = HeaderTexts._make(found.groups(""))
        return self._texts

    @override
    def has_line(self, line: bytes) -> bool:
        return line in self._block

    @override
    def parsed(self) -> dict[str, str]:
        if self._read is None:
            self._read = _event_headers(self._block)
        return self._read

    @overload
    def get(self, key: str, default: None = None, /) -> str | None: ...
    @overload
    def get(self, key: str, default: str, /) -> str: ...
    @overload
    def get(self, key: str, default: T, /) -> str | T: ...
    def get(self, key: str, default: object = None, /) -> object:
        return self.parsed().get(key, default)

    def __getitem__(self, name: str) -> str:
        return self.parsed()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.parsed())

    def __len__(self) -> int:
        return len(self.parsed())


def _event_headers(block: bytes) -> dict[str, str]:
    """Parse headers, with a fast path for the layout of `wire.encode_headers`."""
    if block[8:10] == b"\r\n":
        try:
            return dict([line.split(": ", 1) for line in block[10:-4].decode().split("\r\n")])  # type: ignore[arg-type]  # pairs
        except ValueError:
            pass
    return decode_headers(block)


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowerSettings:
    """Limits for reading a stream with a NATS consumer. Times are real seconds."""

    heartbeat_seconds: float = 1.0  # Interval of the server's heartbeats while a request for messages is open
    silence_seconds: float = 2.5  # Time without a message or heartbeat after which the consumer is created again
    request_seconds: float = 10.0  # Lifetime of one request for messages
    window: int = 2000  # Largest number of messages that are requested or buffered
    # If the stream ends before the last delivered event, time until this is an error. A new leader of the stream may
    # need this time to catch up.
    went_back_seconds: float = 10.0
    inactive_seconds: float = 60.0  # Time without a request after which the server deletes the consumer


DEFAULTS = FollowerSettings()


_SECOND = 1_000_000_000


class _Pull(msgspec.Struct):
    batch: int
    expires: int
    idle_heartbeat: int


_encode = msgspec.json.Encoder().encode


class Feed:
    """Buffer between one NATS consumer and the reader of a stream. It requests messages and checks their order.

    Args:
        after: Sequence of the last message that the reader has; an older message is a gap.
    """

    def __init__(
        self, connection: BusConnection, stream: str, prefix: str, after: int, settings: FollowerSettings
    ) -> None:
        self.trouble = ""  # Reason why the consumer must be created again; "" while it works
        self.drained = False  # Whether `next_batch` has returned every message that the server had for the consumer
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
        """Subscribe to a private inbox, to which the server delivers the requested messages."""
        if self._connection.is_closed:
            raise NotConnected
        self._subscription = await self._connection.client.subscribe_sink(self._inbox, self._receive)

    def open(self, name: str) -> None:
        """Request the first messages of the consumer with this name. The consumer must exist."""
        self._name = name
        self._heard = self._loop.time()
        self._request_more()

    async def close(self) -> None:
        """Delete the consumer. If the server does not receive the request, it deletes the consumer after a minute."""
        if self._subscription is not None:
            await self._connection.client.unsubscribe_sink(self._subscription)
        if self._name:
            with contextlib.suppress(NotConnected):
                self._connection.write(pub(f"$JS.API.CONSUMER.DELETE.{self._stream}.{self._name}", "", b""))

    def fail_reconnected(self) -> None:
        """Set `trouble`, because the connection was renewed and open requests for messages are lost."""
        self._fail("reconnected")

    async def next_batch(self, size: int) -> list[StoredEvent] | None:
        """Wait for events and return 1 to `size` of them, in order. Return None if the consumer must be created
        again.
        """
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
        """Keep `window` messages requested or buffered, in two overlapping requests."""
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
        """Handle a status message: a heartbeat, the end of a request, or the end of the consumer."""
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
