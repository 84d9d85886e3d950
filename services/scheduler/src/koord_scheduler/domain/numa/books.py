"""The accounts of CPUs and zones of all nodes, folded from facts; O(1) for each fact.

    NodeResourceTopology objects and nodes    what nodes have
    allocations of pods on nodes              what is taken

A fact may come before the node or the object that it needs; it counts as soon as that is there.

Source: scheduler-fine-grained spec, 1.8 (6) and 6.
"""

from typing import Any, Final, Protocol, cast

from koordcore.protocol import keys
from koordcore.protocol.hardware.node_topology import NodeResourceTopology
from koordcore.protocol.objects import Node
from koordcore.values.allocation import Allocation

from koord_scheduler.domain.columns.node_columns import NodeColumns
from koord_scheduler.domain.numa.columns import NumaColumns
from koord_scheduler.domain.numa.hardware import hardware_of
from koord_scheduler.domain.numa.node_book import NodeBook, taken_of
from koord_scheduler.domain.pods.equivalence_classes import PodClass
from koord_scheduler.domain.pods.info import PodInfo

_MOST_TEXTS: Final = 1024


class Allocator(Protocol):
    """Knows what pods would get: the plugin."""

    def estimate(self, pod: PodClass, row: int) -> Allocation | None:
        """Return what a pod of the class would get on the node; None if it would get nothing or does not fit."""
        ...

    def may_refuse(self, pod: PodClass) -> bool:
        """Return whether the filter of pods of this class looks at the accounts."""
        ...


class NumaBooks:
    """The accounts.

    Attributes:
        columns: What they come to, as arrays over nodes.
        has_imposed: Whether a node has treated pods differently that ask for nothing special.
        allocator: Allocates for pods that are on a node for a trial only; the plugin puts itself here.
    """

    def __init__(self, nodes: NodeColumns) -> None:
        self.columns = NumaColumns(nodes.capacity)
        self.has_imposed = False
        self.allocator: Allocator | None = None
        self._nodes = nodes
        self._books: dict[int, NodeBook] = {}
        self._objects: dict[str, Node] = {}
        self._topologies: dict[str, NodeResourceTopology] = {}
        self._texts: dict[str, str] = {}

    def book(self, row: int) -> NodeBook:
        """Return the account of a node."""
        book = self._books.get(row)
        if book is None:
            book = self._books[row] = NodeBook()
        return book

    # --- what nodes have ---------------------------------------------------------------------------------------------

    def put_node(self, row: int, node: Node) -> None:
        """Add or change a node."""
        self.columns.grow(self._nodes.capacity)
        self._objects[node.metadata.name] = node
        self._resolve(row, node)

    def drop_node(self, row: int) -> None:
        """Remove a node; its pods have left it."""
        self._books.pop(row, None)
        self._objects.pop(self._nodes.names[row], None)
        self.columns.clear(row)

    def put_topology(self, topology: NodeResourceTopology) -> None:
        """Add or change the NodeResourceTopology of a node."""
        self._topologies[topology.metadata.name] = topology
        self._topology_changed(topology.metadata.name)

    def share_texts(self, document: dict[str, Any]) -> None:
        """Let equal CPU topologies of an object be one text: nodes of one model repeat kilobytes of it."""
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
        """Return whether a filter of pods of this class looks at the accounts."""
        return self.allocator is not None and self.allocator.may_refuse(pod_class)

    def took(self, row: int, pod_info: PodInfo) -> None:
        """Count what a pod on the node has; a pod that is there for a trial gets what it would get."""
        allocation: Allocation | None = pod_info.allocation
        if pod_info.is_guest and pod_info.pod_class is not None and self.allocator is not None:
            allocation = self.allocator.estimate(pod_info.pod_class, row)
        if allocation is None or not (allocation.cpuset or allocation.zones):
            return
        self.gave(row, pod_info)
        book, taken = self.book(row), taken_of(allocation)
        before = book.free
        book.take(pod_info.uid, taken)
        self.columns.moved(row, book, taken, before, 1)

    def gave(self, row: int, pod_info: PodInfo) -> None:
        """Undo `took`."""
        book = self._books.get(row)
        if book is None or pod_info.uid not in book.pods:
            return
        before = book.free
        taken = book.give(pod_info.uid)
        if taken is not None:
            self.columns.moved(row, book, taken, before, -1)
