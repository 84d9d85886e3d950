"""All pods by namespace and name, kept in order while some of them change.

Sorting 150,000 pods takes half a second, in which nothing else can run. This order is a list of short sorted lists, so
that a changed pod takes only microseconds.
"""

from bisect import bisect_left, insort
from typing import Final

from koord_descheduler.domain.view.pods import PodView

BLOCK: Final = 500
"""Entries of a block after it was split; it is split when it has twice as many."""
Key = tuple[str, str, str]
_Entry = tuple[str, str, str, PodView]
"""Namespace, name, uid, pod. No two entries have the same uid, so pods are never compared.

A key is smaller than its entry, which is longer, and larger than all entries before.
"""


class PodOrder:
    """Pods in the order in which rounds visit them: by namespace, name and uid."""

    def __init__(self) -> None:
        self._blocks: list[list[_Entry]] = []
        self._ends: list[_Entry] = []
        """The last entry of each block."""
        self._pods: tuple[PodView, ...] | None = None

    def change(self, before: PodView | None, after: PodView | None) -> None:
        """Move a changed pod to its place in the order.

        Args:
            before: The pod before the change; None if it did not exist.
            after: The pod after the change; None if it does not exist any more.
        """
        if before is not None:
            self._remove(_key(before))
        if after is not None:
            self._add((*_key(after), after))
        self._pods = None

    def pods(self) -> tuple[PodView, ...]:
        """Return all pods by namespace, name and uid."""
        if self._pods is None:
            self._pods = tuple([entry[3] for block in self._blocks for entry in block])
        return self._pods

    def has_namespace(self, name: str) -> bool:
        """Return whether there is a pod in a namespace."""
        first = (name, "", "")
        index = bisect_left(self._ends, first)
        if index == len(self._ends):
            return False
        block = self._blocks[index]
        return block[bisect_left(block, first)][0] == name

    def _remove(self, key: Key) -> None:
        index = bisect_left(self._ends, key)
        block = self._blocks[index]
        del block[bisect_left(block, key)]
        if block:
            self._ends[index] = block[-1]
        else:
            del self._blocks[index], self._ends[index]

    def _add(self, entry: _Entry) -> None:
        if not self._blocks:
            self._blocks, self._ends = [[entry]], [entry]
            return
        index = min(bisect_left(self._ends, entry), len(self._ends) - 1)
        block = self._blocks[index]
        insort(block, entry)
        self._ends[index] = block[-1]
        if len(block) >= 2 * BLOCK:
            half = block[BLOCK:]
            del block[BLOCK:]
            self._blocks.insert(index + 1, half)
            self._ends[index] = block[-1]
            self._ends.insert(index + 1, half[-1])


def _key(pod: PodView) -> Key:
    return pod.namespace, pod.name, pod.uid
