"""Fragmentation Gradient Descent (FGD): place a pod where the fragmentation falls most.

Next module to read: `policies`.

Source: gpu-fragmentation spec, 4.2.
"""

from typing import Final

import numpy as np

from koordcore.fragmentation.measure import Measure
from koordcore.fragmentation.nodes import NO_GPU, Floats, GpuColumns, Ints
from koordcore.fragmentation.pods import GpuPod

_SAME: Final = 6
"""Differences of fragmentation are rounded to so many decimals.

Sums of the same terms in another order differ in the last bits. Without rounding, an unchanged fragmentation could give
a score of 49 instead of 50.
"""


def gradient_score(fallen: Floats) -> Ints:
    """Return an FGD score 0..100: above 50 if the fragmentation falls, 50 if it stays, below 50 if it grows.

        score = trunc(100 / (1 + e^(-fallen / 1000)))

    Args:
        fallen: Fragmentation before minus fragmentation after, GPU milli, any shape.
    """
    return (100 / (1 + np.exp(-np.round(fallen, _SAME) / 1000))).astype(np.int64)


def after_whole_gpus(nodes: GpuColumns, pod: GpuPod) -> GpuColumns:
    """Return the nodes after the pod has taken its GPUs, on each node those with the least free capacity first.

    A pod without GPUs takes CPU only. If fewer GPUs have room than the pod requests, it takes those.
    """
    lefts = nodes.gpu_milli_left
    if pod.num_gpu:
        has_room = lefts >= pod.gpu_milli
        order = np.argsort(np.where(has_room, lefts, np.iinfo(np.int64).max), axis=1, kind="stable")
        position = np.argsort(order, axis=1)
        lefts = lefts - np.where(has_room & (position < pod.num_gpu), pod.gpu_milli, 0)
    return GpuColumns(nodes.milli_cpu_left - pod.milli_cpu, lefts, nodes.gpu_count, nodes.model, nodes.models)


def gradient_scores(measure: Measure, nodes: GpuColumns, pod: GpuPod) -> tuple[Ints, Ints]:
    """Return the FGD score of each node for the pod, and on which GPU a share is placed.

    Args:
        measure: The fragmentation measure.
        nodes: N nodes.
        pod: The pod. CPU and memory are not checked.

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
