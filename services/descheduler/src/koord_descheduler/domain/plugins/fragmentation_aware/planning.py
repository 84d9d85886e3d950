"""A plan of few moves that makes room for a gang that waits for whole GPUs, by the GPU fragmentation measure.

The cheapest nodes are emptied first: those with the fewest pods per GPU. FGD chooses the new nodes of the pods.
Afterwards, the scheduler's own engine checks the plan, and then the Reservations show whether it holds.

Source:
    gpu-fragmentation spec, 6 (1)
"""

import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
import numpy as np
from koordcore.events.node_ledger import PodOnNode
from koordcore.fragmentation.arrivals import Placed
from koordcore.fragmentation.measure import Measure
from koordcore.fragmentation.nodes import GpuColumns, Ints, NodeGpus, columns_of
from koordcore.fragmentation.pods import WHOLE_GPU, GpuPod, requests_of, typical_pods
from koordcore.fragmentation.policies import Gradient
from koordcore.fragmentation.repack import Repacker, Running, Waiting
from koordcore.protocol import keys
from koordcore.protocol.annotations.gang import gang_name, parse_gang_min_num
from koordcore.protocol.hardware.device_requests import GPU_TYPE, WHOLE
from koordcore.protocol.hardware.devices import read_devices
from koordcore.protocol.placement import first_untolerated
from koordcore.protocol.resource_names import CPU, GPU_CORE, GPU_MEMORY_RATIO, MEMORY
from koordcore.values.invalid import InvalidInput

from koord_descheduler.domain.framework.plugin import MovePlan
from koord_descheduler.domain.view.cluster import ClusterView
from koord_descheduler.domain.view.fit import meets_node_selection
from koord_descheduler.domain.view.nodes import NodeView
from koord_descheduler.domain.view.pods import PodView


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingGang:
    """A gang without nodes, or a single pod without a node."""

    name: str  # The gang as "namespace/name"; the pod if a single pod waits
    members: tuple[tuple[PodView, GpuPod], ...]  # Pods that need nodes before the gang may run, each with its requests
    since: float  # Unix seconds since which the last of them exists

    @property
    def gpus(self) -> int:
        return sum(gpu.num_gpu for _, gpu in self.members)


def waiting_gangs(cluster: ClusterView) -> Iterator[WaitingGang]:
    """Yield the gangs whose waiting members all request whole GPUs, those that need most GPUs first.

    Pods with scheduling gates do not count. Gangs with fewer pods than their minimum are left out.
    """
    pending: dict[str, list[PodView]] = {}
    bound: dict[str, int] = {}
    for pod in cluster.pods:
        gang = gang_name(pod.labels, pod.annotations)
        if gang:
            gang = f"{pod.namespace}/{gang}"
        if pod.node:
            if gang and not pod.is_finished:
                bound[gang] = bound.get(gang, 0) + 1
        elif pod.is_active and not pod.object.spec.scheduling_gates:
            pending.setdefault(gang or pod.key, []).append(pod)
    found = [
        gang
        for name, pods in pending.items()
        if (gang := _gang(name, pods, bound.get(name, 0), cluster.gpus.groups)) is not None
    ]
    yield from sorted(found, key=lambda each: (-each.gpus, each.since, each.name))


def _gang(
    name: str, pods: list[PodView], bound: int, groups: Mapping[tuple[str, str], Mapping[str, Any]]
) -> WaitingGang | None:
    """The gang of these pending pods; None if it does not wait for whole GPUs, or lacks pods."""
    minimum = _minimum(pods[0], groups)
    needed = minimum - bound if minimum > bound else len(pods)
    if len(pods) < needed:
        return None
    requests = [(pod, requests_of(pod.object)) for pod in sorted(pods, key=lambda pod: (pod.created, pod.key))]
    whole = [(pod, gpu) for pod, gpu in requests if gpu is not None and gpu.num_gpu > 0 and gpu.gpu_milli == WHOLE_GPU]
    if len(whole) < len(requests):
        return None
    members = tuple(whole[:needed])
    return WaitingGang(name=name, members=members, since=max(pod.created for pod, _ in members))


def _minimum(pod: PodView, groups: Mapping[tuple[str, str], Mapping[str, Any]]) -> int:
    """Minimum number of members of the pod's gang; 1 for a pod without a gang."""
    gang = gang_name(pod.labels, pod.annotations)
    if not gang:
        return 1
    group = groups.get((pod.namespace, gang))
    spec: Mapping[str, object] = {} if group is None else group.get("spec") or {}
    minimum = spec.get("minMember")
    if isinstance(minimum, int):
        return minimum
    try:
        return parse_gang_min_num(pod.labels, pod.annotations)
    except InvalidInput:
        return 1


MIB: Final = 1 << 20
_PER_PERCENT: Final = WHOLE_GPU // WHOLE


@dataclass(slots=True)
class GpuNodes:
    """The nodes of a round with their free GPUs, and the places of pods on them."""

    nodes: Sequence[NodeView]  # The nodes, by position
    columns: GpuColumns  # Their free amounts of CPU and GPU
    memory_mib_left: Ints  # Their free memory in MiB, int64 (N,)
    _cards: list[dict[int, int]]
    """Position of a node -> minor number of a healthy GPU -> its index on the node."""
    _cluster: ClusterView
    _rows: dict[bytes, frozenset[int] | None] = field(default_factory=dict[bytes, "frozenset[int] | None"])

    def place_of(self, pod: PodView, row: int) -> Placed | None:
        """Node position and GPUs of a pod that runs on the node at position `row`.

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
        """Positions of the nodes that selectors, affinity and taints allow for a pod; None: all."""
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
    """Nodes with the CPU, memory and healthy GPUs that the pods and Reservations in their ledgers leave free."""
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
    """Minor number of a GPU -> GPU milli that the entries of a ledger hold of it."""
    held: dict[int, int] = {}
    for entry in entries:
        for device in entry.allocation.devices:
            if device.type == GPU_TYPE:
                percent = max(device.amounts.get(GPU_CORE, 0), device.amounts.get(GPU_MEMORY_RATIO, 0))
                held[device.minor] = held.get(device.minor, 0) + percent * _PER_PERCENT
    return held


_PLANS: Final = uuid.UUID("5f0b6cf7-6c1b-5b7e-8a53-0a7c4f1f2f10")
"""Namespace of the ids of plans."""


class RoomPlanner:
    """Plans room for gangs on the cluster of one round. Pods may leave the given nodes, and land on them."""

    def __init__(self, nodes: Sequence[NodeView], cluster: ClusterView, may_leave: Callable[[PodView], bool]) -> None:
        self._nodes = nodes
        self._cluster = cluster
        self._may_leave = may_leave
        counts = Counter(
            gpu for pod in cluster.pods if not pod.is_finished and (gpu := requests_of(pod.object)) is not None
        )
        self._typical = typical_pods(counts.elements())

    def plan(self, gang: WaitingGang, *, most_moves: int, most_per_node: int | None = None) -> MovePlan | None:
        """Return moves that make room for all members of a gang; None if no moves within the limits do.

        Without moves, there is room already. `most_per_node`: for one member; None: no limit.
        """
        places = gpu_nodes(self._nodes, self._cluster)
        pods, running = self._movable(places, [gpu for _, gpu in gang.members])
        measure = Measure(self._typical, places.columns.models)
        before = _fragment(measure, places.columns)
        repacker = Repacker(
            places.columns,
            places.memory_mib_left,
            Gradient(measure),
            running,
            most_per_node=most_per_node,
            is_apart=True,
        )
        waiting = [Waiting(gpu, _memory_mib(pod), places.rows_of(pod)) for pod, gpu in gang.members]
        rooms = repacker.plan(waiting, most_moves)
        if len(rooms) < len(waiting):
            return None
        return MovePlan(
            id=str(uuid.uuid5(_PLANS, f"{gang.name}/{self._cluster.now}")),
            gang=gang.name,
            members=tuple(pod for pod, _ in gang.members),
            pods=tuple(pods[move.running] for room in rooms for move in room.moves),
            nodes=frozenset(self._nodes[room.placed.node].name for room in rooms),
            gpus=gang.gpus,
            fragment_before=before,
            fragment_after=_fragment(measure, places.columns),
        )

    def _movable(self, places: GpuNodes, members: Sequence[GpuPod]) -> tuple[list[PodView], list[Running]]:
        """The pods that may move, and the same for the planner. Only nodes with enough GPUs are looked at."""
        fewest = min(gpu.num_gpu for gpu in members)
        pods, running = list[PodView](), list[Running]()
        for row, node in enumerate(self._nodes):
            if places.columns.gpu_count[row] < fewest:
                continue
            for pod in self._cluster.unfinished_on(node.name):
                gpu = requests_of(pod.object)
                if gpu is None or pod.is_terminating or not self._may_leave(pod):
                    continue
                placed = places.place_of(pod, row)
                if placed is not None and len(placed.gpus) == gpu.num_gpu:
                    pods.append(pod)
                    running.append(Running(gpu, _memory_mib(pod), placed, places.rows_of(pod)))
        return pods, running


def _memory_mib(pod: PodView) -> int:
    return -(-pod.requests.get(MEMORY, 0) // MIB)


def _fragment(measure: Measure, columns: GpuColumns) -> float:
    return float(np.sum(measure.fragment(columns)))
