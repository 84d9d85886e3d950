"""One run of the GPU benchmark: a workload arrives on empty nodes, pod by pod, under one policy.

The workloads are the openb traces, as nodes and pods of the fragmentation measure.

Next module to read: `gpu_sweep`.

Source: gpu-fragmentation spec, 4.5, 5.1 and 5.2; examples/openb/README.md.
"""

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from koordcore.fragmentation.arrivals import Arrivals, Draws
from koordcore.fragmentation.measure import Measure
from koordcore.fragmentation.nodes import Floats, GpuColumns, Ints, NodeGpus, columns_of
from koordcore.fragmentation.pods import WHOLE_GPU, GpuPod, TypicalPod, gpu_pod, typical_pods
from koordcore.fragmentation.policies import Policy, PolicyName, policy_of

from koordctl.demo.trace import rows_of

NODE_FILE: Final = "openb_node_list_gpu_node.csv"
_POD_FILE: Final = "openb_pod_list_{}.csv"
WORKLOADS: Final = (
    "default",
    *("cpu050", "cpu100", "cpu200", "cpu250"),
    *("gpushare40", "gpushare60", "gpushare80", "gpushare100"),
    *("gpuspec10", "gpuspec20", "gpuspec25", "gpuspec33"),
    *("multigpu20", "multigpu30", "multigpu40", "multigpu50"),
)


@dataclass(frozen=True, slots=True)
class ArrivingPod:
    name: str
    pod: GpuPod  # Its CPU and GPU requests
    memory_mib: int  # Its memory request in MiB


@dataclass(frozen=True, slots=True)
class GpuTrace:
    """The nodes with GPUs and the pods of one workload of the openb traces."""

    nodes: tuple[NodeGpus, ...]  # The nodes, empty, in the order of the file
    memory_mib: tuple[int, ...]  # Memory of each node in MiB
    pods: tuple[ArrivingPod, ...]  # The pods, ordered by name

    @property
    def capacity(self) -> int:
        """Sum of the GPU milli of all nodes; a GPU has 1000."""
        return sum(sum(node.gpu_milli_left) for node in self.nodes)


def read_trace(folder: Path, workload: str) -> GpuTrace:
    """`workload`: one of `WORKLOADS`.

    Raises:
        InvalidTrace: A file cannot be read or is not valid.
    """
    machines = rows_of(folder / NODE_FILE)
    pods = [
        ArrivingPod(
            name=row.text("name"),
            pod=gpu_pod(
                row.number("cpu_milli"),
                row.number("gpu_milli", empty=0),
                row.number("num_gpu"),
                # The lists with more multi-GPU pods have no such column.
                row.columns.get("gpu_spec") or "",
            ),
            memory_mib=row.number("memory_mib"),
        )
        for row in rows_of(folder / _POD_FILE.format(workload))
    ]
    return GpuTrace(
        nodes=tuple(
            NodeGpus(row.number("cpu_milli"), (WHOLE_GPU,) * row.number("gpu"), row.text("model")) for row in machines
        ),
        memory_mib=tuple(row.number("memory_mib") for row in machines),
        pods=tuple(sorted(pods, key=lambda each: each.name)),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """The number of pods of a workload that arrive in a run, and the pods that count as typical."""

    ratio: float = 1.3  # Sum of the requested GPU milli of all arrivals divided by the capacity; 1.3 is 130 %
    threshold_percent: float = 95  # Typical pods cover this percentage of the workload


@dataclass(frozen=True, slots=True)
class Point:
    """The measurements of a run at the time when a certain percentage of the capacity has arrived."""

    arrived_pct: int  # Requested GPU milli of all arrivals, in percent of the capacity
    alloc_pct: float  # Allocated GPU milli, in percent of the capacity
    frag_pct: float  # Fragmentation of all nodes, in percent of the capacity
    frag_ratio_pct: float  # Fragmentation of all nodes, in percent of the free GPU milli


@dataclass(frozen=True, slots=True)
class Outcome:
    """The curves of one run, and the number of pods that found no node."""

    # One point for each percentage that occurs, ascending: means over the pods that fall on it.
    points: tuple[Point, ...]
    failed: int  # Number of pods without a node
    failed_without_gpu: int  # Number of these pods that request no GPU


def arriving(trace: GpuTrace, ratio: float, draw: random.Random) -> list[ArrivingPod]:
    """The pods of a run in random order. They are copied or left out so that they request `ratio` of the capacity.

    Args:
        ratio: Requested GPU milli of all arrivals divided by the capacity.

    Source: gpu-fragmentation spec, 5.2, steps 2 and 3.
    """
    pods = list(trace.pods)
    draw.shuffle(pods)
    wanted = trace.capacity * ratio
    requested = sum(each.pod.total_milli for each in pods)
    if requested > wanted:
        while requested > wanted:
            requested -= pods.pop(draw.randrange(len(pods))).pod.total_milli
        return pods
    while True:
        copied = trace.pods[draw.randrange(len(trace.pods))]
        if requested + copied.pod.gpu_milli > wanted:
            return pods
        pods.append(copied)
        requested += copied.pod.total_milli


def policy_for(trace: GpuTrace, name: PolicyName, load: Load) -> Policy:
    return policy_of(name, _typical(trace, load), columns_of(trace.nodes).models)


def _typical(trace: GpuTrace, load: Load) -> list[TypicalPod]:
    return typical_pods((each.pod for each in trace.pods), load.threshold_percent)


def simulate(trace: GpuTrace, name: PolicyName, seed: int, load: Load, policy: Policy | None = None) -> Outcome:
    """Place a workload pod by pod under a policy, and return the measured curves.

    Args:
        seed: Seed of the order of pods and nodes, and of the policy Random.
        policy: The result of `policy_for`, which runs of one trace may share; None: create it.
    """
    draw = random.Random(seed)  # noqa: S311 - a simulation
    pods = arriving(trace, load.ratio, draw)
    order = list(range(len(trace.nodes)))
    draw.shuffle(order)
    nodes = columns_of(trace.nodes[row] for row in order)
    memory = np.array([trace.memory_mib[row] for row in order], dtype=np.int64)
    cluster = Arrivals(nodes, memory, policy or policy_for(trace, name, load))
    record = _Record(nodes, _typical(trace, load))
    for each in pods:
        draws = Draws(draw.random(), draw.random()) if name is PolicyName.RANDOM else None
        placed = cluster.place(each.pod, each.memory_mib, draws)
        record.add(each, None if placed is None else placed.node, cluster.nodes)
    return Outcome(tuple(record.points(trace.capacity)), record.failed, record.failed_without_gpu)


class _Record:
    """The state after each arrival. The fragmentation is computed at the end, for all changed nodes at once."""

    def __init__(self, nodes: GpuColumns, typical: list[TypicalPod]) -> None:
        self._measure = Measure(typical, nodes.models)
        self._start = nodes
        self._requests: list[int] = []
        self._nodes: list[int] = []
        self._cpu: list[int] = []
        self._lefts: list[Ints] = []
        self.failed = 0
        self.failed_without_gpu = 0

    def add(self, arrived: ArrivingPod, node: int | None, nodes: GpuColumns) -> None:
        """None: no node has room."""
        self._requests.append(arrived.pod.total_milli)
        if node is None:
            self.failed += 1
            self.failed_without_gpu += arrived.pod.num_gpu == 0
            self._nodes.append(-1)
            return
        self._nodes.append(node)
        self._cpu.append(int(nodes.milli_cpu_left[node]))
        self._lefts.append(nodes.gpu_milli_left[node].copy())

    def points(self, capacity: int) -> Iterable[Point]:
        """The means over the pods of each percentage."""
        requests, nodes = np.array(self._requests), np.array(self._nodes)
        arrived = requests.cumsum()
        used = np.where(nodes >= 0, requests, 0).cumsum()
        fragment = self._fragments(nodes)
        percent = np.rint(100 * arrived / capacity).astype(np.int64)
        alloc, part, ratio = (
            100 * used / capacity,
            100 * fragment / capacity,
            100 * fragment / np.maximum(capacity - used, 1),
        )
        for x in np.unique(percent).tolist():
            here = percent == x
            yield Point(x, *(float(curve[here].mean()) for curve in (alloc, part, ratio)))

    def _fragments(self, nodes: Ints) -> Floats:
        """The fragmentation of all nodes after each arrival, GPU milli."""
        changed = nodes[nodes >= 0]
        start = self._start
        after = GpuColumns(
            np.array(self._cpu, dtype=np.int64),
            np.array(self._lefts, dtype=np.int64).reshape(len(changed), start.gpu_milli_left.shape[1]),
            start.gpu_count[changed],
            start.model[changed],
            start.models,
        )
        current: list[float] = self._measure.fragment(start).tolist()
        total = float(sum(current))
        found = np.empty(len(nodes), dtype=np.float64)
        measured: Iterator[float] = iter(self._measure.fragment(after).tolist())
        rows: list[int] = nodes.tolist()
        for index, node in enumerate(rows):
            if node >= 0:
                new = next(measured)
                total += new - current[node]
                current[node] = new
            found[index] = total
        return found
