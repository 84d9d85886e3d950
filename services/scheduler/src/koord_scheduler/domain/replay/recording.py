"""Reads the attempts in a window of the log: their pods, times, bases and outcomes.

Attempts that found a node, and nominations, are facts. An attempt that found none has an explanation, as long as
explanations are retained. The attempts of one term are in the order of their decisions, so that the window can be
repeated attempt by attempt (`what_if`). For a re-run, `without_node` removes the recorded decision from an object, and
`stored_as` makes an event of a decision of the re-run.

Source: scheduler-core spec, 1; event-bus spec, 4.2
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import merge
from typing import NamedTuple

import msgspec
from koordcore.events import CATALOGUE
from koordcore.events.envelope import HEADER_ACTOR, HEADER_EPOCH, AggregateRef, Draft, Event, Origin, StoredEvent
from koordcore.events.explanations import PodUnschedulable
from koordcore.events.gateway import PodBound, PodEvictionRequested
from koordcore.events.objects import CustomObjectObserved, PodSpecAdded, PodSpecChanged, plural_of
from koordcore.events.pod import DecisionBasis, PodNominated, PodPlaced, PodReleased
from koordcore.protocol.reservations import PLURAL
from koordcore.values.timestamps import unix_seconds

from koord_scheduler.domain.loop.queue.nominator import PREEMPTED

Term = tuple[str, str]
"""Decisions with the same actor and fencing number are numbered together."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """One attempt that a scheduler made, as the log and the explanations describe it."""

    uid: str
    term: Term  # The scheduler process: its actor and fencing number
    position: int  # Last folded position of the facts stream
    observed: int  # Last folded position of the observations stream
    acknowledged: int  # Position of the last own append whose answer had arrived
    now: float  # Unix seconds of the service's `Clock`
    # Sort key within its term: (number of the decision, 1 if it found no node, position of its event).
    order: tuple[int, int, int]
    stored: int = 0  # Position of the placement; 0 if the attempt found no node

    @property
    def before(self) -> int:
        """Return the number of decisions of the term that had found a node before this attempt."""
        ordinal, is_in_vain, _ = self.order
        return ordinal if is_in_vain else ordinal - 1


@dataclass(frozen=True, slots=True)
class Appended:
    """The position of an event in the log, and the term of the scheduler that wrote it."""

    seq: int
    term: Term


class Nomination(NamedTuple):
    """A pod that preemption nominated to a node, and the victims. Pods are written as "namespace/name"."""

    pod: str
    node: str
    victims: tuple[str, ...]


def nomination_of(event: PodNominated) -> Nomination:
    victims = (f"{victim.namespace}/{victim.name}" for victim in event.victims)
    return Nomination(f"{event.namespace}/{event.name}", event.node, tuple(victims))


@dataclass(slots=True)
class Recording:
    """Recorded actions of schedulers in a window of the log: attempts, placements, releases and preemptions."""

    attempts: list[Recorded] = field(default_factory=list[Recorded])  # The attempts in their order
    placed: dict[str, str] = field(default_factory=dict[str, str])  # Uid -> last node
    decided: int = 0  # Number of placements
    # Uid -> (namespace, name) of every placed pod.
    names: dict[str, tuple[str, str]] = field(default_factory=dict[str, tuple[str, str]])
    nominated: list[Nomination] = field(default_factory=list[Nomination])  # The nominations in the order of the log
    # (uid of the preemptor, uid of the victim) of all nominations.
    pairs: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])
    freed: dict[str, list[Appended]] = field(default_factory=dict[str, list[Appended]])  # Uid -> releases of the pod
    # Uid -> (namespace, name) of every pod that a preemption requested to evict.
    preempted: dict[str, tuple[str, str]] = field(default_factory=dict[str, tuple[str, str]])
    ends: int = 0  # Position of the last event


def recording_of(events: Sequence[StoredEvent], explanations: Iterable[StoredEvent] = ()) -> Recording:
    """Collect what schedulers did in a window of the log. `explanations`: all retained explanations, in the window or
    not. Raises UnreadableEvent: This version cannot decode a stored event.
    """
    found = Recording(ends=events[-1].seq if events else 0)
    attempts: dict[tuple[Term, str, float, int], Recorded] = {}
    for stored in events:
        if stored.ref.kind not in ("pod", "eviction"):
            continue
        match CATALOGUE.read(stored):
            case PodPlaced() as event:
                found.placed[stored.ref.id] = event.node
                found.names[stored.ref.id] = (event.namespace, event.name)
                found.decided += 1
                one = _placed(stored, event)
                attempts[one.term, one.uid, one.now, one.order[0]] = one
            case PodReleased():
                found.placed.pop(stored.ref.id, None)
                found.freed.setdefault(stored.ref.id, []).append(Appended(stored.seq, term_of(stored)))
            case PodNominated() as event:
                found.nominated.append(nomination_of(event))
                found.pairs.update((stored.ref.id, victim.uid) for victim in event.victims)
                if event.basis is not None:
                    one = _in_vain(stored, event.basis)
                    attempts[one.term, one.uid, one.now, one.order[0]] = one
            case PodEvictionRequested(reason=reason) as event if reason == PREEMPTED:
                found.preempted[stored.ref.id] = (event.namespace, event.name)
            case _:
                pass
    begin = events[0].seq - 1 if events else 0
    for stored in explanations:
        event = CATALOGUE.read(stored)
        if isinstance(event, PodUnschedulable) and event.basis is not None:
            one = _in_vain(stored, event.basis)
            if begin <= one.position <= found.ends:
                attempts[one.term, one.uid, one.now, one.order[0]] = one
    found.attempts = list(_in_order(attempts.values()))
    return found


def term_of(stored: StoredEvent) -> Term:
    return stored.headers.get(HEADER_ACTOR, ""), stored.headers.get(HEADER_EPOCH, "")


def _placed(stored: StoredEvent, event: PodPlaced) -> Recorded:
    based_on, basis = event.explanation.based_on, event.basis
    return Recorded(
        uid=stored.ref.id,
        term=term_of(stored),
        position=based_on.ev,
        observed=based_on.obs,
        acknowledged=based_on.ev if basis is None else basis.acknowledged,
        now=unix_seconds(stored.occurred_at) if basis is None else basis.decided_at,
        order=(0 if basis is None else basis.ordinal, 0, stored.seq),
        stored=stored.seq,
    )


def _in_vain(stored: StoredEvent, basis: DecisionBasis) -> Recorded:
    return Recorded(
        uid=stored.ref.id,
        term=term_of(stored),
        position=basis.based_on.ev,
        observed=basis.based_on.obs,
        acknowledged=basis.acknowledged,
        now=basis.decided_at,
        order=(basis.ordinal, 0 if basis.found else 1, stored.seq),
    )


def _in_order(attempts: Iterable[Recorded]) -> Iterator[Recorded]:
    by_term: dict[Term, list[Recorded]] = {}
    for one in attempts:
        by_term.setdefault(one.term, []).append(one)
    terms = [sorted(each, key=lambda one: (one.position, one.order)) for each in by_term.values()]
    return merge(*terms, key=lambda one: one.position)


def subject_of(stored: StoredEvent) -> str:
    """Return the uid of the pod or Reservation whose object the event contains; "" for all other events."""
    if stored.ref.kind == "podspec":
        return stored.ref.id
    if plural_of(stored.ref.id) != PLURAL:
        return ""
    event = CATALOGUE.read(stored)
    return str(event.object["metadata"].get("uid", "")) if isinstance(event, CustomObjectObserved) else ""


def without_node(stored: StoredEvent) -> StoredEvent:
    """Return a copy of an event in which a pod or Reservation has no node, so that a re-run decides the node itself.
    `stored`: the event with the pod or the Reservation; other events are returned as they are.
    """
    event, changed = CATALOGUE.read(stored), None
    if isinstance(event, PodSpecAdded | PodSpecChanged) and event.object.spec.node_name:
        spec = msgspec.structs.replace(event.object.spec, node_name="")
        changed = msgspec.structs.replace(event, object=msgspec.structs.replace(event.object, spec=spec))
    elif isinstance(event, PodBound):
        changed = msgspec.structs.replace(event, bound_at="")
    elif isinstance(event, CustomObjectObserved) and "status" in event.object:
        document = {key: part for key, part in event.object.items() if key != "status"}
        changed = msgspec.structs.replace(event, object=document)
    if changed is None:
        return stored
    return msgspec.structs.replace(stored, body=stored_as(stored.seq, stored.ref, changed).body)


def stored_as(seq: int, ref: AggregateRef, event: Event) -> StoredEvent:
    """Convert an event that a re-run decided to the form in which the log would deliver it. `seq`: the position that
    the event would have.
    """
    origin = Origin(causation_id=f"what-if-{seq}", correlation_id=ref.id, actor="what-if", occurred_at="")
    [new] = CATALOGUE.seal([Draft(ref, event, 0)], origin)
    return StoredEvent(seq, ref, new.headers, new.body)
