"""Figures of nodes, and totals of the cluster over time.

The figures come from four aggregates: object, ledger, policy and agent. Each change gives one row. The newest row of a
node at or before a position shows the node as of that position. So listing nodes as of any moment needs one look-up per
node.

The totals have one row per second of stream time with at least one event: the totals after the last event of the
second, by the time of the event. So a row does not depend on batches. Usage is not included; it comes from the archived
reports.
"""

from collections.abc import Mapping
from datetime import UTC, datetime

import msgspec
from koordcore.protocol.objects import Node
from koordcore.protocol.resource_names import BATCH_CPU, BATCH_MEMORY, CPU, MEMORY, NVIDIA_GPU
from koordcore.state.aggregates import NodeAgentState, NodeLedger, NodePolicyState, NodeSpecState
from koordcore.state.fold import AggregateState
from koordcore.state.reservations import unused_amounts
from koordcore.stories.device_cards import ShareTotals
from koordcore.values.invalid import InvalidInput
from koordcore.values.resources import parse_amounts

from koord_projector.fold.node_status import conditions_text, taints_text
from koord_projector.fold.pods import Phase

NODE_KINDS = frozenset(("nodespec", "node", "nodepolicy", "nodestate"))


class NodeFigures(msgspec.Struct, frozen=True, kw_only=True, array_like=True, gc=False):
    """Amounts, requests, offers and pods of one node at one position: cpu in milli-cores, memory in bytes.

    `cpu_milli`, `memory_bytes` and `gpus` are the allocatable amounts in the status of the node.
    `cpu_requested`, `memory_requested` and `gpus_requested` are the requests of pods that are not best effort.
    `batch_cpu` and `batch_memory` are the amounts that the manager offers to best-effort pods; 0 if none is published.
    """

    exists: bool = False  # Whether the API has the node. A ledger may exist longer.
    unschedulable: bool = False
    cpu_milli: int = 0
    memory_bytes: int = 0
    gpus: int = 0
    cpu_requested: int = 0
    memory_requested: int = 0
    gpus_requested: int = 0
    batch_cpu: int = 0
    batch_memory: int = 0
    # Part of the batch cpu that best-effort pods requested. `batch_memory_requested` likewise.
    batch_cpu_requested: int = 0
    batch_memory_requested: int = 0
    pods: int = 0
    be_pods: int = 0  # Number of pods with batch resources
    pods_running: int = 0  # Number of pods that the agent reports as running
    be_quota_us: int = -1  # CFS quota of all best-effort pods together, in microseconds per 100 ms; -1: unlimited
    host: str = ""  # "linux" or "simulated"; "" if the agent never started
    gpu_cards: int = 0  # Number of healthy GPUs
    gpu_share_used: int = 0  # Sum of the shares of GPUs that pods hold, in percent of one GPU
    gpu_share_stranded: int = 0  # Sum of the free shares on healthy GPUs that are partly used, in percent of one GPU
    reservations: int = 0  # Number of Reservations on it; they do not count as pods
    # CPU that Reservations hold and no pod uses; contained in `cpu_requested`. `memory_unused_reserved` and
    # `gpus_unused_reserved` likewise.
    cpu_unused_reserved: int = 0
    memory_unused_reserved: int = 0
    gpus_unused_reserved: int = 0
    conditions: str = ""  # The conditions that are bad, and the taints: texts of `fold.node_status`
    taints: str = ""


NO_FIGURES = NodeFigures()


class NodeChange(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One row of the table `node_versions`: the figures of a node from position `seq` on."""

    seq: int
    token: str
    figures: NodeFigures


def figures_after(before: NodeFigures, state: AggregateState | None, be_pods: int) -> NodeFigures:
    """The figures after a change of one of the node's aggregates, whose type says which one changed; None: none did.

    `be_pods`, the number of pods with batch resources, counts only if the ledger changed.
    """
    match state:
        case NodeLedger():
            requested = state.requested
            rests = unused_amounts(state.pods)
            return msgspec.structs.replace(
                before,
                cpu_requested=requested.get(CPU, 0),
                memory_requested=requested.get(MEMORY, 0),
                gpus_requested=requested.get(NVIDIA_GPU, 0),
                batch_cpu_requested=requested.get(BATCH_CPU, 0),
                batch_memory_requested=requested.get(BATCH_MEMORY, 0),
                pods=len(state.pods) - len(rests),
                be_pods=be_pods,
                reservations=len(rests),
                cpu_unused_reserved=_summed(rests, CPU),
                memory_unused_reserved=_summed(rests, MEMORY),
                gpus_unused_reserved=_summed(rests, NVIDIA_GPU),
            )
        case NodeSpecState():
            amounts = node_amounts(state.object)
            return msgspec.structs.replace(
                before,
                exists=True,
                unschedulable=state.object.spec.unschedulable,
                cpu_milli=amounts.get(CPU, 0),
                memory_bytes=amounts.get(MEMORY, 0),
                gpus=amounts.get(NVIDIA_GPU, 0),
                conditions=conditions_text(state.object),
                taints=taints_text(state.object),
            )
        case NodePolicyState():
            return msgspec.structs.replace(
                before, batch_cpu=state.batch_cpu_milli or 0, batch_memory=state.batch_memory_bytes or 0
            )
        case NodeAgentState():
            return msgspec.structs.replace(
                before, pods_running=len(state.running), be_quota_us=state.be_quota_us, host=state.host
            )
        case _:
            return before


def _summed(rests: Mapping[str, Mapping[str, int]], resource: str) -> int:
    return sum(rest.get(resource, 0) for rest in rests.values()) if rests else 0


def figures_without_node(before: NodeFigures) -> NodeFigures:
    """The ledger of a deleted node and its agent's facts stay."""
    return msgspec.structs.replace(
        before, exists=False, unschedulable=False, cpu_milli=0, memory_bytes=0, gpus=0, conditions="", taints=""
    )


def node_amounts(node: Node) -> dict[str, int]:
    """Resource -> allocatable amount; empty if a quantity is invalid."""
    try:
        return parse_amounts(node.status.allocatable)
    except InvalidInput:
        return {}


class NodeBook:
    """The newest figures of every node, by subject token, and their changes. One task uses it."""

    def __init__(self) -> None:
        self.figures: dict[str, NodeFigures] = {}
        self._changes: list[NodeChange] = []

    def load(self, token: str, figures: NodeFigures) -> None:
        """Set the figures of a node from its newest row."""
        self.figures[token] = figures

    def changed(
        self,
        token: str,
        state: AggregateState | None,
        *,
        seq: int,
        be_pods: int | None = None,
        gpus: ShareTotals | None = None,
    ) -> tuple[NodeFigures, NodeFigures]:
        """Compute the figures of a node after an event of one of its aggregates, and return those before and after it.

        If they differ, remember them as a row to write. None as `state`, `be_pods` or `gpus` means unchanged.
        """
        before = self.figures.get(token, NO_FIGURES)
        after = figures_after(before, state, before.be_pods if be_pods is None else be_pods)
        if gpus is not None and gpus != (after.gpu_cards, after.gpu_share_used, after.gpu_share_stranded):
            after = msgspec.structs.replace(
                after, gpu_cards=gpus.cards, gpu_share_used=gpus.used, gpu_share_stranded=gpus.stranded
            )
        return self._replaced(token, before, after, seq)

    def node_gone(self, token: str, *, seq: int) -> tuple[NodeFigures, NodeFigures]:
        """As `changed`, after the object of the node was deleted."""
        before = self.figures.get(token, NO_FIGURES)
        return self._replaced(token, before, figures_without_node(before), seq)

    def _replaced(
        self, token: str, before: NodeFigures, after: NodeFigures, seq: int
    ) -> tuple[NodeFigures, NodeFigures]:
        if after != before or token not in self.figures:
            self.figures[token] = after
            self._changes.append(NodeChange(seq, token, after))
        return before, after

    def take_changes(self) -> list[NodeChange]:
        """Return the rows to add, in order of position, and forget them."""
        changes, self._changes = self._changes, []
        return changes


_SECOND_TEXT = len("2026-01-01T00:00:00")
_MOMENT_TEXT = len("2026-01-01T00:00:00.000000Z")


class Totals(msgspec.Struct, kw_only=True):
    """Sums over the nodes that exist: cpu in milli-cores, memory in bytes. The fields are those of `NodeFigures`."""

    nodes: int = 0
    cpu_milli: int = 0
    memory_bytes: int = 0
    gpus: int = 0
    cpu_requested: int = 0
    memory_requested: int = 0
    gpus_requested: int = 0
    batch_cpu: int = 0
    batch_memory: int = 0
    batch_cpu_requested: int = 0
    batch_memory_requested: int = 0

    def add(self, figures: NodeFigures, sign: int) -> None:
        """`sign` is +1 or -1. No-op if the node does not exist."""
        if not figures.exists:
            return
        self.nodes += sign
        for name in _SUMMED:
            setattr(self, name, getattr(self, name) + sign * getattr(figures, name))

    def replace(self, earlier: NodeFigures, later: NodeFigures) -> None:
        if not (earlier.exists and later.exists):
            self.add(earlier, -1)
            self.add(later, 1)
            return
        self.cpu_milli += later.cpu_milli - earlier.cpu_milli
        self.memory_bytes += later.memory_bytes - earlier.memory_bytes
        self.gpus += later.gpus - earlier.gpus
        self.cpu_requested += later.cpu_requested - earlier.cpu_requested
        self.memory_requested += later.memory_requested - earlier.memory_requested
        self.gpus_requested += later.gpus_requested - earlier.gpus_requested
        self.batch_cpu += later.batch_cpu - earlier.batch_cpu
        self.batch_memory += later.batch_memory - earlier.batch_memory
        self.batch_cpu_requested += later.batch_cpu_requested - earlier.batch_cpu_requested
        self.batch_memory_requested += later.batch_memory_requested - earlier.batch_memory_requested


_SUMMED = tuple(name for name in Totals.__struct_fields__ if name in NodeFigures.__struct_fields__)


class SeriesRow(msgspec.Struct, frozen=True):
    """One row of the table `cluster_series`: totals of the cluster after the last fact of one second."""

    second: int  # Unix seconds
    seq: int  # Position of the last fact of the second
    totals: Totals  # Sums over the nodes
    pods: dict[Phase, int]  # Phase -> number of pods


class Series:
    """Collects the rows of the table `cluster_series` while facts are applied. One task uses it.

    `second` and `seq` are those of the newest row of the table, so that a restart continues within its second.
    """

    def __init__(self, second: int = 0, seq: int = 0) -> None:
        self._second = second
        self._text = datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S") if seq else ""
        self._seq = seq
        self._rows: dict[int, SeriesRow] = {}

    def before_event(self, occurred_at: str, totals: Totals, pods: dict[Phase, int]) -> None:
        """If a fact begins a new second, add the row of the second before. Call it before the fact is counted.

        A fact with an invalid time belongs to the second of the previous fact.
        """
        if occurred_at[:_SECOND_TEXT] == self._text or len(occurred_at) != _MOMENT_TEXT:
            return
        try:
            second = int(datetime.fromisoformat(occurred_at[:_SECOND_TEXT] + "+00:00").timestamp())
        except ValueError:
            return
        self.flush(totals, pods)
        self._second, self._text = second, occurred_at[:_SECOND_TEXT]

    def after_event(self, seq: int) -> None:
        """`seq` becomes the position of the current second's row."""
        self._seq = seq

    def flush(self, totals: Totals, pods: dict[Phase, int]) -> None:
        """Add the row of the current second, although more facts of it may follow."""
        if self._text and self._seq:
            self._rows[self._second] = SeriesRow(self._second, self._seq, msgspec.structs.replace(totals), dict(pods))

    def take_rows(self, totals: Totals, pods: dict[Phase, int]) -> list[SeriesRow]:
        """Return the rows since the last call. A later row of a second replaces an earlier one."""
        self.flush(totals, pods)
        rows, self._rows = list(self._rows.values()), {}
        return rows
