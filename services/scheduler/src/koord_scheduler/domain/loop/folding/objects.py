"""Folds the objects that placement reads besides pods: nodes, namespaces, controllers, custom objects.

The manager's decisions about a node override its object.
"""

from dataclasses import replace
from typing import Final

from koordcore.events.envelope import Event, StoredEvent, name_from_token, namespaced_token
from koordcore.events.nodepolicy import NodeDevicesComputed, NodeHealthAssessed, NodeOvercommitComputed
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
from koordcore.protocol.objects import Node
from koordcore.protocol.reservations import PLURAL
from koordcore.values.invalid import InvalidInput

from koord_scheduler.domain.cluster.node_facts import NO_POLICY
from koord_scheduler.domain.cluster.record import Phase
from koord_scheduler.domain.columns.node_shape import node_shape
from koord_scheduler.domain.loop.folding.pods import read_again_if_concerned, read_again_if_offered
from koord_scheduler.domain.loop.folding.reservations import reservation_gone, reservation_put
from koord_scheduler.domain.loop.state.state import SchedulerState
from koord_scheduler.domain.loop.status import schedule_explanations as explained

KINDS: Final = ("namespace", "workloadspec", "customspec", "config")


def fold_object(state: SchedulerState, stored: StoredEvent, event: Event | None) -> None:
    """Update the state with an object other than a pod or node that was created, changed or deleted. No-op for kinds
    that placement does not read. `event`: the decoded event; None if its type is unknown.
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
        case CustomObjectObserved() if (plural := plural_of(stored.ref.id)) in state.cluster.plurals or (
            plural == explained.PLURAL
        ):
            put_object(state, stored.ref.id, event)
            if plural == PLURAL:
                reservation_put(state, stored, name_from_token(stored.ref.id.partition("=")[2]))
            if plural in state.cluster.hardware:
                _node_changed(state, stored.ref.id, stored.event_id)
            state.hints.wake_activated(stored.event_id)
        case CustomObjectDeleted() if stored.ref.id in state.mirror.objects:
            del state.mirror.objects[stored.ref.id]
            plural, entry = plural_of(stored.ref.id), state.books.reservations.find(event.name)
            state.cluster.drop_object(plural, event.namespace, event.name)
            if plural == PLURAL and entry is not None:
                reservation_gone(state, stored, entry.uid)
            if plural == explained.PLURAL:
                state.status.explanations.drop(namespaced_token(event.namespace, event.name))
            if plural in state.cluster.hardware:
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
    state.mirror.namespaces[event.object.metadata.name] = event
    state.cluster.put_namespace(event.object)


def put_workload(state: SchedulerState, uid: str, event: WorkloadObserved) -> None:
    state.mirror.workloads[uid] = event
    state.cluster.put_workload(event.object)


def put_config(state: SchedulerState, ref_id: str, event: ConfigAccepted) -> bool:
    """Return whether any plugin reads the ConfigMap."""
    meta = event.object.metadata
    if not state.cluster.put_config(meta.namespace, meta.name, event.object.data):
        return False
    state.mirror.configs[ref_id] = event
    return True


def put_object(state: SchedulerState, ref_id: str, event: CustomObjectObserved) -> None:
    """If it cannot be read, the last one that could counts. `ref_id`: plural, namespace and name."""
    plural = plural_of(ref_id)
    if not state.cluster.put_object(plural, event.object):
        return  # a snapshot has the last object that could be read, because that one counts
    state.mirror.objects[ref_id] = event
    read_again_if_concerned(state, "")
    if plural == explained.PLURAL:
        id_ = ref_id.partition("=")[2]
        try:
            state.status.explanations.put(id_, explained.question_of(event.object))
        except InvalidInput as error:
            del state.mirror.objects[ref_id]
            state.status.explanations.drop(id_)
            state.cluster.warnings.append(f"a ScheduleExplanation cannot be read and is passed over: {error}")


def put_node(state: SchedulerState, node: Node, trigger: str = "") -> None:
    """Add or change a node, reconcile the pods placed on it, and wake waiting pods that may fit now. The manager's
    batch, mid and device amounts replace those of the object.
    """
    name = node.metadata.name
    state.shared.share_node(node)
    state.mirror.nodes[name] = node
    policy, shape = state.mirror.policies.get(name), node_shape(node)
    if policy is not None:
        shape = replace(shape, allocatable=policy.allocatable(shape.allocatable), weight=policy.weight)
    is_new = state.nodes.row(name) is None
    before = state.nodes.shape.position
    row, may_help = state.nodes.put(name, shape)
    state.cluster.put_node(row, node, shape)
    has_new_shape = state.nodes.shape.position != before
    if is_new:
        state.assumed.ledgers.node_appeared(name)  # what is undone below gives back what counts on the node
        state.mirror.node_gone_by.pop(name, None)
    state.assumed.recheck_node(name, is_changed=has_new_shape)
    if has_new_shape:
        state.cluster.population.domains_changed()
    # Not before a new node has the pods of its ledger, because reading a pod again replaces it there.
    read_again_if_concerned(state, trigger)
    read_again_if_offered(state)
    if is_new:
        _settle_placed_on(state, name, trigger)
    if may_help:
        state.hints.room_appeared(name, trigger)


def policy_changed(
    state: SchedulerState,
    stored: StoredEvent,
    event: NodeOvercommitComputed | NodeDevicesComputed | NodeHealthAssessed,
) -> None:
    """Apply the manager's decision about a node's batch and mid resources, devices or health. If the node is not known
    yet, the decision is kept until the node comes.
    """
    name = name_from_token(stored.ref.id)
    state.mirror.policies[name] = state.mirror.policies.get(name, NO_POLICY).evolve(event)
    if name in state.mirror.nodes:
        put_node(state, state.mirror.nodes[name], stored.event_id)


def node_gone(state: SchedulerState, name: str, trigger: str) -> None:
    """Pods that wait at Permit on it are queued again; pods placed on it are reconciled."""
    state.mirror.nodes.pop(name, None)
    state.mirror.policies.pop(name, None)
    row = state.nodes.row(name)
    if row is None:
        return
    for uid in state.assumed.waiting.on(name):
        state.assumed.give_up(state.pods[uid], trigger, f"node {name} was deleted")
    state.assumed.ledgers.node_disappears(name)
    state.cluster.drop_node(row, name)
    state.nodes.remove(name)
    state.cluster.population.domains_changed()
    state.nominator.left.pop(name, None)  # only a leader empties it
    state.mirror.node_gone_by[name] = trigger
    state.assumed.recheck_node(name)
    _settle_placed_on(state, name, trigger)
    _forget_gone_nodes(state)


def _forget_gone_nodes(state: SchedulerState) -> None:
    """Forget deleted nodes that hold no pod. No-op until `Forgetting` requires a search."""
    ledgers, left = state.assumed.ledgers, state.nominator.left
    ledgers.prune(state.log.position)
    if state.mirror.prune(lambda name: bool(ledgers.logged(name))):
        for name in [name for name in left if state.nodes.row(name) is None]:
            del left[name]  # a nomination to the node has ended after its deletion


def _settle_placed_on(state: SchedulerState, node: str, trigger: str) -> None:
    for uid in state.assumed.ledgers.logged(node):
        pod = state.pods.get(uid)
        if pod is not None and pod.phase is Phase.PLACED and pod.node == node:
            state.assumed.reconcile(pod, trigger)
