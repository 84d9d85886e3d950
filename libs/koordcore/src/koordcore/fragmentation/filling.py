"""Expected filling: place a pod where the node keeps most of the GPU capacity that future pods will fill.

The value of a node is the GPU milli that are filled, on average, if the node alone is offered sequences of typical
pods. The sequences are fixed, so equal nodes have equal values. The score of a placement is the loss of value, in
steps. FGD asks which GPUs are too small for one more pod. Expected filling asks how much of the GPUs and CPUs together
a series of pods can use.

Next module to read: `policies`. docs/gpu-fragmentation.md compares it with FGD.
"""

import zlib
from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Final, TypeAlias

import numpy as np

from koordcore.fragmentation.measure import after_whole_gpus
from koordcore.fragmentation.nodes import NO_GPU, GpuColumns, Ints
from koordcore.fragmentation.pods import GpuPod, TypicalPod

SEQUENCES: Final = 32
OFFERS: Final = 60
# Losses that differ by less are equal. Equal nodes are filled in a fixed order, which keeps the others empty.
STEP_MILLI: Final = 40
NO_ROOM: Final = int(np.iinfo(np.int64).min)  # Stands for the score of a share on a GPU without room for it
_MOST_KNOWN: Final = 400_000  # Values that are remembered. A value takes some 200 bytes.

_Offer: TypeAlias = tuple[int, int, int]  # Milli-cores, GPU milli on each GPU, number of GPUs


class ExpectedFilling:
    """Computes the value of nodes: the GPU capacity that fixed pseudo-random series of typical pods would fill.

    Args:
        typical: The typical pods. Without any, every value is 0.
        models: GPU models of the nodes; `GpuColumns.model` is an index into them.
        sequences: Number of series.
        offers: Number of pods in each series.
    """

    def __init__(
        self,
        typical: Sequence[TypicalPod],
        models: Sequence[str],
        *,
        sequences: int = SEQUENCES,
        offers: int = OFFERS,
    ) -> None:
        drawn = [typical_sequence(typical, number, offers) for number in range(sequences)] if typical else []
        self._offers: list[list[list[_Offer]]] = [
            [
                [(pod.milli_cpu, pod.gpu_milli, pod.num_gpu) for pod in pods if pod.gpu_milli and pod.allows(model)]
                for pods in drawn
            ]
            for model in models
        ]
        self._step = STEP_MILLI * max(len(drawn), 1)
        self._known: dict[tuple[int, int, tuple[int, ...]], int] = {}

    def losses(self, nodes: GpuColumns, pod: GpuPod) -> tuple[Ints, Ints]:
        """Return as a score how much value each node loses by the pod, and on which GPU a share is placed. `nodes`: N
        nodes. CPU and memory are not checked.

        Returns:
            int64 (N,): `steps`; higher is better. `NO_ROOM` if no GPU has room for a share.
            int64 (N,): the first GPU with the best score; `NO_GPU` if the pod does not share a GPU, or no GPU has room.
        """
        if not pod.is_share:
            scores = self.steps(nodes, after_whole_gpus(nodes, pod))
            return scores, np.full(len(scores), NO_GPU, dtype=np.int64)
        per_gpu = self.share_steps(nodes, pod)
        gpus = per_gpu.argmax(axis=1)
        scores = per_gpu[np.arange(len(gpus)), gpus]
        return scores, np.where(scores == NO_ROOM, NO_GPU, gpus)

    def steps(self, before: GpuColumns, after: GpuColumns) -> Ints:
        """Return int64 (N,): the change of each node's value in units of `STEP_MILLI` GPU milli, rounded down.
        `before`: N nodes without the pod. `after`: the same nodes with the pod.
        """
        pairs = zip(self._values(before), self._values(after), strict=True)
        return np.array([(then - now) // self._step for now, then in pairs], dtype=np.int64)

    def share_steps(self, nodes: GpuColumns, pod: GpuPod) -> Ints:
        """Return int64 (N, G): `steps` for a share placed on each GPU; `NO_ROOM` if it does not fit there."""
        found = np.full(nodes.gpu_milli_left.shape, NO_ROOM, dtype=np.int64)
        cpus: list[int] = nodes.milli_cpu_left.tolist()
        models: list[int] = nodes.model.tolist()
        all_lefts: list[list[int]] = nodes.gpu_milli_left.tolist()
        for row, (cpu, model, lefts) in enumerate(zip(cpus, models, all_lefts, strict=True)):
            value = self._value(cpu, model, lefts)
            for gpu, left in enumerate(lefts):
                if left >= pod.gpu_milli:
                    then = [*lefts[:gpu], left - pod.gpu_milli, *lefts[gpu + 1 :]]
                    found[row, gpu] = (self._value(cpu - pod.milli_cpu, model, then) - value) // self._step
        return found

    def _values(self, nodes: GpuColumns) -> list[int]:
        cpus: list[int] = nodes.milli_cpu_left.tolist()
        models: list[int] = nodes.model.tolist()
        lefts: list[list[int]] = nodes.gpu_milli_left.tolist()
        return list(map(self._value, cpus, models, lefts))

    def _value(self, cpu: int, model: int, lefts: Iterable[int]) -> int:
        """Return the GPU milli that all sequences together fill on a node."""
        free = tuple(sorted(left for left in lefts if left))
        if not free:
            return 0
        key = (cpu, model, free)
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            known = self._known[key] = sum(_filled(cpu, free, offers) for offers in self._offers[model])
        return known


def _filled(cpu: int, free: tuple[int, ...], offers: list[_Offer]) -> int:
    """Return the GPU milli that the offers fill on a node that takes each offer that fits.

    Args:
        cpu: Free milli-cores.
        free: Free GPU milli of the GPUs that have any, ascending.
        offers: Pods in the order of their arrival. A share takes the fullest GPU with room for it.
    """
    lefts = list(free)
    most = lefts[-1]
    filled = 0
    for milli_cpu, gpu_milli, num_gpu in offers:
        if gpu_milli > most or milli_cpu > cpu:
            continue
        if num_gpu == 1:
            position = bisect_left(lefts, gpu_milli)
            left = lefts.pop(position) - gpu_milli
            if left:
                insort(lefts, left)
        elif len(lefts) >= num_gpu and lefts[-num_gpu] >= gpu_milli:
            rest = [left - gpu_milli for left in lefts[-num_gpu:] if left > gpu_milli]
            del lefts[-num_gpu:]
            for left in rest:
                insort(lefts, left)
        else:
            continue
        filled += gpu_milli * num_gpu
        cpu -= milli_cpu
        if not lefts:
            break
        most = lefts[-1]
    return filled


def typical_sequence(typical: Sequence[TypicalPod], number: int, offers: int) -> list[GpuPod]:
    """Return a sequence of typical pods, each as often as its frequency says, in pseudo-random order. Every process
    gets the same sequence, because order and rounding derive from `number`. `offers`: length of the sequence.
    """
    sums = list(accumulate(each.frequency for each in typical))
    offset = _hash(f"{number}") / 2**32
    order = sorted(range(offers), key=lambda position: _hash(f"{number}/{position}"))
    last = len(typical) - 1
    return [typical[min(bisect_left(sums, (each + offset) / offers * sums[-1]), last)].pod for each in order]


def _hash(text: str) -> int:
    return zlib.crc32(text.encode())
