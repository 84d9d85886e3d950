"""Apply events of mirrored API objects, and of the gateway: answers of the API server, evictions, and drift."""

from typing import Final

import msgspec

from koordcore.events import objects
from koordcore.events.envelope import Event, StoredEvent
from koordcore.events.gateway import (
    DriftHealed,
    DriftObserved,
    GenesisRecorded,
    PodBindFailed,
    PodBound,
    PodEvicted,
    PodEvictionDelayed,
    PodEvictionFailed,
    PodEvictionRequested,
    PodEvictionWithdrawn,
    PodResizeAnswered,
    PodResizeRequested,
)
from koordcore.events.nodepolicy import ConfigWarned
from koordcore.events.objects import CustomObjectDeleted, CustomObjectObserved
from koordcore.protocol.objects import POD_SCHEDULED, Pod, PodCondition
from koordcore.state.aggregates import (
    BindingOutcome,
    ConfigState,
    CustomObjectState,
    DriftState,
    EvictionState,
    GenesisState,
    NamespaceState,
    NodeSpecState,
    PodSpecState,
    PriorityClassState,
    Resize,
    WorkloadState,
)
from koordcore.state.fold import Evolve, dropped


def _pod_bound(state: PodSpecState | None, event: PodBound | PodBindFailed, at: StoredEvent) -> PodSpecState | None:
    failure = event.reason if isinstance(event, PodBindFailed) else ""
    binding = BindingOutcome(placement=event.placement, node=event.node, failure=failure)
    if state is None:
        return None
    pod = bound_pod(state.object, event) if isinstance(event, PodBound) else state.object
    return msgspec.structs.replace(state, seq=at.seq, object=pod, binding=binding)


def bound_pod(pod: Pod, event: PodBound) -> Pod:
    """Return the pod as the API server has it after a binding; unchanged if the event does not tell what was set. If
    the API server has set anything else, the gateway observes another object, and a `PodSpecChanged` follows.

    Source: Kubernetes 1.35, pkg/registry/core/pod/storage (setPodNodeAndMetadata).
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


def _resize_requested(state: PodSpecState | None, event: PodResizeRequested, at: StoredEvent) -> PodSpecState | None:
    resize = Resize(containers=event.containers, seq=at.seq)
    return None if state is None else msgspec.structs.replace(state, seq=at.seq, resize=resize)


def _resize_answered(state: PodSpecState | None, event: PodResizeAnswered, at: StoredEvent) -> PodSpecState | None:
    if state is None:
        return None
    resize = state.resize
    if resize is not None and resize.seq == event.request:
        resize = msgspec.structs.replace(resize, answered_at=at.occurred_at, failure=event.failure)
    return msgspec.structs.replace(state, seq=at.seq, resize=resize)


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
    PodResizeRequested: _resize_requested,
    PodResizeAnswered: _resize_answered,
    PodEvictionRequested: _eviction_requested,
    PodEvictionDelayed: _eviction_delayed,
    PodEvicted: dropped,
    PodEvictionFailed: dropped,
    PodEvictionWithdrawn: dropped,
    DriftObserved: _drift_observed,
    DriftHealed: dropped,
    GenesisRecorded: lambda _, event, at: GenesisState(seq=at.seq, cluster_epoch=event.cluster_epoch),
}


def _pod_submitted(
    state: PodSpecState | None, event: objects.PodSpecAdded | objects.PodSpecChanged, at: StoredEvent
) -> PodSpecState:
    added_at, added_seq = (state.added_at, state.added_seq) if state else (at.occurred_at, at.seq)
    return PodSpecState(
        seq=at.seq,
        object=event.object,
        added_at=added_at,
        added_seq=added_seq,
        binding=state.binding if state else None,
        resize=state.resize if state else None,
    )


def _node_registered(
    state: NodeSpecState | None, event: objects.NodeSpecAdded | objects.NodeSpecChanged, at: StoredEvent
) -> NodeSpecState:
    return NodeSpecState(seq=at.seq, object=event.object, added_seq=state.added_seq if state else at.seq)


def _config_accepted(_: ConfigState | None, event: objects.ConfigAccepted, at: StoredEvent) -> ConfigState:
    return ConfigState(seq=at.seq, object=event.object, accepted_seq=at.seq)


def _config_rejected(state: ConfigState | None, event: objects.ConfigRejected, at: StoredEvent) -> ConfigState:
    base = state or ConfigState(seq=at.seq)
    return msgspec.structs.replace(base, seq=at.seq, rejected=event.reasons)


def _config_warned(state: ConfigState | None, event: ConfigWarned, at: StoredEvent) -> ConfigState:
    base = state or ConfigState(seq=at.seq)
    return msgspec.structs.replace(base, seq=at.seq, warnings=event.warnings)


OF_OBJECTS: Final[dict[type[Event], Evolve]] = {
    objects.PodSpecAdded: _pod_submitted,
    objects.PodSpecChanged: _pod_submitted,
    objects.PodSpecDeleted: dropped,
    objects.NodeSpecAdded: _node_registered,
    objects.NodeSpecChanged: _node_registered,
    objects.NodeSpecDeleted: dropped,
    objects.NamespaceObserved: lambda _, event, at: NamespaceState(seq=at.seq, object=event.object),
    objects.NamespaceDeleted: dropped,
    objects.PriorityClassObserved: lambda _, event, at: PriorityClassState(seq=at.seq, object=event.object),
    objects.PriorityClassDeleted: dropped,
    objects.WorkloadObserved: lambda _, event, at: WorkloadState(seq=at.seq, object=event.object),
    objects.WorkloadPodsCreated: lambda state, _, at: msgspec.structs.replace(state, seq=at.seq) if state else None,
    objects.WorkloadDeleted: dropped,
    objects.ConfigAccepted: _config_accepted,
    objects.ConfigRejected: _config_rejected,
    objects.ConfigDeleted: dropped,
    ConfigWarned: _config_warned,
    CustomObjectObserved: lambda _, event, at: CustomObjectState(seq=at.seq, object=event.object),
    CustomObjectDeleted: dropped,
}
