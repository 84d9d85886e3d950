"""Rows of the archives: explanations, rounds of the descheduler, and the values of usage reports that lists need."""

from typing import Final

import msgspec
from koordcore.events import CATALOGUE
from koordcore.events.descheduling import EvictionRefused, RoundEnded
from koordcore.events.envelope import StoredEvent
from koordcore.events.explanations import DecisionAbandoned, PodGated, PodUnschedulable
from koordcore.events.observation import NodeUsageReported, Usage
from koordcore.events.registry import UnreadableEvent
from koordcore.stories.usage_archive import LONGEST_TIME

ROUND: Final = "round.descheduler"
"""Rounds of the descheduler have this instead of the uid of a pod. It cannot be one: uids have no dot."""


class ExplanationRow(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the table `explanations`: an explanation about a pod, or a round of the descheduler."""

    uid: str  # Uid of the pod; for a round, `ROUND`
    occurred_at: str
    event_id: str
    seq: int  # Sequence in the stream of explanations
    type: str  # Type of the event, for example `PodUnschedulable`
    attempt: int  # Number of the attempt to place the pod; 0 if the explanation is about none
    based_on: int  # Sequence of the last fact that the writer had folded
    actor: str
    traceparent: str  # W3C trace context of the event
    body: str  # Body of the event as JSON text


def explanation_row(stored: StoredEvent) -> ExplanationRow | None:
    """None if it gets no row.

    Only explanations about pending pods and refused evictions and rounds of the descheduler get a row; others, such as
    admission decisions, do not. One that cannot be decoded, or whose id or time is too long, gets none either: an
    explanation is not a fact, so it does not stop the fold.
    """
    try:
        event = CATALOGUE.read(stored)
        body = stored.body.decode()
    except (UnreadableEvent, UnicodeDecodeError):
        return None
    if not isinstance(event, (PodUnschedulable, DecisionAbandoned, PodGated, EvictionRefused, RoundEnded)):
        return None
    if len(stored.ref.id) > 512 or len(stored.occurred_at) > LONGEST_TIME or len(stored.event_id) > 128:
        return None
    return ExplanationRow(
        uid=ROUND if isinstance(event, RoundEnded) else stored.ref.id,
        occurred_at=stored.occurred_at,
        event_id=stored.event_id,
        seq=stored.seq,
        type=stored.type,
        attempt=event.attempt if isinstance(event, (PodUnschedulable, DecisionAbandoned)) else 0,
        based_on=stored.based_on,
        actor=stored.actor,
        traceparent=stored.traceparent,
        body=body,
    )


EXPIRED_AFTER_INTERVALS = 5
"""Number of report intervals after which a report without successor is too old to be used."""
LONGEST_TOKEN = 512


def best_effort_usage(report: NodeUsageReported) -> Usage:
    """The sum over the pods with QoS class BE."""
    cpu_milli = memory_bytes = 0
    for pod in report.pods:
        if pod.qos == "BE":
            cpu_milli += pod.usage.cpu_milli
            memory_bytes += pod.usage.memory_bytes
    return Usage(cpu_milli, memory_bytes)
