"""A pod in the scheduling queue, and the states that it goes through."""

from dataclasses import dataclass
from enum import IntEnum, StrEnum, auto
from typing import Final, NamedTuple

from koord_scheduler.domain.pods.equivalence_classes import Subject
from koord_scheduler.domain.queue.unschedulable import Rank


class Block(NamedTuple):
    """The plugin that refused a group of pods before any node, and the key that they share."""

    plugin: str
    key: str


class Came(StrEnum):
    """Reason of the last change of state; values of the metric `queue_incoming_pods_total`."""

    ADDED = "PodAdd"
    UPDATED = "PodUpdate"
    FAILED = "ScheduleAttemptFailure"
    BACKED_OFF = "BackoffComplete"
    HELPED = "ClusterEvent"
    TIMED_OUT = "UnschedulableTimeout"
    ACTIVATED = "ForceActivate"


class QueueState(IntEnum):
    """State of a pod in the queue."""

    ACTIVE = auto()
    BACKOFF = auto()
    UNSCHEDULABLE = auto()
    GATED = auto()
    IN_FLIGHT = auto()


MAY_BE_TAKEN: Final = (QueueState.ACTIVE, QueueState.BACKOFF, QueueState.UNSCHEDULABLE)
"""Where a pod waits that may be attempted when it is said to be its turn."""


@dataclass(slots=True, kw_only=True, eq=False)
class QueuedPod:
    """A pod that is not placed yet.

    Attributes:
        attempts: Scheduling attempts begun.
        ticket: Order of the last enqueueing.
        ready_at: End of its backoff.
        since: When it began to wait in its present place.
        trigger: Id of the event that made it worth an attempt: its submission, or what helped since.
        block: Refused before any node; None: nodes refused it, or nobody has yet.
        gated_by: What PreEnqueue said, "" when it may be attempted.
        refused_by: Plugins that refused it in its last attempt.
    """

    uid: str
    subject: Subject
    priority: int
    trigger: str
    state: QueueState = QueueState.ACTIVE
    attempts: int = 0
    ticket: int = 0
    ready_at: float = 0.0
    since: float = 0.0
    woken: bool = False
    block: Block | None = None
    gated_by: str = ""
    refused_by: tuple[str, ...] = ()

    @property
    def rank(self) -> Rank:
        """Its order among others."""
        return (-self.priority, self.ticket, self.uid)

    def is_same(self, subject: Subject, priority: int) -> bool:
        """Return whether a changed pod is for the queue what it was: then it keeps its place."""
        return (self.subject, self.priority) == (subject, priority)
