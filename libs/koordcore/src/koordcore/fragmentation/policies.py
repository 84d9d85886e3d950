"""The placement policies of the benchmark, behind one interface.

Next module to read: `arrivals`.

Source: gpu-fragmentation spec, 4.
"""

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Final, NamedTuple, Protocol

import numpy as np

from koordcore.fragmentation import baselines
from koordcore.fragmentation.filling import ExpectedFilling
from koordcore.fragmentation.gradient import gradient_scores
from koordcore.fragmentation.measure import Measure
from koordcore.fragmentation.nodes import NO_GPU, Bools, GpuColumns, Ints
from koordcore.fragmentation.pods import GpuPod, TypicalPod


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
    """The scores of N nodes for one pod, and the GPUs that it would share.

    Attributes:
        scores: int64 (N,).
        gpus: int64 (N,), index of the GPU that a share takes on the node, else `NO_GPU`.
    """

    scores: Ints
    gpus: Ints


class NodeTags(NamedTuple):
    """The kinds of pods (`affinity_tag`) that run on each of N nodes, for the policy GpuClustering.

    Attributes:
        has_tag: bool (N,), whether a pod with the tag of the scored pod runs on the node.
        tags: int64 (N,), number of different tags on the node.
    """

    has_tag: Bools
    tags: Ints


class Policy(Protocol):
    """A placement policy: it scores nodes for a pod."""

    def scored(self, nodes: GpuColumns, pod: GpuPod, tags: NodeTags) -> Scored:
        """Return the scores of the nodes, and the GPUs that a share takes. Ignore the scores of nodes without room."""
        ...

    def compared(self, scores: Ints, feasible: Bools) -> Ints:
        """Return the scores by which nodes are compared once the feasible ones are known, int64 (N,).

        Args:
            scores: Scores of `scored`, int64 (N,).
            feasible: Whether the pod fits on the node, bool (N,).
        """
        ...


class Gradient:
    """The policy FGD: place a pod where the GPU fragmentation falls most.

    Attributes:
        measure: The fragmentation measure of the workload.
    """

    def __init__(self, measure: Measure) -> None:
        self.measure = measure

    def scored(self, nodes: GpuColumns, pod: GpuPod, tags: NodeTags) -> Scored:
        """Return for each node a score, high if its fragmentation falls much, and the GPU for a share."""
        return Scored(*gradient_scores(self.measure, nodes, pod))

    def compared(self, scores: Ints, feasible: Bools) -> Ints:
        """Return the scores unchanged."""
        return scores


class Filling:
    """The policy ExpectedFilling: place a pod where the node keeps most of the capacity that future pods will fill.

    Attributes:
        filling: Computes the value of nodes for the workload. It caches values, so runs of one workload share it.
    """

    def __init__(self, filling: ExpectedFilling) -> None:
        self.filling = filling

    def scored(self, nodes: GpuColumns, pod: GpuPod, tags: NodeTags) -> Scored:
        """Return for each node a score, high if it loses little value, and the GPU for a share."""
        return Scored(*self.filling.losses(nodes, pod))

    def compared(self, scores: Ints, feasible: Bools) -> Ints:
        """Return the scores unchanged."""
        return scores


class Baseline:
    """A policy that scores nodes by a function and puts a share on the GPU with the least room.

    Attributes:
        score: Returns the score of each node.
        is_normalized: Whether the scores are scaled to 0..100 over the feasible nodes.
    """

    def __init__(self, score: Callable[[GpuColumns, GpuPod, NodeTags], Ints], *, is_normalized: bool = False) -> None:
        self.score = score
        self.is_normalized = is_normalized

    def scored(self, nodes: GpuColumns, pod: GpuPod, tags: NodeTags) -> Scored:
        """Return the scores of the nodes, and for a share the GPU with the least room that suffices."""
        gpus = (
            baselines.tightest_gpus(nodes, pod) if pod.is_share else np.full(len(nodes.model), NO_GPU, dtype=np.int64)
        )
        return Scored(self.score(nodes, pod, tags), gpus)

    def compared(self, scores: Ints, feasible: Bools) -> Ints:
        """Return the scores, scaled to 0..100 over the feasible nodes if `is_normalized`."""
        return baselines.min_max(scores, feasible) if self.is_normalized else scores


def _equal(nodes: GpuColumns, pod: GpuPod, tags: NodeTags) -> Ints:
    return np.zeros(len(nodes.model), dtype=np.int64)


BASELINES: Final[Mapping[PolicyName, Baseline]] = {
    PolicyName.RANDOM: Baseline(_equal),
    PolicyName.DOT_PRODUCT: Baseline(lambda nodes, pod, _: baselines.dot_product_scores(nodes, pod)),
    PolicyName.GPU_CLUSTERING: Baseline(lambda nodes, pod, tags: baselines.clustering_scores(nodes, pod, *tags)),
    PolicyName.GPU_PACKING: Baseline(lambda nodes, pod, _: baselines.packing_scores(nodes, pod)),
    PolicyName.BEST_FIT: Baseline(lambda nodes, pod, _: baselines.best_fit_scores(nodes, pod), is_normalized=True),
}
"""The policies that need no typical pods. Random scores all nodes alike; `Arrivals` then chooses at random."""


def policy_of(name: PolicyName, typical: Sequence[TypicalPod], models: Sequence[str]) -> Policy:
    """Return the policy with this name.

    Args:
        name: Name of the policy.
        typical: Typical pods of the workload.
        models: GPU models of the nodes; `GpuColumns.model` is an index into them.
    """
    if name is PolicyName.EXPECTED_FILLING:
        return Filling(ExpectedFilling(typical, models))
    return BASELINES[name] if name in BASELINES else Gradient(Measure(typical, models))
