"""A pod in the scheduling queue, the states that it goes through, and heaps of such pods."""

import heapq
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum, StrEnum, auto
from typing import Final, NamedTuple

from koord_scheduler.domain.cluster.equivalence_classes import Subject
from koord_scheduler.domain.loop.queue.unschedulable import Rank


class Block(NamedTuple):
    """Why a plugin rejected a group of pods before the filters. The group waits for an event that changes this."""

    plugin: str
    key: str  # Text that the pods of the group share, from `Rejection.key`
    subject: Subject | None = None  # The subject that they share; None if their subjects may differ


class Came(StrEnum):
    """Reasons why a pod entered its queue state: the label `event` of the metric `queue_incoming_pods_total`."""

    ADDED = "PodAdd"
    UPDATED = "PodUpdate"
    FAILED = "ScheduleAttemptFailure"
    BACKED_OFF = "BackoffComplete"
    HELPED = "ClusterEvent"
    TIMED_OUT = "UnschedulableTimeout"
    ACTIVATED = "ForceActivate"


class QueueState(IntEnum):
    """The state of a pod in the queue: ACTIVE, BACKOFF, UNSCHEDULABLE, GATED or IN_FLIGHT. IN_FLIGHT: it is being
    attempted, or has a node and its placement is not in the log yet.
    """

    ACTIVE = auto()
    BACKOFF = auto()
    UNSCHEDULABLE = auto()
    GATED = auto()
    IN_FLIGHT = auto()


MAY_BE_TAKEN: Final = (QueueState.ACTIVE, QueueState.BACKOFF, QueueState.UNSCHEDULABLE)
"""The states in which a pod may be attempted out of turn."""


@dataclass(slots=True, kw_only=True, eq=False)
class QueuedPod:
    """The queue's entry of a pod that has no node."""

    uid: str
    subject: Subject  # Its subject, by which pods wait in groups
    priority: int
    trigger: str  # Id of the event because of which it is attempted: its submission, or an event that may help
    state: QueueState = QueueState.ACTIVE
    attempts: int = 0  # Number of scheduling attempts so far
    ticket: int = 0  # Number of its last enqueueing, which orders pods of equal priority
    ready_at: float = 0.0  # End of its back-off in Unix seconds of the service's `Clock`
    since: float = 0.0  # When its last attempt failed, in Unix seconds of the service's `Clock`
    woken: bool = False  # Whether an event has woken it and the attempt that follows is not over
    # Why a plugin rejected it before nodes were filtered. None if nodes refused it, or if it was not attempted yet.
    block: Block | None = None
    gated_by: str = ""  # Why a PreEnqueue plugin keeps the pod out of the queue; "" if none does
    refused_by: tuple[str, ...] = ()  # Names of the plugins that refused nodes in its last attempt

    @property
    def rank(self) -> Rank:
        """Return the sort key of the pod in the queue: higher priority first, then earlier enqueueing."""
        return (-self.priority, self.ticket, self.uid)

    def is_same(self, subject: Subject, priority: int) -> bool:
        """Return whether a changed pod still has the subject and the priority of this entry. Then its place in the
        queue stays.
        """
        return (self.subject, self.priority) == (subject, priority)


_WORTH_IT: Final = 64


class PodHeap:
    """The pods in the state ACTIVE ordered by rank, or those in the state BACKOFF ordered by the end of their back-off.
    If a pod leaves the state without `pop`, its entry is outdated. `first` drops outdated entries. Where this instance
    does not lead, nobody calls it. So if most entries are outdated, `push` makes the heap again from the pods. The cost
    of a call is the same on average. `state`: the state, ACTIVE or BACKOFF. `pods`: uid -> entry of each pod in the
    queue, whatever its state. The heap reads it at each call. `tried`: Whether the pods had an attempt. None: all pods.
    """

    def __init__(self, state: QueueState, pods: Mapping[str, QueuedPod], tried: bool | None = None) -> None:
        self._state = state
        self._pods = pods
        self._tried = tried
        self._heap: list[tuple[float, int, str]] = []

    def __len__(self) -> int:
        """Return the number of entries, with the outdated ones."""
        return len(self._heap)

    def push(self, pod: QueuedPod) -> None:
        """Add a pod. It is in the state of the heap, and its priority, ticket and back-off do not change there."""
        if len(self._heap) < _WORTH_IT + 2 * len(self._pods):
            heapq.heappush(self._heap, self._key(pod))
        else:
            self._heap = [self._key(each) for each in self._pods.values() if self._has(each)]
            heapq.heapify(self._heap)

    def first(self) -> QueuedPod | None:
        """None if no pod is in the state."""
        while self._heap:
            key = self._heap[0]
            pod = self._pods.get(key[2])
            if pod is not None and self._has(pod) and self._key(pod) == key:
                return pod
            heapq.heappop(self._heap)
        return None

    def pop(self) -> QueuedPod | None:
        """None if no pod is in the state."""
        pod = self.first()
        if pod is not None:
            heapq.heappop(self._heap)
        return pod

    def _has(self, pod: QueuedPod) -> bool:
        return pod.state is self._state and (self._tried is None or self._tried == (pod.attempts > 0))

    def _key(self, pod: QueuedPod) -> tuple[float, int, str]:
        before = pod.ready_at if self._state is QueueState.BACKOFF else float(-pod.priority)
        return (before, pod.ticket, pod.uid)
