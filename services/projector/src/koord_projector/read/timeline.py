"""The story of a pod in the read API: `koordcore.stories.pod` with the bodies of the events."""

from collections.abc import Iterable
from typing import Any

import msgspec
from koordcore.events.envelope import StoredEvent
from koordcore.stories.moment import Moment
from koordcore.stories.pod import pod_story


class TimelineEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One event in a pod's life, as the read API returns it.

    Attributes:
        position: Position of the fact. For an explanation, position of the last fact that its writer had folded.
        stream: "ev" (a fact) or "explanations".
        step: One of `koordcore.stories.pod.Step`.
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


def pod_timeline(uid: str, facts: Iterable[StoredEvent], explanations: Iterable[StoredEvent]) -> list[TimelineEntry]:
    """Return all events in a pod's life, oldest first.

    Args:
        facts: Facts about the pod and its nodes, in any order. Facts about other pods are left out. The aggregates are
            listed in `koordcore.stories.pod.pod_story`.
        explanations: Explanations of decisions about the pod, each stream in its order.
    """
    return [_entry(moment) for moment in pod_story(uid, facts, explanations)]


def _entry(moment: Moment) -> TimelineEntry:
    stored = moment.stored
    body = msgspec.json.decode(stored.body, type=dict[str, Any])
    return TimelineEntry(
        position=stored.seq if moment.is_fact else stored.based_on,
        stream="ev" if moment.is_fact else "explanations",
        step=moment.step,
        type=stored.type,
        occurred_at=stored.occurred_at,
        actor=stored.actor,
        event_id=stored.event_id,
        trace_id=stored.trace_id,
        sentence=moment.sentence,
        explanation=body.get("explanation"),
        body=body,
    )
