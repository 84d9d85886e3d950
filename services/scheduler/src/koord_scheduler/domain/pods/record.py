"""The record of one pod: facts of the log and the API, and our own decisions."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from koordcore.events.pod import UnhealthyDevice
from koordcore.protocol.objects import Pod
from koordcore.values.allocation import NOTHING, Allocation

from koord_scheduler.domain.pods.equivalence_classes import PodSort, Subject
from koord_scheduler.domain.pods.info import PodInfo

_FINISHED: Final = ("Succeeded", "Failed")


class Phase(Enum):
    """State of a pod in the scheduler: waiting, assumed, placed, being released, bound by others, or not ours."""

    OTHERS = auto()
    """Not ours to place: it belongs to another scheduler, is finished, or is invalid."""
    QUEUED = auto()
    """In the queue."""
    ASSUMED = auto()
    """We chose a node, and the log has not confirmed it."""
    PLACED = auto()
    """The log states that it has a node."""
    RELEASING = auto()
    """Its release is on its way to the log."""
    BOUND = auto()
    """The API states that it has a node, and our log has no placement of it."""


@dataclass(slots=True, kw_only=True, eq=False)
class PodRecord:
    """The scheduler's record of one pod: its object, its facts in the log, and the scheduler's own decisions.

    Attributes:
        pod: Its object; None if the API deleted it or never reported it, so that only its placement is known.
        subject: Its subject; None without `pod`, or if its requests are invalid.
        sort: See `PodSort`; None if `subject` is None.
        framework: Its profile (`Frameworks.framework_of`); None without a spec, or if it belongs to another scheduler.
        trigger: Id of the event that queued it last: the cause of its next placement.
        spec_event: Id of the last event of `podspec.<uid>`.
        submitted_at: RFC 3339 time of its submission.
        traceparent: Trace of its submission.
        seq: Position in the log of the last known event of `pod.<uid>`, which the next append expects; 0 if there is
            none.
        node: Node on which the log has placed it; "" for none.
        bound_node: Node on which it runs according to the API; "" for none.
        work_node: Node in the append about the pod that is in progress (phase ASSUMED or RELEASING); "" for none.
        refolds: Number of consecutive appends about the pod that the log refused.
        bind_failed: Position of the placement that the API server could not carry out; 0 for none.
        bind_failures: Number of its placements that the API server could not carry out.
        unhealthy: Its devices that are unhealthy by the last event about them.
        unstorable: Unhealthy devices whose event is larger than the log accepts; None if the log refused none.
        known_since: Unix seconds at which the scheduler first saw its object.
        placed_at: Unix seconds of its last placement, assumed or not; 0.0 for none.
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
    bind_failures: int = 0
    unhealthy: tuple[UnhealthyDevice, ...] = ()
    unstorable: tuple[UnhealthyDevice, ...] | None = None
    known_since: float = 0.0
    placed_at: float = 0.0

    @property
    def priority(self) -> int:
        """Return the priority of the pod, 0 if its object is unknown."""
        return self.pod.spec.priority or 0 if self.pod is not None else 0

    def pod_info(self, allocation: Allocation = NOTHING) -> PodInfo:
        """Return the pod as it counts on a node with its own requests and this allocation.

        Its class and kind must be known.
        """
        assert self.subject is not None, f"pod {self.uid} has no spec that can be read"
        return PodInfo(
            self.uid,
            self.subject.pod_class.demand,
            self.subject.pod_class,
            self.subject.kind,
            self.pod,
            self.priority,
            self.placed_at or self.known_since,
            allocation,
        )


def is_finished(pod: Pod) -> bool:
    """Return whether the pod has succeeded or failed."""
    return pod.status.phase in _FINISHED


def is_alive(pod: Pod) -> bool:
    """Return whether the pod is neither finished nor being deleted."""
    return pod.metadata.deletion_timestamp is None and not is_finished(pod)
