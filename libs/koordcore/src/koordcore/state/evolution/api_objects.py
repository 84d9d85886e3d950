"""Apply events of mirrored API objects: pods, nodes, namespaces, workloads, ConfigMaps and custom resources."""

from typing import Final

import msgspec

from koordcore.events.envelope import Event, StoredEvent
from koordcore.events.management.adjustment import ConfigWarned
from koordcore.events.objects import mirror
from koordcore.events.objects.custom import CustomObjectDeleted, CustomObjectObserved
from koordcore.state.aggregates import (
    ConfigState,
    CustomObjectState,
    NamespaceState,
    NodeSpecState,
    PodSpecState,
    PriorityClassState,
    WorkloadState,
)
from koordcore.state.evolution.evolve import Evolve, dropped


def _pod_submitted(
    state: PodSpecState | None, event: mirror.PodSpecAdded | mirror.PodSpecChanged, at: StoredEvent
) -> PodSpecState:
    added_at, added_seq = (state.added_at, state.added_seq) if state else (at.occurred_at, at.seq)
    return PodSpecState(
        seq=at.seq,
        object=event.object,
        added_at=added_at,
        added_seq=added_seq,
        binding=state.binding if state else None,
    )


def _node_registered(
    state: NodeSpecState | None, event: mirror.NodeSpecAdded | mirror.NodeSpecChanged, at: StoredEvent
) -> NodeSpecState:
    return NodeSpecState(seq=at.seq, object=event.object, added_seq=state.added_seq if state else at.seq)


def _config_accepted(_: ConfigState | None, event: mirror.ConfigAccepted, at: StoredEvent) -> ConfigState:
    return ConfigState(seq=at.seq, object=event.object, accepted_seq=at.seq)


def _config_rejected(state: ConfigState | None, event: mirror.ConfigRejected, at: StoredEvent) -> ConfigState:
    base = state or ConfigState(seq=at.seq)
    return msgspec.structs.replace(base, seq=at.seq, rejected=event.reasons)


def _config_warned(state: ConfigState | None, event: ConfigWarned, at: StoredEvent) -> ConfigState:
    base = state or ConfigState(seq=at.seq)
    return msgspec.structs.replace(base, seq=at.seq, warnings=event.warnings)


OF_OBJECTS: Final[dict[type[Event], Evolve]] = {
    mirror.PodSpecAdded: _pod_submitted,
    mirror.PodSpecChanged: _pod_submitted,
    mirror.PodSpecDeleted: dropped,
    mirror.NodeSpecAdded: _node_registered,
    mirror.NodeSpecChanged: _node_registered,
    mirror.NodeSpecDeleted: dropped,
    mirror.NamespaceObserved: lambda _, event, at: NamespaceState(seq=at.seq, object=event.object),
    mirror.NamespaceDeleted: dropped,
    mirror.PriorityClassObserved: lambda _, event, at: PriorityClassState(seq=at.seq, object=event.object),
    mirror.PriorityClassDeleted: dropped,
    mirror.WorkloadObserved: lambda _, event, at: WorkloadState(seq=at.seq, object=event.object),
    mirror.WorkloadPodsCreated: lambda state, _, at: msgspec.structs.replace(state, seq=at.seq) if state else None,
    mirror.WorkloadDeleted: dropped,
    mirror.ConfigAccepted: _config_accepted,
    mirror.ConfigRejected: _config_rejected,
    mirror.ConfigDeleted: dropped,
    ConfigWarned: _config_warned,
    CustomObjectObserved: lambda _, event, at: CustomObjectState(seq=at.seq, object=event.object),
    CustomObjectDeleted: dropped,
}
