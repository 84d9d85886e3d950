"""The fragmentation measure: the free GPU milli of a node that the typical pods cannot use.

    F(node) = sum over typical pods of frequency x unusable GPU milli

For one typical pod, all free GPU milli are unusable, unless the pod fits. If it fits, those on GPUs that are too small
for it are unusable. Fragmentation Gradient Descent (FGD) places a pod where the fragmentation falls most.

Next module to read: `policies`. Source: gpu-fragmentation spec, 2, 4.2.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import Final

import numpy as np

from koordcore.fragmentation.nodes import NO_GPU, Bools, Floats, GpuColumns, Ints
from koordcore.fragmentation.pods import WHOLE_GPU, GpuPod, TypicalPod


class Category(StrEnum):
    """Category of a node's free GPU milli for a typical pod: usable, or unusable for one reason. Q1 to Q4 say which
    resources the node lacks for the pod: CPU and GPU, GPU, none, or CPU. If the pod fits, the free GPU milli are split:
    those on GPUs with room for it count as Q3, the others as Q2. Otherwise all count as one category.
    """

    Q1_LACK_BOTH = "q1_lack_both"  # The pod lacks CPU and GPU
    # The pod lacks GPU. Or it fits, and these GPU milli are on GPUs that are too small for it.
    Q2_LACK_GPU = "q2_lack_gpu"
    Q3_SATISFIED = "q3_satisfied"  # The pod can use these GPU milli. All other categories are unusable.
    Q4_LACK_CPU = "q4_lack_cpu"  # The GPUs have room for the pod, but the free CPU is too small
    XL_SATISFIED = "xl_satisfied"  # The pod requests no GPU, and the CPU has room for it
    XR_LACK_CPU = "xr_lack_cpu"  # The pod requests no GPU, and the free CPU is too small
    NO_ACCESS = "no_access"  # The pod may not use the GPU model of the node


# By whether the CPU fits, then by whether the GPUs fit.
_GPU_CATEGORIES: Final = (
    (Category.Q1_LACK_BOTH, Category.Q4_LACK_CPU),
    (Category.Q2_LACK_GPU, Category.Q3_SATISFIED),
)


class Measure:
    """Computes the fragmentation of nodes: the free GPU milli that typical pods cannot use, weighted by frequency.

    Args:
        typical: The M typical pods.
        models: GPU models of the nodes; `GpuColumns.model` is an index into them.
    """

    def __init__(self, typical: Sequence[TypicalPod], models: Sequence[str]) -> None:
        self.typical = tuple(typical)  # The M typical pods
        # Their frequencies, float64 (M,).
        self.frequency: Floats = np.array([each.frequency for each in typical], dtype=np.float64)
        self._cpu: Ints = np.array([each.pod.milli_cpu for each in typical], dtype=np.int64)
        self._num: Ints = np.array([each.pod.num_gpu for each in typical], dtype=np.int64)
        gpu = np.array([each.pod.gpu_milli for each in typical], dtype=np.int64)
        self._access: Bools = np.array(
            [[each.pod.gpu_milli > 0 and each.pod.allows(model) for each in typical] for model in models],
            dtype=np.bool_,
        ).reshape(len(models), len(typical))
        lefts = np.arange(WHOLE_GPU + 1)[:, np.newaxis]
        self._fits: Ints = (lefts >= gpu).astype(np.int64)
        self._too_small: Ints = np.where(lefts >= gpu, 0, lefts)

    def fragment(self, nodes: GpuColumns) -> Floats:
        """Return float64 (N,): the fragmentation of each node in GPU milli, 0..free GPU milli."""
        lefts = nodes.gpu_milli_left
        fitting, too_small = self._fits[lefts].sum(axis=1), self._too_small[lefts].sum(axis=1)
        return self._weighed(nodes.milli_cpu_left, nodes.model, fitting, too_small, lefts.sum(axis=1))

    def fragment_with_share(self, nodes: GpuColumns, milli_cpu: int, gpu_milli: int) -> Floats:
        """Return the fragmentation of each node after one of its GPUs has taken a share.

        Args:
            nodes: N nodes with G GPUs each.
            milli_cpu: Milli-cores that the share takes.
            gpu_milli: GPU milli that the share takes.

        Returns:
            float64 (N, G), GPU milli: position g is for a share on GPU g. Meaningless if GPU g lacks the room.
        """
        lefts = nodes.gpu_milli_left
        after = np.maximum(lefts - gpu_milli, 0)
        fits, too_small = self._fits[lefts], self._too_small[lefts]
        fitting = fits.sum(axis=1, keepdims=True) - fits + self._fits[after]
        small = too_small.sum(axis=1, keepdims=True) - too_small + self._too_small[after]
        free = lefts.sum(axis=1, keepdims=True) - gpu_milli
        return self._weighed(
            nodes.milli_cpu_left[:, np.newaxis] - milli_cpu, nodes.model[:, np.newaxis], fitting, small, free
        )

    def amounts(self, nodes: GpuColumns) -> dict[Category, Floats]:
        """Return category -> GPU milli of each node in it, weighted by frequency of typical pods, float64 (N,). The
        fragmentation is the sum of all categories but `Q3_SATISFIED`.
        """
        lefts = nodes.gpu_milli_left
        free = lefts.sum(axis=1)
        too_small = self._too_small[lefts].sum(axis=1)
        has_cpu = nodes.milli_cpu_left[:, np.newaxis] >= self._cpu
        has_gpu = self._fits[lefts].sum(axis=1) >= self._num
        booked = {category: np.zeros(len(free), dtype=np.float64) for category in Category}
        for index, each in enumerate(self.typical):
            for row in range(len(free)):
                fits_cpu, fits_gpu = bool(has_cpu[row, index]), bool(has_gpu[row, index])
                unusable = free[row]
                if each.pod.gpu_milli == 0:
                    category = Category.XL_SATISFIED if fits_cpu else Category.XR_LACK_CPU
                elif not self._access[nodes.model[row], index]:
                    category = Category.NO_ACCESS
                else:
                    category = _GPU_CATEGORIES[fits_cpu][fits_gpu]
                if category is Category.Q3_SATISFIED:
                    unusable = too_small[row, index]
                    booked[category][row] += each.frequency * (free[row] - unusable)
                    category = Category.Q2_LACK_GPU
                booked[category][row] += each.frequency * unusable
        return booked

    def _weighed(self, cpu: Ints, model: Ints, fitting: Ints, too_small: Ints, free: Ints) -> Floats:
        """Return the fragmentation, shape (...,).

        Args:
            cpu: Free milli-cores, shape (...,) or broadcastable to it.
            model: Index of the GPU model, shape like `cpu`.
            fitting: Number of GPUs with room for one GPU of the typical pod, shape (..., M).
            too_small: GPU milli on the other GPUs, shape (..., M).
            free: Free GPU milli, shape (...,).
        """
        fits = self._access[model] & (cpu[..., np.newaxis] >= self._cpu) & (fitting >= self._num)
        unusable: Floats = np.where(fits, too_small, free[..., np.newaxis]) @ self.frequency
        return unusable


# Differences of fragmentation are rounded to so many decimals. Sums of the same terms in another order differ in the
# last bits. Without rounding, an unchanged fragmentation could give a score of 49 instead of 50.
_SAME: Final = 6


def gradient_score(fallen: Floats) -> Ints:
    """Return an FGD score 0..100: above 50 if the fragmentation falls, 50 if it stays, below 50 if it grows.

        score = trunc(100 / (1 + e^(-fallen / 1000)))

    `fallen`: Fragmentation before minus fragmentation after, GPU milli, any shape.
    """
    return (100 / (1 + np.exp(-np.round(fallen, _SAME) / 1000))).astype(np.int64)


def after_whole_gpus(nodes: GpuColumns, pod: GpuPod) -> GpuColumns:
    """Return the nodes after the pod has taken its GPUs, on each node those with the least free capacity first. A pod
    without GPUs takes CPU only. If fewer GPUs have room than the pod requests, it takes those.
    """
    lefts = nodes.gpu_milli_left
    if pod.num_gpu:
        has_room = lefts >= pod.gpu_milli
        order = np.argsort(np.where(has_room, lefts, np.iinfo(np.int64).max), axis=1, kind="stable")
        position = np.argsort(order, axis=1)
        lefts = lefts - np.where(has_room & (position < pod.num_gpu), pod.gpu_milli, 0)
    return GpuColumns(nodes.milli_cpu_left - pod.milli_cpu, lefts, nodes.gpu_count, nodes.model, nodes.models)


def gradient_scores(measure: Measure, nodes: GpuColumns, pod: GpuPod) -> tuple[Ints, Ints]:
    """Return the FGD score of each node for the pod, and on which GPU a share is placed. `pod`: the pod. CPU and memory
    are not checked.

    Returns:
        int64 (N,): score 0..100, or -1 if no GPU has room for a share.
        int64 (N,): the first GPU that reaches the score; `NO_GPU` if the pod does not share a GPU.
    """
    if not pod.is_share:
        scores = gradient_score(measure.fragment(nodes) - measure.fragment(after_whole_gpus(nodes, pod)))
        return scores, np.full(len(scores), NO_GPU, dtype=np.int64)
    per_gpu = share_gradients(measure, nodes, pod)
    gpus = per_gpu.argmax(axis=1)
    return per_gpu[np.arange(len(gpus)), gpus], gpus


def share_gradients(measure: Measure, nodes: GpuColumns, pod: GpuPod) -> Ints:
    """Return int64 (N, G): the FGD score of a share placed on each GPU, or -1 if it does not fit there."""
    before = measure.fragment(nodes)
    after = measure.fragment_with_share(nodes, pod.milli_cpu, pod.gpu_milli)
    per_gpu = gradient_score(before[:, np.newaxis] - after)
    per_gpu[nodes.gpu_milli_left < pod.gpu_milli] = -1
    return per_gpu
