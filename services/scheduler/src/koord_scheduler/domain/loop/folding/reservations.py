"""Folds Reservations: each is a pod of the scheduler under its own uid, as long as it has not ended.

Source: scheduler-fine-grained spec, 3.2, 3.3.
"""

from typing import Final

import msgspec
from koordcore.events.envelope import Event, StoredEvent
from koordcore.events.reservation import (
    ReservationCollected,
    ReservationDeleted,
    ReservationFailed,
    ReservationSucceeded,
    ReservationUnschedulable,
)
from koordcore.protocol import keys
from koordcore.protocol.reservation_status import AVAILABLE, FAILED, SUCCEEDED
from koordcore.protocol.reservations import is_operating, is_reserve_pod, reservation_of_pod, reserve_pod
from koordcore.values.invalid import InvalidInput
from koordcore.values.timestamps import unix_seconds

from koord_scheduler.domain.cluster.record import Phase, is_finished
from koord_scheduler.domain.loop.folding.pods import describe, removed, submit
from koord_scheduler.domain.loop.state.state import SchedulerState
from koord_scheduler.domain.plugins.reservation.entry import Entry
from koord_scheduler.domain.plugins.reservation.wishes import POLICY

_OWN_ANNOTATIONS: Final = (keys.RESERVATION_NAME, keys.RESOURCE_STATUS, keys.DEVICE_ALLOCATED)
"""Annotations that say which Reservation it is and what the scheduler gave it. They do not decide about nodes."""


def reservation_put(state: SchedulerState, stored: StoredEvent, name: str) -> None:
    """Add or update the reserve pod of a new or changed Reservation, and wake waiting pods that may use it now. Call it
    after `Cluster.put_object` has recorded the Reservation. If that ignored the object, nothing is added.
    """
    read_again(state, stored.event_id)
    entry = state.books.reservations.find(name)
    if entry is not None:
        _submit(state, stored, entry)
        if entry.node and entry.is_available():
            state.hints.room_appeared(entry.node, stored.event_id)


def reservation_gone(state: SchedulerState, stored: StoredEvent, uid: str) -> None:
    """Remove the reserve pod (with the same `uid`) of a deleted Reservation."""
    removed(state, uid, stored.event_id)


def reservation_ended(state: SchedulerState, stored: StoredEvent, event: Event | None) -> None:
    """Record what a scheduler published about a Reservation: that it succeeded, failed or found no node. A deleted
    Reservation is forgotten. Other events change only the known position of the aggregate.
    """
    books, uid = state.books.reservations, stored.ref.id
    state.status.in_log(stored.ref, stored.seq)
    match event:
        case ReservationSucceeded() | ReservationFailed():
            phase = SUCCEEDED if isinstance(event, ReservationSucceeded) else FAILED
            books.ended(uid, phase, unix_seconds(stored.occurred_at))
            entry = books.entries.get(uid)
            if entry is not None:
                _submit(state, stored, entry)
        case ReservationUnschedulable():
            entry = books.entries.get(uid)
            if entry is not None:
                entry.said = event.message
        case ReservationDeleted():
            books.forget(uid)
        case ReservationCollected():
            entry = books.entries.get(uid)
            if entry is not None:
                entry.is_collected = True
        case _:
            pass


def _submit(state: SchedulerState, stored: StoredEvent, entry: Entry) -> None:
    reservation = entry.document
    if reservation is None:
        return
    if reservation.spec.template is None:
        _end_as_known(state, stored, entry)
        return
    by_others = entry.phase_by_others()
    is_bound = by_others == AVAILABLE
    try:
        pod = reserve_pod(reservation, entry.phase or ("" if is_bound else by_others), is_bound=is_bound)
    except InvalidInput as error:
        state.cluster.warnings.append(f"Reservation {entry.name} cannot be read and is passed over: {error}")
        _end_as_known(state, stored, entry)
        return
    if not state.books.reservations.may_preempt:
        pod = msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, preemption_policy="Never"))
    meta = pod.metadata
    # Without what differs, equal Reservations are read once. The policy is what filters read of the object.
    read = {key: text for key, text in meta.annotations.items() if is_bound or key not in _OWN_ANNOTATIONS}
    if reservation.spec.pre_allocation:
        read[keys.RESERVATION_NAME] = entry.name
    if reservation.spec.allocate_policy:
        read[POLICY] = reservation.spec.allocate_policy
    pod = msgspec.structs.replace(pod, metadata=msgspec.structs.replace(meta, annotations=read))
    submit(state, entry.uid, stored, pod)


def _end_as_known(state: SchedulerState, stored: StoredEvent, entry: Entry) -> None:
    """End the reserve pod of a Reservation that has ended and whose present object describes no pod. It keeps the last
    description that could be read. Otherwise it would hold its node for ever.
    """
    pod = state.pods.get(entry.uid)
    if entry.phase and pod is not None and pod.pod is not None and not is_finished(pod.pod):
        status = msgspec.structs.replace(pod.pod.status, phase=entry.phase)
        submit(state, entry.uid, stored, msgspec.structs.replace(pod.pod, status=status))


def operate(state: SchedulerState, uid: str, trigger: str) -> None:
    """Let a pod with the operating mode `Reservation` act as one while it runs on a node and is ready; else end that.
    No-op for all other pods, for a pod that its node does not count yet, and for a pod that itself uses a Reservation.
    `trigger`: id of the event that changed the pod; "" if a snapshot is restored. Source: scheduler-fine-grained spec,
    3.12.
    """
    pod = state.pods[uid]
    if pod.pod is None or not is_operating(pod.pod):
        return
    node = pod.node or pod.bound_node
    reservation = reservation_of_pod(pod.pod) if node else None
    if reservation is None:
        state.books.reservations.retire(uid)
        return
    pod_info = state.assumed.ledgers.holders(node).get(uid)
    if pod_info is None or pod_info.allocation.reservation is not None:
        return  # what a pod uses of a Reservation goes back there, not to a pod that uses it in turn
    is_consumed = keys.RESERVATION_CURRENT_OWNER in pod.pod.metadata.annotations
    fresh = state.books.reservations.operate(reservation, pod_info, node, is_consumed=is_consumed)
    if fresh is not None:
        state.books.reservation.fresh_owners.append(fresh)
    read_again(state, trigger)
    if trigger:
        state.hints.room_appeared(node, trigger)


def read_again(state: SchedulerState, trigger: str) -> None:
    """Read waiting pods again for which the first Reservation has appeared, because it concerns them now."""
    groups = list(state.books.reservation.fresh_owners)
    if not groups:
        return
    state.books.reservation.fresh_owners.clear()
    owners = [group.owners for group in groups]
    state.cluster.pod_classes.forget_like(lambda pod: any(each.match(pod) for each in owners))
    for uid in state.queue.uids():
        pod = state.pods[uid]
        spec = pod.pod
        if spec is None or pod.subject is None or is_reserve_pod(spec):
            continue
        if any(each.match(spec) for each in owners):
            describe(state, pod, spec, pod.known_since)
            if not pod.work_node and pod.phase is Phase.QUEUED:
                state.assumed.reconcile(pod, trigger or pod.trigger)
