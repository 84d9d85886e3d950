"""The fragmentation measure: the free GPU milli of a node that the typical pods cannot use.

    F(node) = sum over typical pods of frequency x unusable GPU milli

For one typical pod, all free GPU milli are unusable, unless the pod fits. If it fits, those on GPUs that are too small
for it are unusable. Next module to read: `gradient`.

Source: gpu-fragmentation spec, 2.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import Final

import numpy as np

from koordcore.fragmentation.nodes import Bools, Floats, GpuColumns, Ints
from koordcore.fragmentation.pods import WHOLE_GPU, TypicalPod


class Category(StrEnum):
    """Category of a node's free GPU milli for a typical pod: usable, or unusable for one reason.

    Q1 to Q4 say which resources the node lacks for the pod: CPU and GPU, GPU, none, or CPU. If the pod fits, the free
    GPU milli are split: those on GPUs with room for it count as Q3, the others as Q2. Otherwise all count as one
    category.

    Attributes:
        Q1_LACK_BOTH: The pod lacks CPU and GPU.
        Q2_LACK_GPU: The pod lacks GPU. Or it fits, and these GPU milli are on GPUs that are too small for it.
        Q3_SATISFIED: The pod can use these GPU milli. All other categories are unusable.
        Q4_LACK_CPU: The GPUs have room for the pod, but the free CPU is too small.
        XL_SATISFIED: The pod requests no GPU, and the CPU has room for it.
        XR_LACK_CPU: The pod requests no GPU, and the free CPU is too small.
        NO_ACCESS: The pod may not use the GPU model of the node.
    """

    Q1_LACK_BOTH = "q1_lack_both"
    Q2_LACK_GPU = "q2_lack_gpu"
    Q3_SATISFIED = "q3_satisfied"
    Q4_LACK_CPU = "q4_lack_cpu"
    XL_SATISFIED = "xl_satisfied"
    XR_LACK_CPU = "xr_lack_cpu"
    NO_ACCESS = "no_access"


_GPU_CATEGORIES: Final = (
    (Category.Q1_LACK_BOTH, Category.Q4_LACK_CPU),
    (Category.Q2_LACK_GPU, Category.Q3_SATISFIED),
)
"""By whether the CPU fits, then by whether the GPUs fit."""


class Measure:
    """Computes the fragmentation of nodes: the free GPU milli that typical pods cannot use, weighted by frequency.

    Args:
        typical: The M typical pods.
        models: GPU models of the nodes; `GpuColumns.model` is an index into them.

    Attributes:
        typical: The M typical pods.
        frequency: Their frequencies, float64 (M,).
    """

    def __init__(self, typical: Sequence[TypicalPod], models: Sequence[str]) -> None:
        self.typical = tuple(typical)
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
        """Return category -> GPU milli of each node in it, weighted by frequency of typical pods, float64 (N,).

        The fragmentation is the sum of all categories but `Q3_SATISFIED`.
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
