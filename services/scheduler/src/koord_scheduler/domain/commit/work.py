"""What a decision appends: an event of the pod, and one event of the node for all pods of a batch.

Source:
    event-bus spec, 4.2
"""

from collections.abc import Mapping

import msgspec
from koordcore.events.envelope import AggregateRef, Draft, name_token
from koordcore.events.scheduling.node_ledger import NodeResourcesReturned, NodeResourcesTaken, PodOnNode
from koordcore.events.scheduling.placement_explanation import PlacementExplanation
from koordcore.events.scheduling.pod import DecisionBasis, PodPlaced, PodReleased
from koordcore.protocol.annotations.gang import BoundGang


class Placement(msgspec.Struct, frozen=True, kw_only=True, eq=False, gc=False):
    """A decision to place a pod on a node.

    Attributes:
        on_node: The pod as its node's agent sees it, with its allocation.
        attempt: 1 for the pod's first attempt, this one included.
        queued_at: RFC 3339 time of submission.
        trigger: Id of the event that made the attempt worthwhile.
        basis: What the decision was based on; None if that was not recorded.
        gang: The gang group that is bound together; None if the pod is bound alone.
        annotations: Annotations of plugins to write on the pod when it is bound.
    """

    uid: str
    node: str
    namespace: str
    name: str
    on_node: PodOnNode
    attempt: int
    queued_at: str
    explanation: PlacementExplanation
    trigger: str
    basis: DecisionBasis | None = None
    gang: BoundGang | None = None
    annotations: Mapping[str, str] = {}
    traceparent: str = ""
    tracestate: str = ""


class Release(msgspec.Struct, frozen=True, kw_only=True, eq=False, gc=False):
    """A decision to release the node of a pod.

    Attributes:
        reason: As in `PodReleased`.
    """

    uid: str
    node: str
    namespace: str
    name: str
    reason: str
    trigger: str
    traceparent: str = ""
    tracestate: str = ""


Work = Placement | Release


class NodeWork(msgspec.Struct, frozen=True, eq=False, gc=False):
    """Work for one node, either placements or releases, which is appended with a single event of the node."""

    node: str
    items: tuple[Work, ...]

    def node_event(self) -> NodeResourcesTaken | NodeResourcesReturned:
        """Return the event for the node's ledger."""
        taken = [item.on_node for item in self.items if isinstance(item, Placement)]
        if taken:
            return NodeResourcesTaken(pods=taken)
        return NodeResourcesReturned(pods=[item.uid for item in self.items])


def pod_event(work: Work) -> PodPlaced | PodReleased:
    """Return the event about the pod."""
    match work:
        case Placement():
            return PodPlaced(
                namespace=work.namespace,
                name=work.name,
                node=work.node,
                requests=work.on_node.requests,
                attempt=work.attempt,
                queued_at=work.queued_at,
                allocation=work.on_node.allocation,
                gang=work.gang,
                annotations=dict(work.annotations),
                basis=work.basis,
                explanation=work.explanation,
            )
        case Release():
            return PodReleased(namespace=work.namespace, name=work.name, node=work.node, reason=work.reason)


def pod_ref(uid: str) -> AggregateRef:
    """Return the aggregate of a pod's placement."""
    return AggregateRef("pod", uid)


def node_ref(node: str) -> AggregateRef:
    """Return the aggregate of a node's ledger."""
    return AggregateRef("node", name_token(node))


def pod_draft(work: Work, expected_last: int) -> Draft:
    """Return the draft of the pod's event."""
    return Draft(pod_ref(work.uid), pod_event(work), expected_last)


def node_draft(work: NodeWork, expected_last: int) -> Draft:
    """Return the draft of the node's event."""
    return Draft(node_ref(work.node), work.node_event(), expected_last)
