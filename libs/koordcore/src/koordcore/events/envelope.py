"""The envelope of an event: the headers around its body, with aggregate, id, writer, cause and basis.

An event is decided as a `Draft` (pure code), sealed into a `NewEvent` by the shell (`seal`), appended through
`koordcore.ports.EventLog`, and read back as a `StoredEvent`.

    Draft --seal(Origin)--> NewEvent --append--> log --follow--> StoredEvent --CATALOGUE.read--> Event

Source: event-bus spec, 2 (subjects), 3.1 (envelope).
"""

import uuid
from abc import abstractmethod
from collections.abc import Mapping
from hashlib import sha1
from typing import Final, NamedTuple, NewType

import msgspec

from koordcore.values import codec

StreamSeq = NewType("StreamSeq", int)  # Position in a stream, from 1. 0 means "before the first event".

HEADER_ID = "Nats-Msg-Id"
HEADER_RELAYED_ID = "Koord-Event-Id"
"""Holds the id of a fact that a node wrote, and of an event that is no fact. The server compares the ids in
`Nats-Msg-Id` of all writers, so a node that guesses the id of another writer's next event could keep it out of the
stream. Readers see `HEADER_ID` (`with_id`)."""
_ID_LINE: Final = b"\r\nNats-Msg-Id: %b\r\n"
HEADER_TYPE = "Koord-Type"
HEADER_SCHEMA = "Koord-Schema"
HEADER_CAUSATION = "Koord-Causation-Id"
HEADER_CORRELATION = "Koord-Correlation-Id"
HEADER_ACTOR = "Koord-Actor"
HEADER_EPOCH = "Koord-Epoch"
HEADER_OCCURRED_AT = "Koord-Occurred-At"
HEADER_BASED_ON = "Koord-Based-On"
HEADER_TRACEPARENT = "traceparent"
HEADER_TRACESTATE = "tracestate"
HEADER_CONTENT_TYPE = "content-type"
HEADER_EXPECTED_LAST = "Nats-Expected-Last-Subject-Sequence"
HEADER_COPIED = "Nats-Subject"  # Only the server's answer to a read has it

# Kinds of aggregates whose facts nodes write, by their agents and CRI proxies. `<kind>.<node>` belongs to one node.
WRITTEN_BY_NODES: Final = frozenset(("nodestate", "criproxy"))

_EVENT_ID_NAMESPACE = uuid.UUID("6f1d0a52-6a0e-5d0c-9a3e-4b1d6a1f7c11")


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Base class of the bodies of all events. Decoding ignores unknown fields.

    The name of a subclass is in the past tense. Its fields contain the inputs of the decision.
    """


class AggregateRef(NamedTuple):
    """Reference to an aggregate, a thing with its own sequence of events. Its subject is `<kind>.<id>`."""

    kind: str  # For example `pod` or `node`
    id: str  # Last part of the subject: the uid for `pod`, the name with `.` replaced by `_` for `node`

    def __str__(self) -> str:
        return f"{self.kind}.{self.id}"


def name_token(name: str) -> str:
    """Return an object name as a subject token: `.` becomes `_`, which no Kubernetes name contains.

    Source: event-bus spec, 2.
    """
    return name.replace(".", "_")


def name_from_token(token: str) -> str:
    """Return the object name of a subject token; inverse of `name_token`."""
    return token.replace("_", ".")


def namespaced_token(namespace: str, name: str) -> str:
    """Return the subject token of a namespaced object: `<namespace>=<name>`, each with `.` replaced by `_`."""
    return f"{name_token(namespace)}={name_token(name)}"


def namespaced_from_token(token: str) -> tuple[str, str]:
    """Return (namespace, name) of a subject token that `namespaced_token` made."""
    namespace, _, name = token.partition("=")
    return name_from_token(namespace), name_from_token(name)


class BasedOn(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The last events that were folded when a decision was made.

    The decision is a function of everything up to them.
    """

    ev: int = 0  # Sequence of the last folded fact in the facts stream
    obs: int = 0  # Sequence of the last folded observation in the observations stream; 0 for none


class Draft(NamedTuple):
    """A decided event that is not sealed and not in the log yet."""

    ref: AggregateRef  # Aggregate of the event
    event: Event  # Body of the event
    # Sequence of the last event of this aggregate that was folded; 0 for a new aggregate. The log refuses the append if
    # a newer event of the aggregate exists.
    expected_last: int


class Origin(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Headers that all events of one decision share: its writer, its cause and its basis."""

    causation_id: str  # Id of the event or request that caused the decision
    correlation_id: str  # Id of the object that the user knows, such as the uid of the pod
    actor: str  # Service, instance and version of the writer
    occurred_at: str  # RFC 3339 time, UTC with microseconds, on the clock of the writer
    epoch: int = 0  # Number of the writer's leadership term; 0 if the writer has no leader election
    based_on: int = 0  # Sequence of the last fact that the writer had folded
    traceparent: str = ""  # W3C trace context of the decision; "" for none
    tracestate: str = ""  # Vendor part of the W3C trace context; "" for none


class NewEvent(msgspec.Struct, frozen=True, gc=False):
    """An event with its headers and encoded body, ready to be appended.

    If the append is repeated, body, headers and `expected_last` stay unchanged (event-bus spec, 4.3).
    """

    ref: AggregateRef  # Aggregate of the event
    headers: dict[str, str]
    body: bytes
    expected_last: int  # Sequence of the last event of this aggregate that the writer knows; 0 for a new aggregate

    @property
    def event_id(self) -> str:
        return self.headers[HEADER_ID]

    @property
    def based_on(self) -> int:
        """Sequence of the last fact that the writer had folded; 0 if it folds nothing."""
        return int(self.headers.get(HEADER_BASED_ON, "0"))


class HeaderTexts(NamedTuple):
    """Values of the headers of an event as texts of printable ASCII without a backslash."""

    event_id: str
    type: str
    schema: str  # Version of the body's schema, 1 to 9 digits
    causation_id: str
    correlation_id: str
    actor: str
    epoch: str  # Number of the writer's leadership term, 1 to 18 digits
    occurred_at: str
    based_on: str  # Sequence of the last fact that the writer had folded, 1 to 18 digits
    traceparent: str  # W3C trace context; "" for none


class DeferredHeaders(Mapping[str, str]):
    """Headers of a stored event, name -> value, which are parsed at the first access."""

    @abstractmethod
    def texts(self) -> HeaderTexts | None:
        """Return the values of the headers without parsing all of them, for readers of whole logs.

        Return None if the headers are not those that `seal` writes, in its order, or if a value contains a character
        that `HeaderTexts` does not allow. The caller looks the headers up by name then.
        """

    @abstractmethod
    def has_line(self, line: bytes) -> bool:
        """Return whether the headers contain a line, without parsing them.

        Args:
            line: The whole line with the line breaks around it: CRLF, `Name: value`, CRLF.
        """

    @abstractmethod
    def parsed(self) -> Mapping[str, str]:
        """Return the parsed headers, whose look-ups are faster. Do not change them."""


class StoredEvent(msgspec.Struct, frozen=True, gc=False):
    """An event as it is stored in the log: its position, aggregate, headers and encoded body."""

    seq: int  # Position in the stream, from 1
    ref: AggregateRef  # Aggregate of the event
    headers: Mapping[str, str]  # Header name -> value; the properties below read them
    body: bytes  # Encoded body. `Catalogue.read` decodes it.
    # Time at which the server stored it, nanoseconds since 1970. Use it only for retention; decisions use
    # `occurred_at`.
    stored_at_ns: int = 0

    def has_id(self, event_id: str) -> bool:
        """Return whether `event_id` is the id of this event.

        If the headers are not parsed yet, they are not parsed for this.
        """
        headers = self.headers
        if isinstance(headers, DeferredHeaders):
            return headers.has_line(_ID_LINE % event_id.encode())
        return headers.get(HEADER_ID) == event_id

    def header_texts(self) -> HeaderTexts | None:
        """Return the values of the headers if they need not be parsed, else None. See `DeferredHeaders.texts`."""
        headers = self.headers
        return None if type(headers) is dict or not isinstance(headers, DeferredHeaders) else headers.texts()

    def with_parsed_headers(self) -> "StoredEvent":
        """Return the same event with parsed headers, for readers that look up most of them."""
        headers = self.headers
        # The type of plain headers is compared first: an instance check of an abstract class costs more than the rest.
        if type(headers) is dict or not isinstance(headers, DeferredHeaders):
            return self
        return StoredEvent(self.seq, self.ref, headers.parsed(), self.body, self.stored_at_ns)

    @property
    def type(self) -> str:
        """Name of the event type, for example `PodPlaced`."""
        return self.headers.get(HEADER_TYPE, "")

    @property
    def schema(self) -> int:
        """Version of the body's schema, from 1; 0 if the header is missing or not a number below 10^18."""
        text = self.headers.get(HEADER_SCHEMA, "")
        return 1 if text == "1" else _number(text) or 0

    @property
    def event_id(self) -> str:
        """Id of the event, from the header `Nats-Msg-Id`; "" if missing."""
        return self.headers.get(HEADER_ID, "")

    @property
    def causation_id(self) -> str:
        """Id of the event or request that caused this event; "" if missing."""
        return self.headers.get(HEADER_CAUSATION, "")

    @property
    def correlation_id(self) -> str:
        """Id of the object that the user knows, such as the uid of the pod; "" if missing."""
        return self.headers.get(HEADER_CORRELATION, "")

    @property
    def epoch(self) -> int:
        """Number of the writer's leadership term; 0 if the header is missing or not a number below 10^18."""
        return _number(self.headers.get(HEADER_EPOCH, "")) or 0

    @property
    def actor(self) -> str:
        """Service, instance and version of the writer; "" if missing."""
        return self.headers.get(HEADER_ACTOR, "")

    @property
    def occurred_at(self) -> str:
        """RFC 3339 time of the event on the clock of its writer; "" if missing."""
        return self.headers.get(HEADER_OCCURRED_AT, "")

    @property
    def based_on(self) -> int:
        """Sequence of the last fact that the writer had folded; 0 if missing or not a number below 10^18."""
        return _number(self.headers.get(HEADER_BASED_ON, "")) or 0

    @property
    def expected_last(self) -> int | None:
        """Sequence of the event before this one in the same aggregate; 0 for the first event.

        None if the header is missing or not a number below 10^18.

        The writer stated this position as expected, and the log has checked it.
        """
        return _number(self.headers.get(HEADER_EXPECTED_LAST, ""))

    @property
    def traceparent(self) -> str:
        """W3C trace context; "" if missing."""
        return self.headers.get(HEADER_TRACEPARENT, "")

    @property
    def trace_id(self) -> str:
        """Id of the trace that the event belongs to, 32 hex digits; "" without a valid trace context."""
        return trace_id_of(self.traceparent)


def trace_id_of(traceparent: str) -> str:
    """Return the trace id of a W3C trace context, 32 hex digits; "" if the context has fewer than four parts."""
    parts = traceparent.split("-")
    return parts[1] if len(parts) >= 4 else ""


def with_id(headers: dict[str, str]) -> dict[str, str]:
    """Return headers of the log as all readers see them: the id of a relayed fact is in `HEADER_ID`."""
    if HEADER_RELAYED_ID not in headers:
        return headers
    return {HEADER_ID if name == HEADER_RELAYED_ID else name: value for name, value in headers.items()}


def without_id(headers: dict[str, str]) -> dict[str, str]:
    """Return headers as the log gets them from a relay: the server does not see the id; the inverse of `with_id`."""
    own = {name: value for name, value in headers.items() if name != HEADER_RELAYED_ID}
    return {HEADER_RELAYED_ID if name == HEADER_ID else name: value for name, value in own.items()}


def event_id(causation_id: str, ref: AggregateRef, index: int) -> str:
    """Return the id of an event: a UUIDv5 of causation id, aggregate and index. Equal arguments give equal ids.

    The log detects repeated appends by this id.

    Args:
        index: Position of the event in its decision, from 0.

    Source: event-bus spec, 3.1.
    """
    # `uuid.uuid5` without the object: a scheduler names ten thousand events a second.
    name = f"{causation_id}|{ref.kind}.{ref.id}|{index}"
    digest = bytearray(sha1(_EVENT_ID_NAMESPACE.bytes + name.encode(), usedforsecurity=False).digest()[:16])
    digest[6] = digest[6] & 0x0F | 0x50
    digest[8] = digest[8] & 0x3F | 0x80
    text = digest.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def seal(draft: Draft, origin: Origin, index: int, schema: int, body: bytes | None = None) -> NewEvent:
    """Return a draft as an event that can be appended: with headers and encoded body.

    Args:
        origin: Headers that all events of the decision share.
        index: Position of the draft in its decision, from 0.
        schema: Version of the body's schema. `Catalogue.seal` takes it from the catalogue.
        body: The encoded event; None to encode it.
    """
    headers = {
        HEADER_ID: event_id(origin.causation_id, draft.ref, index),
        HEADER_TYPE: type(draft.event).__name__,
        HEADER_SCHEMA: str(schema),
        HEADER_CAUSATION: origin.causation_id,
        HEADER_CORRELATION: origin.correlation_id,
        HEADER_ACTOR: origin.actor,
        HEADER_EPOCH: str(origin.epoch),
        HEADER_OCCURRED_AT: origin.occurred_at,
        HEADER_BASED_ON: str(origin.based_on),
        HEADER_CONTENT_TYPE: "application/json",
    }
    if origin.traceparent:
        headers[HEADER_TRACEPARENT] = origin.traceparent
        if origin.tracestate:
            headers[HEADER_TRACESTATE] = origin.tracestate
    return NewEvent(draft.ref, headers, codec.encode(draft.event) if body is None else body, draft.expected_last)


def _number(text: str) -> int | None:
    """Return the number in a header; None if it is not a number below 10^18. Python refuses very long numbers."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None


# Kinds of aggregates that a service drops from its memory when their object is deleted. With such an aggregate, the
# service also forgets the position of its last fact. If it later appends a fact about a new object of the same name, it
# expects position 0, which means "no fact yet". The log still has the facts about the deleted object.
# `koordcore.bus.write.append` says when the log stores the new fact all the same. Every service drops the kinds up to
# `drift`, at the fact that ends the object. Only the scheduler drops the last four, many at a time.
RETURNING: Final = frozenset(
    (
        "nodespec",
        "namespace",
        "priorityclass",
        "config",
        "customspec",
        "recommendation",
        "quotaprofile",
        "drain",
        "draingroup",
        "drift",
        "node",
        "gang",
        "quota",
        "scheduleexplanation",
    )
)
