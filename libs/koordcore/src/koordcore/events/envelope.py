"""What surrounds the body of an event: which aggregate, which id, who wrote it, on what it was based.

An event is decided as a `Draft` (pure code), sealed into a `NewEvent` by the shell (`seal`), appended through
`koordcore.ports.EventLog`, and read back as a `StoredEvent`.

    Draft --seal(Origin)--> NewEvent --append--> log --follow--> StoredEvent --CATALOGUE.read--> Event

Source:
    event-bus spec, 2 (subjects), 3.1 (envelope)
"""

import uuid
from abc import abstractmethod
from collections.abc import Mapping
from hashlib import sha1
from typing import Final, NamedTuple, NewType

import msgspec

from koordcore.values import codec

StreamSeq = NewType("StreamSeq", int)
"""Position in a stream, from 1; 0 means "before the first event"."""

HEADER_ID = "Nats-Msg-Id"
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

_EVENT_ID_NAMESPACE = uuid.UUID("6f1d0a52-6a0e-5d0c-9a3e-4b1d6a1f7c11")


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Base of all event bodies: past-tense facts with the inputs a person would ask for; unknown fields are ignored.

    Events, like API objects, are trees: the garbage collector, which looks for cycles, need not follow them.
    """


class AggregateRef(NamedTuple):
    """One aggregate: its kind and its id as it appears in the subject (`pod` + uid, `node` + name with `.` as `_`)."""

    kind: str
    id: str

    def __str__(self) -> str:
        return f"{self.kind}.{self.id}"


def name_token(name: str) -> str:
    """Return the subject token of an object name: `.` becomes `_`, which no Kubernetes name contains.

    Source:
        event-bus spec, 2
    """
    return name.replace(".", "_")


def name_from_token(token: str) -> str:
    """Return the object name of a subject token; inverse of `name_token`."""
    return token.replace("_", ".")


def namespaced_token(namespace: str, name: str) -> str:
    """Return the subject token of a namespaced object: `<ns>=<name>` with `.` as `_`."""
    return f"{name_token(namespace)}={name_token(name)}"


def namespaced_from_token(token: str) -> tuple[str, str]:
    """(namespace, name) of a namespaced token; inverse of `namespaced_token`."""
    namespace, _, name = token.partition("=")
    return name_from_token(namespace), name_from_token(name)


class BasedOn(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The positions that a decider had folded when it decided: facts and observations (architecture, 3)."""

    ev: int = 0
    obs: int = 0


class Draft(NamedTuple):
    """A decided fact that is not in the log yet.

    Attributes:
        expected_last: Sequence of the last event of this aggregate that the decider folded; 0 for a new aggregate.
    """

    ref: AggregateRef
    event: Event
    expected_last: int


class Origin(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Who decides, because of what: the headers shared by all drafts of one decision.

    Attributes:
        causation_id: Id of the event or request that led here.
        correlation_id: Id of the user-visible thing (the pod's uid).
        occurred_at: RFC 3339 text, UTC, microseconds, the decider's clock.
        epoch: Fencing number of the leadership term, 0 without leadership.
        based_on: Highest fact sequence that the decider had folded.
    """

    causation_id: str
    correlation_id: str
    actor: str
    occurred_at: str
    epoch: int = 0
    based_on: int = 0
    traceparent: str = ""
    tracestate: str = ""


class NewEvent(msgspec.Struct, frozen=True, gc=False):
    """An event ready to be appended: bytes, headers and expectation never change between retries (event-bus, 4.3)."""

    ref: AggregateRef
    headers: dict[str, str]
    body: bytes
    expected_last: int

    @property
    def event_id(self) -> str:
        """`Nats-Msg-Id`."""
        return self.headers[HEADER_ID]


class DeferredHeaders(Mapping[str, str]):
    """Headers that are read when the first is asked for."""

    @abstractmethod
    def has_line(self, line: bytes) -> bool:
        """Return whether a header stands there just so, `Name: value`; answered without reading the others."""


class StoredEvent(msgspec.Struct, frozen=True, gc=False):
    """An event as it stands in the log.

    Attributes:
        seq: Position in the stream.
        stored_at_ns: Stream time, nanoseconds since 1970; authoritative for retention only.
    """

    seq: int
    ref: AggregateRef
    headers: Mapping[str, str]
    body: bytes
    stored_at_ns: int = 0

    def has_id(self, event_id: str) -> bool:
        """Return whether this is the event of that id."""
        headers = self.headers
        if isinstance(headers, DeferredHeaders):
            return headers.has_line(_ID_LINE % event_id.encode())
        return headers.get(HEADER_ID) == event_id

    @property
    def type(self) -> str:
        """Event type name, e.g. `PodPlaced`."""
        return self.headers.get(HEADER_TYPE, "")

    @property
    def schema(self) -> int:
        """Version of the body's schema, from 1; 0 when the header is missing or no number."""
        text = self.headers.get(HEADER_SCHEMA, "")
        return int(text) if text.isascii() and text.isdigit() else 0

    @property
    def event_id(self) -> str:
        """`Nats-Msg-Id`, "" when missing."""
        return self.headers.get(HEADER_ID, "")

    @property
    def causation_id(self) -> str:
        """Id of the event or request that led here."""
        return self.headers.get(HEADER_CAUSATION, "")

    @property
    def correlation_id(self) -> str:
        """Id of the user-visible thing."""
        return self.headers.get(HEADER_CORRELATION, "")

    @property
    def actor(self) -> str:
        """Service, instance and version that wrote it."""
        return self.headers.get(HEADER_ACTOR, "")

    @property
    def occurred_at(self) -> str:
        """RFC 3339 text of the decider's clock."""
        return self.headers.get(HEADER_OCCURRED_AT, "")

    @property
    def based_on(self) -> int:
        """Highest fact sequence that the decider had folded; 0 when missing."""
        text = self.headers.get(HEADER_BASED_ON, "")
        return int(text) if text.isascii() and text.isdigit() else 0

    @property
    def traceparent(self) -> str:
        """W3C trace context, "" when missing."""
        return self.headers.get(HEADER_TRACEPARENT, "")

    @property
    def trace_id(self) -> str:
        """Trace that the event belongs to, 32 hex digits; "" when it has no valid trace context."""
        return trace_id_of(self.traceparent)


def trace_id_of(traceparent: str) -> str:
    """Return the trace id of a W3C trace context; "" if there is none."""
    parts = traceparent.split("-")
    return parts[1] if len(parts) >= 4 else ""


def event_id(causation_id: str, ref: AggregateRef, index: int) -> str:
    """Deterministic id: UUIDv5 of (causation id, aggregate, index in the decision); a retried decision yields the same.

    Source:
        event-bus spec, 3.1
    """
    # `uuid.uuid5` without the object: a scheduler names ten thousand events a second.
    name = f"{causation_id}|{ref.kind}.{ref.id}|{index}"
    digest = bytearray(sha1(_EVENT_ID_NAMESPACE.bytes + name.encode(), usedforsecurity=False).digest()[:16])
    digest[6] = digest[6] & 0x0F | 0x50
    digest[8] = digest[8] & 0x3F | 0x80
    text = digest.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def seal(draft: Draft, origin: Origin, index: int, schema: int) -> NewEvent:
    """Return the appendable event of a draft.

    Args:
        index: Position of the draft in its decision.
        schema: Version of the body's schema (from the catalogue; use `Catalogue.seal`).
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
    return NewEvent(draft.ref, headers, codec.encode(draft.event), draft.expected_last)
