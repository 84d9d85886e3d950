"""Which nodes were deleted, and which returned under their name.

The scheduler forgets the decisions about a node with the node. The folded state keeps them. So a decision about a node
that returned is published again even if it equals the one of its earlier life. This is not part of snapshots: a manager
that starts from one takes the decisions that it has for those of the present life.
"""

from typing import Final

from koordcore.events.envelope import AggregateRef, Event
from koordcore.events.management.nodepolicy import NodeDevicesComputed, NodeOvercommitComputed
from koordcore.events.objects.mirror import NodeSpecAdded, NodeSpecDeleted
from koordcore.values.newest import Newest

FORGOTTEN_WITH_NODE: Final = (NodeOvercommitComputed, NodeDevicesComputed)
"""Decisions about resources of a node, which the scheduler forgets with the node."""
MAX_DELETED_NODES: Final = 1024


class NodeLives:
    """The deleted and the returned nodes of the cluster, by token. It is updated by every fact about nodes."""

    def __init__(self) -> None:
        self._deleted = Newest[str, None](MAX_DELETED_NODES)
        self._untold: dict[str, set[type[Event]]] = {}

    def fold(self, ref: AggregateRef, event: Event, *, has_policy: bool) -> None:
        """Apply a fact about a node. Other facts change nothing.

        Args:
            ref: The aggregate of the fact.
            event: The fact.
            has_policy: Whether decisions about the node were ever published.
        """
        match event:
            case NodeSpecAdded():
                self._deleted.pop(ref.id, None)
                if has_policy:
                    self._untold[ref.id] = set(FORGOTTEN_WITH_NODE)
            case NodeSpecDeleted():
                self._deleted[ref.id] = None
                self._untold.pop(ref.id, None)
            case NodeOvercommitComputed() | NodeDevicesComputed() if untold := self._untold.get(ref.id):
                untold.discard(type(event))
            case _:
                return

    def is_deleted(self, token: str) -> bool:
        """Return whether a node was deleted, and has not returned. Only the newest 1,024 are known."""
        return token in self._deleted

    def is_told(self, token: str, decision: type[Event]) -> bool:
        """Return whether the last decision of a kind about a node was made in the present life of the node.

        True also for a node that did not return.
        """
        return decision not in self._untold.get(token, ())
