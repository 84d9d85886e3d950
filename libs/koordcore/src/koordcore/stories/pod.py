"""The story of one pod: its facts and explanations in one order, each with a step and a sentence.

Facts are in the order of the log, explanations in the order of their stream; clocks do not matter. An explanation
follows the newest fact that its writer had folded.

`EVENTS` says how each type of event appears. `koord explain pod` shows a new type of the pod's own aggregates as soon
as it has a row there. A fact in an aggregate of a node needs a `says`, which finds the pod in it; the read API selects
such facts by type.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from koordcore.events import CATALOGUE
from koordcore.events.admission import AdmissionDecided
from koordcore.events.criproxy import HookServerFailed
from koordcore.events.descheduling import DeletionCostsCarriedOut, DeletionCostsDecided, EvictionRefused
from koordcore.events.envelope import Event, StoredEvent, name_from_token
from koordcore.events.explanations import DecisionAbandoned, PodGated, PodUnschedulable
from koordcore.events.gateway import (
    PodBindFailed,
    PodBound,
    PodEvicted,
    PodEvictionDelayed,
    PodEvictionFailed,
    PodEvictionRequested,
    PodEvictionWithdrawn,
    PodResizeAnswered,
    PodResizeRequested,
    ResizedContainer,
)
from koordcore.events.nodestate import (
    BeCpuReleased,
    BeCpuSuppressed,
    ContainerHookApplied,
    ContainerHookFailed,
    ContainersOomKilled,
    InterferenceDetected,
    InterferenceEnded,
    OomKill,
    PodsEvictedByAgent,
    PodsStarted,
    PodsStopped,
)
from koordcore.events.objects import PodSpecAdded, PodSpecChanged, PodSpecDeleted
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
from koordcore.stories.moment import Moment, Step
from koordcore.stories.sentences import round_sentence, sentence_of
from koordcore.values.allocation import Allocation
from koordcore.values.quantity import Notation, of_value

E = TypeVar("E", bound=Event)


class Of(NamedTuple):
    """The pod whose story is told, and the stored event."""

    uid: str
    stored: StoredEvent


class Telling(NamedTuple):
    """How the events of one type appear in the story of a pod."""

    kind: str  # of the aggregate
    step: Step
    says: Callable[[Any, Of], str | None] | None
    """The sentence about an event, without the name of the pod; may be empty. If the function returns None for a fact,
    the fact is not about this pod and is left out. Without a function, `stories.sentences` has the sentence."""


def _row(model: type[E], step: Step, says: Callable[[E, Of], str | None] | None = None) -> tuple[str, Telling]:
    return model.__name__, Telling(CATALOGUE.of(model).kind, step, says)


EVENTS: Final[Mapping[str, Telling]] = dict(
    (
        _row(PodSpecAdded, Step.SUBMITTED, lambda event, of: ""),
        _row(PodSpecChanged, Step.CHANGED, lambda event, of: ""),
        _row(PodSpecDeleted, Step.DELETED, lambda event, of: ""),
        _row(AdmissionDecided, Step.OTHER, lambda event, of: _admission(event)),  # admitted or denied, see `_step`
        _row(PodGated, Step.GATED, lambda event, of: event.message),
        _row(PodUnschedulable, Step.UNSCHEDULABLE, lambda event, of: event.message),
        _row(DecisionAbandoned, Step.ABANDONED, lambda event, of: event.reason),
        _row(PodNominated, Step.NOMINATED, lambda event, of: _nominated(event)),
        _row(PodNominationCleared, Step.NOMINATION_CLEARED, lambda event, of: f"to {event.node}: {event.reason}"),
        _row(PodPlaced, Step.PLACED, lambda event, of: _placed(event)),
        _row(PodBound, Step.BOUND, lambda event, of: f"to {event.node}{' (found bound)' if event.observed else ''}"),
        _row(PodBindFailed, Step.BIND_FAILED, lambda event, of: f"to {event.node}: {_why(event)}"),
        _row(PodResizeRequested, Step.RESIZE_REQUESTED, lambda event, of: _resized(event)),
        _row(
            PodResizeAnswered,
            Step.RESIZE_ANSWERED,
            lambda event, of: f"refused: {event.failure}: {event.message}" if event.failure else "accepted",
        ),
        _row(
            PodReallocated,
            Step.REALLOCATED,
            lambda event, of: f"on {event.node}: {_reallocated(event.reason, event.allocation)}",
        ),
        _row(PodReleased, Step.RELEASED, lambda event, of: f"from {event.node}: {event.reason}"),
        _row(PodsStarted, Step.STARTED, lambda event, of: _by_agent(of) if of.uid in event.pods else None),
        _row(PodsStopped, Step.STOPPED, lambda event, of: _by_agent(of) if of.uid in event.pods else None),
        _row(ContainerHookApplied, Step.HOOKED, lambda event, of: _hooked(event) if event.uid == of.uid else None),
        _row(
            ContainerHookFailed,
            Step.HOOK_FAILED,
            lambda event, of: _hook_failed(event) if event.uid == of.uid else None,
        ),
        _row(
            HookServerFailed, Step.HOOK_FAILED, lambda event, of: _server_failed(event) if event.uid == of.uid else None
        ),
        _row(ContainersOomKilled, Step.OOM_KILLED, lambda event, of: _oom_killed(event, of.uid)),
        _row(PodDeviceUnhealthy, Step.DEVICE_UNHEALTHY, lambda event, of: device_sentence(event.devices, event.node)),
        _row(
            PodEvictionRequested,
            Step.EVICTION_REQUESTED,
            lambda event, of: f"from {event.node}: {event.message or event.reason}",
        ),
        _row(PodEvicted, Step.EVICTED, lambda event, of: "the pod was gone already" if event.gone else ""),
        _row(PodEvictionDelayed, Step.EVICTION_DELAYED, lambda event, of: _why(event)),
        _row(PodEvictionFailed, Step.EVICTION_FAILED, lambda event, of: _why(event)),
        _row(PodEvictionWithdrawn, Step.EVICTION_WITHDRAWN, lambda event, of: _why(event)),
        _row(EvictionRefused, Step.EVICTION_REFUSED, lambda event, of: round_sentence(event, of.uid)),
        _row(PodsEvictedByAgent, Step.EVICTED),
        _row(BeCpuSuppressed, Step.SUPPRESSED),
        _row(BeCpuReleased, Step.UNSUPPRESSED),
        _row(InterferenceDetected, Step.INTERFERENCE),
        _row(InterferenceEnded, Step.INTERFERENCE_ENDED),
        _row(DeletionCostsDecided, Step.DELETION_COST, lambda event, of: round_sentence(event, of.uid)),
        _row(DeletionCostsCarriedOut, Step.DELETION_COST, lambda event, of: round_sentence(event, of.uid)),
    )
)
"""Event type -> how it appears in the story of a pod."""
OF_NODE: Final = tuple(
    name for name, telling in EVENTS.items() if telling.says is not None and telling.kind in ("nodestate", "criproxy")
)
"""Types of the facts in the aggregates of a node that belong to the stories of single pods."""


def pod_story(uid: str, facts: Iterable[StoredEvent], explanations: Iterable[StoredEvent]) -> list[Moment]:
    """Return the events of a pod's life in order, each with a sentence. An explanation is placed behind the last fact
    that its writer had folded.

    Args:
        facts: Events of `podspec.<uid>`, `pod.<uid>`, `eviction.<uid>`, `descheduling.costs` and of the pod's nodes
            (`nodestate.<node>`, `criproxy.<node>`), in any order. Those of other pods are left out.
        explanations: Events of `explanations.pod.<uid>`, `explanations.refusal.<uid>` and those of its admission, each
            in the order of its stream.
    """
    told = [_moment(uid, stored, is_fact=True) for stored in sorted(facts, key=lambda stored: stored.seq)]
    told += [_moment(uid, stored, is_fact=False) for stored in explanations]
    keyed: list[tuple[tuple[int, int, int], Moment]] = []
    first = known = 0
    for number, moment in enumerate(filter(None, told)):
        basis = moment.stored.based_on
        if moment.is_fact:
            first = known = first or moment.stored.seq
            keyed.append(((moment.stored.seq, 0, 0), moment))
        elif moment.stored.ref.kind == "admission":
            # What let the pod in stands before its first fact.
            keyed.append(((basis, 1, number) if basis >= first else (0, 0, number), moment))
        else:
            known = max(known, basis)
            keyed.append(((known, 1, number), moment))
    return [moment for _, moment in sorted(keyed, key=lambda entry: entry[0])]


def _hooked(event: ContainerHookApplied) -> str:
    changed = ", ".join(f"{value.name} {value.new}".rstrip() for value in event.values)
    return f"{_hook_place(event)}: {'; '.join(filter(None, (changed, event.reason)))}"


def _hook_failed(event: ContainerHookFailed) -> str:
    return f"{_hook_place(event)}: {event.plugin} (policy {event.policy}): {event.error}"


def _server_failed(event: HookServerFailed) -> str:
    of = f"container {event.container}" if event.container else "pod"
    return f"{of} at {event.hook} (proxy): hook server {event.server} (policy {event.policy}): {event.error}"


def _resized(event: PodResizeRequested) -> str:
    return "; ".join(filter(None, (*(resized_text(each) for each in event.containers), event.message)))


def resized_text(container: ResizedContainer) -> str:
    """For example `container app to cpu 200m, memory 1Gi (limits cpu 400m)`."""
    requests, limits = (
        ", ".join(f"{name} {amount}" for name, amount in sorted(amounts.items()))
        for amounts in (container.requests, container.limits)
    )
    return f"container {container.name} to {requests}{f' (limits {limits})' if limits else ''}"


def _oom_killed(event: ContainersOomKilled, uid: str) -> str | None:
    kills = [oom_kill_text(kill) for kill in event.kills if kill.uid == uid]
    return f"for lack of memory: {', '.join(kills)}" if kills else None


def oom_kill_text(kill: OomKill) -> str:
    """For example `container main (limit 64Mi, 2 kills)`; `the pod` if its containers are unknown."""
    of = f"container {kill.container}" if kill.container else "the pod"
    limit = f"limit {of_value(kill.limit_bytes, Notation.BINARY)}" if kill.limit_bytes else "without a limit"
    return f"{of} ({limit}{f', {kill.kills} kills' if kill.kills > 1 else ''})"


def _hook_place(event: ContainerHookApplied | ContainerHookFailed) -> str:
    """Return the place at which a hook ran as text: `container main at PreCreateContainer (Proxy)`."""
    of = f"container {event.container}" if event.container else "pod"
    return f"{of} at {event.stage} ({event.mode})" if event.stage else f"{of} by the {event.mode.lower()}"


def _reallocated(reason: str, allocation: Allocation) -> str:
    """Why the resources of a pod changed, and which Reservation it uses now."""
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


def _admission(event: AdmissionDecided) -> str:
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


def _placed(event: PodPlaced) -> str:
    found = event.explanation
    return f"on {event.node} ({found.nodes_feasible} of {found.nodes_considered} nodes were feasible)"


def _nominated(event: PodNominated) -> str:
    cost = f", after {victims_text(event.victims)} left" if event.victims else ""
    return f"to {event.node} by {event.plugin}{cost}"


def _why(event: PodBindFailed | PodEvictionDelayed | PodEvictionFailed | PodEvictionWithdrawn) -> str:
    return f"{event.reason}: {event.message}".removesuffix(": ")


def _by_agent(of: Of) -> str:
    return f"by the agent of {name_from_token(of.stored.ref.id)}"


def _moment(uid: str, stored: StoredEvent, *, is_fact: bool) -> Moment | None:
    """The moment of an event; None for a fact that is not about this pod."""
    try:
        event = CATALOGUE.read(stored)
    except UnreadableEvent:
        event = None
    telling = EVENTS.get(stored.type)
    if event is not None and telling is not None and telling.says is not None:
        sentence = telling.says(event, Of(uid, stored))
        if sentence is None and is_fact:
            return None
    else:
        sentence = "" if stored.ref.kind == "podspec" else sentence_of(stored)
    return Moment(_step(event, telling), sentence or "", stored, event, is_fact)


def _step(event: Event | None, telling: Telling | None) -> Step:
    match event:
        case AdmissionDecided():
            return Step.ADMITTED if event.allowed else Step.DENIED
        case PodDeviceUnhealthy(devices=[]):
            return Step.DEVICE_HEALTHY
        case _:
            return telling.step if telling is not None else Step.OTHER
