"""Nodes with GPUs as columns: one row for each node, one position for each GPU.

Next module to read: `measure`.

Source: gpu-fragmentation spec, 1.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from koordcore.fragmentation.pods import WHOLE_GPU, GpuPod

Ints: TypeAlias = NDArray[np.int64]
Floats: TypeAlias = NDArray[np.float64]
Bools: TypeAlias = NDArray[np.bool_]

NO_GPU: Final = -1  # The index of the chosen GPU of a pod that does not share one


class NodeGpus(NamedTuple):
    milli_cpu_left: int  # Free milli-cores
    gpu_milli_left: tuple[int, ...]  # Free GPU milli of each GPU, 0..1000
    gpu_model: str = ""  # Model of its GPUs; empty: none


@dataclass(frozen=True, slots=True, eq=False)
class GpuColumns:
    """The free CPU and GPU amounts of N nodes as arrays; G is the greatest number of GPUs of a node."""

    milli_cpu_left: Ints  # int64 (N,), milli-cores
    gpu_milli_left: Ints  # int64 (N, G), GPU milli. G is at least 1. A node with fewer GPUs has zeros behind them.
    gpu_count: Ints  # int64 (N,), GPUs of the node
    model: Ints  # int64 (N,), index into `models`
    models: tuple[str, ...]  # Names of the GPU models, sorted

    def of_rows(self, rows: Sequence[int] | Ints) -> "GpuColumns":
        """Return a copy of the nodes at these positions, in the order of `rows`."""
        return GpuColumns(
            self.milli_cpu_left[rows],
            self.gpu_milli_left[rows],
            self.gpu_count[rows],
            self.model[rows],
            self.models,
        )

    def allowed(self, pod: GpuPod) -> Bools:
        """Return bool (N,): whether the pod may use GPUs of the node's model."""
        if not pod.gpu_spec:
            return np.ones(len(self.model), dtype=np.bool_)
        return np.array([pod.allows(name) for name in self.models], dtype=np.bool_)[self.model]

    def idle(self) -> Bools:
        """Return bool (N, G): whether the GPU is completely free."""
        return self.gpu_milli_left == WHOLE_GPU

    def fitting(self, pod: GpuPod) -> Bools:
        """Return bool (N,): whether the pod could get its GPUs on the node. CPU and memory are not checked. The pod
        must be allowed to use the GPU model of the node (`allowed`), and the free GPU milli must suffice: a pod of
        several GPUs needs that many GPUs with `gpu_milli` free on each, any other pod needs one. A pod without GPUs
        fits every node, also one whose model it does not allow.

        Source: gpu-fragmentation spec, 4.1.
        """
        if pod.num_gpu == 0:
            return np.ones(len(self.model), dtype=np.bool_)
        if pod.num_gpu > 1:
            has_room = (self.gpu_milli_left >= pod.gpu_milli).sum(axis=1) >= pod.num_gpu
        else:
            has_room = (self.gpu_milli_left >= pod.gpu_milli).any(axis=1)
        return has_room & self.allowed(pod)

    def assigned(self, row: int, pod: GpuPod, share_gpu: int) -> tuple[int, ...]:
        """Return the indexes of the GPUs that the pod gets on a node, ascending. Nothing is subtracted. If too few GPUs
        are idle, the result has fewer than the pod requests: check with `fitting` first. `share_gpu`: the GPU of a pod
        that shares one. Any other pod gets the first idle GPUs.
        """
        if pod.is_share:
            return (share_gpu,)
        idle = np.flatnonzero(self.gpu_milli_left[row] == WHOLE_GPU)
        return tuple(idle[: pod.num_gpu].tolist())


def columns_of(nodes: Iterable[NodeGpus]) -> GpuColumns:
    """Return the free amounts of these nodes as arrays, in the same order."""
    listed = list(nodes)
    models = tuple(sorted({node.gpu_model for node in listed}))
    widest = max((1, *(len(node.gpu_milli_left) for node in listed)))
    lefts = np.zeros((len(listed), widest), dtype=np.int64)
    for row, node in enumerate(listed):
        lefts[row, : len(node.gpu_milli_left)] = node.gpu_milli_left
    return GpuColumns(
        milli_cpu_left=np.array([node.milli_cpu_left for node in listed], dtype=np.int64),
        gpu_milli_left=lefts,
        gpu_count=np.array([len(node.gpu_milli_left) for node in listed], dtype=np.int64),
        model=np.array([models.index(node.gpu_model) for node in listed], dtype=np.int64),
        models=models,
    )
