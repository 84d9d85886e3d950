"""What calls of plugins took.

Source: scheduler-core spec, 15 (plugin_execution_duration_seconds, framework_extension_point_duration_seconds).
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum

from koord_scheduler.domain.framework.outcomes import Rejection, Wait


class Status(StrEnum):
    """How a call ended, in the words of the framework."""

    SUCCESS = "Success"
    UNSCHEDULABLE = "Unschedulable"
    WAIT = "Wait"


@dataclass(frozen=True, slots=True)
class Timing:
    """One call of one plugin. profile: its scheduler name."""

    profile: str
    point: str
    plugin: str
    status: Status
    seconds: float


@dataclass(slots=True)
class Stopwatch:
    """What calls took. clock: monotonic seconds; next_pod_seconds: of taking pods that are picked past the queue."""

    clock: Callable[[], float]
    timings: list[Timing] = field(default_factory=list[Timing])
    next_pod_seconds: list[float] = field(default_factory=list[float])

    def since(self, began: float, profile: str, point: str, plugin: str, answer: object = None) -> None:
        """A call that began then has ended with this answer."""
        status = Status.SUCCESS
        if isinstance(answer, Rejection):
            status = Status.UNSCHEDULABLE
        elif isinstance(answer, Wait):
            status = Status.WAIT
        self.timings.append(Timing(profile, point, plugin, status, self.clock() - began))
