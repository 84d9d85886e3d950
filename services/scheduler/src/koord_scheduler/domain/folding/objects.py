"""Folds the other objects that placement reads: namespaces, controllers, quotas, gangs, claims, questions."""

from typing import Final

from koordcore.events.envelope import Event, StoredEvent, name_from_token, namespaced_token
from koordcore.events.objects import (
    ConfigAccepted,
    ConfigDeleted,
    CustomObjectDeleted,
    CustomObjectObserved,
    NamespaceDeleted,
    NamespaceObserved,
    WorkloadDeleted,
    WorkloadObserved,
    plural_of,
)
from koordcore.values.invalid import InvalidInput

from koord_scheduler.domain.facts.cluster import DEFAULT_TOPOLOGY, NODE_TOPOLOGIES, PLURALS, RESERVATIONS
from koord_scheduler.domain.folding.pods import read_again_if_imposed
from koord_scheduler.domain.folding.reservations import reservation_gone, reservation_put
from koord_scheduler.domain.state.state import SchedulerState
from koord_scheduler.domain.status import schedule_explanations as explained

KINDS: Final = ("namespace", "workloadspec", "customspec", "config")
_HARDWARE: Final = (NODE_TOPOLOGIES, "devices")


def fold_object(state: SchedulerState, stored: StoredEvent, event: Event | None) -> None:
    """Update the state with an object other than a pod or node that was created, changed or deleted.

    No-op for kinds that placement does not read.

    Args:
        state: The scheduler's state.
        stored: The event with its position in the log.
        event: The decoded event; None if its type is unknown.
    """
    match event:
        case NamespaceObserved():
            put_namespace(state, event)
        case NamespaceDeleted(name=name):
            state.mirror.namespaces.pop(name, None)
            state.cluster.drop_namespace(name)
        case WorkloadObserved():
            put_workload(state, stored.ref.id, event)
        case WorkloadDeleted():
            gone = state.mirror.workloads.pop(stored.ref.id, None)
            if gone is not None:
                state.cluster.drop_workload(gone.object)
        case ConfigAccepted():
            if put_config(state, stored.ref.id, event):
                state.hints.room_appeared_anywhere(stored.event_id)
        case ConfigDeleted() if state.mirror.configs.pop(stored.ref.id, None) is not None:
            state.cluster.put_config(event.namespace, event.name, {})
        case CustomObjectObserved() if plural_of(stored.ref.id) in PLURALS:
            put_object(state, stored.ref.id, event)
            if plural_of(stored.ref.id) == RESERVATIONS:
                reservation_put(state, stored, name_from_token(stored.ref.id.partition("=")[2]))
            if plural_of(stored.ref.id) in _HARDWARE:
                _node_changed(state, stored.ref.id, stored.event_id)
            state.hints.wake_activated(stored.event_id)
        case CustomObjectDeleted() if stored.ref.id in state.mirror.objects:
            del state.mirror.objects[stored.ref.id]
            entry = state.cluster.reservations.find(event.name)
            state.cluster.drop_object(plural_of(stored.ref.id), event.namespace, event.name)
            if plural_of(stored.ref.id) == RESERVATIONS and entry is not None:
                reservation_gone(state, stored, entry.uid)
            _forget_said(state, plural_of(stored.ref.id), event)
            if plural_of(stored.ref.id) in _HARDWARE:
                _node_changed(state, stored.ref.id, stored.event_id)
            state.hints.wake_activated(stored.event_id)
        case _:
            pass


def _node_changed(state: SchedulerState, ref_id: str, trigger: str) -> None:
    """Decide the placements on a node anew whose hardware has changed; waiting pods may fit there now."""
    name = name_from_token(ref_id.partition("=")[2])
    state.assumed.recheck_node(name, is_changed=True)
    state.hints.room_appeared(name, trigger)


def put_namespace(state: SchedulerState, event: NamespaceObserved) -> None:
    """Add or change a namespace."""
    state.mirror.namespaces[event.object.metadata.name] = event
    state.cluster.put_namespace(event.object)


def put_workload(state: SchedulerState, uid: str, event: WorkloadObserved) -> None:
    """Add or change a workload controller with this uid."""
    state.mirror.workloads[uid] = event
    state.cluster.put_workload(event.object)


def put_config(state: SchedulerState, ref_id: str, event: ConfigAccepted) -> bool:
    """Add or change a ConfigMap if any plugin reads it. Return whether a plugin reads it.

    Args:
        state: The scheduler's state.
        ref_id: Aggregate id of the ConfigMap: namespace and name.
        event: The event with the ConfigMap.
    """
    meta = event.object.metadata
    if not state.cluster.put_config(meta.namespace, meta.name, event.object.data):
        return False
    state.mirror.configs[ref_id] = event
    return True


def put_object(state: SchedulerState, ref_id: str, event: CustomObjectObserved) -> None:
    """Add or change an object of a kind that placement reads. If it cannot be read, the last one that could counts.

    Args:
        state: The scheduler's state.
        ref_id: Aggregate id of the object: plural, namespace and name.
        event: The event with the object.
    """
    plural = plural_of(ref_id)
    if plural == NODE_TOPOLOGIES:
        state.cluster.numa.share_texts(event.object)
    if not state.cluster.put_object(plural, event.object):
        return  # a snapshot has the last object that could be read, because that one counts
    state.mirror.objects[ref_id] = event
    if plural == NODE_TOPOLOGIES:
        read_again_if_imposed(state, "")
    if plural == explained.PLURAL:
        id_ = ref_id.partition("=")[2]
        try:
            state.status.explanations.put(id_, explained.question_of(event.object))
        except InvalidInput as error:
            del state.mirror.objects[ref_id]
            state.status.explanations.drop(id_)
            state.cluster.warnings.append(f"a ScheduleExplanation cannot be read and is passed over: {error}")


def _forget_said(state: SchedulerState, plural: str, gone: CustomObjectDeleted) -> None:
    """Forget the published status of a deleted object, because the next object with this name has another one."""
    if plural == "podgroups":
        state.status.published.gangs.pop(f"{gone.namespace}/{gone.name}", None)
    elif plural == "elasticquotas":
        state.status.published.quotas.pop(gone.name, None)
        state.status.quota_changes.again(gone.name)
    elif plural == explained.PLURAL:
        state.status.explanations.drop(namespaced_token(gone.namespace, gone.name))
    elif plural == "clusternetworktopologies" and gone.name == DEFAULT_TOPOLOGY:
        state.status.published.topology = None
