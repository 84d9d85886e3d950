"""The record of one pod: what the log, the API and our own decisions say."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from koordcore.protocol.objects import Pod

from koord_scheduler.domain.pods.equivalence_classes import PodSort, Subject
from koord_scheduler.domain.pods.info import PodInfo

_FINISHED: Final = ("Succeeded", "Failed")


class Phase(Enum):
    """Phase of a pod between submission and release."""

    OTHERS = auto()
    """Not ours to place: another scheduler's, finished, or unreadable."""
    QUEUED = auto()
    """In the queue."""
    ASSUMED = auto()
    """We chose a node; the log has not confirmed it."""
    PLACED = auto()
    """The log says that it has a node."""
    RELEASING = auto()
    """Its release is on the way to the log."""
    BOUND = auto()
    """The API says that it has a node, and our log does not know a placement."""


@dataclass(slots=True, kw_only=True, eq=False)
class PodRecord:
    """The record of one pod.

    Attributes:
        pod: None: the API has forgotten it (or never told us), only its placement is known.
        subject: None with pod None, or when its requests cannot be read.
        sort: As `subject`.
        framework: Handle of its profile (`SchedulerState.framework_of`); None: no spec, or another scheduler's.
        trigger: Id of the event that put it into the queue the last time: the cause of its next placement.
        spec_event: Id of the last event of `podspec.<uid>`.
        submitted_at: RFC 3339 text of its submission.
        traceparent: Trace of its submission.
        seq: Last sequence of `pod.<uid>` that is known to be in the log: the expectation of the next append.
        node: Where the log says it is placed, "" nowhere.
        bound_node: Where the API says it runs, "" nowhere.
        work_node: Node of the work about it that is under way (phase ASSUMED or RELEASING), else "".
        refolds: Refusals of our decisions about it in a row.
        bind_failed: Sequence of the placement that the API server would not carry out, 0 none.
        known_since: Unix seconds at which it became known.
        placed_at: Unix seconds of its last placement, assumed ones too; 0.0 none.
    """

    uid: str
    namespace: str = ""
    name: str = ""
    pod: Pod | None = None
    subject: Subject | None = None
    sort: PodSort | None = None
    framework: object | None = None
    phase: Phase = Phase.OTHERS
    trigger: str = ""
    spec_event: str = ""
    submitted_at: str = ""
    traceparent: str = ""
    tracestate: str = ""
    seq: int = 0
    node: str = ""
    bound_node: str = ""
    work_node: str = ""
    refolds: int = 0
    bind_failed: int = 0
    known_since: float = 0.0
    placed_at: float = 0.0

    @property
    def priority(self) -> int:
        """Of the pod, 0 when nothing is known of it."""
        return self.pod.spec.priority or 0 if self.pod is not None else 0

    def pod_info(self) -> PodInfo:
        """Return the pod as it counts on a node; its subject has to be known."""
        assert self.subject is not None, f"pod {self.uid} has no spec that can be read"
        return PodInfo(
            self.uid,
            self.subject.pod_class.demand,
            self.subject.pod_class,
            self.subject.kind,
            self.pod,
            self.priority,
            self.placed_at or self.known_since,
        )


def is_finished(pod: Pod) -> bool:
    """Return whether the pod has run to its end."""
    return pod.status.phase in _FINISHED


def is_alive(pod: Pod) -> bool:
    """Return whether the pod is neither finished nor being deleted."""
    return pod.metadata.deletion_timestamp is None and not is_finished(pod)
