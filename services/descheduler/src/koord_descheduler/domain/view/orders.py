"""The orders of pods: in which rounds visit them, and in which they leave.

Sorting 150,000 pods takes half a second, in which nothing else can run. So `PodOrder` is a list of short sorted lists:
a changed pod takes only microseconds.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable
from typing import Any, Final

from koordcore.protocol import keys
from koordcore.protocol.priority import PriorityBand
from koordcore.protocol.qos import KubeQos, QosClass

from koord_descheduler.domain.view.pods import PodView

_BANDS: Final = {PriorityBand.FREE: 0, PriorityBand.BATCH: 1, PriorityBand.MID: 2, PriorityBand.PROD: 3}
_KUBE_QOS: Final[dict[str, int]] = {KubeQos.BEST_EFFORT: 0, KubeQos.BURSTABLE: 1, KubeQos.GUARANTEED: 2}
_QOS: Final = {QosClass.BE: 0, QosClass.LS: 1, QosClass.LSR: 2, QosClass.LSE: 3, QosClass.SYSTEM: 3}


def give_up_order(pods: Iterable[PodView], extra: Callable[[PodView], Any] | None = None) -> list[PodView]:
    """Pods in the order in which they are given up: the first one leaves first (descheduler spec, 1.5).

    The keys in turn, lower first: priority class, priority value, QoS class of Kubernetes, QoS class, deletion cost,
    eviction cost, `extra` such as the usage; the younger pod first. Equal pods keep their order.
    """
    if extra is None:
        return sorted(pods, key=lambda pod: (*_rank(pod), -pod.created))
    return sorted(pods, key=lambda pod: (*_rank(pod), extra(pod), -pod.created))


def _rank(pod: PodView) -> tuple[int, int, int, int, int, int]:
    return (
        _BANDS[pod.band],
        pod.priority or 0,
        _KUBE_QOS.get(pod.kube_qos, 0),
        _QOS[pod.qos],
        pod.deletion_cost,
        pod.eviction_cost,
    )


def upstream_order(pods: Iterable[PodView]) -> list[PodView]:
    """Pods from low to high priority (descheduler spec, 1.6).

    The keys in turn: pods without priority first, then by its value; QoS class of Kubernetes; pods that do not prefer
    to stay first. Equal pods keep their order.
    """
    return sorted(pods, key=_upstream_rank)


def _upstream_rank(pod: PodView) -> tuple[bool, int, int, bool]:
    priority = pod.priority
    return (
        priority is not None,
        priority or 0,
        _KUBE_QOS.get(pod.kube_qos, 0),
        keys.PREFER_NO_EVICTION in pod.annotations,
    )


BLOCK: Final = 500
"""Entries of a block after it was split; it is split when it has twice as many."""
Key = tuple[str, str, str]
_Entry = tuple[str, str, str, PodView]
"""Namespace, name, uid, pod. No two entries have the same uid, so pods are never compared.

A key is smaller than its entry, which is longer, and larger than all entries before.
"""


class PodOrder:
    """Pods in the order in which rounds visit them: by namespace, name and uid."""

    def __init__(self) -> None:
        self._blocks: list[list[_Entry]] = []
        self._ends: list[_Entry] = []
        """The last entry of each block."""
        self._pods: tuple[PodView, ...] | None = None

    def change(self, before: PodView | None, after: PodView | None) -> None:
        """None: the pod did not exist before, or does not exist any more."""
        if before is not None:
            self._remove(_key(before))
        if after is not None:
            self._add((*_key(after), after))
        self._pods = None

    def pods(self) -> tuple[PodView, ...]:
        if self._pods is None:
            self._pods = tuple([entry[3] for block in self._blocks for entry in block])
        return self._pods

    def has_namespace(self, name: str) -> bool:
        first = (name, "", "")
        index = bisect_left(self._ends, first)
        if index == len(self._ends):
            return False
        block = self._blocks[index]
        return block[bisect_left(block, first)][0] == name

    def _remove(self, key: Key) -> None:
        index = bisect_left(self._ends, key)
        block = self._blocks[index]
        del block[bisect_left(block, key)]
        if block:
            self._ends[index] = block[-1]
        else:
            del self._blocks[index], self._ends[index]

    def _add(self, entry: _Entry) -> None:
        if not self._blocks:
            self._blocks, self._ends = [[entry]], [entry]
            return
        index = min(bisect_left(self._ends, entry), len(self._ends) - 1)
        block = self._blocks[index]
        insort(block, entry)
        self._ends[index] = block[-1]
        if len(block) >= 2 * BLOCK:
            half = block[BLOCK:]
            del block[BLOCK:]
            self._blocks.insert(index + 1, half)
            self._ends[index] = block[-1]
            self._ends.insert(index + 1, half[-1])


def _key(pod: PodView) -> Key:
    return pod.namespace, pod.name, pod.uid
