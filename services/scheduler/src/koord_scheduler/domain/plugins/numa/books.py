"""The CPUs and zone amounts that pods hold on all nodes, folded from facts. The work per fact is constant.

    NodeResourceTopology objects and nodes    what nodes have
    allocations of pods on nodes              what pods hold

A fact may come before its node or its NodeResourceTopology. It counts as soon as both are known.

Source: scheduler-fine-grained spec, 1.8 (6) and 6.
"""

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any, Final, Protocol, cast

from koordcore.protocol import keys
from koordcore.protocol.hardware.node_topology import NodeResourceTopology
from koordcore.protocol.objects import Node
from koordcore.values.allocation import Allocation

from koord_scheduler.domain.cluster.equivalence_classes import PodClass
from koord_scheduler.domain.cluster.info import PodInfo
from koord_scheduler.domain.columns.node_columns import NodeColumns
from koord_scheduler.domain.plugins.numa.accumulator import ExclusivePolicy
from koord_scheduler.domain.plugins.numa.columns import NumaColumns
from koord_scheduler.domain.plugins.numa.hardware import hardware_of
from koord_scheduler.domain.plugins.numa.node_book import NodeBook, Taken, taken_of
from koord_scheduler.domain.plugins.numa.zones import Share

_MOST_TEXTS: Final = 1024


class Allocator(Protocol):
    """Computes the CPUs and zones that a pod on trial would get on a node. The plugin NodeNUMAResource implements
    it.
    """

    def estimate(self, pod: PodClass, row: int) -> Allocation | None:
        """The CPUs and zones that a pod of the class would get on the node; None if none, or if it does not fit."""
        ...

    def may_refuse(self, pod_class: PodClass) -> bool:
        """Return whether the filter may refuse pods of this class because of CPUs and zone amounts of other pods."""
        ...


class NumaBooks:
    """CPUs and zone amounts that the pods on every node hold, with the hardware of the nodes."""

    def __init__(self, nodes: NodeColumns) -> None:
        self.columns = NumaColumns(nodes.capacity)  # The free CPUs and amounts of all nodes, as arrays
        self.has_imposed = False  # Whether any node has ever imposed a CPU or NUMA policy on all of its pods
        # Computes what pods on trial would get. The plugin NodeNUMAResource sets it.
        self.allocator: Allocator | None = None
        self._nodes = nodes
        self._books: dict[int, NodeBook] = {}
        self._objects: dict[str, Node] = {}
        self._topologies: dict[str, NodeResourceTopology] = {}
        self._texts: dict[str, str] = {}

    def book(self, row: int) -> NodeBook:
        """Return the hardware of the node at position `row`, and the CPUs and zones in use. A new position gets an
        empty book.
        """
        book = self._books.get(row)
        if book is None:
            book = self._books[row] = NodeBook()
        return book

    # --- what nodes have ---------------------------------------------------------------------------------------------

    def put_node(self, row: int, node: Node) -> None:
        self.columns.grow(self._nodes.capacity)
        self._objects[node.metadata.name] = node
        self._resolve(row, node)

    def drop_node(self, row: int) -> None:
        """Forget the node at position `row`. Its pods must have left it."""
        self._books.pop(row, None)
        self._objects.pop(self._nodes.names[row], None)
        self.columns.clear(row)

    def put_topology(self, topology: NodeResourceTopology) -> None:
        self._topologies[topology.metadata.name] = topology
        self._topology_changed(topology.metadata.name)

    def share_texts(self, document: dict[str, Any]) -> None:
        """Replace the annotation cpu-topology of a NodeResourceTopology by the equal text of an earlier object. Nodes
        of one model have equal texts of several kilobytes, so this saves memory. `document`: the object as decoded
        JSON. It is changed.
        """
        metadata: object = document.get("metadata")
        annotations: object = (
            cast("dict[str, object]", metadata).get("annotations") if isinstance(metadata, dict) else None
        )
        if isinstance(annotations, dict):
            entries = cast("dict[str, object]", annotations)
            text = entries.get(keys.CPU_TOPOLOGY)
            if isinstance(text, str):
                if len(self._texts) >= _MOST_TEXTS:
                    self._texts.clear()
                entries[keys.CPU_TOPOLOGY] = self._texts.setdefault(text, text)

    def drop_topology(self, name: str) -> None:
        """Remove the NodeResourceTopology of a node."""
        if self._topologies.pop(name, None) is not None:
            self._topology_changed(name)

    def _topology_changed(self, name: str) -> None:
        row, node = self._nodes.row(name), self._objects.get(name)
        if row is not None and node is not None:
            self._resolve(row, node)

    def _resolve(self, row: int, node: Node) -> None:
        hardware = hardware_of(node, self._topologies.get(node.metadata.name))
        book = self.book(row)
        if book.hardware != hardware:
            self.has_imposed = self.has_imposed or hardware.is_imposing
            book.hardware = hardware
            self.columns.put(row, book)
            self._nodes.load.record(row)

    # --- what is taken -----------------------------------------------------------------------------------------------

    def may_refuse(self, pod_class: PodClass) -> bool:
        """Return whether a filter may refuse pods of this class because of CPUs and zone amounts of other pods."""
        return self.allocator is not None and self.allocator.may_refuse(pod_class)

    def took(self, row: int, pod_info: PodInfo) -> None:
        """Count the CPUs and zone amounts of a pod on the node at position `row`. No-op if its allocation has none. For
        a pod on trial, count the CPUs and zone amounts that it would get.
        """
        allocation: Allocation | None = pod_info.allocation
        if pod_info.is_guest and pod_info.pod_class is not None and self.allocator is not None:
            allocation = self.allocator.estimate(pod_info.pod_class, row)
        if allocation is None or not (allocation.cpuset or allocation.zones):
            return
        self.gave(row, pod_info)
        used = allocation.reservation
        holdings = self.book(row).rests.came(pod_info.uid, "" if used is None else used.uid, taken_of(allocation))
        self._count(row, holdings)

    def gave(self, row: int, pod_info: PodInfo) -> None:
        book = self._books.get(row)
        if book is None or pod_info.uid not in book.pods:
            return
        self._give(row, book, pod_info.uid)
        used = pod_info.allocation.reservation
        self._count(row, book.rests.left(pod_info.uid, "" if used is None else used.uid))

    def _count(self, row: int, holdings: Mapping[str, Taken]) -> None:
        """Let each of these holders count with this holding, in place of its present one."""
        book = self.book(row)
        for uid, taken in holdings.items():
            self._give(row, book, uid)
            before = book.free
            book.take(uid, taken)
            self.columns.moved(row, book, taken, before, 1)

    def _give(self, row: int, book: NodeBook, uid: str) -> None:
        before = book.free
        taken = book.give(uid)
        if taken is not None:
            self.columns.moved(row, book, taken, before, -1)

    @contextmanager
    def lent(self, row: int, uid: str, limits: frozenset[str] | None) -> Generator[None]:
        """Count the unused CPUs and amounts of a Reservation as free inside this context, to try one of its owners.
        `limits`: resources that the owner may take only from the Reservation; None for a pod that ignores Reservations.
        """
        book = self.book(row)
        taken = book.pods.get(uid)
        self._give(row, book, uid)
        rest = Taken(0, ExclusivePolicy.NONE, {}) if taken is None else taken
        book.share = None if limits is None else Share(rest.cpus, rest.zones, limits)
        try:
            yield
        finally:
            book.share = None
            if taken is not None:
                self._count(row, {uid: taken})
