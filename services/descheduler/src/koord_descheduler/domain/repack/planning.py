"""A plan of few moves that makes room for a waiting gang, by the GPU fragmentation measure.

The cheapest nodes are emptied first: those with the fewest pods per GPU. FGD chooses the new nodes of the pods.
Afterwards, the scheduler's own engine checks the plan, and then the Reservations show whether it holds.
"""

import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
from koordcore.fragmentation.measure import Measure
from koordcore.fragmentation.nodes import GpuColumns
from koordcore.fragmentation.pods import GpuPod, requests_of, typical_pods
from koordcore.fragmentation.policies import Gradient
from koordcore.fragmentation.repack import Repacker, Running, Waiting
from koordcore.protocol.resource_names import MEMORY

from koord_descheduler.domain.framework.plans import MovePlan
from koord_descheduler.domain.repack.nodes import MIB, GpuNodes, gpu_nodes
from koord_descheduler.domain.repack.waiting import WaitingGang
from koord_descheduler.domain.view.cluster import ClusterView
from koord_descheduler.domain.view.nodes import NodeView
from koord_descheduler.domain.view.pods import PodView

_PLANS: Final = uuid.UUID("5f0b6cf7-6c1b-5b7e-8a53-0a7c4f1f2f10")
"""Namespace of the ids of plans."""


class RoomPlanner:
    """Plans room for gangs on the cluster of one round.

    Args:
        nodes: Nodes that pods may leave, and on which they may land.
        cluster: The cluster at the start of the round.
        may_leave: Whether a pod may be moved.
    """

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

        Args:
            gang: The gang.
            most_moves: Largest number of moves.
            most_per_node: Largest number of pods that leave one node for one member; None: no limit.

        Returns:
            The plan. Without moves, there is room already and nothing has to be done.
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
        """Return the pods that may move, and the same for the planner. Only nodes with enough GPUs are looked at."""
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
