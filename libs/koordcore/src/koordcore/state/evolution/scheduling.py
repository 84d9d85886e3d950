"""Apply events of schedulers: placements, nominations, node ledgers, gangs and quotas."""

from typing import Final

import msgspec

from koordcore.events import pod as pod_events
from koordcore.events.cluster import ClusterTopologyComputed, TypicalPodsLearned
from koordcore.events.envelope import Event, StoredEvent
from koordcore.events.gang import GangPhaseChanged, GangPlaced
from koordcore.events.node_ledger import NodeResourcesReturned, NodeResourcesTaken, pods_after
from koordcore.events.quota import QuotaStatusComputed
from koordcore.events.reservation import (
    ReservationCollected,
    ReservationDeleted,
    ReservationFailed,
    ReservationSucceeded,
    ReservationUnschedulable,
)
from koordcore.events.schedule_explanation import ScheduleExplanationComputed
from koordcore.state.aggregates import (
    ClusterTopologyState,
    GangState,
    GpuWorkloadState,
    NodeLedger,
    PodState,
    QuotaState,
    ReservationState,
    ScheduleExplanationState,
)
from koordcore.state.fold import Evolve, dropped
from koordcore.state.reserved_amounts import taken_from_reservations


def _pod_placed(state: PodState | None, event: pod_events.PodPlaced, at: StoredEvent) -> PodState:
    return PodState(
        seq=at.seq,
        namespace=event.namespace,
        name=event.name,
        node=event.node,
        requests=event.requests,
        placed_at=at.occurred_at,
        placements=(state.placements if state else 0) + 1,
        allocation=event.allocation,
        gang=event.gang,
        annotations=event.annotations,
    )


def _pod_released(state: PodState | None, event: pod_events.PodReleased, at: StoredEvent) -> PodState | None:
    if event.reason == "deleted":
        return None
    placements = state.placements if state else 0
    return PodState(seq=at.seq, namespace=event.namespace, name=event.name, placements=placements)


def _pod_reallocated(state: PodState | None, event: pod_events.PodReallocated, at: StoredEvent) -> PodState:
    base = state or PodState(seq=at.seq, namespace=event.namespace, name=event.name, node=event.node)
    return msgspec.structs.replace(base, seq=at.seq, requests=event.requests, allocation=event.allocation)


def _pod_nominated(state: PodState | None, event: pod_events.PodNominated, at: StoredEvent) -> PodState:
    base = state or PodState(seq=at.seq, namespace=event.namespace, name=event.name)
    return msgspec.structs.replace(base, seq=at.seq, nominated=event.node)


def _nomination_cleared(
    state: PodState | None, event: pod_events.PodNominationCleared, at: StoredEvent
) -> PodState | None:
    if event.reason == "deleted":
        return None
    base = state or PodState(seq=at.seq, namespace=event.namespace, name=event.name)
    return msgspec.structs.replace(base, seq=at.seq, nominated="")


def _device_unhealthy(state: PodState | None, event: pod_events.PodDeviceUnhealthy, at: StoredEvent) -> PodState | None:
    """Return the state of a pod that this log has placed; the state of a pod that others bound stays None."""
    if state is None:
        return None
    return msgspec.structs.replace(state, seq=at.seq, unhealthy_devices=event.devices if state.node else [])


def _added(total: dict[str, int], part: dict[str, int], sign: int) -> dict[str, int]:
    """Return total + sign * part; entries that become 0 are dropped."""
    result = dict(total)
    for name, amount in part.items():
        value = result.get(name, 0) + sign * amount
        if value:
            result[name] = value
        else:
            result.pop(name, None)
    return result


def _ledger_changed(
    state: NodeLedger | None, event: NodeResourcesTaken | NodeResourcesReturned, at: StoredEvent
) -> NodeLedger:
    before, requested = (state.pods, state.requested) if state else ({}, {})
    pods = pods_after(before, event)
    touched = [pod.uid for pod in event.pods] if isinstance(event, NodeResourcesTaken) else event.pods
    for uid in dict.fromkeys(touched):
        if uid in before:
            requested = _added(requested, before[uid].requests, -1)
        if uid in pods:
            requested = _added(requested, pods[uid].requests, 1)
    requested = _added(_added(requested, taken_from_reservations(before), 1), taken_from_reservations(pods), -1)
    return NodeLedger(seq=at.seq, pods=pods, requested=requested)


def _gang_placed(state: GangState | None, event: GangPlaced, at: StoredEvent) -> GangState:
    base = state or GangState(seq=at.seq, namespace=event.namespace, name=event.name)
    return msgspec.structs.replace(base, seq=at.seq, placed=event.members)


def _gang_phase(state: GangState | None, event: GangPhaseChanged, at: StoredEvent) -> GangState:
    base = state or GangState(seq=at.seq, namespace=event.namespace, name=event.name)
    return msgspec.structs.replace(base, seq=at.seq, status=event)


def _reservation_unschedulable(
    state: ReservationState | None, event: ReservationUnschedulable, at: StoredEvent
) -> ReservationState:
    base = state or ReservationState(seq=at.seq, name=event.name)
    return msgspec.structs.replace(
        base,
        seq=at.seq,
        message=event.message,
        unschedulable_since=base.unschedulable_since or at.occurred_at,
        unschedulable_at=at.occurred_at,
    )


def _reservation_ended(
    state: ReservationState | None, event: ReservationSucceeded | ReservationFailed, at: StoredEvent
) -> ReservationState:
    base = state or ReservationState(seq=at.seq, name=event.name)
    return msgspec.structs.replace(
        base,
        seq=at.seq,
        phase="Failed" if isinstance(event, ReservationFailed) else "Succeeded",
        reason=event.reason if isinstance(event, ReservationFailed) else "Succeeded",
        node=event.node,
        allocatable=event.allocatable,
        available_since=event.available_since,
        ended_at=at.occurred_at,
        message=event.message if isinstance(event, ReservationFailed) else "",
    )


def _reservation_collected(
    state: ReservationState | None, event: ReservationCollected, at: StoredEvent
) -> ReservationState:
    base = state or ReservationState(seq=at.seq, name=event.name)
    return msgspec.structs.replace(base, seq=at.seq, is_collected=True)


OF_SCHEDULERS: Final[dict[type[Event], Evolve]] = {
    pod_events.PodPlaced: _pod_placed,
    pod_events.PodReleased: _pod_released,
    pod_events.PodReallocated: _pod_reallocated,
    pod_events.PodNominated: _pod_nominated,
    pod_events.PodNominationCleared: _nomination_cleared,
    pod_events.PodDeviceUnhealthy: _device_unhealthy,
    NodeResourcesTaken: _ledger_changed,
    NodeResourcesReturned: _ledger_changed,
    GangPlaced: _gang_placed,
    GangPhaseChanged: _gang_phase,
    ReservationUnschedulable: _reservation_unschedulable,
    ReservationSucceeded: _reservation_ended,
    ReservationFailed: _reservation_ended,
    ReservationCollected: _reservation_collected,
    ReservationDeleted: dropped,
    QuotaStatusComputed: lambda _, event, at: QuotaState(seq=at.seq, status=event),
    ScheduleExplanationComputed: lambda _, event, at: ScheduleExplanationState(seq=at.seq, status=event),
    TypicalPodsLearned: lambda _, event, at: GpuWorkloadState(seq=at.seq, learned=event),
    ClusterTopologyComputed: lambda _, event, at: ClusterTopologyState(seq=at.seq, status=event),
}
