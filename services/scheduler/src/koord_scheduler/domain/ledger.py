"""Who holds what on each node, counted once, whatever says so: the log, the API, or our own assumption.

The columns show the sum; this is the list behind it. It outlives the node's row, so that a node that comes back finds
its pods again.
"""

from collections.abc import ItemsView, Iterable
from dataclasses import dataclass, field
from enum import IntFlag

from koord_scheduler.domain.columns import Demand, NodeColumns


class Source(IntFlag):
    """Why a pod counts on a node."""

    LOGGED = 1
    ASSUMED = 2
    BOUND = 4


@dataclass(slots=True)
class Holding:
    """What one pod holds on a node, and who says so."""

    demand: Demand
    sources: Source


@dataclass(slots=True)
class NodeLedger:
    """One node's pods. seq: last sequence of `node.<name>` whose effect is in here."""

    seq: int = 0
    holdings: dict[str, Holding] = field(default_factory=dict[str, Holding])


class Ledgers:
    """The ledgers of all nodes, kept equal to the columns."""

    def __init__(self, nodes: NodeColumns) -> None:
        self._nodes = nodes
        self._by_node: dict[str, NodeLedger] = {}

    def seq(self, node: str) -> int:
        """Expectation of the next append to `node.<name>`; 0: it has no event."""
        ledger = self._by_node.get(node)
        return ledger.seq if ledger is not None else 0

    def advance(self, node: str, seq: int) -> bool:
        """Whether an event of that sequence is new; if so it is the last one from now on."""
        ledger = self._of(node)
        if seq <= ledger.seq:
            return False
        ledger.seq = seq
        return True

    def hold(self, node: str, uid: str, demand: Demand, source: Source) -> None:
        """The pod counts on the node; a logged demand replaces an assumed one."""
        ledger = self._of(node)
        row = self._nodes.row(node)
        holding = ledger.holdings.get(uid)
        if holding is None:
            ledger.holdings[uid] = Holding(demand, source)
            if row is not None:
                self._nodes.take(row, demand)
            return
        if source is Source.LOGGED and holding.demand.requests != demand.requests:
            if row is not None:
                self._nodes.give(row, holding.demand)
                self._nodes.take(row, demand)
            holding.demand = demand
        holding.sources |= source

    def drop(self, node: str, uid: str, source: Source) -> bool:
        """The source says so no more; returns whether the pod has stopped counting and room became free."""
        ledger = self._by_node.get(node)
        holding = ledger.holdings.get(uid) if ledger is not None else None
        if ledger is None or holding is None or not holding.sources & source:
            return False
        holding.sources &= ~source
        if holding.sources:
            return False
        del ledger.holdings[uid]
        row = self._nodes.row(node)
        if row is not None:
            self._nodes.give(row, holding.demand)
        return True

    def demand(self, node: str, uid: str) -> Demand | None:
        """What the pod holds there; None: nothing."""
        ledger = self._by_node.get(node)
        holding = ledger.holdings.get(uid) if ledger is not None else None
        return holding.demand if holding is not None else None

    def logged(self, node: str) -> list[str]:
        """Pods that the log has on the node, in the order in which they came."""
        ledger = self._by_node.get(node)
        if ledger is None:
            return []
        return [uid for uid, holding in ledger.holdings.items() if holding.sources & Source.LOGGED]

    def pods(self, node: str) -> Iterable[str]:
        """All pods that count on the node."""
        ledger = self._by_node.get(node)
        return tuple(ledger.holdings) if ledger is not None else ()

    def items(self) -> ItemsView[str, NodeLedger]:
        """Every ledger by node."""
        return self._by_node.items()

    def node_appeared(self, node: str) -> None:
        """The columns have a new row for the node: count what is already held there."""
        row = self._nodes.row(node)
        ledger = self._by_node.get(node)
        if row is not None and ledger is not None:
            for holding in ledger.holdings.values():
                self._nodes.take(row, holding.demand)

    def _of(self, node: str) -> NodeLedger:
        ledger = self._by_node.get(node)
        if ledger is None:
            ledger = self._by_node[node] = NodeLedger()
        return ledger
