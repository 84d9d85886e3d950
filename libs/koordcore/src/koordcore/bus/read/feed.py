"""Buffer of messages between the parser of the connection and the follower (event-bus spec, 3.2).

`Feed` requests messages in batches of direct gets, and asks for the next batch before the last one is used up. The
parser passes messages directly to it. It checks their positions and keeps them in a bounded list. At the end of the
stream, it asks again whenever the server republishes a message, and from time to time.

No consumer is made: whoever may make one may let the server write to any subject (decision 0044).
"""

import asyncio
import itertools
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from koordcore.bus.client.connection import BusConnection, Denied, NotConnected
from koordcore.bus.client.wire import Reply, decode_headers, pub
from koordcore.bus.read.event_headers import EventHeaders
from koordcore.bus.read.stream_reader import nanoseconds
from koordcore.events import envelope
from koordcore.events.envelope import AggregateRef, StoredEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowerSettings:
    """Limits for reading a stream with batches of direct gets. Times are real seconds."""

    window: int = 2000  # Largest number of messages that are requested or buffered
    batch_bytes: int = 4 * 1024 * 1024  # Size after which the server ends a batch
    silence_seconds: float = 2.5  # Time without an answer after which a batch is requested again
    # If the stream ends before the last delivered event, time until this is an error. A new leader of the stream may
    # need this time to catch up.
    went_back_seconds: float = 10.0
    # Time after which it is an error that no server can read a message that the leader must have.
    unreadable_seconds: float = 3.0
    idle_seconds: float = 5.0  # Time without a message after which the leader is asked whether it has later ones
    compare_seconds: float = 60.0  # Time after which the last event is compared with the stream again


DEFAULTS = FollowerSettings()

_OWN: Final = b"Nats-Stream: "  # First of the six headers that the server adds behind the stored ones
_STREAM_AT, _SUBJECT_AT, _SEQ_AT = len(_OWN), len("Nats-Subject: "), len("Nats-Sequence: ")
_TIME_AT: Final = len("Nats-Time-Stamp: ")
_SECOND_AT: Final = _TIME_AT + len("2026-01-01T00:00:00")
_PENDING: Final = re.compile(rb"\r\nNats-Num-Pending: (\d+)\r\n")
_REQUESTS: Final = 3  # Largest number of open requests
_PARTS: Final = 4  # Requests that fill the window
_SOON_SECONDS: Final = 0.005  # Pause after a message was heard that the server asked does not have yet
# First and longest pause between two looks at the end of a stream, if the server republishes its messages, and if not.
_WOKEN_SECONDS: Final = (0.1, 1.0)
_UNWOKEN_SECONDS: Final = (0.05, 0.25)


class _Get(msgspec.Struct):
    seq: int
    batch: int
    max_bytes: int


_encode = msgspec.json.Encoder().encode


class _Request:
    """One open request for a batch."""

    __slots__ = ("end", "events", "first", "gap", "headers", "is_answered", "is_last", "next", "token")

    def __init__(self, token: bytes, first: int, size: int, events: list[StoredEvent]) -> None:
        self.token = token  # Last token of its reply subject
        self.first = first  # Sequence of its first message
        self.next = first  # Sequence of the next message
        self.end = first + size  # Sequence behind its last message
        self.events = events  # Its events that were not delivered yet
        self.headers: EventHeaders | None = None  # Headers of its last message
        self.gap = 0  # Sequence that came instead of `next`; 0 for none
        self.is_answered = False
        self.is_last = False  # Whether the server has no later message


class Feed:
    """Buffer between one stream and its reader. It requests messages and checks their order.

    Args:
        after: Sequence of the last message that the reader has.
        known_to: Sequence up to which the stream has messages. Up to it, several batches are requested at a time.
        upto: Sequence of the last message to request; None: no limit.
        kinds: Aggregate kinds to deliver; None: all. All messages are read, so that no missing one is passed over.
        gaps_are_normal: Whether messages may be missing. If False, a missing one becomes a `gap`.
        pushes: Subject on which the server republishes the messages; "" if it does not, or nobody waits for them.
    """

    def __init__(
        self,
        connection: BusConnection,
        stream: str,
        prefix: str,
        after: int,
        settings: FollowerSettings,
        *,
        known_to: int,
        upto: int | None = None,
        kinds: Collection[str] | None = None,
        gaps_are_normal: bool = False,
        pushes: str = "",
    ) -> None:
        self.trouble = ""  # Reason why the reader must look at the stream and begin again; "" while all is well
        self.gap = 0  # Sequence that came instead of `position` + 1; 0 for none. Then `accept` or `pass_to` is due.
        self.is_at_end = False  # Whether the server has answered that it has no later message
        self._connection = connection
        self._stream = stream.encode()
        self._subject = f"$JS.API.DIRECT.GET.{stream}"
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self._kind_at = _SUBJECT_AT + len(prefix)
        self._next = after + 1
        self._known_to = known_to
        self._upto = upto
        self._kinds = None if kinds is None else frozenset(kinds)
        self._gaps_are_normal = gaps_are_normal
        self._pushes = pushes if pushes and connection.may_subscribe(pushes) else ""
        self._pauses = _WOKEN_SECONDS if self._pushes else _UNWOKEN_SECONDS
        self._pause = self._pauses[0]
        self._events: list[StoredEvent] = []
        self._last_headers: Mapping[str, str] = {}
        self._inbox = connection.client.new_inbox()
        self._token_at = len(self._inbox) + 1
        self._tokens = itertools.count(1)
        self._requests: dict[bytes, _Request] = {}  # Open requests by token, in order of their messages
        self._heard = self._loop.time()
        self._was_woken = False
        self._has_news = False
        self._second, self._second_ns = b"", 0
        self._wake: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._subscriptions: list[int] = []
        self._refusal: tuple[bytes, asyncio.Future[Reply]] | None = None

    @property
    def position(self) -> int:
        """Sequence of the last message that was received in order. Events of `next_batch` may be before it."""
        return self._next - 1

    @property
    def last_id(self) -> str:
        """Id of the event at `position`; "" if no event was received."""
        return self._last_headers.get(envelope.HEADER_ID, "")

    async def open(self) -> None:
        """Subscribe to a private inbox for the answers, and request the first messages."""
        if self._connection.is_closed:
            raise NotConnected
        self._refusal = self._connection.expect((self._subject,))
        self._refusal[1].add_done_callback(lambda _: self._wake_up())
        client = self._connection.client
        self._subscriptions.append(await client.subscribe_sink(f"{self._inbox}.*", self._receive))
        if self._pushes:
            self._subscriptions.append(await client.subscribe_sink(self._pushes, self._woken))
        self._ask()

    async def close(self) -> None:
        """End the subscriptions."""
        self._fail("closed")
        if self._timer is not None:
            self._timer.cancel()
        if self._refusal is not None:
            self._connection.forget(self._refusal[0])
            if not self._refusal[1].cancel():
                self._refusal[1].exception()  # so that asyncio does not warn of it
        for subscription in self._subscriptions:
            await self._connection.client.unsubscribe_sink(subscription)

    def fail_reconnected(self) -> None:
        """Set `trouble`, because the connection was renewed and open requests are lost."""
        self._fail("reconnected")

    def accept(self, event: StoredEvent) -> None:
        """Take the next message, which was read in another way, and go on behind it."""
        if event.seq != self._next:
            return
        if self._kinds is None or event.ref.kind in self._kinds:
            self._events.append(event)
        self._last_headers = event.headers
        self.pass_to(event.seq + 1)

    def pass_to(self, seq: int) -> None:
        """Go on at a position, because the messages before it do not exist, or to ask for it again."""
        self._requests.clear()
        self._next, self.gap, self._pause = seq, 0, self._pauses[0]
        self._ask()

    async def next_batch(self, size: int, seconds: float) -> list[StoredEvent] | None:
        """Wait for events and return 1 to `size` of them, in order. Return an empty list if the server has no later
        event (`is_at_end`), if there is a `gap`, if `position` has reached `upto`, or after `seconds`. Return None if
        there is `trouble`.

        Raises:
            Denied: The user may not read the stream.
        """
        until = self._loop.time() + seconds
        while not self._events:
            self._look_for_refusal()
            if self.trouble:
                return None
            if self._has_news or self._loop.time() >= until:
                self._has_news = False
                return []
            await self._wait(until)
        events = self._events
        if len(events) <= size:
            events = events.copy()
            self._events.clear()
        else:
            events = events[:size]
            del self._events[:size]
        self._ask()
        return events

    def _look_for_refusal(self) -> None:
        if self._refusal is not None and self._refusal[1].done():
            error = self._refusal[1].exception()
            if isinstance(error, Denied):
                raise error
            self._fail(str(error))

    async def _wait(self, until: float) -> None:
        quiet_until = self._heard + self._settings.silence_seconds if self._requests else until
        if self._requests and self._loop.time() >= quiet_until:
            # Our own process may have been busy: what the socket holds is read before silence is believed.
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            silent = self._loop.time() - self._heard
            if not self._events and self._requests and silent >= self._settings.silence_seconds:
                self._fail(f"silent for {silent:.1f} s")
            return
        self._wake = self._loop.create_future()
        timer = self._loop.call_at(min(quiet_until, until), self._wake_up)
        try:
            await self._wake
        finally:
            timer.cancel()
            self._wake = None

    def _wake_up(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    def _tell(self) -> None:
        self._has_news = True
        self._wake_up()

    def _fail(self, reason: str) -> None:
        self._requests.clear()
        if not self.trouble:
            self.trouble = reason
        self._wake_up()

    def _ask(self) -> None:
        """Request more messages, up to the size of the window. Only up to `known_to`, more than one request is open."""
        part = self._settings.window // _PARTS
        most = 1 if self._gaps_are_normal else _REQUESTS
        while len(self._requests) < most and not (self.trouble or self.gap):
            last = next(reversed(self._requests.values()), None)
            first = self._next if last is None else last.end
            size = part if self._upto is None else min(part, self._upto - first + 1)
            is_full = len(self._events) + first - self._next + part > self._settings.window
            if is_full or (last is not None and first > self._known_to):
                return
            if size <= 0:
                if last is None:
                    self.is_at_end = True
                    self._tell()
                return
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            if not self._send(first, size, is_first=last is None):
                return

    def _send(self, first: int, size: int, *, is_first: bool) -> bool:
        token = b"%x" % next(self._tokens)
        request = _encode(_Get(first, size, self._settings.batch_bytes))
        try:
            self._connection.write(pub(self._subject, f"{self._inbox}.{token.decode()}", request))
        except NotConnected:
            self._fail("not connected")
            return False
        self._requests[token] = _Request(token, first, size, self._events if is_first else [])
        if is_first:
            self._heard, self._was_woken = self._loop.time(), False
        return True

    def _woken(self, *_: bytes) -> None:
        self._was_woken = True
        if not self._requests and self.is_at_end:
            self._pause = _SOON_SECONDS
            self._ask()

    def _receive(self, subject: bytes, _reply: bytes, header: bytes, payload: bytes) -> None:
        request = self._requests.get(subject[self._token_at :])
        if request is None or request.is_answered:
            return  # it was given up
        if header[8:9] == b" ":
            self._end(request, header)
            return
        # The last six headers are the server's own, whatever a writer has stored before them.
        at = header.rfind(_OWN)
        own = header[at:].split(b"\r\n")
        if len(own) != 8 or own[0][_STREAM_AT:] != self._stream:
            self._fail("an answer without the headers of a direct get")
            return
        seq = int(own[2][_SEQ_AT:])
        if seq != request.next and (seq < request.next or not self._gaps_are_normal):
            request.gap, request.is_answered = seq, True
            self._advance()
            return
        request.next = seq + 1
        request.headers = headers = EventHeaders(header[:at] + b"\r\n")
        kind, _, id_ = own[1][self._kind_at :].decode("utf-8", "replace").partition(".")
        if self._kinds is None or kind in self._kinds:
            stored_at = self._nanoseconds(own[3])
            request.events.append(StoredEvent(seq, AggregateRef(kind, id_), headers, payload, stored_at))
        if request.events is self._events:
            self._next, self._last_headers = seq + 1, headers
            if self._wake is not None and not self._wake.done():
                self._wake.set_result(None)

    def _nanoseconds(self, line: bytes) -> int:
        """Return the time in a header line `Nats-Time-Stamp`, as nanoseconds since 1970."""
        second = line[_TIME_AT:_SECOND_AT]
        if second != self._second:
            self._second, self._second_ns = second, nanoseconds(second.decode())
        return self._second_ns + int(line[_SECOND_AT + 1 : -1].ljust(9, b"0"))

    def _end(self, request: _Request, header: bytes) -> None:
        """Handle the end of a batch, or an answer without messages."""
        status, self._heard = header[9:12], self._loop.time()
        if status not in (b"204", b"404"):
            told = decode_headers(header)
            self._fail(f"{told['Status']} {told['Description']}".strip())
            return
        request.is_answered = True
        pending = _PENDING.search(header)
        request.is_last = status == b"404" or (pending is not None and pending[1] == b"0")
        if pending is not None and not self._gaps_are_normal:
            self._known_to = max(self._known_to, request.next - 1 + int(pending[1]))
        self._advance()

    def _advance(self) -> None:
        """Go on behind requests that are answered."""
        while (request := next(iter(self._requests.values()), None)) is not None:
            if not request.is_answered:
                return
            del self._requests[request.token]
            following = next(iter(self._requests.values()), None)
            if request.gap:
                self.gap = request.gap
                self._requests.clear()
                self._tell()
                return
            if following is None or following.first != self._next:  # a batch may end early, because of its size
                self._requests.clear()
                self._continue_behind(request)
                return
            self._events += following.events
            following.events = self._events
            self._next, self._last_headers = following.next, following.headers or self._last_headers
            self._wake_up()

    def _continue_behind(self, request: _Request) -> None:
        """Ask again: at once if there are more messages, else after a pause."""
        if request.next > request.first:
            self._pause = self._pauses[0]
        self.is_at_end = request.is_last
        if self.is_at_end and self._was_woken:
            self._pause = _SOON_SECONDS
        if not self.is_at_end or self._was_woken:
            self._ask()
            return
        self._tell()
        self._timer = self._loop.call_later(self._pause, self._ask)
        self._pause = min(2 * self._pause, self._pauses[1])
