"""The life of a pod, told from the events alone. Pure.

`commands/explain.py` fetches the events, `story_text.py` prints what is computed here.
"""

from collections.abc import Iterable
from typing import Literal, TypeAlias

import msgspec
from koordcore.events import CATALOGUE
from koordcore.events.agents.nodestate import PodsStarted, PodsStopped
from koordcore.events.agents.observation import Usage
from koordcore.events.envelope import StoredEvent
from koordcore.events.management.admission import AdmissionDecided
from koordcore.events.objects.gateway import (
    PodBindFailed,
    PodBound,
    PodEvicted,
    PodEvictionFailed,
    PodEvictionRequested,
)
from koordcore.events.objects.mirror import PodSpecAdded, PodSpecChanged, PodSpecDeleted
from koordcore.events.scheduling.diagnosis import Diagnosis
from koordcore.events.scheduling.explanations import DecisionAbandoned, PodGated, PodUnschedulable
from koordcore.events.scheduling.placement_explanation import PlacementExplanation
from koordcore.events.scheduling.pod import PodNominated, PodNominationCleared, PodPlaced, PodReleased, Victim
from koordcore.protocol.annotations.binding import binding_annotations
from koordcore.protocol.pod_resources import pod_requests

from koordctl.explain.decision_lines import victims_text
from koordctl.explain.pod_admission import admission_sentence
from koordctl.render.units import seconds_between

Status: TypeAlias = Literal["Pending", "Placed", "Running", "Deleted", "Refused"]
"""Refused: admission never let a pod of this name in."""


class Moment(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that happened to a pod.

    at              RFC 3339, the writer's clock: the run's, scaled or not
    position        in the facts stream; 0 for a verdict, which is no fact
    victims         of a nomination
    annotations     that the binding writes: which devices, CPUs, reservation were allocated, and what plugins say
    steps           of admission that changed the pod, in their order
    rules           of admission that refused what was asked
    """

    what: str
    at: str
    position: int = 0
    by: str = ""
    sentence: str = ""
    attempt: int = 0
    explanation: PlacementExplanation | None = None
    diagnosis: Diagnosis | None = None
    node: str = ""
    victims: list[Victim] = []
    annotations: dict[str, str] = {}
    steps: list[str] = []
    rules: list[str] = []
    trace: str = ""


class Used(msgspec.Struct, frozen=True, kw_only=True):
    """What a pod used by a report of its node, and when that was made (RFC 3339, the run's clock)."""

    usage: Usage
    at: str
    qos: str = ""


class PodStory(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The whole life of one pod.

    moments         in the order of the log; a verdict behind the newest fact that was known when it was given
    used            by the last report of its node; None: it has no node, or none has told of it
    wait_seconds    from submission to first placement, by the times in `moments`; None: not placed yet
    """

    namespace: str
    name: str
    uid: str
    status: Status
    node: str = ""
    requests: dict[str, int] = {}
    moments: list[Moment] = []
    used: Used | None = None
    wait_seconds: float | None = None


def pod_story(
    uid: str, facts: Iterable[StoredEvent], verdicts: Iterable[StoredEvent], used: Used | None = None
) -> PodStory:
    """The story of a pod.

    facts         events of `podspec.<uid>`, `pod.<uid>`, `eviction.<uid>` and of `nodestate.<node>` of its nodes, in
                  any order; told in the order of their sequences, whatever any clock says
    verdicts      of `explanations.pod.<uid>`, in the order of their stream, and those on its admission before them
    """
    namespace = name = node = submitted_at = placed_at = ""
    status: Status = "Pending"
    requests: dict[str, int] = {}
    moments: list[tuple[int, Moment]] = []
    for stored in sorted(facts, key=lambda event: event.seq):
        event = CATALOGUE.read(stored)
        moment: Moment | None = None
        match event:
            case PodSpecAdded() | PodSpecChanged():
                namespace, name = event.object.metadata.namespace, event.object.metadata.name
                requests = pod_requests(event.object)
                submitted_at = submitted_at or stored.occurred_at
                moment = _moment("submitted" if isinstance(event, PodSpecAdded) else "changed", stored)
            case PodSpecDeleted():
                status, moment = "Deleted", _moment("deleted", stored)
            case PodPlaced():
                node, status = event.node, "Placed"
                placed_at = placed_at or stored.occurred_at
                placed = _moment("placed", stored, f"on {node}", attempt=event.attempt, why=event.explanation)
                written = binding_annotations(event.allocation, event.gang, event.annotations, {})
                moment = msgspec.structs.replace(placed, annotations=written)
            case PodBound():
                moment = _moment("bound", stored, f"to {event.node}")
            case PodBindFailed():
                moment = _moment("not bound", stored, f"to {event.node}: {event.reason}: {event.message}")
            case PodReleased():
                node, status = "", "Deleted" if event.reason == "deleted" else "Pending"
                moment = _moment("released", stored, f"from {event.node}: {event.reason}")
            case PodNominated() | PodNominationCleared() | PodEvictionRequested() | PodEvicted() | PodEvictionFailed():
                moment = _displacement(event, stored)
            case PodsStarted() if uid in event.pods:
                status = "Running" if node else status
                moment = _moment("started", stored, f"by the agent of {stored.ref.id.replace('_', '.')}")
            case PodsStopped() if uid in event.pods:
                moment = _moment("stopped", stored)
            case _:
                pass
        if moment is not None:
            moments.append((stored.seq, moment))
    return PodStory(
        namespace=namespace,
        name=name,
        uid=uid,
        status=status,
        node=node,
        requests=requests,
        moments=_interleaved(moments, verdicts),
        used=used if node else None,
        wait_seconds=seconds_between(submitted_at, placed_at) if submitted_at and placed_at else None,
    )


def refused_story(namespace: str, name: str, verdicts: Iterable[StoredEvent]) -> PodStory:
    """What is known of a pod that admission never let in. verdicts: refusals, in the order of their stream."""
    moments = [moment for stored in verdicts if (moment := _verdict(stored)) is not None]
    return PodStory(namespace=namespace, name=name, uid="", status="Refused", moments=moments)


def _interleaved(facts: list[tuple[int, Moment]], verdicts: Iterable[StoredEvent]) -> list[Moment]:
    """Facts by position; each verdict behind the newest fact it was based on, and never before an earlier verdict of
    the scheduler; what let the pod in stands first.
    """
    first = known = facts[0][0] if facts else 0
    keyed = [((seq, 0, 0), moment) for seq, moment in facts]
    for number, stored in enumerate(verdicts):
        moment = _verdict(stored)
        if stored.ref.kind == "admission":
            if moment is not None:
                keyed.append(((stored.based_on, 1, number) if stored.based_on >= first else (0, 0, number), moment))
            continue
        known = max(known, stored.based_on)
        if moment is not None:
            keyed.append(((known, 1, number), moment))
    return [moment for _, moment in sorted(keyed, key=lambda entry: entry[0])]


def _verdict(stored: StoredEvent) -> Moment | None:
    event = CATALOGUE.read(stored)
    match event:
        case PodUnschedulable():
            refused = _moment(
                "refused", stored, event.message, attempt=event.attempt, why=event.explanation, is_fact=False
            )
            return msgspec.structs.replace(refused, diagnosis=event.diagnosis)
        case PodGated():
            return _moment("gated", stored, event.message, is_fact=False)
        case AdmissionDecided():
            judged = _moment(
                "admitted" if event.allowed else "denied", stored, admission_sentence(event), is_fact=False
            )
            return msgspec.structs.replace(judged, steps=event.steps, rules=event.rules)
        case DecisionAbandoned():
            return _moment("abandoned", stored, event.reason, attempt=event.attempt, is_fact=False)
        case _:
            return None


def _displacement(
    event: PodNominated | PodNominationCleared | PodEvictionRequested | PodEvicted | PodEvictionFailed,
    stored: StoredEvent,
) -> Moment:
    """What a pod was promised at the cost of others, or what it has to give up."""
    match event:
        case PodNominated():
            cost = f", once {victims_text(event.victims)} left" if event.victims else ""
            promised = _moment("nominated", stored, f"to {event.node} by {event.plugin}{cost}")
            return msgspec.structs.replace(promised, node=event.node, victims=event.victims)
        case PodNominationCleared():
            return _moment("renounced", stored, f"{event.node} is not promised any more: {event.reason}")
        case PodEvictionRequested():
            return _moment("evicting", stored, f"{event.reason}: {event.message}" if event.message else event.reason)
        case PodEvicted():
            return _moment("evicted", stored, "it was gone already" if event.gone else "")
        case PodEvictionFailed():
            return _moment("kept", stored, f"not evicted, {event.reason}: {event.message}".removesuffix(": "))


def _moment(
    what: str,
    stored: StoredEvent,
    sentence: str = "",
    *,
    attempt: int = 0,
    why: PlacementExplanation | None = None,
    is_fact: bool = True,
) -> Moment:
    parts = stored.traceparent.split("-")
    return Moment(
        what=what,
        at=stored.occurred_at,
        position=stored.seq if is_fact else 0,
        by=stored.actor,
        sentence=sentence,
        attempt=attempt,
        explanation=why,
        trace=parts[1] if len(parts) > 1 else "",
    )
