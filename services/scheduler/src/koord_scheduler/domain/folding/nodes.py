"""Nodes come, change and go; what the manager has decided about them stands before what they say."""

from dataclasses import replace

from koordcore.events.envelope import StoredEvent, name_from_token
from koordcore.events.management.adjustment import NodeHealthAssessed
from koordcore.events.management.nodepolicy import NodeDevicesComputed, NodeOvercommitComputed
from koordcore.protocol.objects import Node

from koord_scheduler.domain.columns.node_columns import node_shape
from koord_scheduler.domain.nodes.policies import NO_POLICY
from koord_scheduler.domain.pods.record import Phase
from koord_scheduler.domain.state.forget import give_up, recheck_node
from koord_scheduler.domain.state.queueing_hints import room_appeared
from koord_scheduler.domain.state.reconcile import settle
from koord_scheduler.domain.state.state import SchedulerState


def put_node(state: SchedulerState, node: Node, trigger: str = "") -> None:
    """A node is, or has become, this."""
    name = node.metadata.name
    state.node_objects[name] = node
    policy, shape = state.policies.get(name), node_shape(node)
    if policy is not None:
        shape = replace(shape, allocatable=policy.allocatable(shape.allocatable), weight=policy.weight)
    is_new = state.nodes.row(name) is None
    before = state.nodes.shape.position
    row, may_help = state.nodes.put(name, shape)
    state.cluster.put_node(row, node, shape)
    recheck_node(state, name, is_changed=state.nodes.shape.position != before)
    if is_new:
        state.ledgers.node_appeared(name)
        state.node_gone_by.pop(name, None)
        _settle_placed_on(state, name, trigger)
    if may_help:
        room_appeared(state, name, trigger)


def policy_changed(
    state: SchedulerState,
    stored: StoredEvent,
    event: NodeOvercommitComputed | NodeDevicesComputed | NodeHealthAssessed,
) -> None:
    """The manager has decided something about a node."""
    name = name_from_token(stored.ref.id)
    state.policies[name] = state.policies.get(name, NO_POLICY).evolve(event)
    if name in state.node_objects:
        put_node(state, state.node_objects[name], stored.event_id)


def node_gone(state: SchedulerState, name: str, trigger: str) -> None:
    """A node is deleted: who waits with it loses it, who is placed on it is settled anew."""
    state.node_objects.pop(name, None)
    state.policies.pop(name, None)
    row = state.nodes.row(name)
    if row is None:
        return
    for uid in state.waiting.on(name):
        give_up(state, state.pods[uid], trigger)
    state.ledgers.node_disappears(name)
    state.cluster.drop_node(row, name)
    state.nodes.remove(name)
    state.node_gone_by[name] = trigger
    recheck_node(state, name)
    _settle_placed_on(state, name, trigger)


def _settle_placed_on(state: SchedulerState, node: str, trigger: str) -> None:
    for uid in state.ledgers.logged(node):
        pod = state.pods.get(uid)
        if pod is not None and pod.phase is Phase.PLACED and pod.node == node:
            settle(state, pod, trigger)
