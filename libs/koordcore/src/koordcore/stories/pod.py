"""The story of one pod: its facts and explanations in one order, each with a step and a sentence.

Facts are in the order of the log, explanations in the order of their stream; clocks do not matter. An explanation
follows the newest fact that its writer had folded.
"""

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from koordcore.events import CATALOGUE
from koordcore.events.admission import AdmissionDecided
from koordcore.events.criproxy import HookServerFailed
from koordcore.events.envelope import Event, StoredEvent, name_from_token
from koordcore.events.explanations import DecisionAbandoned, PodGated, PodUnschedulable
from koordcore.events.gateway import (
    PodBindFailed,
    PodBound,
    PodEvicted,
    PodEvictionDelayed,
    PodEvictionFailed,
    PodEvictionRequested,
)
from koordcore.events.nodestate import ContainerHookApplied, ContainerHookFailed, PodsStarted, PodsStopped
from koordcore.events.pod import (
    PodDeviceUnhealthy,
    PodNominated,
    PodNominationCleared,
    PodPlaced,
    PodReallocated,
    PodReleased,
    UnhealthyDevice,
    Victim,
)
from koordcore.events.registry import UnreadableEvent
from koordcore.stories.sentences import OfRound, round_sentence, sentence_of
from koordcore.values.allocation import Allocation


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
    DEVICE_UNHEALTHY = "device-unhealthy"
    DEVICE_HEALTHY = "device-healthy"
    EVICTION_REQUESTED = "eviction-requested"
    EVICTED = "evicted"
    EVICTION_DELAYED = "eviction-delayed"
    EVICTION_FAILED = "eviction-failed"
    EVICTION_REFUSED = "eviction-refused"
    SUPPRESSED = "suppressed"
    UNSUPPRESSED = "unsuppressed"
    INTERFERENCE = "interference"
    INTERFERENCE_ENDED = "interference-ended"
    DELETION_COST = "deletion-cost"
    OTHER = "other"


# Event type -> step. `AdmissionDecided` is missing, because it is either admitted or denied.
STEPS: Final = {
    "PodSpecAdded": Step.SUBMITTED,
    "PodSpecChanged": Step.CHANGED,
    "PodSpecDeleted": Step.DELETED,
    "PodGated": Step.GATED,
    "PodUnschedulable": Step.UNSCHEDULABLE,
    "DecisionAbandoned": Step.ABANDONED,
    "PodNominated": Step.NOMINATED,
    "PodNominationCleared": Step.NOMINATION_CLEARED,
    "PodPlaced": Step.PLACED,
    "PodBound": Step.BOUND,
    "PodBindFailed": Step.BIND_FAILED,
    "PodReleased": Step.RELEASED,
    "PodsStarted": Step.STARTED,
    "PodsStopped": Step.STOPPED,
    "ContainerHookApplied": Step.HOOKED,
    "ContainerHookFailed": Step.HOOK_FAILED,
    "HookServerFailed": Step.HOOK_FAILED,
    "PodReallocated": Step.REALLOCATED,
    "PodDeviceUnhealthy": Step.DEVICE_UNHEALTHY,
    "PodEvictionRequested": Step.EVICTION_REQUESTED,
    "PodEvicted": Step.EVICTED,
    "PodEvictionDelayed": Step.EVICTION_DELAYED,
    "PodEvictionFailed": Step.EVICTION_FAILED,
    "EvictionRefused": Step.EVICTION_REFUSED,
    "PodsEvictedByAgent": Step.EVICTED,
    "BeCpuSuppressed": Step.SUPPRESSED,
    "BeCpuReleased": Step.UNSUPPRESSED,
    "InterferenceDetected": Step.INTERFERENCE,
    "InterferenceEnded": Step.INTERFERENCE_ENDED,
    "DeletionCostsDecided": Step.DELETION_COST,
    "DeletionCostsCarriedOut": Step.DELETION_COST,
}


class Moment(NamedTuple):
    """One event in the life of a pod, with a sentence about it."""

    step: Step  # Kind of the event
    sentence: str  # Description without the name of the pod; may be empty
    stored: StoredEvent  # The stored event with time, actor, position and trace
    event: Event | None  # The decoded event; None if this code cannot decode it
    is_fact: bool  # False for an explanation, which has no position in the log


def pod_story(uid: str, facts: Iterable[StoredEvent], explanations: Iterable[StoredEvent]) -> list[Moment]:
    """Return the events of a pod's life in order, each with a sentence. An explanation is placed behind the last fact
    that its writer had folded.

    Args:
        facts: Events of `podspec.<uid>`, `pod.<uid>`, `eviction.<uid>`, `descheduling.costs` and of the pod's nodes
            (`nodestate.<node>`, `criproxy.<node>`), in any order. Those of other pods are left out.
        explanations: Events of `explanations.pod.<uid>`, `explanations.refusal.<uid>` and those of its admission, each
            in the order of its stream.
    """
    told = [(stored, _read(stored)) for stored in sorted(facts, key=lambda stored: stored.seq)]
    keyed = [
        ((stored.seq, 0, 0), _moment(uid, stored, event, is_fact=True)) for stored, event in told if _is_of(uid, event)
    ]
    first = known = keyed[0][0][0] if keyed else 0
    for number, stored in enumerate(explanations):
        moment = _moment(uid, stored, _read(stored), is_fact=False)
        if stored.ref.kind == "admission":
            # What let the pod in stands before its first fact.
            keyed.append(((stored.based_on, 1, number) if stored.based_on >= first else (0, 0, number), moment))
        else:
            known = max(known, stored.based_on)
            keyed.append(((known, 1, number), moment))
    return [moment for _, moment in sorted(keyed, key=lambda entry: entry[0])]


def pod_sentence(event: Event) -> str | None:
    """Return a short description of an event of a pod, without the pod's name; None for other events."""
    match event:
        case PodPlaced():
            found = event.explanation
            return f"on {event.node} ({found.nodes_feasible} of {found.nodes_considered} nodes were feasible)"
        case PodBound():
            return f"to {event.node}{' (found bound)' if event.observed else ''}"
        case PodBindFailed():
            return f"to {event.node}: {event.reason}: {event.message}".removesuffix(": ")
        case PodReleased():
            return f"from {event.node}: {event.reason}"
        case PodsStarted() | PodsStopped():
            return ""
        case ContainerHookApplied():
            changed = ", ".join(f"{value.name} {value.new}".rstrip() for value in event.values)
            return f"{hook_place(event)}: {'; '.join(filter(None, (changed, event.reason)))}"
        case ContainerHookFailed():
            return f"{hook_place(event)}: {event.plugin} (policy {event.policy}): {event.error}"
        case HookServerFailed():
            of = f"container {event.container}" if event.container else "pod"
            return f"{of} at {event.hook} (proxy): hook server {event.server} (policy {event.policy}): {event.error}"
        case PodNominated():
            cost = f", after {victims_text(event.victims)} left" if event.victims else ""
            return f"to {event.node} by {event.plugin}{cost}"
        case PodNominationCleared():
            return f"to {event.node}: {event.reason}"
        case PodReallocated():
            return f"on {event.node}: {reallocation_sentence(event.reason, event.allocation)}"
        case PodDeviceUnhealthy():
            return device_sentence(event.devices, event.node)
        case PodEvictionRequested():
            return f"from {event.node}: {event.message or event.reason}"
        case PodEvicted():
            return "the pod was gone already" if event.gone else ""
        case PodEvictionDelayed() | PodEvictionFailed():
            return f"{event.reason}: {event.message}".removesuffix(": ")
        case PodUnschedulable() | PodGated():
            return event.message
        case DecisionAbandoned():
            return event.reason
        case AdmissionDecided():
            return admission_sentence(event)
        case _:
            return None


def hook_place(event: ContainerHookApplied | ContainerHookFailed) -> str:
    """Return the place at which a hook ran as text: `container main at PreCreateContainer (Proxy)`."""
    of = f"container {event.container}" if event.container else "pod"
    return f"{of} at {event.stage} ({event.mode})" if event.stage else f"{of} by the {event.mode.lower()}"


def reallocation_sentence(reason: str, allocation: Allocation) -> str:
    """Return a sentence about a `PodReallocated`: why the pod's resources changed, and which Reservation it uses now.
    `reason`: field `reason` of the event. `allocation`: Allocation of the pod after the event.
    """
    used = allocation.reservation
    of = f" by Reservation {used.name}" if used is not None and reason == "pre-allocated" else ""
    return f"{reason}{of}"


def device_sentence(devices: Sequence[UnhealthyDevice], node: str) -> str:
    """Return a text about the unhealthy devices of a pod. For example: `gpu 0 (GPU-00) of node-1; the pod keeps what it
    holds, no new pod is placed there`. `devices`: the unhealthy devices; empty if all are healthy again.
    """
    if not devices:
        return f"all devices of the pod on {node} are healthy again"
    named = [f"{each.type} {each.minor}{f' ({each.id})' if each.id else ''}" for each in devices]
    return f"{', '.join(named)} of {node}; the pod keeps what it holds, no new pod is placed there"


def admission_sentence(event: AdmissionDecided) -> str:
    """Return a sentence about an admission: the request, its user, and what changed or denied it."""
    by = f" by {event.user}" if event.user else ""
    asked = f"{event.operation.lower()}{by}"
    if event.allowed:
        return f"{asked}, changed by {', '.join(event.steps)}"
    rules = f" ({', '.join(dict.fromkeys(event.rules))})" if event.rules else ""
    return f"{asked}: {event.message}{rules}"


def victims_text(victims: Sequence[Victim]) -> str:
    """Return the beginning of a sentence about the victims of a preemption: `ns/a and ns/b have`. Victims whose
    eviction violates a disruption budget are marked. `victims`: at least one victim.
    """
    names = [
        f"{each.namespace}/{each.name}{' (against its disruption budget)' if each.violates_budget else ''}"
        for each in victims
    ]
    return f"{names[0]} has" if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]} have"


def _read(stored: StoredEvent) -> Event | None:
    try:
        return CATALOGUE.read(stored)
    except UnreadableEvent:
        return None


def _is_of(uid: str, event: Event | None) -> bool:
    if isinstance(event, (ContainerHookApplied, ContainerHookFailed, HookServerFailed)):
        return event.uid == uid
    if isinstance(event, OfRound):
        return round_sentence(event, uid) is not None
    return not isinstance(event, (PodsStarted, PodsStopped)) or uid in event.pods


def _moment(uid: str, stored: StoredEvent, event: Event | None, *, is_fact: bool) -> Moment:
    step = STEPS.get(stored.type, Step.OTHER)
    if isinstance(event, AdmissionDecided):
        step = Step.ADMITTED if event.allowed else Step.DENIED
    if isinstance(event, PodDeviceUnhealthy) and not event.devices:
        step = Step.DEVICE_HEALTHY
    sentence = pod_sentence(event) if event is not None else None
    if isinstance(event, (PodsStarted, PodsStopped)):
        sentence = f"by the agent of {name_from_token(stored.ref.id)}"
    elif isinstance(event, OfRound):
        sentence = round_sentence(event, uid) or ""
    elif sentence is None:
        sentence = "" if stored.ref.kind == "podspec" else sentence_of(stored)
    return Moment(step, sentence, stored, event, is_fact)
