"""One event in the life of a pod, for `koord explain pod`, the read API and the dashboard.

`stories.pod` puts the moments in order and gives each its step and sentence.
"""

from enum import StrEnum
from typing import Any, Final, NamedTuple

import msgspec

from koordcore.events import CATALOGUE
from koordcore.events.envelope import (
    HEADER_ACTOR,
    HEADER_BASED_ON,
    HEADER_OCCURRED_AT,
    HEADER_SCHEMA,
    HEADER_TRACEPARENT,
    HEADER_TYPE,
    AggregateRef,
    Event,
    StoredEvent,
)

_NO_SPAN: Final = "0" * 16


class Step(StrEnum):
    """Kind of one event in the life of a pod, for example PLACED or BOUND. OTHER: an event without its own kind."""

    SUBMITTED = "submitted"
    CHANGED = "changed"
    DELETED = "deleted"
    ADMITTED = "admitted"
    DENIED = "denied"
    GATED = "gated"
    UNSCHEDULABLE = "unschedulable"
    ABANDONED = "abandoned"
    NOMINATED = "nominated"
    NOMINATION_CLEARED = "nomination-cleared"
    PLACED = "placed"
    BOUND = "bound"
    BIND_FAILED = "bind-failed"
    REALLOCATED = "reallocated"
    RELEASED = "released"
    STARTED = "started"
    STOPPED = "stopped"
    HOOKED = "hooked"
    HOOK_FAILED = "hook-failed"
    RESIZE_REQUESTED = "resize-requested"
    RESIZE_ANSWERED = "resize-answered"
    OOM_KILLED = "oom-killed"
    DEVICE_UNHEALTHY = "device-unhealthy"
    DEVICE_HEALTHY = "device-healthy"
    EVICTION_REQUESTED = "eviction-requested"
    EVICTED = "evicted"
    EVICTION_DELAYED = "eviction-delayed"
    EVICTION_FAILED = "eviction-failed"
    EVICTION_WITHDRAWN = "eviction-withdrawn"
    EVICTION_REFUSED = "eviction-refused"
    SUPPRESSED = "suppressed"
    UNSUPPRESSED = "unsuppressed"
    INTERFERENCE = "interference"
    INTERFERENCE_ENDED = "interference-ended"
    DELETION_COST = "deletion-cost"
    OTHER = "other"


class TimelineEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One event in a pod's life, as the read API returns it.

    Attributes:
        position: Position of the fact. For an explanation, position of the last fact that its writer had folded.
        stream: "ev" (a fact) or "explanations".
        step: One of `koordcore.stories.moment.Step`.
        type: Type of the event.
        occurred_at: RFC 3339 time.
        actor: Service, instance and version that wrote it.
        event_id: Id of the event.
        trace_id: Id of its trace; empty if none.
        sentence: Description without the name of the pod; may be empty.
        explanation: Explanation in a decision: nodes considered and feasible, exclusions, top scores; else null.
        body: The whole body of the event.
    """

    position: int
    stream: str
    step: str
    type: str
    occurred_at: str
    actor: str
    event_id: str
    trace_id: str
    sentence: str
    explanation: dict[str, Any] | None
    body: dict[str, Any]

    def as_explanation(self, uid: str) -> StoredEvent | None:
        """The stored explanation about a pod; None if this code does not know its type.

        The body has the current schema: the projector keeps explanations in that form.
        """
        found = CATALOGUE.find(self.type)
        if found is None:
            return None
        headers = {
            HEADER_TYPE: self.type,
            HEADER_SCHEMA: str(found.schema),
            HEADER_OCCURRED_AT: self.occurred_at,
            HEADER_ACTOR: self.actor,
            HEADER_BASED_ON: str(self.position),
            HEADER_TRACEPARENT: f"00-{self.trace_id}-{_NO_SPAN}-00" if self.trace_id else "",
        }
        return StoredEvent(seq=0, ref=AggregateRef("pod", uid), headers=headers, body=msgspec.json.encode(self.body))


class Moment(NamedTuple):
    """One event in the life of a pod, with a sentence about it."""

    step: Step
    sentence: str  # without the name of the pod; may be empty
    stored: StoredEvent
    event: Event | None  # None if this code cannot decode it
    is_fact: bool  # False for an explanation, which has no position in the log

    def entry(self) -> TimelineEntry:
        """The moment as the read API returns it."""
        stored = self.stored
        body = msgspec.json.decode(stored.body, type=dict[str, Any])
        return TimelineEntry(
            position=stored.seq if self.is_fact else stored.based_on,
            stream="ev" if self.is_fact else "explanations",
            step=self.step,
            type=stored.type,
            occurred_at=stored.occurred_at,
            actor=stored.actor,
            event_id=stored.event_id,
            trace_id=stored.trace_id,
            sentence=self.sentence,
            explanation=body.get("explanation"),
            body=body,
        )
