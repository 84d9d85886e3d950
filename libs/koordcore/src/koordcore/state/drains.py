"""States of the aggregates of drains: how far the descheduler has emptied a node or a group of nodes.

The events are in `koordcore.events.descheduling.drain`.
"""

from koordcore.events.descheduling.drain import DrainedPod
from koordcore.state.base import AggregateState


class DrainState(AggregateState, frozen=True, kw_only=True, omit_defaults=True):
    """Progress of the drain of one node, which moves its pods to other nodes. Times are RFC 3339; "" means never.

    Attributes:
        object_uid: Uid of the DrainNode.
        node: Name of the node.
        phase: Pending, Running, Complete or Aborted.
        message: Why the drain is in this phase; "" for no reason.
        mode: How the node was closed: "Taint", "Label", or "" while it is open.
        labels: Labels that mode "Label" set on the node.
        pods: Uid of a pod to migrate -> its progress.
        conditions: Type of a condition of the DrainNode that is true -> time at which it became true.
        started_at: When the node was closed.
        confirmed_at: When the drain was confirmed, so that pods may be evicted.
        ended_at: When the phase became Complete or Aborted.
    """

    object_uid: str = ""
    node: str = ""
    phase: str = "Pending"
    message: str = ""
    mode: str = ""
    labels: dict[str, str] = {}
    pods: dict[str, DrainedPod] = {}
    conditions: dict[str, str] = {}
    started_at: str = ""
    confirmed_at: str = ""
    ended_at: str = ""


class DrainGroupState(AggregateState, frozen=True, kw_only=True, omit_defaults=True):
    """Progress of a DrainNodeGroup: the drain of a group of nodes, which are planned and drained one after the other.

    Attributes:
        object_uid: Uid of the DrainNodeGroup.
        phase: Pending, Planning, Waiting, Running, Succeeded, Failed or Aborted.
        message: Why the group is in this phase; "" for no reason.
        nodes: Nodes of the group.
        planning: Node for whose pods places on other nodes are being searched; "" if there is none.
        available: Nodes whose pods all have a place elsewhere, in the order in which they were planned.
        unavailable: Node that cannot be drained, such as one with a pod that has no place elsewhere -> reason.
        confirmed: Nodes whose drains are confirmed.
        running: Number of confirmed drains that have not ended.
        succeeded: Number of drains that ended without a failed pod.
        failed: Number of drains that ended with a failed pod, or that were aborted.
        results: Confirmed node whose drain ended -> why the drain failed; "" if it succeeded.
        changed_at: RFC 3339 time of the last change of the phase.
    """

    object_uid: str = ""
    phase: str = "Pending"
    message: str = ""
    nodes: list[str] = []
    planning: str = ""
    available: list[str] = []
    unavailable: dict[str, str] = {}
    confirmed: list[str] = []
    running: int = 0
    succeeded: int = 0
    failed: int = 0
    results: dict[str, str] = {}
    changed_at: str = ""
