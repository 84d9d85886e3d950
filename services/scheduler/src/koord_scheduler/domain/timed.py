"""The plugins of a profile with the time that each call takes, for the few attempts that are measured.

An attempt that is not measured meets the plugins themselves and costs nothing more. Filters and scores are no calls per
plugin (they are columns over nodes), so they have no time of their own.

source    scheduler-core spec, 15 (plugin_execution_duration_seconds, framework_extension_point_duration_seconds)
"""

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import StrEnum

from koord_scheduler.domain.frameworks import Frameworks
from koord_scheduler.domain.plugins.interface import (
    Allow,
    Candidates,
    PermitPlugin,
    PreFilterPlugin,
    Rejection,
    ReservePlugin,
    Wait,
)
from koord_scheduler.domain.pods import PodRecord
from koord_scheduler.domain.profile import Profile


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


@contextmanager
def measured(frameworks: Frameworks, watch: Stopwatch) -> Generator[None]:
    """Meanwhile every profile's plugins are measured."""
    plain = [(framework, framework.profile) for framework in frameworks.all()]
    try:
        for framework, profile in plain:
            framework.profile = _timed(profile, watch)
        frameworks.watch = watch
        yield
    finally:
        frameworks.watch = None
        for framework, profile in plain:
            framework.profile = profile


def _timed(profile: Profile, watch: Stopwatch) -> Profile:
    name = profile.scheduler_name
    return replace(
        profile,
        pre_filters=tuple(_PreFilter(plugin, watch, name) for plugin in profile.pre_filters),
        reserves=tuple(_Reserve(plugin, watch, name) for plugin in profile.reserves),
        permits=tuple(_Permit(plugin, watch, name) for plugin in profile.permits),
    )


class _PreFilter:
    def __init__(self, plugin: PreFilterPlugin, watch: Stopwatch, profile: str) -> None:
        self.name = plugin.name
        self._plugin, self._watch, self._profile = plugin, watch, profile

    def pre_filter(self, pod: PodRecord, now: float) -> Rejection | Candidates | None:
        began = self._watch.clock()
        answer = self._plugin.pre_filter(pod, now)
        self._watch.since(began, self._profile, "PreFilter", self.name, answer)
        return answer


class _Reserve:
    def __init__(self, plugin: ReservePlugin, watch: Stopwatch, profile: str) -> None:
        self.name = plugin.name
        self._plugin, self._watch, self._profile = plugin, watch, profile

    def reserve(self, pod: PodRecord, node: str) -> None:
        began = self._watch.clock()
        self._plugin.reserve(pod, node)
        self._watch.since(began, self._profile, "Reserve", self.name)

    def unreserve(self, pod: PodRecord, node: str) -> Sequence[str]:
        began = self._watch.clock()
        rejected = self._plugin.unreserve(pod, node)
        self._watch.since(began, self._profile, "Unreserve", self.name)
        return rejected

    def post_bind(self, pod: PodRecord, node: str) -> Sequence[str]:
        began = self._watch.clock()
        activated = self._plugin.post_bind(pod, node)
        self._watch.since(began, self._profile, "PostBind", self.name)
        return activated


class _Permit:
    def __init__(self, plugin: PermitPlugin, watch: Stopwatch, profile: str) -> None:
        self.name = plugin.name
        self._plugin, self._watch, self._profile = plugin, watch, profile

    def permit(self, pod: PodRecord, node: str) -> Rejection | Wait | Allow:
        began = self._watch.clock()
        answer = self._plugin.permit(pod, node)
        self._watch.since(began, self._profile, "Permit", self.name, answer)
        return answer
