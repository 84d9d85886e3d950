"""A pod in the scheduling queue, and the states that it goes through."""

from dataclasses import dataclass
from enum import IntEnum, StrEnum, auto
from typing import Final, NamedTuple

from koord_scheduler.domain.pods.equivalence_classes import Subject
from koord_scheduler.domain.queue.unschedulable import Rank


class Block(NamedTuple):
    """Why a group of pods waits: the plugin that rejected them before any node, and the key that they share."""

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
"""The states in which a pod may be attempted out of turn."""


@dataclass(slots=True, kw_only=True, eq=False)
class QueuedPod:
    """A pod that is not placed yet.

    Attributes:
        attempts: Number of scheduling attempts.
        ticket: Number of its last enqueueing, for the order.
        ready_at: End of its back-off in seconds of the run's clock.
        since: When it began to wait in its present state, in seconds of the run's clock.
        trigger: Id of the event that makes it worth an attempt: its submission, or an event that may help.
        woken: Whether an event has woken it and its attempt is not over.
        block: Why a plugin rejected it before any node. None: nodes refused it, or it was not attempted yet.
        gated_by: Why PreEnqueue keeps it out of the queue; "" if it does not.
        refused_by: Plugins that refused nodes in its last attempt.
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
        """Return the sort key among queued pods."""
        return (-self.priority, self.ticket, self.uid)

    def is_same(self, subject: Subject, priority: int) -> bool:
        """Return whether the subject and the priority of a changed pod are as before, so that it keeps its place."""
        return (self.subject, self.priority) == (subject, priority)
