"""Decisions as work for the outbox. Each appends an event of the pod, and all of a batch one event of the node.

Source: event-bus spec, 4.2
"""

from collections.abc import Mapping

import msgspec
from koordcore.events.envelope import AggregateRef, Draft, name_token
from koordcore.events.node_ledger import NodeResourcesReturned, NodeResourcesTaken, PodOnNode
from koordcore.events.pod import DecisionBasis, PlacementExplanation, PodPlaced, PodReallocated, PodReleased
from koordcore.protocol.annotations.gang import BoundGang


class _Decision(msgspec.Struct, frozen=True, kw_only=True, eq=False, gc=False):
    uid: str
    node: str
    namespace: str
    name: str
    trigger: str  # Id of the event that caused the decision, such as the one because of which the pod was attempted
    traceparent: str = ""
    tracestate: str = ""


class Placement(_Decision, frozen=True, kw_only=True, eq=False, gc=False):
    """A decision to place a pod on a node."""

    on_node: PodOnNode  # The pod as its node's agent sees it, with its allocation
    attempt: int  # Number of the attempt that found the node; the first attempt of a pod is 1
    queued_at: str  # RFC 3339 time of submission
    explanation: PlacementExplanation
    # Positions and earlier decisions on which the decision rests; None if not recorded.
    basis: DecisionBasis | None = None
    gang: BoundGang | None = None  # The gang group that is bound together; None if the pod is bound alone
    annotations: Mapping[str, str] = {}  # Annotations of plugins to write on the pod when it is bound


class Release(_Decision, frozen=True, kw_only=True, eq=False, gc=False):
    """A decision that a pod no longer holds its node."""

    reason: str  # Why, in the words of `PodReleased.reason`


class Reallocation(_Decision, frozen=True, kw_only=True, eq=False, gc=False):
    """A decision to change the amounts or the allocation of a pod or Reservation in the ledger of its node."""

    on_node: PodOnNode  # The pod or Reservation with its new amounts and allocation
    reason: str  # Value of `PodReallocated.reason`


Work = Placement | Release | Reallocation


class NodeWork(msgspec.Struct, frozen=True, eq=False, gc=False):
    """Placements and reallocations, or releases, on one node that one append writes together with one ledger event."""

    node: str
    items: tuple[Work, ...]

    def node_event(self) -> NodeResourcesTaken | NodeResourcesReturned:
        """Return the ledger event of this work: it adds the pods to the node's ledger, or changes or removes them."""
        taken = [item.on_node for item in self.items if not isinstance(item, Release)]
        if taken:
            return NodeResourcesTaken(pods=taken)
        return NodeResourcesReturned(pods=[item.uid for item in self.items])


def pod_event(work: Work) -> PodPlaced | PodReallocated | PodReleased:
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
        case Reallocation():
            return PodReallocated(
                namespace=work.namespace,
                name=work.name,
                node=work.node,
                requests=work.on_node.requests,
                allocation=work.on_node.allocation,
                reason=work.reason,
            )
        case Release():
            return PodReleased(namespace=work.namespace, name=work.name, node=work.node, reason=work.reason)


def pod_ref(uid: str) -> AggregateRef:
    """Which has the placements and releases of a pod."""
    return AggregateRef("pod", uid)


def node_ref(node: str) -> AggregateRef:
    """The ledger of a node."""
    return AggregateRef("node", name_token(node))


def pod_draft(work: Work, expected_last: int) -> Draft:
    """`expected_last`: of `pod.<uid>`, or 0. The log refuses the append if this has changed."""
    return Draft(pod_ref(work.uid), pod_event(work), expected_last)


def node_draft(work: NodeWork, expected_last: int) -> Draft:
    """`expected_last`: of `node.<name>`, or 0. The log refuses the append if this has changed."""
    return Draft(node_ref(work.node), work.node_event(), expected_last)
