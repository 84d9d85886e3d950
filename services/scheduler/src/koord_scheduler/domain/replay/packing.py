"""Packing: how full the nodes are, to compare two placements."""

from dataclasses import dataclass

import numpy as np
from koordcore.protocol.resource_names import CPU, MEMORY

from koord_scheduler.domain.cluster.record import Phase
from koord_scheduler.domain.columns.node_columns import PODS_COLUMN
from koord_scheduler.domain.loop.state.state import SchedulerState


@dataclass(frozen=True, slots=True, kw_only=True)
class Packing:
    """The packing of nodes: numbers of pods and nodes, and requested amounts in percent of allocatable."""

    nodes: int  # Number of nodes
    nodes_in_use: int  # Number of nodes with at least one pod
    pods: int  # Number of pods on nodes
    pending: int  # Number of pods that wait for a node
    cpu_requested_percent: float  # Requested cpu of all nodes together, in percent of their allocatable
    cpu_in_use_percent: float  # Requested cpu of the nodes in use together
    memory_requested_percent: float  # Requested memory of all nodes together
    memory_in_use_percent: float  # Requested memory of the nodes in use together
    fullest_cpu_percent: float  # Requested cpu of the node with the highest percentage


def packing_of(state: SchedulerState) -> Packing:
    """Return the packing, how full the nodes are, for the nodes and pods in a scheduler's state."""
    nodes = state.nodes
    alive = nodes.alive
    pods = nodes.requested[PODS_COLUMN]
    in_use = alive & (pods > 0)
    cpu, memory = nodes.column(CPU), nodes.column(MEMORY)

    def percent(column: int, among: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]) -> float:
        allocatable = int(nodes.allocatable[column, among].sum())
        return round(100 * int(nodes.requested[column, among].sum()) / allocatable, 1) if allocatable else 0.0

    sized = alive & (nodes.allocatable[cpu] > 0)
    shares = 100 * nodes.requested[cpu, sized] / nodes.allocatable[cpu, sized]
    return Packing(
        nodes=len(nodes),
        nodes_in_use=int(in_use.sum()),
        pods=int(pods[alive].sum()),
        pending=sum(1 for pod in state.pods.values() if pod.phase is Phase.QUEUED),
        cpu_requested_percent=percent(cpu, alive),
        cpu_in_use_percent=percent(cpu, in_use),
        memory_requested_percent=percent(memory, alive),
        memory_in_use_percent=percent(memory, in_use),
        fullest_cpu_percent=round(float(shares.max(initial=0.0)), 1),
    )
