"""Figures of nodes, computed from four aggregates: object, ledger, policy and agent. Each change gives one row.

The newest row of a node at or before a position shows the node as of that position. So listing nodes as of any moment
needs one look-up per node.
"""

from collections.abc import Mapping

import msgspec
from koordcore.protocol.objects import Node
from koordcore.protocol.resource_names import BATCH_CPU, BATCH_MEMORY, CPU, MEMORY, NVIDIA_GPU
from koordcore.state.aggregates import NodeAgentState, NodeLedger, NodePolicyState, NodeSpecState
from koordcore.state.fold import AggregateState
from koordcore.state.reservations import unused_amounts
from koordcore.stories.device_cards import ShareTotals
from koordcore.values.invalid import InvalidInput
from koordcore.values.resources import parse_amounts

NODE_KINDS = frozenset(("nodespec", "node", "nodepolicy", "nodestate"))


class NodeFigures(msgspec.Struct, frozen=True, kw_only=True, array_like=True, gc=False):
    """Amounts, requests, offers and pods of one node at one position: cpu in milli-cores, memory in bytes.

    `cpu_milli`, `memory_bytes` and `gpus` are the allocatable amounts in the status of the node.
    `cpu_requested`, `memory_requested` and `gpus_requested` are the requests of pods that are not best effort.
    `batch_cpu` and `batch_memory` are the amounts that the manager offers to best-effort pods; 0 if none is published.

    Attributes:
        exists: Whether the API has the node. A ledger may exist longer.
        batch_cpu_requested: Part of the batch cpu that best-effort pods requested. `batch_memory_requested` likewise.
        be_pods: Number of pods with batch resources.
        pods_running: Number of pods that the agent reports as running.
        be_quota_us: CFS quota of all best-effort pods together, in microseconds per 100 ms; -1: unlimited.
        host: "linux" or "simulated"; "" if the agent never started.
        gpu_cards: Number of healthy GPUs.
        gpu_share_used: Sum of the shares of GPUs that pods hold, in percent of one GPU.
        gpu_share_stranded: Sum of the free shares on healthy GPUs that are partly used, in percent of one GPU.
        reservations: Number of Reservations on it; they do not count as pods.
        cpu_unused_reserved: CPU that Reservations hold and no pod uses; contained in `cpu_requested`.
            `memory_unused_reserved` and `gpus_unused_reserved` likewise.
    """

    exists: bool = False
    unschedulable: bool = False
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
    pods: int = 0
    be_pods: int = 0
    pods_running: int = 0
    be_quota_us: int = -1
    host: str = ""
    gpu_cards: int = 0
    gpu_share_used: int = 0
    gpu_share_stranded: int = 0
    reservations: int = 0
    cpu_unused_reserved: int = 0
    memory_unused_reserved: int = 0
    gpus_unused_reserved: int = 0


NO_FIGURES = NodeFigures()


class NodeChange(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One row of the table `node_versions`: the `NodeFigures` of a node from position `seq` on.

    `token` is the subject token of the node.
    """

    seq: int
    token: str
    figures: NodeFigures


def figures_after(before: NodeFigures, state: AggregateState | None, be_pods: int) -> NodeFigures:
    """Return the new `NodeFigures` of a node after a change of one of its aggregates.

    Args:
        before: Figures before the change.
        state: New state of the aggregate. Its type identifies the aggregate. None for no change.
        be_pods: Number of pods with batch resources after the change. It is used only if the ledger changed.
    """
    match state:
        case NodeLedger():
            requested = state.requested
            rests = unused_amounts(state.pods)
            return NodeFigures(
                exists=before.exists,
                unschedulable=before.unschedulable,
                cpu_milli=before.cpu_milli,
                memory_bytes=before.memory_bytes,
                gpus=before.gpus,
                cpu_requested=requested.get(CPU, 0),
                memory_requested=requested.get(MEMORY, 0),
                gpus_requested=requested.get(NVIDIA_GPU, 0),
                batch_cpu=before.batch_cpu,
                batch_memory=before.batch_memory,
                batch_cpu_requested=requested.get(BATCH_CPU, 0),
                batch_memory_requested=requested.get(BATCH_MEMORY, 0),
                pods=len(state.pods) - len(rests),
                be_pods=be_pods,
                pods_running=before.pods_running,
                be_quota_us=before.be_quota_us,
                host=before.host,
                gpu_cards=before.gpu_cards,
                gpu_share_used=before.gpu_share_used,
                gpu_share_stranded=before.gpu_share_stranded,
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
    """Return the `NodeFigures` of a node after its object was deleted. Its ledger and its agent's facts stay."""
    return msgspec.structs.replace(before, exists=False, unschedulable=False, cpu_milli=0, memory_bytes=0, gpus=0)


def node_amounts(node: Node) -> dict[str, int]:
    """Return resource -> allocatable amount of a node; empty if a quantity is invalid."""
    try:
        return parse_amounts(node.status.allocatable)
    except InvalidInput:
        return {}


class NodeBook:
    """The newest `NodeFigures` of every node, by subject token, and their changes since the last `take_changes`.

    Only one task may use it.
    """

    def __init__(self) -> None:
        self.figures: dict[str, NodeFigures] = {}
        self._changes: list[NodeChange] = []

    def load(self, token: str, figures: NodeFigures) -> None:
        """Set the figures of a node at the start of the projector.

        Args:
            token: Name of the node as token of a subject.
            figures: Figures in the newest row of the node in the table of node figures.
        """
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
        """Compute the figures of a node after an event of one of its aggregates.

        If they differ from those before, remember them as a row to write.

        Args:
            token: Subject token of the node.
            state: New state of the aggregate; None: unchanged.
            seq: Position of the event.
            be_pods: Number of pods with batch resources; None: unchanged.
            gpus: Use of its GPUs; None: unchanged.

        Returns:
            The figures before and after the event.
        """
        before = self.figures.get(token, NO_FIGURES)
        after = figures_after(before, state, before.be_pods if be_pods is None else be_pods)
        if gpus is not None and gpus != (after.gpu_cards, after.gpu_share_used, after.gpu_share_stranded):
            after = msgspec.structs.replace(
                after, gpu_cards=gpus.cards, gpu_share_used=gpus.used, gpu_share_stranded=gpus.stranded
            )
        return self._replaced(token, before, after, seq)

    def node_gone(self, token: str, *, seq: int) -> tuple[NodeFigures, NodeFigures]:
        """Compute the figures of a node after its object was deleted, and remember them as `changed` does.

        Args:
            token: Subject token of the node.
            seq: Position of the event.

        Returns:
            The figures before and after the event.
        """
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
        """Return the rows to add since the last call, in order of position, and empty the list."""
        changes, self._changes = self._changes, []
        return changes
