"""Scores of the policies that FGD is compared with.

`R` is the free GPU milli of a node, `G` its number of GPUs. Next module to read: `policies`.

Source: gpu-fragmentation spec, 4.3.
"""

from typing import Final

import numpy as np

from koordcore.fragmentation.nodes import Bools, GpuColumns, Ints
from koordcore.fragmentation.pods import WHOLE_GPU, GpuPod

_MOST_CPU: Final = 128_000
_MOST_GPU: Final = 8 * WHOLE_GPU
SHARE_TAG: Final = "share-gpu"


def best_fit_scores(nodes: GpuColumns, pod: GpuPod) -> Ints:
    """Return int64 (N,): the score of BestFit before `min_max`. It is high if little CPU and GPU would be left over."""
    cpu_left = (nodes.milli_cpu_left - pod.milli_cpu) / _MOST_CPU
    gpu_left = (nodes.gpu_milli_left.sum(axis=1) - pod.total_milli) / _MOST_GPU
    return np.trunc(100 * (1 - cpu_left / 2 - gpu_left / 2)).astype(np.int64)


def min_max(scores: Ints, feasible: Bools) -> Ints:
    """Return int64 (N,): scores scaled linearly to 0..100 over the feasible nodes; all 0 if their scores are equal."""
    among = scores[feasible]
    low, high = (among.min(), among.max()) if len(among) else (0, 0)
    return (scores - low) * 100 // (high - low) if high > low else np.zeros_like(scores)


def dot_product_scores(nodes: GpuColumns, pod: GpuPod) -> Ints:
    """Return int64 (N,): the score of DotProd.

    It is high if the pod requests little of the resources of which much is free.
    """
    cpu = nodes.milli_cpu_left * pod.milli_cpu / _MOST_CPU**2
    gpu = nodes.gpu_milli_left.sum(axis=1) * pod.total_milli / _MOST_GPU**2
    return np.trunc(100 * (1 - (cpu + gpu) / 2)).astype(np.int64)


def packing_scores(nodes: GpuColumns, pod: GpuPod) -> Ints:
    """Return int64 (N,): the score of GpuPacking. It prefers used GPUs to idle GPUs, and used nodes to idle nodes."""
    lefts = nodes.gpu_milli_left
    if pod.num_gpu == 0:
        return np.zeros(len(lefts), dtype=np.int64)
    with_room = np.where(lefts >= pod.gpu_milli, lefts, np.iinfo(np.int64).max)
    taken = np.sort(with_room, axis=1)[:, : pod.num_gpu]
    newly_used: Ints = (taken == WHOLE_GPU).sum(axis=1)
    percents: Ints = np.where(taken <= WHOLE_GPU, taken * 100 // WHOLE_GPU, 0).sum(axis=1)
    idle_node = nodes.idle().sum(axis=1) == nodes.gpu_count
    on_used_gpus: Ints = np.maximum(100 - percents // 10, 50)
    on_idle_gpus: Ints = np.maximum(50 - newly_used, 33)
    on_used_node = np.where(newly_used > 0, on_idle_gpus, on_used_gpus)
    return np.where(idle_node, np.maximum(33 - nodes.gpu_count, nodes.gpu_count), on_used_node)


def affinity_tag(pod: GpuPod) -> str:
    """Return the tag by which GpuClustering groups pods.

    All pods that use only a part of one GPU have one tag. Other pods have the tag of their number of whole GPUs.
    """
    return SHARE_TAG if pod.is_share else f"{pod.num_gpu}-gpu"


def clustering_scores(nodes: GpuColumns, pod: GpuPod, has_tag: Bools, tags: Ints) -> Ints:
    """Return int64 (N,): the score of GpuClustering. It prefers nodes that run only pods with the tag of this pod.

    Args:
        nodes: N nodes.
        pod: The pod.
        has_tag: bool (N,), whether a pod with the pod's tag (`affinity_tag`) runs on the node.
        tags: int64 (N,), number of different tags on the node.
    """
    free = nodes.gpu_milli_left.sum(axis=1)
    if pod.num_gpu == 0:
        return np.zeros(len(free), dtype=np.int64)
    packed = 25 * (_MOST_GPU - free) // _MOST_GPU
    bonus = np.where(has_tag, np.where(tags == 1, 75, 50), np.where(tags == 0, 25, 0))
    return packed + bonus


def tightest_gpus(nodes: GpuColumns, pod: GpuPod) -> Ints:
    """Return int64 (N,): for each node, the index of the GPU with the least free capacity that still fits the share.

    Of equal GPUs, the first one.
    """
    with_room = np.where(nodes.gpu_milli_left >= pod.gpu_milli, nodes.gpu_milli_left, np.iinfo(np.int64).max)
    return with_room.argmin(axis=1)
