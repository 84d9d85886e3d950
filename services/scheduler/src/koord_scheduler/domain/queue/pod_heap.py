"""The pods of the active queue or of the back-off queue, in the order in which they leave it."""

import heapq
from collections.abc import Mapping
from typing import Final

from koord_scheduler.domain.queue.queued_pod import QueuedPod, QueueState

_WORTH_IT: Final = 64


class PodHeap:
    """The pods in the state ACTIVE ordered by rank, or those in the state BACKOFF ordered by the end of their back-off.

    If a pod leaves the state without `pop`, its entry is outdated. `first` drops outdated entries. Where this instance
    does not lead, nobody calls it. So if most entries are outdated, `push` makes the heap again from the pods. The cost
    of a call is the same on average.

    Args:
        state: The state, ACTIVE or BACKOFF.
        pods: Uid -> entry of each pod in the queue, whatever its state. The heap reads it at each call.
    """

    def __init__(self, state: QueueState, pods: Mapping[str, QueuedPod]) -> None:
        self._state = state
        self._pods = pods
        self._heap: list[tuple[float, int, str]] = []

    def __len__(self) -> int:
        """Return the number of entries, with the outdated ones."""
        return len(self._heap)

    def push(self, pod: QueuedPod) -> None:
        """Add a pod. It is in the state of the heap, and its priority, ticket and back-off do not change there."""
        if len(self._heap) < _WORTH_IT + 2 * len(self._pods):
            heapq.heappush(self._heap, self._key(pod))
        else:
            self._heap = [self._key(each) for each in self._pods.values() if each.state is self._state]
            heapq.heapify(self._heap)

    def first(self) -> QueuedPod | None:
        """Return the first pod, or None if no pod is in the state."""
        while self._heap:
            key = self._heap[0]
            pod = self._pods.get(key[2])
            if pod is not None and pod.state is self._state and self._key(pod) == key:
                return pod
            heapq.heappop(self._heap)
        return None

    def pop(self) -> QueuedPod | None:
        """Remove and return the first pod, or return None if no pod is in the state."""
        pod = self.first()
        if pod is not None:
            heapq.heappop(self._heap)
        return pod

    def _key(self, pod: QueuedPod) -> tuple[float, int, str]:
        before = pod.ready_at if self._state is QueueState.BACKOFF else float(-pod.priority)
        return (before, pod.ticket, pod.uid)
