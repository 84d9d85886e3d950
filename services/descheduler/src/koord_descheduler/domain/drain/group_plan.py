"""Choose the nodes that a DrainNodeGroup empties, one at a time, and choose the nodes whose drains are confirmed.

Source:
    descheduler spec, 11.4
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from koordcore.protocol.drains import NODE_PLANNING, DrainNodeGroup
from koordcore.protocol.reservation_status import AVAILABLE, ReservationStatus
from koordcore.protocol.selectors import compile_selector

from koord_descheduler.domain.view.cluster import ClusterView, total_requests
from koord_descheduler.domain.view.nodes import NodeView

_PLANNED: Final = ("cpu", "memory")


class StopReason(StrEnum):
    """Reason why a group plans no further node: enough nodes, no candidates, or too little free room in the group."""

    MAX_NODE_COUNT = "max_node_count"
    NO_CANDIDATES = "no_candidates"
    RESOURCE_RESERVED = "resource_reserved"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPlan:
    """The nodes that a group has planned so far.

    Attributes:
        available: Nodes whose pods all have a place, in planning order.
        unavailable: Nodes with a pod that has no place. They are not planned again.
    """

    available: tuple[str, ...] = ()
    unavailable: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupView:
    """The inputs of planning.

    Attributes:
        group: The DrainNodeGroup.
        cluster: Nodes and pods.
        reservations: All Reservations.
    """

    group: DrainNodeGroup
    cluster: ClusterView
    reservations: Collection[ReservationStatus] = field(default_factory=list[ReservationStatus])


def next_node(view: GroupView, plan: GroupPlan) -> str | StopReason:
    """Return the name of the node to plan next, or the reason why there is none.

    Candidates are the ready nodes of the group that are not planned and not being drained. The emptiest one is taken.
    If the group must keep a share free, the free amounts of the other candidates must suffice for the pods of this node
    and for the share.

    Args:
        view: Nodes, pods and Reservations, with the places that the previous plans hold.
        plan: The nodes that are planned already.

    Raises:
        InvalidInput: The node selector of the group is invalid.

    Source:
        descheduler spec, 11.4 (2)
    """
    policy = view.group.spec.termination_policy
    if policy.max_node_count and len(plan.available) >= policy.max_node_count:
        return StopReason.MAX_NODE_COUNT
    selector = compile_selector(view.group.spec.node_selector)
    members = [node for node in view.cluster.nodes if selector.matches(node.labels)]
    done = {*plan.available, *plan.unavailable}
    candidates = [
        node for node in members if node.is_ready and NODE_PLANNING not in node.labels and node.name not in done
    ]
    if not candidates:
        return StopReason.NO_CANDIDATES
    held = _held(view.reservations)
    free = {node.name: _free(node, view.cluster, held) for node in candidates}
    best = min(candidates, key=lambda node: (-_score(node, free[node.name]), node.name))
    percent = policy.percentage_of_resource_reserved
    if percent and not _keeps_share(view, members, best, free, percent):
        return StopReason.RESOURCE_RESERVED
    return best.name


def confirmed(group: DrainNodeGroup, plan: GroupPlan) -> tuple[str, ...]:
    """Return the nodes whose drains are to be confirmed: the first `partition` available ones in planning order.

    Without `partition`, these are all available nodes. While the group is paused, there are none.

    Source:
        descheduler spec, 11.4 (3)
    """
    policy = group.spec.execution_policy
    return () if policy.paused else plan.available[: policy.partition]


def _held(reservations: Collection[ReservationStatus]) -> Mapping[str, Mapping[str, int]]:
    """Return node -> resource -> amount that Available Reservations hold there and that no pod uses yet."""
    held: dict[str, dict[str, int]] = {}
    for each in reservations:
        if each.phase == AVAILABLE:
            amounts = held.setdefault(each.node, {})
            for name, amount in each.allocatable.items():
                amounts[name] = amounts.get(name, 0) + amount - each.taken.get(name, 0)
    return held


def _free(node: NodeView, cluster: ClusterView, held: Mapping[str, Mapping[str, int]]) -> dict[str, int]:
    requested, reserved = cluster.occupancy(node.name).requested, held.get(node.name, {})
    return {
        name: max(0, node.allocatable.get(name, 0) - requested.get(name, 0) - reserved.get(name, 0))
        for name in _PLANNED
    }


def _score(node: NodeView, free: Mapping[str, int]) -> float:
    """Return the free share of a node in percent: the mean of cpu and memory.

    Args:
        node: The node.
        free: Resource -> free amount on it.
    """
    shares = [
        100 * free[name] / allocatable if (allocatable := node.allocatable.get(name, 0)) else 0.0 for name in _PLANNED
    ]
    return sum(shares) / len(shares)


def _keeps_share(
    view: GroupView, members: Sequence[NodeView], node: NodeView, free: Mapping[str, Mapping[str, int]], percent: int
) -> bool:
    """Return whether the other candidates can take the pods of a node and keep `percent` of the group free."""
    moving = total_requests(pod for pod in view.cluster.unfinished_on(node.name) if not pod.is_daemon)
    for name in _PLANNED:
        elsewhere = sum(amounts[name] for other, amounts in free.items() if other != node.name)
        capacity = sum(member.allocatable.get(name, 0) for member in members)
        if 100 * (elsewhere - moving.get(name, 0)) < percent * capacity:
            return False
    return True
