"""Folds nodes. The manager's decisions about a node override its object."""

from dataclasses import replace

from koordcore.events.envelope import StoredEvent, name_from_token
from koordcore.events.nodepolicy import NodeDevicesComputed, NodeHealthAssessed, NodeOvercommitComputed
from koordcore.protocol.objects import Node

from koord_scheduler.domain.columns.node_shape import node_shape
from koord_scheduler.domain.folding.pods import read_again_if_imposed, read_again_if_offered
from koord_scheduler.domain.nodes.policies import NO_POLICY
from koord_scheduler.domain.pods.record import Phase
from koord_scheduler.domain.state.state import SchedulerState


def put_node(state: SchedulerState, node: Node, trigger: str = "") -> None:
    """Add or change a node, reconcile the pods placed on it, and wake waiting pods that may fit now.

    Args:
        state: The scheduler's state.
        node: The node object. The manager's batch, mid and device amounts replace those of the object.
        trigger: Id of the event that caused the change.
    """
    name = node.metadata.name
    state.mirror.nodes[name] = node
    policy, shape = state.mirror.policies.get(name), node_shape(node)
    if policy is not None:
        shape = replace(shape, allocatable=policy.allocatable(shape.allocatable), weight=policy.weight)
    is_new = state.nodes.row(name) is None
    before = state.nodes.shape.position
    row, may_help = state.nodes.put(name, shape)
    state.cluster.put_node(row, node, shape)
    has_new_shape = state.nodes.shape.position != before
    state.assumed.recheck_node(name, is_changed=has_new_shape)
    if has_new_shape:
        state.cluster.population.domains_changed()
    if is_new:
        state.assumed.ledgers.node_appeared(name)
        state.mirror.node_gone_by.pop(name, None)
    # Not before a new node has the pods of its ledger, because reading a pod again replaces it there.
    read_again_if_imposed(state, trigger)
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
    """Apply the manager's decision about a node's batch and mid resources, devices or health.

    If the node is not known yet, the decision is kept until the node comes.
    """
    name = name_from_token(stored.ref.id)
    state.mirror.policies[name] = state.mirror.policies.get(name, NO_POLICY).evolve(event)
    if name in state.mirror.nodes:
        put_node(state, state.mirror.nodes[name], stored.event_id)


def node_gone(state: SchedulerState, name: str, trigger: str) -> None:
    """Remove a deleted node. Pods that wait at Permit on it are queued again; pods placed on it are reconciled.

    Args:
        state: The scheduler's state.
        name: Name of the node.
        trigger: Id of the event that deleted it.
    """
    state.mirror.nodes.pop(name, None)
    state.mirror.policies.pop(name, None)
    row = state.nodes.row(name)
    if row is None:
        return
    for uid in state.assumed.waiting.on(name):
        state.assumed.give_up(state.pods[uid], trigger)
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
