"""The book of DeviceShare: the devices of nodes, as Device objects state them."""

from collections.abc import Callable, Container, Iterator, Sequence

from koordcore.events.envelope import AggregateRef
from koordcore.values import codec
from koordcore.values.override import override

from koord_scheduler.domain.framework.books import Book
from koord_scheduler.domain.framework.cluster import Cluster
from koord_scheduler.domain.plugins.device.inventory import Card, Inventories


class DeviceBook(Book):
    """The inventories of all nodes. Pods that hold devices count in the plugin, which knows how they are shared."""

    name = "DeviceShare"
    plurals = hardware = frozenset({"devices"})
    facts_type = dict[str, list[Card]]

    def __init__(self, cluster: Cluster) -> None:
        self._has_node: Callable[[str], bool] = lambda name: cluster.nodes.row(name) is not None
        self.inventories = Inventories(self._has_node)

    @override
    def put_object(self, plural: str, document: object) -> Sequence[str]:
        return self.inventories.put(document)

    @override
    def drop_object(self, plural: str, namespace: str, name: str) -> Sequence[str]:
        self.inventories.drop(name)
        return ()

    @override
    def facts(self, under_way: Container[AggregateRef]) -> Iterator[bytes]:
        return iter([codec.encode(self.inventories.dropped())])

    @override
    def hashed(self) -> Iterator[tuple[str, object]]:
        for node, cards in self.inventories.dropped().items():
            if self._has_node(node):  # those of deleted nodes are forgotten after a while
                yield node, cards

    @override
    def restore(self, facts: bytes) -> None:
        self.inventories.restore(codec.decode(facts, dict[str, list[Card]]))
