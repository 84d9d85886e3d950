"""Folds one event of the log or one report: reads it once and passes it to the module that records it.

    fold(stored)         one event of the log, in order
    fold_ahead(stored)   an event of one aggregate, read before the follower delivers it (after a conflict)
    fold_report(stored)  one observation: a node's report

Source: event-bus spec, 3.2, 4.2
"""

from typing import Final

from koordcore.events import CATALOGUE
from koordcore.events.envelope import Event, StoredEvent, name_from_token
from koordcore.events.gateway import (
    PodBindFailed,
    PodBound,
    PodEvicted,
    PodEvictionDelayed,
    PodEvictionFailed,
    PodEvictionRequested,
    PodEvictionWithdrawn,
)
from koordcore.events.node_ledger import NodeResourcesReturned, NodeResourcesTaken
from koordcore.events.nodepolicy import NodeDevicesComputed, NodeHealthAssessed, NodeOvercommitComputed
from koordcore.events.objects import (
    NodeSpecAdded,
    NodeSpecChanged,
    NodeSpecDeleted,
    PodSpecAdded,
    PodSpecChanged,
    PodSpecDeleted,
)
from koordcore.events.observation import NodeUsageReported
from koordcore.events.pod import (
    PodDeviceUnhealthy,
    PodNominated,
    PodNominationCleared,
    PodPlaced,
    PodReallocated,
    PodReleased,
)
from koordcore.events.schedule_explanation import ScheduleExplanationComputed

from koord_scheduler.domain.loop.folding import objects, placements, pods
from koord_scheduler.domain.loop.folding import objects as nodes
from koord_scheduler.domain.loop.folding.reservations import operate, reservation_ended
from koord_scheduler.domain.loop.state.state import SchedulerState


def fold_statement(state: SchedulerState, stored: StoredEvent, event: Event | None) -> None:
    """Record a requested eviction, its outcome, or a status that a scheduler published. No-op for other aggregates, and
    for evictions of pods that are not known. `event`: the decoded event; None if its type is unknown.
    """
    match event:
        case _ if stored.ref.kind == "eviction" and stored.ref.id not in state.pods:
            return  # the pod is deleted, and the state of its eviction with it
        case PodEvictionRequested():
            state.nominator.evictions[stored.ref.id] = event.reason
            state.nominator.unsaid.discard(stored.ref.id)
        case PodEvictionFailed() | PodEvictionWithdrawn():
            state.nominator.eviction_failed(stored.ref.id)
            state.hints.eviction_failed(state.pods[stored.ref.id], stored.event_id)
        case PodEvicted() | PodEvictionDelayed():
            pass  # the evicted pod holds its node until it is deleted, and its preemptor waits for that
        case ScheduleExplanationComputed():
            if stored.ref.id in state.status.explanations.questions:
                state.status.explanations.published[stored.ref.id] = event
        case _ if (book := state.cluster.publishing.get(stored.ref.kind)) is not None:
            if event is not None:
                book.apply(event)
        case _:
            return
    state.status.in_log(stored.ref, stored.seq)


RESERVATION: Final = "reservation"
_STATEMENTS: Final = frozenset({"eviction", "scheduleexplanation", "gpuworkload"})
_KINDS: Final = frozenset(
    {
        "podspec",
        "nodespec",
        "pod",
        "node",
        "nodepolicy",
        "namespace",
        "workloadspec",
        "customspec",
        "config",
        *_STATEMENTS,
    }
)
"""Kinds of aggregates that a scheduler folds, besides those that books publish."""


def fold(state: SchedulerState, stored: StoredEvent) -> None:
    """Update the scheduler's state with the next event of the log. No-op if its position was folded already. Raises
    UnreadableEvent: the event cannot be decoded. The position does not advance; the caller must stop before this event.
    """
    if stored.seq > state.log.position:
        event = CATALOGUE.read(stored) if stored.ref.kind in state.frameworks.folded_kinds else None
        _fold(state, stored)
        state.log.position = stored.seq
        if event is not None and state.frameworks.fold(event, stored):
            state.hints.room_appeared_anywhere(stored.event_id)


def skip(state: SchedulerState, seq: int) -> None:
    """Set the state's position to `seq`, that of an event that is not folded. No-op if the position is later already.
    An event is skipped by an operator's order, or because placement does not read its kind.
    """
    state.log.position = max(state.log.position, seq)


def fold_ahead(state: SchedulerState, stored: StoredEvent) -> None:
    """Fold an event before its turn in the log. All earlier events of its aggregate must be folded. This is done after
    a conflict, to learn which events another writer appended. Raises UnreadableEvent: the event cannot be decoded.
    """
    state.log.read_ahead = max(state.log.read_ahead, stored.seq)
    _fold(state, stored)


def fold_early(state: SchedulerState) -> None:
    """Fold this scheduler's own events that were delivered before the log answered their append. Then the state
    contains every event up to `position`, as a snapshot requires.
    """
    for stored in state.log.own.take_early():
        fold_ahead(state, stored)


def resume(state: SchedulerState) -> None:
    """Complete a state that was restored from a snapshot: pods that act as Reservations, pods with failed devices."""
    for uid, pod in state.pods.items():
        operate(state, uid, "")
        if pod.unhealthy and (pod.node or pod.bound_node):
            state.books.devices.to_tell[pod.node or pod.bound_node] = None


def fold_report(state: SchedulerState, stored: StoredEvent) -> None:
    """Update the scheduler's state with a usage report of a node. No-op if its position was folded already. Raises
    UnreadableEvent: the report cannot be decoded.
    """
    if stored.seq <= state.log.observed:
        return
    state.log.observed = stored.seq
    event = CATALOGUE.read(stored)
    if isinstance(event, NodeUsageReported):
        name = name_from_token(stored.ref.id)
        if state.frameworks.observe(name, event):
            state.hints.room_appeared(name, stored.event_id)


def _fold(state: SchedulerState, stored: StoredEvent) -> None:
    if stored.ref.kind == RESERVATION:  # own ones, too, take effect when they are read back
        reservation_ended(state, stored, CATALOGUE.read(stored))
        return
    if stored.ref.kind not in _KINDS and stored.ref.kind not in state.cluster.publishing:
        return
    if _is_known(state, stored) or state.log.own.is_early(stored):
        return
    stored = stored.with_parsed_headers()  # not those of own appends, whose placements are most of the events
    overtaken = state.log.own.overtaken(stored.ref)
    if overtaken is not None:
        _fold(state, overtaken)
    match CATALOGUE.read(stored):
        case PodSpecAdded() | PodSpecChanged() as event:
            pods.submitted(state, stored, event.object)
            operate(state, stored.ref.id, stored.event_id)
        case PodSpecDeleted():
            pods.gone(state, stored)
        case PodBound() as event:
            pods.bound(state, stored, event)
        case PodBindFailed() as event:
            pods.bind_failed(state, stored, event)
        case NodeSpecAdded() | NodeSpecChanged() as event:
            nodes.put_node(state, event.object, stored.event_id)
        case NodeSpecDeleted(name=name):
            nodes.node_gone(state, name, stored.event_id)
        case PodPlaced() as event:
            placements.placed(state, stored, event)
        case PodReallocated() as event:
            placements.reallocated(state, stored, event)
        case PodReleased():
            placements.released(state, stored)
        case PodNominated() as event:
            placements.nominated(state, stored, event)
        case PodNominationCleared() as event:
            placements.nomination_cleared(state, stored, event)
        case PodDeviceUnhealthy() as event:
            placements.device_unhealthy(state, stored, event)
        case NodeResourcesTaken() as event:
            placements.resources_taken(state, stored, event)
        case NodeResourcesReturned() as event:
            placements.resources_returned(state, stored, event)
        case NodeOvercommitComputed() | NodeDevicesComputed() | NodeHealthAssessed() as event:
            nodes.policy_changed(state, stored, event)
        case event if stored.ref.kind in objects.KINDS:
            objects.fold_object(state, stored, event)
        case event:
            fold_statement(state, stored, event)


def _is_known(state: SchedulerState, stored: StoredEvent) -> bool:
    """Return whether the event is one of our own appends, or was read ahead, so that it need not be decoded."""
    match stored.ref.kind:
        case "pod":
            pod = state.pods.get(stored.ref.id)
            return pod is not None and stored.seq <= pod.seq
        case "node":
            return stored.seq <= state.assumed.ledgers.seq(name_from_token(stored.ref.id))
        case kind if kind in _STATEMENTS or kind in state.cluster.publishing:
            return stored.seq <= state.status.writes.seqs.get(stored.ref, 0)
        case _:
            return False
