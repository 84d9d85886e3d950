"""States of the aggregates of drains, see `koordcore.events.descheduling.drain`."""

from koordcore.events.descheduling.drain import DrainedPod
from koordcore.state.base import AggregateState


class DrainState(AggregateState, frozen=True, kw_only=True, omit_defaults=True):
    """How far the drain of one node is. Times are RFC 3339; "" means never.

    Attributes:
        object_uid: Uid of its DrainNode; "" after that was deleted.
        node: The node.
        phase: Pending, Running, Complete or Aborted.
        message: Why it is in this phase; "" if there is nothing to say.
        mode: How the node was closed: "Taint", "Label", or "" while it is open.
        labels: Labels that the mode Label has set on the node.
        pods: Uid -> pod.
        conditions: Type of a condition that is true -> time since when.
        started_at: When the node was closed.
        confirmed_at: When a user agreed to the plan.
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
    """How far a group of drains is.

    Attributes:
        object_uid: Uid of its DrainNodeGroup; "" after that was deleted.
        phase: Pending, Planning, Waiting, Running, Succeeded, Failed or Aborted.
        message: Why it is in this phase.
        nodes: Nodes that have its label.
        planning: Node whose plan is not judged yet; "" if there is none.
        available: Nodes whose pods all have a place, in planning order.
        unavailable: Node with a pod that has none -> reason.
        confirmed: Nodes whose drains are confirmed.
        running: Number of confirmed drains that run.
        succeeded: Number of drains that ended without a failed pod.
        failed: Number of drains that ended with a failed pod.
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
    changed_at: str = ""
