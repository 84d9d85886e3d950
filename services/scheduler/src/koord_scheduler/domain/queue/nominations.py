"""Pods that were promised a node, once its victims are gone. source    scheduler-core spec, 1.3 and 6"""


class Nominations:
    """Node and priority of each nominated pod."""

    def __init__(self) -> None:
        self._of: dict[str, tuple[str, int]] = {}
        self._on: dict[str, dict[str, int]] = {}

    def __len__(self) -> int:
        return len(self._of)

    def put(self, uid: str, node: str, priority: int) -> None:
        """The pod is nominated to this node, and to no other."""
        self.drop(uid)
        self._of[uid] = (node, priority)
        self._on.setdefault(node, {})[uid] = priority

    def drop(self, uid: str) -> None:
        """The pod is nominated no more; one that was not is no matter."""
        known = self._of.pop(uid, None)
        if known is not None:
            on_node = self._on[known[0]]
            del on_node[uid]
            if not on_node:
                del self._on[known[0]]

    def node_of(self, uid: str) -> str:
        """Where the pod is nominated to, "" nowhere."""
        known = self._of.get(uid)
        return known[0] if known is not None else ""

    def on(self, node: str) -> tuple[str, ...]:
        """Pods nominated to the node."""
        return tuple(self._on.get(node, ()))

    def nodes(self) -> tuple[str, ...]:
        """Nodes that somebody is nominated to."""
        return tuple(self._on)

    def rivals(self, node: str, uid: str, priority: int) -> list[str]:
        """Pods nominated to the node that this pod may not push aside: others of at least its priority."""
        return [other for other, rank in self._on.get(node, {}).items() if other != uid and rank >= priority]

    def outranked(self, node: str, uid: str, priority: int) -> list[str]:
        """Pods nominated to the node that lose it to this pod: others of lower priority."""
        return [other for other, rank in self._on.get(node, {}).items() if other != uid and rank < priority]

    def items(self) -> list[tuple[str, str, int]]:
        """(uid, node, priority) of all."""
        return [(uid, node, priority) for uid, (node, priority) in self._of.items()]
