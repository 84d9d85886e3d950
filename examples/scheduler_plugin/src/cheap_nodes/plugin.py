"""CheapNodes: a filter and a score over all nodes at once, with a state of its own that is folded from the log."""

from collections.abc import Hashable
from decimal import Decimal, InvalidOperation
from typing import cast

import numpy as np
from koord_scheduler.domain.cluster.equivalence_classes import PodClass
from koord_scheduler.domain.columns.node_columns import BoolArray, IntArray, NodeColumns, Rows
from koord_scheduler.domain.framework.extension_points import FILTER, FOLD, READ_POD, READ_SHAPE, SCORE
from koord_scheduler.domain.framework.node_points import Reads
from koordcore.events.envelope import Event, StoredEvent
from koordcore.events.objects import ConfigAccepted, ConfigDeleted
from koordcore.protocol.component_config import Text, WireModel
from koordcore.protocol.objects import Pod
from koordcore.values import codec

MAX_PRICE = "example.com/max-price"
"""Annotation of a pod: the most that its node may cost an hour; unreadable text is no limit."""
NO_PRICE = 1 << 40
"""Stands for the price of a node whose class has none: more than any pod may pay."""


class CheapNodesArgs(WireModel):
    """`pluginConfig` of CheapNodes: the label with a node's price class, and the ConfigMap with the prices."""

    label: Text = "example.com/price-class"
    namespace: Text = "koordinator-system"
    config_map: Text = "node-prices"


def millis(text: str) -> int | None:
    """`0.12` an hour as 120; None: no price."""
    try:
        return int(Decimal(text) * 1000)
    except (InvalidOperation, ValueError, OverflowError):
        return None


class CheapNodes:
    """Refuses nodes above the pod's limit; scores 100 for the cheapest feasible node, 0 for the dearest.

    reads = SHAPE    the answers depend on labels of nodes (and prices), not on what runs there: they outlive placements
    READ_SHAPE       they depend on what `read` finds, too
    """

    name = "CheapNodes"
    extension_points = (FILTER, SCORE, READ_POD, READ_SHAPE, FOLD)
    reads = Reads.SHAPE
    normalizes = True
    kinds = frozenset({"config"})

    def __init__(self, nodes: NodeColumns, args: CheapNodesArgs) -> None:
        self.nodes = nodes
        self.args = args
        self.prices: dict[str, int] = {}

    # --- what happens ------------------------------------------------------------------------------------------------

    def apply(self, event: Event, stored: StoredEvent) -> bool:
        """The ConfigMap has changed, or is gone: pods that found everything too dear may have better luck."""
        match event:
            case ConfigAccepted(object=config) if self._is_ours(config.metadata.namespace, config.metadata.name):
                self.prices = {name: price for name, text in config.data.items() if (price := millis(text)) is not None}
            case ConfigDeleted(namespace=namespace, name=name) if self._is_ours(namespace, name):
                self.prices = {}
            case _:
                return False
        self.nodes.judge_anew()
        return True

    def facts(self) -> bytes:
        """For a snapshot."""
        return codec.encode(self.prices)

    def restore(self, facts: bytes) -> None:
        """From a snapshot."""
        self.prices = codec.decode(facts, dict[str, int])

    # --- what is asked -----------------------------------------------------------------------------------------------

    def read(self, pod: Pod) -> Hashable:
        """What the pod's node may cost; None: anything."""
        return millis(pod.metadata.annotations.get(MAX_PRICE, ""))

    def filter(self, pod: PodClass, nodes: NodeColumns, rows: Rows) -> IntArray | None:
        """1 for each node that costs too much."""
        most = cast("int | None", pod.aspects.get(self.name))
        return None if most is None else (self._prices(nodes, rows) > most).astype(np.int64)

    def reasons(self, pod: PodClass, nodes: NodeColumns, code: int) -> tuple[str, ...]:
        """What code 1 means."""
        return (f"node(s) cost more than {cast('int', pod.aspects[self.name]) / 1000} an hour",)

    def unresolvable(self, pod: PodClass, nodes: NodeColumns, rows: Rows) -> BoolArray:
        """No pod's leaving makes a node cheaper."""
        return np.ones(len(rows), np.bool_)

    def score(self, pod: PodClass, nodes: NodeColumns, rows: Rows) -> IntArray | None:
        """The price, twice the highest for a node without one; `normalize` turns it round."""
        return np.minimum(self._prices(nodes, rows), 2 * max(self.prices.values(), default=0))

    def normalize(self, raw: IntArray, low: int, high: int) -> IntArray:
        """100 for the lowest price among the feasible nodes, 0 for the highest."""
        return 100 - 100 * (raw - low) // max(high - low, 1)

    def _prices(self, nodes: NodeColumns, rows: Rows) -> IntArray:
        column = nodes.label(self.args.label)
        by_class = [NO_PRICE if text is None else self.prices.get(text, NO_PRICE) for text in column.texts]
        return np.array(by_class, np.int64)[column.values[rows]]

    def _is_ours(self, namespace: str, name: str) -> bool:
        return (namespace, name) == (self.args.namespace, self.args.config_map)
