"""Pods that arrive one by one on a cluster with GPUs: each is placed at once, or never.

A placement changes one node. So the scores of a kind of pod are kept, and computed again only for nodes that have
changed since a pod of this kind arrived. Nodes in the same state are scored once.

Source: gpu-fragmentation spec, 4.1, 4.4 and 4.5.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np

from koordcore.fragmentation.nodes import NO_GPU, Bools, GpuColumns, Ints
from koordcore.fragmentation.pods import GpuPod
from koordcore.fragmentation.policies import NodeTags, Policy, affinity_tag

_MOST_PODS: Final = 1000  # A node with more pods takes none
_NO_ROOM: Final = np.iinfo(np.int64).min


class Placed(NamedTuple):
    node: int  # Index of the node
    gpus: tuple[int, ...]  # Indexes of its GPUs, ascending


class Draws(NamedTuple):
    """Random numbers for one pod, each within [0, 1)."""

    node: float  # Chooses the node, if the policy is Random
    gpu: float  # Chooses the GPU of a share, if the policy is Random


@dataclass(slots=True)
class _Kept:
    """Scores of one kind of pod: `scores` and `gpus` are valid for the first `seen` changes."""

    scores: Ints
    gpus: Ints
    seen: int = 0
    by_state: dict[bytes, tuple[int, int]] = field(default_factory=dict[bytes, tuple[int, int]])


class Arrivals:
    """A simulated cluster on which pods arrive one by one, and each is placed at once or never.

    Args:
        nodes: The nodes and their free amounts; they are copied.
        memory_mib_left: Free memory of each node in MiB, int64 (N,); it is copied.
    """

    def __init__(self, nodes: GpuColumns, memory_mib_left: Ints, policy: Policy) -> None:
        # The nodes and their free amounts. Among nodes with equal scores the first one is chosen.
        self.nodes = nodes.of_rows(np.arange(len(nodes.model)))
        self.memory_mib_left = memory_mib_left.copy()  # Free memory of each node in MiB, int64 (N,)
        self._policy = policy
        self._pods = np.zeros(len(nodes.model), dtype=np.int64)
        self._tags: list[str] = []
        self._tagged: Bools = np.zeros((len(nodes.model), 0), dtype=np.bool_)
        self._states = [self._state(row) for row in range(len(nodes.model))]
        self._changed: list[int] = []
        self._kept: dict[GpuPod, _Kept] = {}

    def place(self, pod: GpuPod, memory_mib: int, draws: Draws | None = None) -> Placed | None:
        """Place the pod and subtract its requests, or return None if no node has room. `memory_mib`: Its memory request
        in MiB. `draws`: Random numbers that choose among all feasible nodes and GPUs; None: the policy chooses.
        """
        kept = self._scores(pod)
        feasible = kept.scores != _NO_ROOM
        feasible &= self.nodes.milli_cpu_left >= pod.milli_cpu
        feasible &= self.memory_mib_left >= memory_mib
        feasible &= self._pods <= _MOST_PODS
        if not feasible.any():
            return None
        if draws is not None:
            return self._take(_drawn(feasible, draws.node), pod, memory_mib, draws)
        scores = self._policy.compared(kept.scores, feasible)
        node = int(np.where(feasible, scores, _NO_ROOM).argmax())
        return self._take(node, pod, memory_mib, int(kept.gpus[node]))

    def _scores(self, pod: GpuPod) -> _Kept:
        """Return the scores of all nodes for the pod, `_NO_ROOM` where its GPUs do not fit."""
        kept = self._kept.get(pod)
        if kept is None:
            count = len(self._states)
            kept = _Kept(np.full(count, _NO_ROOM, dtype=np.int64), np.zeros(count, dtype=np.int64))
            self._kept[pod] = kept
            rows: Sequence[int] = range(count)
        else:
            rows = list(dict.fromkeys(self._changed[kept.seen :]))
        kept.seen = len(self._changed)
        unknown: dict[bytes, int] = {}
        for row in rows:
            state = self._states[row]
            if state not in kept.by_state:
                unknown.setdefault(state, row)
        if unknown:
            self._score(pod, kept, unknown)
        for row in rows:
            kept.scores[row], kept.gpus[row] = kept.by_state[self._states[row]]
        return kept

    def _score(self, pod: GpuPod, kept: _Kept, unknown: dict[bytes, int]) -> None:
        """Score one node of each state whose score is not known yet."""
        rows = list(unknown.values())
        nodes = self.nodes.of_rows(rows)
        tagged = self._tagged[rows]
        tag = affinity_tag(pod)
        has_tag = tagged[:, self._tags.index(tag)] if tag in self._tags else np.zeros(len(rows), dtype=np.bool_)
        scored = self._policy.scored(nodes, pod, NodeTags(has_tag, tagged.sum(axis=1)))
        scores = np.where(nodes.fitting(pod), scored.scores, _NO_ROOM)
        kept.by_state.update(zip(unknown, zip(scores.tolist(), scored.gpus.tolist(), strict=True), strict=True))

    def _take(self, node: int, pod: GpuPod, memory_mib: int, choice: int | Draws) -> Placed:
        """Give the node's amounts to the pod."""
        lefts = self.nodes.gpu_milli_left[node]
        if isinstance(choice, Draws):
            choice = _drawn(lefts >= pod.gpu_milli, choice.gpu) if pod.is_share else NO_GPU
        gpus = self.nodes.assigned(node, pod, choice)
        lefts[list(gpus)] -= pod.gpu_milli
        self.nodes.milli_cpu_left[node] -= pod.milli_cpu
        self.memory_mib_left[node] -= memory_mib
        self._pods[node] += 1
        self._add_tag(node, affinity_tag(pod))
        self._states[node] = self._state(node)
        self._changed.append(node)
        return Placed(node, gpus)

    def _add_tag(self, node: int, tag: str) -> None:
        if tag not in self._tags:
            self._tags.append(tag)
            self._tagged = np.column_stack([self._tagged, np.zeros(len(self._pods), dtype=np.bool_)])
        self._tagged[node, self._tags.index(tag)] = True

    def _state(self, node: int) -> bytes:
        """Return a key that is equal for nodes that every policy scores alike."""
        columns = self.nodes
        amounts = (columns.milli_cpu_left[node], columns.model[node], columns.gpu_count[node])
        tags = tuple(tag for tag, runs in zip(self._tags, self._tagged[node], strict=True) if runs)
        return (
            np.array(amounts, dtype=np.int64).tobytes() + columns.gpu_milli_left[node].tobytes() + repr(tags).encode()
        )


def _drawn(allowed: Bools, draw: float) -> int:
    """Return one of the allowed positions, chosen by a random number within [0, 1)."""
    positions = np.flatnonzero(allowed)
    return int(positions[int(draw * len(positions))])
