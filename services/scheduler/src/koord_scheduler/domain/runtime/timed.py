"""The plugins of a profile with the time that each call takes, for the few attempts that are measured.

An attempt that is not measured meets the plugins themselves and costs nothing more. Filters and scores are no calls per
plugin (they are columns over nodes), so they have no time of their own.

source    scheduler-core spec, 15 (plugin_execution_duration_seconds, framework_extension_point_duration_seconds)
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Generic, TypeVar

from koordcore.protocol.objects import Pod

from koord_scheduler.domain.columns.node_columns import NodeColumns, Rows
from koord_scheduler.domain.framework.cycle_points import (
    AfterPostFilterPlugin,
    PermitPlugin,
    PreFilterPlugin,
    ReservePlugin,
)
from koord_scheduler.domain.framework.lifecycle_hooks import PreBindPlugin
from koord_scheduler.domain.framework.outcomes import Allow, Candidates, Failure, Rejection, Wait
from koord_scheduler.domain.framework.plugin import Plugin
from koord_scheduler.domain.framework.profile import Profile
from koord_scheduler.domain.framework.transforming import (
    AfterPreFilterPlugin,
    BeforeFilterPlugin,
    BeforePreFilterPlugin,
    BeforeScorePlugin,
    ResizePodPlugin,
    Scored,
    Views,
)
from koord_scheduler.domain.pods.record import PodRecord
from koord_scheduler.domain.runtime.frameworks import Frameworks

P = TypeVar("P", bound=Plugin)
T = TypeVar("T")


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
        before_pre_filters=tuple(_BeforePreFilter(plugin, watch, name) for plugin in profile.before_pre_filters),
        pre_filters=tuple(_PreFilter(plugin, watch, name) for plugin in profile.pre_filters),
        after_pre_filters=tuple(_AfterPreFilter(plugin, watch, name) for plugin in profile.after_pre_filters),
        before_filters=tuple(_BeforeFilter(plugin, watch, name) for plugin in profile.before_filters),
        after_post_filters=tuple(_AfterPostFilter(plugin, watch, name) for plugin in profile.after_post_filters),
        before_scores=tuple(_BeforeScore(plugin, watch, name) for plugin in profile.before_scores),
        resizers=tuple(_ResizePod(plugin, watch, name) for plugin in profile.resizers),
        reserves=tuple(_Reserve(plugin, watch, name) for plugin in profile.reserves),
        permits=tuple(_Permit(plugin, watch, name) for plugin in profile.permits),
        pre_binds=tuple(_PreBind(plugin, watch, name) for plugin in profile.pre_binds),
    )


class _Timed(Generic[P]):
    def __init__(self, plugin: P, watch: Stopwatch, profile: str) -> None:
        self.name = plugin.name
        self._plugin, self._watch, self._profile = plugin, watch, profile

    def _measure(self, point: str, call: Callable[[P], T]) -> T:
        began = self._watch.clock()
        answer = call(self._plugin)
        self._watch.since(began, self._profile, point, self.name, answer)
        return answer


class _BeforePreFilter(_Timed[BeforePreFilterPlugin]):
    def before_pre_filter(self, pod: Pod, now: float) -> Pod | Rejection | None:
        return self._measure("BeforePreFilter", lambda plugin: plugin.before_pre_filter(pod, now))


class _PreFilter(_Timed[PreFilterPlugin]):
    def pre_filter(self, pod: PodRecord, now: float) -> Rejection | Candidates | None:
        return self._measure("PreFilter", lambda plugin: plugin.pre_filter(pod, now))


class _AfterPreFilter(_Timed[AfterPreFilterPlugin]):
    def after_pre_filter(self, pod: Pod, found: Sequence[tuple[str, Candidates]]) -> Rejection | None:
        return self._measure("AfterPreFilter", lambda plugin: plugin.after_pre_filter(pod, found))


class _BeforeFilter(_Timed[BeforeFilterPlugin]):
    def before_filter(self, pod: Pod, nodes: NodeColumns, rows: Rows) -> Views | Rejection | None:
        return self._measure("BeforeFilter", lambda plugin: plugin.before_filter(pod, nodes, rows))


class _AfterPostFilter(_Timed[AfterPostFilterPlugin]):
    def after_post_filter(self, pod: PodRecord, message: str) -> Failure:
        return self._measure("AfterPostFilter", lambda plugin: plugin.after_post_filter(pod, message))


class _BeforeScore(_Timed[BeforeScorePlugin]):
    def before_score(self, pod: Pod, nodes: NodeColumns, rows: Rows) -> Scored | Rejection | None:
        return self._measure("BeforeScore", lambda plugin: plugin.before_score(pod, nodes, rows))


class _ResizePod(_Timed[ResizePodPlugin]):
    def resize_pod(self, pod: Pod, node: str) -> Pod | Rejection | None:
        return self._measure("ResizePod", lambda plugin: plugin.resize_pod(pod, node))


class _Reserve(_Timed[ReservePlugin]):
    def reserve(self, pod: PodRecord, node: str) -> None:
        self._measure("Reserve", lambda plugin: plugin.reserve(pod, node))

    def unreserve(self, pod: PodRecord, node: str) -> Sequence[str]:
        return self._measure("Unreserve", lambda plugin: plugin.unreserve(pod, node))

    def post_bind(self, pod: PodRecord, node: str) -> Sequence[str]:
        return self._measure("PostBind", lambda plugin: plugin.post_bind(pod, node))


class _Permit(_Timed[PermitPlugin]):
    def permit(self, pod: PodRecord, node: str) -> Rejection | Wait | Allow:
        return self._measure("Permit", lambda plugin: plugin.permit(pod, node))


class _PreBind(_Timed[PreBindPlugin]):
    def pre_bind(self, pod: PodRecord, node: str) -> Mapping[str, str]:
        return self._measure("PreBind", lambda plugin: plugin.pre_bind(pod, node))
