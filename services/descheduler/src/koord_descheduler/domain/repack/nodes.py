"""Nodes and pods in the form that the planner of repacking reads.

Source: gpu-fragmentation spec, 6 (1).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec
import numpy as np
from koordcore.events.node_ledger import PodOnNode
from koordcore.fragmentation.arrivals import Placed
from koordcore.fragmentation.nodes import GpuColumns, Ints, NodeGpus, columns_of
from koordcore.fragmentation.pods import WHOLE_GPU
from koordcore.protocol import keys
from koordcore.protocol.hardware.device_requests import GPU_TYPE, WHOLE
from koordcore.protocol.hardware.devices import read_devices
from koordcore.protocol.placement import first_untolerated
from koordcore.protocol.resource_names import CPU, GPU_CORE, GPU_MEMORY_RATIO, MEMORY

from koord_descheduler.domain.view.cluster import ClusterView
from koord_descheduler.domain.view.fit import meets_node_selection
from koord_descheduler.domain.view.nodes import NodeView
from koord_descheduler.domain.view.pods import PodView

MIB: Final = 1 << 20
_PER_PERCENT: Final = WHOLE_GPU // WHOLE


@dataclass(slots=True)
class GpuNodes:
    """The nodes of a round with their free GPUs, and the places of pods on them.

    Attributes:
        nodes: The nodes, by position.
        columns: Their free amounts of CPU and GPU.
        memory_mib_left: Their free memory in MiB, int64 (N,).
    """

    nodes: Sequence[NodeView]
    columns: GpuColumns
    memory_mib_left: Ints
    _cards: list[dict[int, int]]
    """Position of a node -> minor number of a healthy GPU -> its index on the node."""
    _cluster: ClusterView
    _rows: dict[bytes, frozenset[int] | None] = field(default_factory=dict[bytes, "frozenset[int] | None"])

    def place_of(self, pod: PodView, row: int) -> Placed | None:
        """Return node position and GPUs of a pod that runs on the node at position `row`.

        None if the pod holds an unhealthy GPU, or is not in the ledger of its node.
        """
        ledger = self._cluster.gpus.ledgers.get(pod.node)
        entry = None if ledger is None else ledger.pods.get(pod.uid)
        if entry is None:
            return None
        minors = sorted(each.minor for each in entry.allocation.devices if each.type == GPU_TYPE)
        if any(minor not in self._cards[row] for minor in minors):
            return None
        return Placed(row, tuple(self._cards[row][minor] for minor in minors))

    def rows_of(self, pod: PodView) -> frozenset[int] | None:
        """Return the positions of the nodes that selectors, affinity and taints allow for a pod; None: all."""
        spec = pod.object.spec
        key = msgspec.json.encode((spec.node_selector, spec.affinity, spec.tolerations))
        if key not in self._rows:
            rows = frozenset(
                row
                for row, node in enumerate(self.nodes)
                if not node.is_unschedulable
                and first_untolerated(node.taints, spec.tolerations) is None
                and meets_node_selection(pod, node)
            )
            self._rows[key] = None if len(rows) == len(self.nodes) else rows
        return self._rows[key]


def gpu_nodes(nodes: Sequence[NodeView], cluster: ClusterView) -> GpuNodes:
    """Return nodes with the CPU, memory and healthy GPUs that the pods and Reservations in their ledgers leave free."""
    described: list[NodeGpus] = []
    cards: list[dict[int, int]] = []
    memory: list[int] = []
    for node in nodes:
        ledger = cluster.gpus.ledgers.get(node.name)
        requested = {} if ledger is None else ledger.requested
        device = cluster.gpus.devices.get(node.name)
        entries = [] if device is None else read_devices(device)[0]
        minors = sorted(each.minor for each in entries if each.type == GPU_TYPE and each.health)
        held = _held(() if ledger is None else ledger.pods.values())
        cards.append({minor: index for index, minor in enumerate(minors)})
        described.append(
            NodeGpus(
                node.allocatable.get(CPU, 0) - requested.get(CPU, 0),
                tuple(max(0, WHOLE_GPU - held.get(minor, 0)) for minor in minors),
                node.labels.get(keys.GPU_MODEL, ""),
            )
        )
        memory.append((node.allocatable.get(MEMORY, 0) - requested.get(MEMORY, 0)) // MIB)
    return GpuNodes(nodes, columns_of(described), np.array(memory, dtype=np.int64), cards, cluster)


def _held(entries: Iterable[PodOnNode]) -> dict[int, int]:
    """Return minor number of a GPU -> GPU milli that the entries of a ledger hold of it."""
    held: dict[int, int] = {}
    for entry in entries:
        for device in entry.allocation.devices:
            if device.type == GPU_TYPE:
                percent = max(device.amounts.get(GPU_CORE, 0), device.amounts.get(GPU_MEMORY_RATIO, 0))
                held[device.minor] = held.get(device.minor, 0) + percent * _PER_PERCENT
    return held
