"""The placement policies of the benchmark, behind one interface: FGD, and those that it is compared with.

`R` is the free GPU milli of a node, `G` its number of GPUs.

Next module to read: `arrivals`. Source: gpu-fragmentation spec, 4.
"""

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Final, NamedTuple, Protocol

import numpy as np

from koordcore.fragmentation.filling import ExpectedFilling
from koordcore.fragmentation.measure import Measure, gradient_scores
from koordcore.fragmentation.nodes import NO_GPU, Bools, GpuColumns, Ints
from koordcore.fragmentation.pods import WHOLE_GPU, GpuPod, TypicalPod

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
    """Return int64 (N,): the score of DotProd. It is high if the pod requests little of the resources of which much is
    free.
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
    """Return the tag by which GpuClustering groups pods. All pods that use only a part of one GPU have one tag. Other
    pods have the tag of their number of whole GPUs.
    """
    return SHARE_TAG if pod.is_share else f"{pod.num_gpu}-gpu"


def clustering_scores(nodes: GpuColumns, pod: GpuPod, has_tag: Bools, tags: Ints) -> Ints:
    """Return int64 (N,): the score of GpuClustering. It prefers nodes that run only pods with the tag of this pod.
    `has_tag`: bool (N,), whether a pod with the pod's tag (`affinity_tag`) runs on the node. `tags`: int64 (N,), number
    of different tags on the node.
    """
    free = nodes.gpu_milli_left.sum(axis=1)
    if pod.num_gpu == 0:
        return np.zeros(len(free), dtype=np.int64)
    packed = 25 * (_MOST_GPU - free) // _MOST_GPU
    bonus = np.where(has_tag, np.where(tags == 1, 75, 50), np.where(tags == 0, 25, 0))
    return packed + bonus


def tightest_gpus(nodes: GpuColumns, pod: GpuPod) -> Ints:
    """Return int64 (N,): for each node, the index of the GPU with the least free capacity that still fits the share. Of
    equal GPUs, the first one.
    """
    with_room = np.where(nodes.gpu_milli_left >= pod.gpu_milli, nodes.gpu_milli_left, np.iinfo(np.int64).max)
    return with_room.argmin(axis=1)


class PolicyName(StrEnum):
    """The placement policies of the GPU benchmark, in the order of its tables."""

    RANDOM = "Random"
    DOT_PRODUCT = "DotProd"
    GPU_CLUSTERING = "GpuClustering"
    GPU_PACKING = "GpuPacking"
    BEST_FIT = "BestFit"
    FGD = "FGD"
    EXPECTED_FILLING = "ExpectedFilling"


class Scored(NamedTuple):
    """The scores of N nodes for one pod, and the GPUs that it would share."""

    scores: Ints  # int64 (N,)
    gpus: Ints  # int64 (N,), index of the GPU that a share takes on the node, else `NO_GPU`


class NodeTags(NamedTuple):
    """The kinds of pods (`affinity_tag`) that run on each of N nodes, for the policy GpuClustering."""

    has_tag: Bools  # bool (N,), whether a pod with the tag of the scored pod runs on the node
    tags: Ints  # int64 (N,), number of different tags on the node


class Policy(Protocol):
    """A placement policy: it scores nodes for a pod."""

    def scored(self, nodes: GpuColumns, pod: GpuPod, tags: NodeTags) -> Scored:
        """Return the scores of the nodes, and the GPUs that a share takes. Ignore the scores of nodes without room."""
        ...

    def compared(self, scores: Ints, feasible: Bools) -> Ints:
        """Return the scores by which nodes are compared once the feasible ones are known, int64 (N,). `scores`: Scores
        of `scored`, int64 (N,). `feasible`: whether the pod fits on the node, bool (N,).
        """
        ...


class Gradient:
    """The policy FGD: place a pod where the GPU fragmentation falls most."""

    def __init__(self, measure: Measure) -> None:
        self.measure = measure  # The fragmentation measure of the workload

    def scored(self, nodes: GpuColumns, pod: GpuPod, tags: NodeTags) -> Scored:
        """Return for each node a score, high if its fragmentation falls much, and the GPU for a share."""
        return Scored(*gradient_scores(self.measure, nodes, pod))

    def compared(self, scores: Ints, feasible: Bools) -> Ints:
        return scores


class Filling:
    """The policy ExpectedFilling: place a pod where the node keeps most of the capacity that future pods will fill."""

    def __init__(self, filling: ExpectedFilling) -> None:
        # Computes the value of nodes for the workload. It caches values, so runs of one workload share it.
        self.filling = filling

    def scored(self, nodes: GpuColumns, pod: GpuPod, tags: NodeTags) -> Scored:
        """Return for each node a score, high if it loses little value, and the GPU for a share."""
        return Scored(*self.filling.losses(nodes, pod))

    def compared(self, scores: Ints, feasible: Bools) -> Ints:
        return scores


class Baseline:
    """A policy that scores nodes by a function and puts a share on the GPU with the least room."""

    def __init__(self, score: Callable[[GpuColumns, GpuPod, NodeTags], Ints], *, is_normalized: bool = False) -> None:
        self.score = score  # Returns the score of each node
        self.is_normalized = is_normalized  # Whether the scores are scaled to 0..100 over the feasible nodes

    def scored(self, nodes: GpuColumns, pod: GpuPod, tags: NodeTags) -> Scored:
        """Return the scores of the nodes, and for a share the GPU with the least room that suffices."""
        gpus = tightest_gpus(nodes, pod) if pod.is_share else np.full(len(nodes.model), NO_GPU, dtype=np.int64)
        return Scored(self.score(nodes, pod, tags), gpus)

    def compared(self, scores: Ints, feasible: Bools) -> Ints:
        """Return the scores, scaled to 0..100 over the feasible nodes if `is_normalized`."""
        return min_max(scores, feasible) if self.is_normalized else scores


def _equal(nodes: GpuColumns, pod: GpuPod, tags: NodeTags) -> Ints:
    return np.zeros(len(nodes.model), dtype=np.int64)


# The policies that need no typical pods. Random scores all nodes alike; `Arrivals` then chooses at random.
BASELINES: Final[Mapping[PolicyName, Baseline]] = {
    PolicyName.RANDOM: Baseline(_equal),
    PolicyName.DOT_PRODUCT: Baseline(lambda nodes, pod, _: dot_product_scores(nodes, pod)),
    PolicyName.GPU_CLUSTERING: Baseline(lambda nodes, pod, tags: clustering_scores(nodes, pod, *tags)),
    PolicyName.GPU_PACKING: Baseline(lambda nodes, pod, _: packing_scores(nodes, pod)),
    PolicyName.BEST_FIT: Baseline(lambda nodes, pod, _: best_fit_scores(nodes, pod), is_normalized=True),
}


def policy_of(name: PolicyName, typical: Sequence[TypicalPod], models: Sequence[str]) -> Policy:
    """Return the policy with this name. `typical`: typical pods of the workload. `models`: GPU models of the nodes;
    `GpuColumns.model` is an index into them.
    """
    if name is PolicyName.EXPECTED_FILLING:
        return Filling(ExpectedFilling(typical, models))
    return BASELINES[name] if name in BASELINES else Gradient(Measure(typical, models))
