"""Decisions that wait to be appended, and batches of those that may go together.

    decide -> Outbox.put -> Outbox.take (a batch: every node at most once, none of them in flight)
           -> drafts -> log -> confirmed, or taken back
    a gang -> Outbox.put_together -> a batch of its own, all or none

Only one append per aggregate may be in flight, so work for a node waits here while another append of that node is
under way, and is then appended together, merged into one event of the node.

Source:
    event-bus spec, 4.2
"""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from koord_scheduler.domain.commit.work import NodeWork, Placement, Work

MOST_PER_BATCH: Final = 200


class Batch(NamedTuple):
    """Work for one append.

    Attributes:
        gang: Id of the gang whose members these are: they are appended all or none. "": each node stands for itself.
    """

    works: list[NodeWork]
    gang: str = ""

    @property
    def items(self) -> list[Work]:
        """All items."""
        return [item for work in self.works for item in work.items]


@dataclass(slots=True, eq=False)
class _Together:
    """Placements that are appended all or none. `parked` names the nodes that are held for them."""

    gang: str
    by_node: dict[str, list[Placement]]
    parked: set[str] = field(default_factory=set[str])

    @property
    def is_complete(self) -> bool:
        return len(self.parked) == len(self.by_node)

    def items(self) -> list[Work]:
        return [item for items in self.by_node.values() for item in items]


@dataclass(slots=True)
class _NodeQueue:
    items: deque[Work | _Together] = field(default_factory=deque["Work | _Together"])
    in_flight: bool = False


class Outbox:
    """Work that is not appended yet, in order of arrival by node.

    What has to go together waits until it is its turn on all of its nodes. It is put on all of them at once, so two of
    them never wait for each other.
    """

    def __init__(self) -> None:
        self._nodes: dict[str, _NodeQueue] = {}
        self._ready: deque[str] = deque()
        self._together: dict[_Together, None] = {}
        self._complete: deque[_Together] = deque()
        self._size = 0

    def __len__(self) -> int:
        """Items not taken yet."""
        return self._size

    def has_ready(self) -> bool:
        """Return whether `take` would give something."""
        return bool(self._ready or self._complete)

    def put(self, work: Work) -> None:
        """Add work for its node, after what is there already."""
        self._put(work.node, work)
        self._size += 1

    def put_together(self, works: Sequence[Placement], gang: str) -> None:
        """Add placements that are appended all or none."""
        by_node: dict[str, list[Placement]] = {}
        for work in works:
            by_node.setdefault(work.node, []).append(work)
        together = _Together(gang, by_node)
        self._size += len(works)
        self._together[together] = None
        for node in by_node:
            self._put(node, together)

    def take(self, most: int = MOST_PER_BATCH) -> Batch:
        """Take the work of the next append out of the outbox, and mark its nodes as in flight.

        A complete gang goes alone and whole, however large it is. Otherwise the batch has at most `most` placements
        and releases. Each node occurs once, with placements or with releases; the rest of its work stays for later.

        Returns:
            The batch; an empty one if nothing may be appended now.
        """
        if self._complete:
            together = self._complete.popleft()
            del self._together[together]
            self._size -= len(together.items())
            return Batch([NodeWork(node, tuple(items)) for node, items in together.by_node.items()], together.gang)
        taken: list[NodeWork] = []
        room = most
        while self._ready and room > 0:
            node = self._ready.popleft()
            queue = self._nodes[node]
            kind = type(queue.items[0])
            items: list[Work] = []
            while queue.items and room > 0:
                head = queue.items[0]
                if type(head) is not kind or isinstance(head, _Together):
                    break
                queue.items.popleft()
                items.append(head)
                room -= 1
            queue.in_flight = True
            self._size -= len(items)
            taken.append(NodeWork(node, tuple(items)))
        return Batch(taken)

    def landed(self, node: str) -> None:
        """Let the node's next work go after its append was answered. No-op if none was in flight."""
        queue = self._nodes.get(node)
        if queue is not None:
            queue.in_flight = False
            self._turn(node, queue)

    def withdraw(self, node: str) -> list[Work]:
        """Take back all work for a node that is not in flight, because what it was decided on was wrong.

        A gang with a member there is taken back whole.
        """
        queue = self._nodes.get(node)
        if queue is None:
            return []
        taken: list[Work] = []
        for entry in (*queue.items, *self._parked_at(node)):
            if isinstance(entry, _Together):
                taken += self._dissolve(entry)
            else:
                taken.append(entry)
                self._size -= 1
        queue = self._nodes.get(node)
        if queue is not None:
            queue.items.clear()
            self._settle(node, queue)
        return taken

    def withdraw_pod(self, node: str, uid: str) -> list[Work]:
        """Take back the work about one pod, with its whole gang; empty when it is in flight or not here."""
        queue = self._nodes.get(node)
        if queue is None:
            return []
        for entry in (*queue.items, *self._parked_at(node)):
            if isinstance(entry, _Together):
                if any(item.uid == uid for item in entry.by_node[node]):
                    return self._dissolve(entry)
            elif entry.uid == uid:
                queue.items.remove(entry)
                self._size -= 1
                self._settle(node, queue)
                return [entry]
        return []

    def nodes(self) -> Iterator[str]:
        """Return nodes with work waiting or in flight."""
        return iter(tuple(self._nodes))

    def _put(self, node: str, entry: Work | _Together) -> None:
        queue = self._nodes.get(node)
        if queue is None:
            queue = self._nodes[node] = _NodeQueue()
        queue.items.append(entry)
        if len(queue.items) == 1 and not queue.in_flight:
            self._turn(node, queue)

    def _turn(self, node: str, queue: _NodeQueue) -> None:
        """Nothing of the node is in flight: its first entry may go."""
        if not queue.items:
            del self._nodes[node]
        elif isinstance(head := queue.items[0], _Together):
            queue.items.popleft()
            queue.in_flight = True
            head.parked.add(node)
            if head.is_complete:
                self._complete.append(head)
        else:
            self._ready.append(node)

    def _settle(self, node: str, queue: _NodeQueue) -> None:
        """Update the order of a node after entries were taken out."""
        if queue.in_flight:
            return
        if node in self._ready:
            self._ready.remove(node)
        self._turn(node, queue)

    def _parked_at(self, node: str) -> list[_Together]:
        return [entry for entry in self._together if node in entry.parked]

    def _dissolve(self, together: _Together) -> list[Work]:
        """Take what has to go together out of every queue."""
        items = together.items()
        self._size -= len(items)
        del self._together[together]
        if together in self._complete:
            self._complete.remove(together)
        for node in together.by_node:
            queue = self._nodes[node]
            if node in together.parked:
                queue.in_flight = False
            else:
                queue.items.remove(together)
            self._settle(node, queue)
        return items
