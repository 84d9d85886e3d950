"""Placements scored within 0..100 by one of the policies that lower fragmentation, for plugins.

Source: gpu-fragmentation spec, 4.2 and 6.
"""

from collections.abc import Sequence
from typing import Final, Literal, Protocol, TypeAlias

import numpy as np

from koordcore.fragmentation.filling import NO_ROOM, STEP_MILLI, ExpectedFilling
from koordcore.fragmentation.measure import Measure, after_whole_gpus, gradient_score, share_gradients
from koordcore.fragmentation.nodes import GpuColumns, Ints
from koordcore.fragmentation.pods import GpuPod, TypicalPod

NO_SCORE: Final = 50  # Score of a placement that changes nothing
_MOST: Final = 100

ScoringName: TypeAlias = Literal["FGD", "ExpectedFilling"]


class GpuScoring(Protocol):
    """A fragmentation policy in the form that the DeviceShare plugin uses: scores within 0..100."""

    def scores_of(self, before: GpuColumns, after: GpuColumns, taken: int) -> Ints:
        """Return a score for each node if the pod is placed on it, int64 (N,) within 0..100; higher is better. `taken`:
        GPU milli that the pod takes.
        """
        ...

    def share_scores(self, nodes: GpuColumns, pod: GpuPod) -> Ints:
        """Return a score for placing the share on each GPU, int64 (N, G): 0..100, or -1 without room."""
        ...


class _Gradient:
    def __init__(self, measure: Measure) -> None:
        self._measure = measure

    def scores_of(self, before: GpuColumns, after: GpuColumns, taken: int) -> Ints:
        """Return higher scores the more the placement lowers the expected fragmentation of the node, int64 (N,)."""
        return gradient_score(self._measure.fragment(before) - self._measure.fragment(after))

    def share_scores(self, nodes: GpuColumns, pod: GpuPod) -> Ints:
        """Return a score for a share on each GPU, int64 (N, G): higher the less it fragments; -1 without room."""
        return share_gradients(self._measure, nodes, pod)


class _Filling:
    """Scores are `NO_SCORE`, plus the steps by which less value is lost than the pod takes."""

    def __init__(self, filling: ExpectedFilling) -> None:
        self._filling = filling

    def scores_of(self, before: GpuColumns, after: GpuColumns, taken: int) -> Ints:
        """Return higher scores the less value the node loses compared with what the pod takes, int64 (N,)."""
        return _shifted(self._filling.steps(before, after), taken)

    def share_scores(self, nodes: GpuColumns, pod: GpuPod) -> Ints:
        """Return a score for a share on each GPU, int64 (N, G): higher the less value is lost; -1 without room."""
        steps = self._filling.share_steps(nodes, pod)
        return np.where(steps == NO_ROOM, -1, _shifted(steps, pod.gpu_milli))


def _shifted(steps: Ints, taken: int) -> Ints:
    return np.clip(NO_SCORE + steps + -(-taken // STEP_MILLI), 0, _MOST)


def node_scores(scoring: GpuScoring, nodes: GpuColumns, pod: GpuPod) -> Ints:
    """Return for each node the best score of a placement of the pod, int64 (N,) within 0..100. Without room:
    `NO_SCORE`.
    """
    if not pod.is_share:
        return scoring.scores_of(nodes, after_whole_gpus(nodes, pod), pod.total_milli)
    best = scoring.share_scores(nodes, pod).max(axis=1)
    return np.where(best < 0, NO_SCORE, best)


def scoring_of(name: ScoringName, typical: Sequence[TypicalPod], models: Sequence[str]) -> GpuScoring:
    """Return the scoring of a fragmentation policy. `models`: GPU models of the nodes; `GpuColumns.model` is an index
    into them.
    """
    if name == "ExpectedFilling":
        return _Filling(ExpectedFilling(typical, models))
    return _Gradient(Measure(typical, models))
