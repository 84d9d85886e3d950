"""Apply events of the gateway: answers of the API server, evictions, and drift."""

from typing import Final

import msgspec

from koordcore.events.envelope import Event, StoredEvent
from koordcore.events.objects.gateway import (
    DriftHealed,
    DriftObserved,
    GenesisRecorded,
    PodBindFailed,
    PodBound,
    PodEvicted,
    PodEvictionDelayed,
    PodEvictionFailed,
    PodEvictionRequested,
)
from koordcore.protocol.objects import Pod
from koordcore.protocol.pod_status import POD_SCHEDULED, PodCondition
from koordcore.state.aggregates import BindingOutcome, DriftState, EvictionState, GenesisState, PodSpecState
from koordcore.state.evolution.evolve import Evolve, dropped


def _pod_bound(state: PodSpecState | None, event: PodBound | PodBindFailed, at: StoredEvent) -> PodSpecState | None:
    failure = event.reason if isinstance(event, PodBindFailed) else ""
    binding = BindingOutcome(placement=event.placement, node=event.node, failure=failure)
    if state is None:
        return None
    pod = bound_pod(state.object, event) if isinstance(event, PodBound) else state.object
    return msgspec.structs.replace(state, seq=at.seq, object=pod, binding=binding)


def bound_pod(pod: Pod, event: PodBound) -> Pod:
    """Return the pod as the API server has it after a binding; unchanged if the event does not tell what was set.

    If the API server has set anything else, the gateway observes another object, and a `PodSpecChanged` follows.

    Source:
        Kubernetes 1.35, pkg/registry/core/pod/storage (setPodNodeAndMetadata)
    """
    if not event.bound_at:
        return pod
    replace = msgspec.structs.replace
    scheduled = PodCondition(type=POD_SCHEDULED, status="True", last_transition_time=event.bound_at)
    conditions = list(pod.status.conditions)
    place = next((place for place, condition in enumerate(conditions) if condition.type == POD_SCHEDULED), None)
    if place is None:
        conditions.append(scheduled)
    else:
        conditions[place] = scheduled
    meta = pod.metadata
    return Pod(
        metadata=replace(
            meta, annotations={**meta.annotations, **event.annotations}, labels={**meta.labels, **event.labels}
        ),
        spec=replace(pod.spec, node_name=event.node),
        status=replace(pod.status, conditions=conditions, nominated_node_name=""),
    )


def _eviction_requested(_: EvictionState | None, event: PodEvictionRequested, at: StoredEvent) -> EvictionState:
    return EvictionState(seq=at.seq, request=event, requested_at=at.occurred_at)


def _eviction_delayed(state: EvictionState | None, event: PodEvictionDelayed, at: StoredEvent) -> EvictionState | None:
    return None if state is None else msgspec.structs.replace(state, seq=at.seq, delays=[*state.delays, event.reason])


def _drift_observed(state: DriftState | None, event: DriftObserved, at: StoredEvent) -> DriftState:
    again = state is not None and state.fingerprint == event.fingerprint
    times = state.times + 1 if state is not None and again else 1
    return DriftState(seq=at.seq, difference=event.difference, fingerprint=event.fingerprint, times=times)


OF_THE_GATEWAY: Final[dict[type[Event], Evolve]] = {
    PodBound: _pod_bound,
    PodBindFailed: _pod_bound,
    PodEvictionRequested: _eviction_requested,
    PodEvictionDelayed: _eviction_delayed,
    PodEvicted: dropped,
    PodEvictionFailed: dropped,
    DriftObserved: _drift_observed,
    DriftHealed: dropped,
    GenesisRecorded: lambda _, event, at: GenesisState(seq=at.seq, cluster_epoch=event.cluster_epoch),
}
