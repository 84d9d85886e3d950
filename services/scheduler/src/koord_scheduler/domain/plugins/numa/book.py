"""The book of NodeNUMAResource: CPUs and zones of nodes, and their use by pods."""

from collections.abc import Sequence
from typing import Any, cast

from koordcore.protocol.hardware.node_topology import NodeResourceTopology
from koordcore.protocol.objects import Node, object_from_json
from koordcore.values.override import override

from koord_scheduler.domain.columns.node_shape import NodeShape
from koord_scheduler.domain.framework.books import Book
from koord_scheduler.domain.framework.cluster import Cluster
from koord_scheduler.domain.plugins.numa.books import NumaBooks


class NumaBook(Book):
    """Passes facts to `NumaBooks`. Everything in it follows from objects, nodes and allocations."""

    name = "NodeNUMAResource"
    plurals = hardware = frozenset({"noderesourcetopologies"})

    def __init__(self, cluster: Cluster) -> None:
        self.books = NumaBooks(cluster.nodes)
        self._cluster = cluster
        self._has_told = False
        cluster.accounting.allocations.append(self.books)

    @override
    def put_object(self, plural: str, document: object) -> Sequence[str]:
        if isinstance(document, dict):
            self.books.share_texts(cast("dict[str, Any]", document))
        self.books.put_topology(object_from_json(cast("Any", document), NodeResourceTopology))
        self._tell()
        return ()

    @override
    def drop_object(self, plural: str, namespace: str, name: str) -> Sequence[str]:
        self.books.drop_topology(name)
        return ()

    @override
    def put_node(self, row: int, node: Node, shape: NodeShape) -> None:
        self.books.put_node(row, node)
        self._tell()

    @override
    def drop_node(self, row: int, name: str) -> None:
        self.books.drop_node(row)

    def _tell(self) -> None:
        """Once a node has imposed a policy on all of its pods, the plugin concerns every pod: see `reads_differ`."""
        if self.books.has_imposed and not self._has_told:
            self._has_told = self._cluster.reads_differ = True
