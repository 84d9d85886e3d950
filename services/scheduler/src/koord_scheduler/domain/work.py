"""Decisions on their way to the log: what they will append, and which of them may go together.

    decide -> Outbox.put -> Outbox.take (a batch: every node at most once, none of them in flight)
           -> drafts -> log -> confirmed, or taken back

Only one append per aggregate may be in flight, so work for a node waits here while another append of that node is
under way, and is then appended together, merged into one event of the node.

source    event-bus spec, 4.2
"""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from koordcore.events.envelope import AggregateRef, Draft, name_token
from koordcore.events.explanation import PlacementExplanation
from koordcore.events.node import NodeResourcesReturned, NodeResourcesTaken, PodOnNode
from koordcore.events.pod import PodPlaced, PodReleased

MOST_PER_BATCH: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A pod is to be placed on a node. `trigger` is the event that made the attempt worthwhile."""

    uid: str
    node: str
    namespace: str
    name: str
    on_node: PodOnNode
    attempt: int
    queued_at: str
    explanation: PlacementExplanation
    trigger: str
    traceparent: str = ""
    tracestate: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """A pod's place on a node is to be given back. reason: as in `PodReleased`."""

    uid: str
    node: str
    namespace: str
    name: str
    reason: str
    trigger: str
    traceparent: str = ""
    tracestate: str = ""


Work = Place | Release


@dataclass(frozen=True, slots=True)
class NodeWork:
    """Work of one kind for one node, appended with one event of the node."""

    node: str
    items: tuple[Work, ...]

    def node_event(self) -> NodeResourcesTaken | NodeResourcesReturned:
        """What the node's ledger says afterwards."""
        taken = [item.on_node for item in self.items if isinstance(item, Place)]
        if taken:
            return NodeResourcesTaken(pods=taken)
        return NodeResourcesReturned(pods=[item.uid for item in self.items])


def pod_event(work: Work) -> PodPlaced | PodReleased:
    """What happened to the pod."""
    match work:
        case Place():
            return PodPlaced(
                namespace=work.namespace,
                name=work.name,
                node=work.node,
                requests=work.on_node.requests,
                attempt=work.attempt,
                queued_at=work.queued_at,
                explanation=work.explanation,
            )
        case Release():
            return PodReleased(namespace=work.namespace, name=work.name, node=work.node, reason=work.reason)


def pod_ref(uid: str) -> AggregateRef:
    """The aggregate of a pod's placement."""
    return AggregateRef("pod", uid)


def node_ref(node: str) -> AggregateRef:
    """The aggregate of a node's ledger."""
    return AggregateRef("node", name_token(node))


def pod_draft(work: Work, expected_last: int) -> Draft:
    """The pod's half of the decision."""
    return Draft(pod_ref(work.uid), pod_event(work), expected_last)


def node_draft(work: NodeWork, expected_last: int) -> Draft:
    """The node's half of the decisions about it."""
    return Draft(node_ref(work.node), work.node_event(), expected_last)


@dataclass(slots=True)
class _NodeQueue:
    items: deque[Work] = field(default_factory=deque[Work])
    in_flight: bool = False


class Outbox:
    """Work that is not appended yet, by node, first come first served."""

    def __init__(self) -> None:
        self._nodes: dict[str, _NodeQueue] = {}
        self._ready: deque[str] = deque()
        self._size = 0

    def __len__(self) -> int:
        """Items not taken yet."""
        return self._size

    def has_ready(self) -> bool:
        """Whether `take` would give something."""
        return bool(self._ready)

    def put(self, work: Work) -> None:
        """Add work for its node, after what is there already."""
        queue = self._nodes.get(work.node)
        if queue is None:
            queue = self._nodes[work.node] = _NodeQueue()
        if not queue.items and not queue.in_flight:
            self._ready.append(work.node)
        queue.items.append(work)
        self._size += 1

    def take(self, most: int = MOST_PER_BATCH) -> list[NodeWork]:
        """Work for one append: at most `most` items, each node once and with one kind of work; its nodes are in flight.

        A node with more than `most` items of a kind is cut.
        """
        taken: list[NodeWork] = []
        room = most
        while self._ready and room > 0:
            node = self._ready.popleft()
            queue = self._nodes[node]
            kind = type(queue.items[0])
            items: list[Work] = []
            while queue.items and room > 0 and type(queue.items[0]) is kind:
                items.append(queue.items.popleft())
                room -= 1
            queue.in_flight = True
            self._size -= len(items)
            taken.append(NodeWork(node, tuple(items)))
        return taken

    def landed(self, node: str) -> None:
        """The node's append has its outcome: its next work may go."""
        queue = self._nodes[node]
        queue.in_flight = False
        if queue.items:
            self._ready.append(node)
        else:
            del self._nodes[node]

    def withdraw(self, node: str) -> list[Work]:
        """Take back all work for a node that is not in flight, because what it was decided on was wrong."""
        queue = self._nodes.get(node)
        if queue is None:
            return []
        items = list(queue.items)
        queue.items.clear()
        self._size -= len(items)
        if not queue.in_flight:
            self._ready.remove(node)
            del self._nodes[node]
        return items

    def withdraw_pod(self, node: str, uid: str) -> Work | None:
        """Take back the work about one pod; None when it is in flight or not here."""
        queue = self._nodes.get(node)
        if queue is None:
            return None
        for item in queue.items:
            if item.uid == uid:
                queue.items.remove(item)
                self._size -= 1
                if not queue.items and not queue.in_flight:
                    self._ready.remove(node)
                    del self._nodes[node]
                return item
        return None

    def nodes(self) -> Iterator[str]:
        """Nodes with work waiting or in flight."""
        return iter(tuple(self._nodes))


def items_of(batch: Sequence[NodeWork]) -> list[Work]:
    """All items of a batch."""
    return [item for work in batch for item in work.items]
