"""Measured durations of plugin calls, for the scheduler's metrics.

Source: scheduler-core spec, 15 (plugin_execution_duration_seconds, framework_extension_point_duration_seconds).
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum

from koord_scheduler.domain.framework.outcomes import Rejection, Wait


class Status(StrEnum):
    """The result of a plugin call in kube-scheduler's terms: the value of the metrics' label `status`."""

    SUCCESS = "Success"
    UNSCHEDULABLE = "Unschedulable"
    WAIT = "Wait"


@dataclass(frozen=True, slots=True)
class Timing:
    """The duration of one call to a plugin."""

    profile: str  # Scheduler name of the profile
    point: str  # Value of the metrics' label `extension_point`
    plugin: str
    status: Status  # Result of the call
    seconds: float  # Duration in seconds


@dataclass(slots=True)
class Stopwatch:
    """Collects the durations of plugin calls during one attempt, for the metrics."""

    clock: Callable[[], float]  # Returns monotonic seconds
    timings: list[Timing] = field(default_factory=list[Timing])  # The measured calls
    # One duration in seconds for each pod that a NextPod plugin chose: how long it took to take the pod out of the
    # queue before its turn.
    next_pod_seconds: list[float] = field(default_factory=list[float])

    def since(self, began: float, profile: str, point: str, plugin: str, answer: object = None) -> None:
        """Append the duration of a call that has just ended to `timings`.

        Args:
            began: When the call began, in seconds of `clock`.
            point: Value of the metrics' label `extension_point`.
            answer: What the call returned. `Rejection` gives the status UNSCHEDULABLE, `Wait` gives WAIT, all else
                SUCCESS.
        """
        status = Status.SUCCESS
        if isinstance(answer, Rejection):
            status = Status.UNSCHEDULABLE
        elif isinstance(answer, Wait):
            status = Status.WAIT
        self.timings.append(Timing(profile, point, plugin, status, self.clock() - began))
