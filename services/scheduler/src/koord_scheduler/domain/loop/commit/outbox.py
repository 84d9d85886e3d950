"""Outbox of decisions: they wait here until they are appended, in batches that may be appended together.

    decide -> Outbox.put -> Outbox.take (a batch: every node at most once, none of them in flight)
           -> drafts -> log -> confirmed or withdrawn
    a gang -> Outbox.put_together -> a batch of its own, all or none

Only one append per aggregate may be in flight. So decisions about a node wait while another append about the node is in
flight. Then they are appended together, with one event of the node.

Source: event-bus spec, 4.2
"""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from koord_scheduler.domain.loop.commit.work import NodeWork, Work

MOST_PER_BATCH: Final = 200


class Batch(NamedTuple):
    """Placements and releases that one atomic append writes to the log."""

    works: list[NodeWork]  # The placements or releases of each node
    gang: str = ""  # Id of the gang whose members are appended all or none. "": the nodes are independent.

    @property
    def items(self) -> list[Work]:
        return [item for work in self.works for item in work.items]


@dataclass(slots=True, eq=False)
class _Together:
    """Placements that are appended all or none. `parked` names the nodes that are held for them."""

    gang: str
    by_node: dict[str, list[Work]]
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
    """Decided placements and releases that are not appended yet, in order of decision for each node. A gang's
    placements wait until each of them is the first on its node. They are queued on all nodes at once, so two gangs
    never wait for each other.
    """

    def __init__(self) -> None:
        self._nodes: dict[str, _NodeQueue] = {}
        self._ready: deque[str] = deque()
        self._together: dict[_Together, None] = {}
        self._complete: deque[_Together] = deque()
        self._size = 0

    def __len__(self) -> int:
        """Return the number of placements and releases that are not taken yet."""
        return self._size

    def has_ready(self) -> bool:
        """Return whether `take` would return at least one placement or release now."""
        return bool(self._ready or self._complete)

    def put(self, work: Work) -> None:
        """Queue a placement or release, after the other work that waits for the same node."""
        self._put(work.node, work)
        self._size += 1

    def put_together(self, works: Sequence[Work], gang: str) -> None:
        """Add decisions that one append writes all or none, such as the placements of a gang and reallocations that
        follow from them. `gang`: "" if they concern no gang, so that all are on one node.
        """
        by_node: dict[str, list[Work]] = {}
        for work in works:
            by_node.setdefault(work.node, []).append(work)
        together = _Together(gang, by_node)
        self._size += len(works)
        self._together[together] = None
        for node in by_node:
            self._put(node, together)

    def take(self, most: int = MOST_PER_BATCH) -> Batch:
        """Remove the work of the next append, and mark its nodes as in flight. A complete gang is a batch of its own,
        however large it is. Otherwise the batch has at most `most` placements and releases. Each node occurs once, with
        work of one kind: placements, reallocations or releases. Other work of the node stays for a later batch. A node
        in flight is not taken. The batch is empty if nothing may be appended now.
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
        """Record that the log has answered the append of a node, so that its next work may be taken. Call it only for a
        node in flight. No-op if the outbox does not know the node.
        """
        queue = self._nodes.get(node)
        if queue is not None:
            queue.in_flight = False
            self._turn(node, queue)

    def land_all(self) -> None:
        """Mark every append in flight as answered. Used in a copy of the state, which gets no answers from the log."""
        for node in tuple(self._nodes):
            queue = self._nodes.get(node)
            if queue is not None and queue.in_flight and not self._parked_at(node):
                self.landed(node)

    def withdraw(self, node: str) -> list[Work]:
        """Remove and return the waiting work of a node, because it was decided on an outdated state. Work in flight
        stays. If a member of a waiting gang is to be placed on the node, the whole gang is removed.
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
        """Remove and return the work about one pod on a node, with its whole gang. Empty if the work is in flight or
        not in the outbox.
        """
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

    def has(self, node: str) -> bool:
        """Whether work of a node waits or is in flight."""
        return node in self._nodes

    def nodes(self) -> Iterator[str]:
        """Return the names of the nodes with work that waits or is in flight."""
        return iter(tuple(self._nodes))

    def _put(self, node: str, entry: Work | _Together) -> None:
        queue = self._nodes.get(node)
        if queue is None:
            queue = self._nodes[node] = _NodeQueue()
        queue.items.append(entry)
        if len(queue.items) == 1 and not queue.in_flight:
            self._turn(node, queue)

    def _turn(self, node: str, queue: _NodeQueue) -> None:
        """Let the first entry of a node go, which has nothing in flight."""
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
        """Update the order of a node after entries were removed."""
        if queue.in_flight:
            return
        if node in self._ready:
            self._ready.remove(node)
        self._turn(node, queue)

    def _parked_at(self, node: str) -> list[_Together]:
        return [entry for entry in self._together if node in entry.parked]

    def _dissolve(self, together: _Together) -> list[Work]:
        """Remove placements that are appended together from every queue."""
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
