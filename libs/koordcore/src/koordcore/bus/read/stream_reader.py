"""Read single messages of a stream, and its bounds. The leader of the stream answers, so the answer is never stale.

Only `newest_of` uses direct gets, for processes that may not ask the leader. A follower that is behind may answer them,
and an expected position from it would be stale (event-bus spec, 13).
"""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final

import msgspec

from koordcore.bus.client.connection import JETSTREAM_API, BusConnection, NoAnswer, NotConnected
from koordcore.bus.client.wire import Reply, decode_headers
from koordcore.events.envelope import AggregateRef, StoredEvent, with_id
from koordcore.ports.eventlog import LogHead, Misconfigured

_SEQUENCE: Final = "Nats-Sequence"
# Headers that the server adds to the answer of a direct get. They come last, so they are its own.
_OWN_HEADERS: Final = frozenset(("Nats-Stream", "Nats-Subject", _SEQUENCE, "Nats-Time-Stamp"))
NOT_FOUND = (10037, 10059)  # Error codes: no message found, stream not found
_DEFINITE = (*NOT_FOUND, 10023, 10047)  # Error codes of 503 answers for which a repetition does not help
_ANSWER_SECONDS = 2.0


class ApiError(Exception):
    """The JetStream API answered a request with an error."""

    def __init__(self, code: int, err_code: int, description: str) -> None:
        super().__init__(f"{code}/{err_code} {description}")
        self.code = code
        self.err_code = err_code
        self.description = description


class _ErrorBody(msgspec.Struct):
    code: int = 0
    err_code: int = 0
    description: str = ""


class _Envelope(msgspec.Struct):
    error: _ErrorBody | None = None


class _RawMessage(msgspec.Struct):
    subject: str
    seq: int
    time: str
    hdrs: bytes = b""
    data: bytes = b""


class _MessageAnswer(msgspec.Struct):
    message: _RawMessage


class _State(msgspec.Struct):
    first_seq: int
    last_seq: int
    messages: int = 0
    bytes: int = 0


class _InfoAnswer(msgspec.Struct):
    state: _State


class _ByLast(msgspec.Struct):
    last_by_subj: str


class _ByNext(msgspec.Struct):
    next_by_subj: str
    seq: int


class _BySince(msgspec.Struct):
    next_by_subj: str
    start_time: str


class _BySequence(msgspec.Struct):
    seq: int


_encode = msgspec.json.Encoder().encode
_decode_error = msgspec.json.Decoder(_Envelope).decode
_decode_message = msgspec.json.Decoder(_MessageAnswer).decode
_decode_info = msgspec.json.Decoder(_InfoAnswer).decode


async def api(connection: BusConnection, subject: str, payload: bytes, *, timeout: float = 5.0) -> bytes:
    """Send one request to the JetStream API and return the payload of the answer. `subject`: subject of the API call,
    for example `$JS.API.STREAM.INFO.<stream>`. In an account without streams, it is sent as `koord.api.STREAM.INFO...`.
    `timeout`: real seconds to wait.

    Raises:
        ApiError: The answer is an error.
        NotConnected: There is no connection at this moment; nothing was sent.
        NoAnswer: No answer came in time. It is unknown whether the server acted.
        NoResponders: Nothing handles the subject.
        Denied: The user may not publish to this subject.
    """
    called = connection.api_prefix + subject.removeprefix(JETSTREAM_API)
    reply = await connection.request(called, payload, timeout=timeout)
    error = _decode_error(reply.data).error
    if error is not None:
        raise ApiError(error.code, error.err_code, error.description)
    return reply.data


async def patient_api(connection: BusConnection, subject: str, payload: bytes, *, deadline: float = 30.0) -> bytes:
    """Send a request to the JetStream API until the server answers, and return the payload of the answer. The request
    must be safe to repeat. It is repeated while there is no answer, or the server is not ready. `deadline`: real
    seconds after which no further attempt is made.

    Raises:
        ApiError: The server refused the request, and a repetition would not help.
        NoAnswer: The deadline passed.
        Denied: The user may not publish to this subject.
    """
    return await connection.patiently(
        lambda: api(connection, subject, payload, timeout=min(_ANSWER_SECONDS, max(0.05, deadline))),
        subject,
        deadline=deadline,
        retry_if=is_unanswered,
    )


class _Subjects(msgspec.Struct):
    subjects: dict[str, int] | None = None


class _SubjectsAnswer(msgspec.Struct):
    state: _Subjects


async def subjects_of(connection: BusConnection, stream: str, pattern: str) -> dict[str, int]:
    """Return subject -> number of messages, for the subjects of a stream that match a pattern; at most 100,000 of them.

    Raises:
        ApiError: The server refused the request, for example because the stream does not exist.
        NoAnswer: No answer came in time, or the stream has no leader.
        Denied: The user may not read this.
    """
    asked = msgspec.json.encode({"subjects_filter": pattern})
    answer = await api(connection, f"$JS.API.STREAM.INFO.{stream}", asked)
    return msgspec.json.decode(answer, type=_SubjectsAnswer).state.subjects or {}


async def stream_info(
    connection: BusConnection, stream: str, ask: Callable[[BusConnection, str, bytes], Awaitable[bytes]] = api
) -> dict[str, Any] | None:
    """Return what the server says about a stream: configuration, size, replicas. None: the stream does not exist.
    `ask`: `api`, or `patient_api` to repeat the request until the server is ready.

    Raises:
        ApiError: The server refused the request.
        NotConnected: There is no connection at this moment. Not with `patient_api`.
        NoAnswer: No answer came in time, or the stream has no leader.
        Denied: The user may not read this.
    """
    try:
        return msgspec.json.decode(await ask(connection, f"$JS.API.STREAM.INFO.{stream}", b""))
    except ApiError as error:
        if error.err_code not in NOT_FOUND:
            raise
        return None


def is_unanswered(error: Exception) -> bool:
    """Return whether a request to the JetStream API can be repeated: no answer came, or the server is not ready."""
    if isinstance(error, ApiError):
        return error.code == 503 and error.err_code not in _DEFINITE
    return isinstance(error, (NotConnected, NoAnswer))


def nanoseconds(text: str) -> int:
    """Return an RFC 3339 time of the server (up to nine decimals) as nanoseconds since 1970."""
    whole, _, rest = text.rstrip("Z").partition(".")
    if "+" in rest or len(rest) > 9 or not (rest.isdigit() or not rest):
        return round(datetime.fromisoformat(text).timestamp() * 1_000_000_000)
    return _whole_seconds(whole) * 1_000_000_000 + int(rest.ljust(9, "0") or 0)


@lru_cache(maxsize=16)  # messages that are read one after the other were stored in the same second
def _whole_seconds(text: str) -> int:
    return int(datetime.fromisoformat(text + "+00:00").timestamp())


class StreamReader:
    """Single reads of one stream, answered by the stream's leader. Methods may be called concurrently. All methods
    repeat a read while the server does not answer, and raise `NoAnswer` after the deadline. They raise `Misconfigured`
    if the stream does not exist.

    Args:
        deadline: Real seconds after which one read is not repeated any more.
    """

    def __init__(self, connection: BusConnection, stream: str, prefix: str, *, deadline: float = 30.0) -> None:
        self._connection = connection
        self._stream = stream
        self._prefix = prefix
        self._deadline = deadline
        self._get = f"$JS.API.STREAM.MSG.GET.{stream}"
        self._info = f"$JS.API.STREAM.INFO.{stream}"

    async def head(self) -> LogHead:
        """Return the sequences of the oldest and the newest message.

        Raises:
            Misconfigured: The stream does not exist.
            NoAnswer: The deadline passed.
        """
        try:
            state = _decode_info(await patient_api(self._connection, self._info, b"", deadline=self._deadline)).state
        except ApiError as error:
            raise Misconfigured(f"{self._stream}: {error}") from error
        return LogHead(max(1, state.first_seq), state.last_seq)

    async def last_of(self, subject: str) -> StoredEvent | None:
        return await self._message(_ByLast(subject))

    async def next_of(self, subject: str, seq: int) -> StoredEvent | None:
        """Return the first message of a subject with a sequence of at least `seq`; None if there is none. The subject
        may contain wildcards.
        """
        return await self._message(_ByNext(subject, seq))

    async def since(self, subject: str, moment: datetime) -> StoredEvent | None:
        """Return the first message of a subject that the server stored at or after a moment; None if there is none. The
        subject may contain wildcards.
        """
        return await self._message(_BySince(subject, moment.astimezone(UTC).isoformat()))

    async def at(self, seq: int) -> StoredEvent | None:
        """Return the message with this sequence; None if it does not exist or was deleted."""
        return await self._message(_BySequence(seq))

    async def at_any_server(self, seq: int) -> StoredEvent | None:
        """Return the message with this sequence as one of the servers has it, chosen at random; None if this server
        cannot read it. The stream must allow direct gets.

        Raises:
            NoAnswer: No answer came.
            NotConnected: There is no connection.
            Denied: The user may not read the stream.
        """
        reply = await self._connection.request(f"$JS.API.DIRECT.GET.{self._stream}", _encode(_BySequence(seq)))
        if reply.status:
            return None
        headers = decode_headers(reply.header)
        kind, _, id_ = headers["Nats-Subject"].removeprefix(self._prefix).partition(".")
        stored_at = nanoseconds(headers["Nats-Time-Stamp"])
        stored = with_id({name: value for name, value in headers.items() if name not in _OWN_HEADERS})
        return StoredEvent(int(headers[_SEQUENCE]), AggregateRef(kind, id_), stored, reply.data, stored_at)

    async def of_subject(self, subject: str, *, after: int = 0) -> list[StoredEvent]:
        """Return all messages of one subject with a sequence above `after`, in order."""
        last = await self.last_of(subject)
        if last is None or last.seq <= after:
            return []
        found: list[StoredEvent] = []
        at = after
        while at < last.seq:
            event = await self.next_of(subject, at + 1)
            if event is None:
                break
            found.append(event)
            at = event.seq
        return found

    async def between(self, subject: str, begin: datetime, end: datetime) -> list[StoredEvent]:
        """Return all messages of a subject that the server stored from `begin` to `end` (both included), in order. The
        subject may contain wildcards.
        """
        found: list[StoredEvent] = []
        event = await self.since(subject, begin)
        while event is not None and event.stored_at_ns <= end.timestamp() * 1_000_000_000:
            found.append(event)
            event = await self.next_of(subject, event.seq + 1)
        return found

    async def _message(self, request: msgspec.Struct) -> StoredEvent | None:
        try:
            data = await patient_api(self._connection, self._get, _encode(request), deadline=self._deadline)
        except ApiError as error:
            if error.err_code == NOT_FOUND[0]:
                return None
            raise Misconfigured(f"{self._stream}: {error}") from error
        raw = _decode_message(data).message
        kind, _, id_ = raw.subject.removeprefix(self._prefix).partition(".")
        headers = with_id(decode_headers(raw.hdrs))
        return StoredEvent(raw.seq, AggregateRef(kind, id_), headers, raw.data, nanoseconds(raw.time))


_NOT_FOUND: Final = "404"


async def newest_of(
    connection: BusConnection, stream: str, subject: str, *, deadline: float
) -> tuple[dict[str, str], bytes] | None:
    """Return headers and body of the newest message of a subject; None if there is none. The answer may be old. It must
    allow direct gets. `deadline`: real seconds after which no further attempt is made.

    Raises:
        NoAnswer: No replica has answered with a message, or with its absence, within the deadline.
        Denied: The user may not read the subject.
    """

    async def once() -> tuple[dict[str, str], bytes] | None:
        reply: Reply = await connection.request(f"$JS.API.DIRECT.GET.{stream}.{subject}")
        headers = decode_headers(reply.header) if reply.header else {}
        if headers.get("Status") == _NOT_FOUND:
            return None
        if _SEQUENCE not in headers:
            raise NoAnswer(f"{subject}: {headers.get('Status', '')} {headers.get('Description', 'no message')}".strip())
        return headers, reply.data

    return await connection.patiently(once, subject, deadline=deadline)
