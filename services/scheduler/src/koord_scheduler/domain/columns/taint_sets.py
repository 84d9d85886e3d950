"""The sets of taints of all nodes as numbers, because nodes share few distinct sets."""

from typing import Final

from koordcore.protocol.objects import Taint

NO_TAINTS: Final = 0
"""Id of the empty set of taints."""


class TaintSets:
    """The distinct sets of taints by id, each with its number of nodes.

    The id of a set that no node has any more is used again for the next new set. Some taints have a time as their
    value, so a set may occur only once. The number of ids is bounded by the number of sets at one time.

    Attributes:
        sets: Id -> taints, in the order of the node object; () for an id that no node has.
    """

    __slots__ = ("_free", "_ids", "_nodes", "sets")

    def __init__(self) -> None:
        self.sets: list[tuple[Taint, ...]] = [()]
        self._ids: dict[tuple[tuple[str, str, str], ...], int] = {}
        self._nodes: list[int] = [0]
        self._free: list[int] = []

    def take(self, taints: tuple[Taint, ...]) -> int:
        """Count one more node with these taints, and return the id of the set."""
        if not taints:
            return NO_TAINTS
        key = _key(taints)
        known = self._ids.get(key)
        if known is None:
            if self._free:
                known = self._free.pop()
                self.sets[known] = taints
            else:
                known = len(self.sets)
                self.sets.append(taints)
                self._nodes.append(0)
            self._ids[key] = known
        self._nodes[known] += 1
        return known

    def give(self, id_: int) -> None:
        """Count one node fewer with the set of this id, because its taints changed or it was deleted."""
        if id_ == NO_TAINTS:
            return
        self._nodes[id_] -= 1
        if not self._nodes[id_]:
            del self._ids[_key(self.sets[id_])]
            self.sets[id_] = ()
            self._free.append(id_)


def _key(taints: tuple[Taint, ...]) -> tuple[tuple[str, str, str], ...]:
    return tuple((taint.key, taint.value, taint.effect) for taint in taints)
