"""The pods on each node by source: the log, the API or our own assumption. Each pod counts once.

The columns contain the sums, the ledgers the list of pods. A ledger with pods is kept when its node is deleted, so that
a node that returns has its pods again. Empty ledgers of deleted nodes are dropped when there are many.
"""

from collections.abc import ItemsView, Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec
from koordcore.values.allocation import Allocation

from koord_scheduler.domain.cluster.accounting import NodeAccounting
from koord_scheduler.domain.cluster.forgetting import Forgetting
from koord_scheduler.domain.cluster.info import PodInfo
from koord_scheduler.domain.cluster.record import PodRecord
from koord_scheduler.domain.columns.node_columns import Demand


class Source:
    """Reasons why a pod counts on a node, as bits of an int. LOGGED: the log placed it. ASSUMED: this scheduler placed
    it and the log has not answered. BOUND: the API says that it runs there. The values are plain integers, because
    flags of the standard library cost a microsecond per operation.
    """

    LOGGED: Final = 1
    ASSUMED: Final = 2
    BOUND: Final = 4


@dataclass(slots=True)
class Holding:
    """One pod in the ledger of a node, with the sources because of which it counts there."""

    pod_info: PodInfo  # The pod as it counts on this node, with its requests and allocation
    sources: int  # Bits of `Source`: log, assumption, API
    # What the log gave it, or what was assumed. It counts with other requests if its object asks for them: a pod is
    # resized where it runs, and the log is told later. None if only the API knows of it.
    given: Demand | None = None
    is_aside: bool = False  # Whether it does not count now (`Ledgers.set_aside`)
    # Allocation according to the log, while another one is only assumed; None otherwise.
    before: Allocation | None = None

    @property
    def demand(self) -> Demand:
        """The amounts with which it counts."""
        return self.pod_info.demand

    @property
    def logged(self) -> PodInfo:
        """The pod with requests and allocation of the log, for which it must have a source."""
        assert self.given is not None, f"pod {self.pod_info.uid} counts only because of its object"
        allocation = self.pod_info.allocation if self.before is None else self.before
        return msgspec.structs.replace(self.pod_info, demand=self.given, allocation=allocation)


@dataclass(slots=True)
class NodeLedger:
    seq: int = 0  # Position in the log of the last event of `node.<name>` that is included; 0 if there is none
    holdings: dict[str, Holding] = field(default_factory=dict[str, Holding])  # Uid -> pod with its sources


class Ledgers:
    """For each node, the pods that hold resources there, each with its sources: log, assumption or API. Each change is
    also made in `NodeAccounting`, so sums and ledgers agree, with two exceptions: pods that are set aside or whose node
    was deleted are only in the ledger; pods on trial are only in the accounting.
    """

    def __init__(self, accounting: NodeAccounting) -> None:
        self._occupancy = accounting
        self._nodes = accounting.nodes
        self._by_node: dict[str, NodeLedger] = {}
        self._forgetting = Forgetting()

    def prune(self, position: int) -> None:
        """Drop the empty ledgers of nodes that do not exist. No-op until `Forgetting` requires a search. `position`:
        position in the log of the last folded event. A ledger with a later event is kept, so that this event has no
        effect when it is folded.
        """
        if self._forgetting.is_due(len(self._by_node)):
            self._by_node = {
                node: ledger
                for node, ledger in self._by_node.items()
                if ledger.holdings or ledger.seq > position or self._nodes.row(node) is not None
            }
            self._forgetting.searched(len(self._by_node))

    def seq(self, node: str) -> int:
        """Position of the last known event of `node.<name>`, which the next append expects; 0 if none is known."""
        ledger = self._by_node.get(node)
        return ledger.seq if ledger is not None else 0

    def advance(self, node: str, seq: int) -> bool:
        """Whether `seq` is later than the last known ledger event of the node. If so, it becomes the last one."""
        ledger = self._of(node)
        if seq <= ledger.seq:
            return False
        ledger.seq = seq
        return True

    def hold(self, node: str, pod_info: PodInfo, source: int, asked: Demand | None = None) -> None:
        """Count the pod on the node for one more source (a bit of `Source`). If the source is the log, its amounts and
        allocation replace the known ones. If the pod counts for this source alone, its allocation is replaced.
        Otherwise the known values stay.

        Args:
            pod_info: The pod with the amounts and the allocation that the source gives it.
            asked: What the object of the pod asks for, with which it counts instead; None: as given.
        """
        ledger = self._of(node)
        row = self._nodes.row(node)
        given = None if source == Source.BOUND else pod_info.demand
        if asked is not None and asked is not pod_info.demand:
            pod_info = msgspec.structs.replace(pod_info, demand=asked)
        holding = ledger.holdings.get(pod_info.uid)
        if holding is None:
            ledger.holdings[pod_info.uid] = Holding(pod_info, source, given)
            if row is not None:
                self._occupancy.take(row, pod_info)
            return
        is_other = holding.pod_info.allocation is not pod_info.allocation and (
            holding.pod_info.allocation != pod_info.allocation
        )
        if given is not None and (source == Source.LOGGED or holding.given is None):
            holding.given = given
        if source == Source.LOGGED:
            holding.before = None
        if source == Source.LOGGED and (is_other or holding.demand.requests != pod_info.demand.requests):
            self._replace(row, holding, pod_info)
        elif is_other and holding.sources == source:
            self._replace(row, holding, msgspec.structs.replace(holding.pod_info, allocation=pod_info.allocation))
        holding.sources |= source

    def assume_other(self, node: str, uid: str, allocation: Allocation) -> None:
        """Count a pod on its node with another allocation, until the log says so or `take_back`. No-op if the pod does
        not count on the node.
        """
        holding = self._of(node).holdings.get(uid)
        if holding is not None:
            holding.before = holding.pod_info.allocation
            self._change(node, holding, holding.demand, allocation)

    def take_back(self, node: str, uid: str) -> None:
        """Undo `assume_other`: count a pod as before. No-op if a fact has changed its allocation since then."""
        holding = self._of(node).holdings.get(uid)
        if holding is not None and holding.before is not None:
            before, holding.before = holding.before, None
            self._change(node, holding, holding.demand, before)

    def _change(self, node: str, holding: Holding, demand: Demand, allocation: Allocation) -> None:
        changed = msgspec.structs.replace(holding.pod_info, demand=demand, allocation=allocation)
        self._replace(None if holding.is_aside else self._nodes.row(node), holding, changed)

    def describe(self, node: str, pod_info: PodInfo, *, is_followed: bool) -> Demand | None:
        """Replace labels, status and other descriptions of a pod on a node. Its allocation stays. Return the amounts
        with which it counted before, if it counts with others now; else None.

        Args:
            pod_info: The pod as its object describes it, with the amounts that this asks for.
            is_followed: Whether the pod counts with these amounts if the log, or an assumption, gave it others.
        """
        ledger = self._by_node.get(node)
        holding = ledger.holdings.get(pod_info.uid) if ledger is not None else None
        if holding is None or _read_of(holding.pod_info) == _read_of(pod_info):
            return None
        known = holding.pod_info
        described = msgspec.structs.replace(
            pod_info,
            demand=pod_info.demand if is_followed or holding.given is None else self._nodes.renewed(known.demand),
            allocation=known.allocation,
            is_bound_by_others=known.is_bound_by_others,
        )
        self._replace(None if holding.is_aside else self._nodes.row(node), holding, described)
        return None if known.demand.requests == described.demand.requests else known.demand

    def object_gone(self, node: str, pod: PodRecord) -> None:
        """Count a pod whose object was deleted, or cannot be read, with what the log has given it, and with nothing
        that only its object tells but for its priority: a restored scheduler knows no more.
        """
        ledger = self._by_node.get(node)
        holding = ledger.holdings.get(pod.uid) if ledger is not None else None
        if holding is not None and holding.given is not None:
            demand = self._nodes.renewed(holding.given)
            known = pod.pod_info_without_object(demand, holding.pod_info.allocation)
            self._replace(None if holding.is_aside else self._nodes.row(node), holding, known)

    def resized(self, node: str, uid: str) -> PodInfo | None:
        """Return a pod as it counts on the node, if the log has given it other amounts; else None."""
        ledger = self._by_node.get(node)
        holding = ledger.holdings.get(uid) if ledger is not None else None
        if holding is None or holding.given is None or not holding.sources & Source.LOGGED:
            return None
        given, counted = holding.given.requests, holding.demand.requests
        if given == counted or _without_zeros(given) == _without_zeros(counted):
            return None
        return holding.pod_info

    def _replace(self, row: int | None, holding: Holding, pod_info: PodInfo) -> None:
        if row is not None:
            self._occupancy.give(row, holding.pod_info)
            self._occupancy.take(row, pod_info)
        holding.pod_info = pod_info

    def drop(self, node: str, uid: str, source: int) -> bool:
        """Remove one source (a bit of `Source`) of a pod on a node. Returns True if the pod has no source left and no
        longer counts, so that room became free.
        """
        ledger = self._by_node.get(node)
        holding = ledger.holdings.get(uid) if ledger is not None else None
        if ledger is None or holding is None or not holding.sources & source:
            return False
        holding.sources &= ~source
        if holding.sources == Source.BOUND:
            holding.given = None
        if holding.sources:
            return False
        del ledger.holdings[uid]
        row = self._nodes.row(node)
        if row is not None and not holding.is_aside:
            self._occupancy.give(row, holding.pod_info)
        return True

    def set_aside(self, node: str, uid: str) -> bool:
        """Stop counting a pod on the node until `put_back`, but keep its ledger entry. False if it did not count."""
        ledger, row = self._by_node.get(node), self._nodes.row(node)
        holding = ledger.holdings.get(uid) if ledger is not None else None
        if holding is None or holding.is_aside or row is None:
            return False
        self._occupancy.give(row, holding.pod_info)
        holding.is_aside = True
        return True

    def put_back(self, node: str, uid: str) -> None:
        """Count a pod again that `set_aside` stopped counting. No-op if it was removed meanwhile."""
        ledger, row = self._by_node.get(node), self._nodes.row(node)
        holding = ledger.holdings.get(uid) if ledger is not None else None
        if holding is not None and holding.is_aside and row is not None:
            holding.is_aside = False
            self._occupancy.take(row, holding.pod_info)

    def holders(self, node: str) -> dict[str, PodInfo]:
        """Uid -> pod, for the pods that count on the node."""
        ledger = self._by_node.get(node)
        if ledger is None:
            return {}
        return {uid: holding.pod_info for uid, holding in ledger.holdings.items() if not holding.is_aside}

    def pod_infos(self, node: str) -> list[PodInfo]:
        """All pods that count on the node."""
        ledger = self._by_node.get(node)
        if ledger is None:
            return []
        return [holding.pod_info for holding in ledger.holdings.values() if not holding.is_aside]

    def logged(self, node: str) -> list[str]:
        """Uids of the pods that the log has placed on the node, in the order in which they came."""
        ledger = self._by_node.get(node)
        if ledger is None:
            return []
        return [uid for uid, holding in ledger.holdings.items() if holding.sources & Source.LOGGED]

    def pods(self, node: str) -> tuple[str, ...]:
        ledger = self._by_node.get(node)
        if ledger is None:
            return ()
        return tuple(uid for uid, holding in ledger.holdings.items() if not holding.is_aside)

    def items(self) -> ItemsView[str, NodeLedger]:
        return self._by_node.items()

    def node_appeared(self, node: str) -> None:
        """Count the pods in the ledger of a node that has just been added to the node columns."""
        row = self._nodes.row(node)
        assert row is not None, f"node {node} has no row"
        for pod_info in self.pod_infos(node):
            self._occupancy.take(row, pod_info)

    def node_disappears(self, node: str) -> None:
        """Stop counting the pods of a node that is about to be removed from the node columns. Its ledger is kept."""
        row = self._nodes.row(node)
        assert row is not None, f"node {node} has no row"
        for pod_info in self.pod_infos(node):
            self._occupancy.give(row, pod_info)

    def _of(self, node: str) -> NodeLedger:
        ledger = self._by_node.get(node)
        if ledger is None:
            ledger = self._by_node[node] = NodeLedger()
        return ledger


def _without_zeros(requests: Mapping[str, int]) -> dict[str, int]:
    return {name: amount for name, amount in requests.items() if amount}


def _read_of(pod_info: PodInfo) -> tuple[object, ...]:
    """Return everything that followers read from a pod besides its demand."""
    status = pod_info.pod.status if pod_info.pod is not None else None
    return (pod_info.kind, pod_info.pod_class, pod_info.priority, status)
