"""The explanation of a pod by `koord explain pod`: `koordcore.stories.pod` with status, usage and details. Pure.

`explain` fetches the events. `lines` prints the result.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, Literal, TypeAlias

import msgspec
from koordcore.events.admission import AdmissionDecided
from koordcore.events.envelope import StoredEvent
from koordcore.events.explanations import DecisionAbandoned, Diagnosis, PodGated, PodUnschedulable
from koordcore.events.nodestate import ContainerHookApplied, HookedValue, PodsStarted
from koordcore.events.objects import PodSpecAdded, PodSpecChanged, PodSpecDeleted
from koordcore.events.observation import Usage
from koordcore.events.pod import (
    RESIZED,
    PlacementExplanation,
    PodNominated,
    PodPlaced,
    PodReallocated,
    PodReleased,
    Victim,
)
from koordcore.protocol.annotations.allocation import binding_annotations
from koordcore.protocol.pod_resources import pod_requests
from koordcore.stories.disruptions import Disruption, disruption_of
from koordcore.stories.hardware import NodeHardware
from koordcore.stories.moment import Moment
from koordcore.stories.pending import pending_sentence
from koordcore.stories.pod import pod_story
from koordcore.values.allocation import Allocation

from koordctl.node.hardware import chosen_lines
from koordctl.render.units import amounts_text, seconds_between

Status: TypeAlias = Literal["Pending", "Placed", "Running", "Deleted", "Denied"]
"""Denied: admission has admitted no pod of this name."""
_NOT_WAITING: Final = ("placed", "released")
"""Steps behind which what was said before does not hold."""
_NONE: Final[Mapping[str, str]] = MappingProxyType({})
_NO_HARDWARE: Final[Mapping[int, NodeHardware]] = MappingProxyType({})


def volume_lines(allocation: Allocation, node: str) -> Iterator[str]:
    """A phrase for each unbound claim of a placed pod, such as `volume pv-1 for claim data`."""
    for each in allocation.volume_claims:
        if each.volume:
            yield f"volume {each.volume} for claim {each.claim}"
        else:
            yield f"a new volume on {node} for claim {each.claim}"


def split_amounts(allocation: Allocation, requests: Mapping[str, int]) -> tuple[dict[str, int], dict[str, int]]:
    """The parts of a pod's requests that come from its Reservation and from its node, without zeros."""
    used = allocation.reservation
    given = {} if used is None else {name: min(used.amounts.get(name, 0), amount) for name, amount in requests.items()}
    rest = {name: amount - given.get(name, 0) for name, amount in requests.items()}
    return {name: amount for name, amount in given.items() if amount}, {
        name: amount for name, amount in rest.items() if amount
    }


def use_line(allocation: Allocation, requests: Mapping[str, int]) -> str | None:
    """The Reservation that a pod uses; None if no amounts from a Reservation are known."""
    if allocation.reservation is None or not allocation.reservation.amounts:
        return None
    given, rest = split_amounts(allocation, requests)
    said = f"{amounts_text(given)} from Reservation {allocation.reservation.name}"
    return f"{said}, {amounts_text(rest)} from the node" if rest else said


class StoryEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One event in a pod's life, as `koord explain pod -o json` prints it."""

    step: str  # One of `koordcore.stories.moment.Step`
    at: str  # RFC 3339, the clock of the writer
    position: int = 0  # Position of the fact, or 0 for an explanation
    by: str = ""  # Actor that wrote the event
    sentence: str = ""  # Description of the event; may be empty
    attempt: int = 0  # Number of the scheduler's attempt, or 0 if there was none
    # Nodes considered and feasible, exclusions and scores of an attempt.
    explanation: PlacementExplanation | None = None
    diagnosis: Diagnosis | None = None  # Reasons why an attempt failed, by groups of nodes
    why: str = ""  # One sentence about why the pod was not placed; empty for other events
    node: str = ""  # Node of a nomination
    victims: list[Victim] = []  # Victims of a nomination
    annotations: dict[str, str] = {}  # Annotations of the allocation, as they are written with the binding
    # Texts about the allocation: amounts from a Reservation, volumes for unbound claims, and CPUs, zones and devices
    # with their places in the node.
    chosen: list[str] = []
    hooked: list[HookedValue] = []  # Values that hooks of the agent changed, with the plug-in and the old value
    steps: list[str] = []  # Steps of admission that changed the pod
    rules: list[str] = []  # Rules of admission that denied the request
    trace: str = ""  # Trace id


class Used(msgspec.Struct, frozen=True, kw_only=True):
    """The measured usage of a pod in a report of its node, and the time of that report (RFC 3339)."""

    usage: Usage
    at: str
    qos: str = ""


class PodStory(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All data that `koord explain pod` shows of a pod."""

    namespace: str
    name: str
    uid: str  # Its uid, or empty if it was never admitted
    status: Status  # Its status at the end
    node: str = ""  # Its node, or empty if it has none
    why: str = ""  # Why it is pending, in one sentence; empty if it is not, or if nothing is known yet
    requests: dict[str, int] = {}  # Its requests: milli-cores, bytes, or counts
    node_selector: dict[str, str] = {}  # Labels that its node must have
    # Facts in the order of the log, each explanation behind the newest fact that it was based on.
    moments: list[StoryEntry] = []
    used: Used | None = None  # Usage in the last report of its node, or None if there is none
    wait_seconds: float | None = None  # Time from submission to first placement, or None if it was never placed
    # Component that takes or took the pod away from its workload, and why; None if none does.
    disruption: Disruption | None = None
    # Time for which the workload had one pod less because of a migration; None without a migration, or if the successor
    # is not ready yet.
    missed_seconds: float | None = None


def explained_pod(
    uid: str,
    facts: Iterable[StoredEvent],
    explanations: Iterable[StoredEvent],
    used: Used | None = None,
    hardware: Mapping[int, NodeHardware] = _NO_HARDWARE,
) -> PodStory:
    """Return what `koord explain pod` shows of a pod that was admitted. Facts and explanations: see `pod_story`.

    Args:
        used: Usage in the last report of its node; None without one.
        hardware: Position of a placement -> hardware of its node then, for placements that gave hardware.
    """
    namespace = name = node = submitted_at = placed_at = ""
    status: Status = "Pending"
    requests: dict[str, int] = {}
    node_selector: dict[str, str] = {}
    moments = pod_story(uid, facts, explanations)
    entries: list[StoryEntry] = []
    annotations: Mapping[str, str] = {}
    for moment in moments:
        _, _, stored, event, _ = moment
        match event:
            case PodSpecAdded() | PodSpecChanged():
                annotations = event.object.metadata.annotations
                namespace, name = event.object.metadata.namespace, event.object.metadata.name
                requests = pod_requests(event.object)
                node_selector = event.object.spec.node_selector
                submitted_at = submitted_at or stored.occurred_at
                if event.object.spec.node_name:  # bound: by the gateway, by another scheduler, or by its own manifest
                    node = event.object.spec.node_name
                    status = "Running" if event.object.status.phase == "Running" or status == "Running" else "Placed"
            case PodSpecDeleted():
                status = "Deleted"
            case PodPlaced():
                node, status = event.node, "Placed"
                placed_at = placed_at or stored.occurred_at
            case PodReleased():
                node, status = "", "Deleted" if event.reason == "deleted" else "Pending"
            case PodsStarted():
                status = "Running" if node else status
            case _:
                pass
        entries.append(_entry(moment, annotations, hardware))
    return PodStory(
        namespace=namespace,
        name=name,
        uid=uid,
        status=status,
        node=node,
        why=_why_pending(entries) if status == "Pending" else "",
        requests=requests,
        node_selector=node_selector,
        moments=entries,
        used=used if node else None,
        wait_seconds=seconds_between(submitted_at, placed_at) if submitted_at and placed_at else None,
        disruption=disruption_of(moments),
    )


def _why_pending(entries: Sequence[StoryEntry]) -> str:
    """The sentence of the newest explanation since the pod lost its node, if it had one."""
    for entry in reversed(entries):
        if entry.why or entry.step in _NOT_WAITING:
            return entry.why
    return ""


def denied_pod(namespace: str, name: str, explanations: Iterable[StoredEvent]) -> PodStory:
    """What `koord explain pod` shows of a pod that was never admitted. `explanations`: the denials, oldest first."""
    moments = [_entry(moment) for moment in pod_story("", [], explanations)]
    return PodStory(namespace=namespace, name=name, uid="", status="Denied", moments=moments)


def _entry(
    moment: Moment, annotations: Mapping[str, str] = _NONE, hardware: Mapping[int, NodeHardware] = _NO_HARDWARE
) -> StoryEntry:
    """`annotations` are those of the pod at that moment."""
    stored = moment.stored
    return StoryEntry(
        step=moment.step,
        at=stored.occurred_at,
        position=stored.seq if moment.is_fact else 0,
        by=stored.actor,
        sentence=moment.sentence,
        trace=stored.trace_id,
        **_details(moment, annotations, hardware),
    )


def _details(moment: Moment, annotations: Mapping[str, str], hardware: Mapping[int, NodeHardware]) -> dict[str, Any]:
    """The fields of a `StoryEntry` that only some types of events have."""
    match event := moment.event:
        case PodReallocated():
            amounts = f"it holds {amounts_text(event.requests)} now" if event.reason == RESIZED else None
            return {"chosen": [*filter(None, (amounts, use_line(event.allocation, event.requests)))]}
        case PodPlaced():
            of_node = hardware.get(moment.stored.seq)
            return {
                "attempt": event.attempt,
                "explanation": event.explanation,
                "annotations": binding_annotations(event.allocation, event.gang, event.annotations, annotations),
                "chosen": [
                    *filter(None, (use_line(event.allocation, event.requests),)),
                    *volume_lines(event.allocation, event.node),
                    *(chosen_lines(event.allocation, of_node) if of_node is not None else ()),
                ],
            }
        case ContainerHookApplied():
            return {"hooked": list(event.values)}
        case PodUnschedulable():
            details = {"attempt": event.attempt, "explanation": event.explanation, "diagnosis": event.diagnosis}
            return {**details, "why": pending_sentence(event)}
        case PodGated():
            return {"why": pending_sentence(event)}
        case DecisionAbandoned():
            return {"attempt": event.attempt, "why": pending_sentence(event)}
        case PodNominated():
            return {"node": event.node, "victims": event.victims}
        case AdmissionDecided():
            return {"steps": event.steps, "rules": event.rules}
        case _:
            return {}
