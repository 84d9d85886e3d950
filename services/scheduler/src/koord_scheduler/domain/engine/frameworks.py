"""The frameworks of one scheduler process. Each asks the plugins of one profile; all share the facts of the cluster.

Source: scheduler-core spec, 1 and 3.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar

import numpy as np
from koordcore.events.envelope import Event, StoredEvent
from koordcore.events.observation import NodeUsageReported
from koordcore.protocol.objects import Pod
from koordcore.values.allocation import NOTHING, Allocation, combined
from koordcore.values.invalid import InvalidInput

from koord_scheduler.domain.cluster.equivalence_classes import Subject, scheduler_name_of
from koord_scheduler.domain.cluster.record import PodRecord
from koord_scheduler.domain.columns.node_columns import Rows
from koord_scheduler.domain.engine.decision import ALL_ON, Optimisations, ScoredAs
from koord_scheduler.domain.engine.engine import Engine
from koord_scheduler.domain.framework.cluster import Cluster
from koord_scheduler.domain.framework.extension_points import (
    AFTER_FAILURE,
    AFTER_POST_FILTER,
    AFTER_PRE_FILTER,
    BEFORE_FAILURE,
    BEFORE_FILTER,
    BEFORE_PRE_FILTER,
    BEFORE_SCORE,
    CLOCK,
    CONTROLLER,
    FIND_ONE_NODE,
    FOLD,
    NEXT_POD,
    OBSERVE,
    PERMIT,
    POST_BIND,
    PRE_BIND,
    PRE_ENQUEUE,
    PRE_FILTER,
    QUEUEING_HINTS,
    RESERVE,
    RESIZE_POD,
)
from koord_scheduler.domain.framework.fact_points import ClusterEvent, EventKind, FoldingPlugin
from koord_scheduler.domain.framework.gates import SchedulerGates
from koord_scheduler.domain.framework.outcomes import Allow, Candidates, Failure, Rejection, Wait
from koord_scheduler.domain.framework.plugin import ExtensionPoint, Plugin
from koord_scheduler.domain.framework.profile import PluginLists, Profile, Wrap
from koord_scheduler.domain.framework.stopwatch import Stopwatch

P = TypeVar("P", bound=Plugin)
ALLOWED = Allow()
_REFUSING: Final[tuple[ExtensionPoint[Any], ...]] = (
    BEFORE_PRE_FILTER,
    PRE_FILTER,
    AFTER_PRE_FILTER,
    FIND_ONE_NODE,
    BEFORE_FILTER,
    BEFORE_SCORE,
    RESERVE,
    PERMIT,
)
"""Extension points at which a plugin can reject the pod itself."""


class Framework:
    """One profile at work: it calls the profile's plugins at each extension point and combines their results."""

    def __init__(self, cluster: Cluster, profile: Profile, optimisations: Optimisations = ALL_ON) -> None:
        self.profile = profile  # The plugins with their order and weights
        self.engine = Engine(cluster.nodes, profile, optimisations)  # Filters and scores all nodes, with caches
        self._pod_classes = cluster.pod_classes
        # Name -> plugin, for plugins with queueing hints.
        self.hints = {plugin.name: plugin for plugin in profile.plugins.at(QUEUEING_HINTS)}
        refusing = (plugin for point in _REFUSING for plugin in profile.plugins.at(point))
        hints = (self.hints.get(plugin.name) for plugin in refusing)
        # Whether an event on a node may help pods that a plugin rejected before nodes were filtered.
        self.wakes_on_nodes = any(each is None or EventKind.NODE in each.wakes_on for each in hints)
        self._wrap: Wrap | None = None
        self._by_concerned: dict[int, PluginLists] = {}

    def plugins_for(self, pod: PodRecord) -> PluginLists:
        """Return the plugins that concern the pod, or all plugins if its class is unknown."""
        subject = pod.subject
        if subject is None:
            return self.profile.plugins
        concerned = subject.pod_class.concerned
        found = self._by_concerned.get(concerned)
        if found is None:
            plain = self.profile.concerning(concerned)
            found = self._by_concerned[concerned] = plain if self._wrap is None else plain.wrapped(self._wrap)
        return found

    def is_worth(self, plugin: str, event: ClusterEvent, pod: PodRecord) -> bool:
        """Return whether an event is a reason to attempt a waiting pod. The hint of the plugin that rejected it
        decides. If it has none, every event on nodes is a reason, and no other.
        """
        hints = self.hints.get(plugin)
        if hints is None:
            return event.kind is EventKind.NODE
        return event.kind in hints.wakes_on and hints.queueing_hint(event, pod)

    def wrap(self, wrap: Wrap | None) -> None:
        """Replace plugins at timed extension points by wrappers that measure their calls. None restores the plugins."""
        self._wrap = wrap
        self._by_concerned = {}

    def pre_enqueue(self, pod: PodRecord) -> str | None:
        """Why the pod may not be attempted now, or None if it may. Source: scheduler-core spec, 2 (PreEnqueue)."""
        for plugin in self.plugins_for(pod).at(PRE_ENQUEUE):
            refusal = plugin.pre_enqueue(pod)
            if refusal is not None:
                return refusal
        return None

    def before_pre_filter(self, pod: PodRecord, now: float) -> PodRecord | Rejection:
        """Return the pod as plugins see it in this cycle (the same record if none changes it), or a rejection."""
        seen = pod
        for plugin in self.plugins_for(pod).at(BEFORE_PRE_FILTER):
            assert seen.pod is not None, f"pod {pod.uid} has no spec"
            try:
                answer = plugin.before_pre_filter(seen.pod, now)
                if isinstance(answer, Rejection):
                    return answer
                if answer is not None:
                    seen = replace(seen, pod=answer, subject=self.subject_of(answer))
            except InvalidInput as error:
                return unreadable(plugin, error)
        return seen

    def after_pre_filter(self, pod: PodRecord, found: Sequence[tuple[str, Candidates]]) -> Rejection | None:
        """Return the first rejection of the AfterPreFilter plugins, or None to continue."""
        assert pod.pod is not None, f"pod {pod.uid} has no spec"
        for plugin in self.plugins_for(pod).at(AFTER_PRE_FILTER):
            answer = plugin.after_pre_filter(pod.pod, found)
            if answer is not None:
                return answer
        return None

    def before_score(self, pod: PodRecord, rows: Rows) -> Rejection | ScoredAs:
        """Return which of the feasible nodes at `rows` are scored, and for which copy of the pod, or a rejection."""
        assert pod.pod is not None, f"pod {pod.uid} has no spec"
        assert pod.subject is not None, f"pod {pod.uid} has no spec that can be read"
        seen, subject, left_out = pod.pod, pod.subject, dict[str, int]()
        for plugin in self.plugins_for(pod).at(BEFORE_SCORE):
            try:
                answer = plugin.before_score(seen, self.engine.nodes, rows)
                if isinstance(answer, Rejection):
                    return answer
                if answer is None:
                    continue
                if answer.pod is not None:
                    seen, subject = answer.pod, self.subject_of(answer.pod)
            except InvalidInput as error:
                return unreadable(plugin, error)
            kept = rows if answer.rows is None else np.intersect1d(rows, answer.rows)
            if len(kept) == 0:
                return Rejection(plugin=plugin.name, message="no feasible node is left to be scored")
            if len(kept) < len(rows):
                left_out[plugin.name] = len(rows) - len(kept)
            rows = kept
        return ScoredAs(subject, rows, left_out)

    def resized(self, pod: PodRecord, node: str) -> Pod | Rejection | None:
        """Return the pod with other resources for its node, None if no plugin changes them, or a rejection."""
        assert pod.pod is not None, f"pod {pod.uid} has no spec"
        resized = pod.pod
        for plugin in self.plugins_for(pod).at(RESIZE_POD):
            try:
                answer = plugin.resize_pod(resized, node)
                if isinstance(answer, Rejection):
                    return answer
                if answer is not None:
                    self.subject_of(answer)
                    resized = answer
            except InvalidInput as error:
                return unreadable(plugin, error)
        return None if resized is pod.pod else resized

    def subject_of(self, pod: Pod) -> Subject:
        """Return the subject of a copy that replaces a pod in one cycle. See `PodClasses.as_is`."""
        return self._pod_classes.as_is(pod, self.profile.scheduler_name)

    def pre_filter(self, pod: PodRecord, now: float) -> Rejection | list[tuple[str, Candidates]]:
        """Return the first rejection, or (plugin name, restriction) of each plugin that restricts the nodes."""
        candidates: list[tuple[str, Candidates]] = []
        for plugin in self.plugins_for(pod).at(PRE_FILTER):
            found = plugin.pre_filter(pod, now)
            if isinstance(found, Rejection):
                return found
            if found is not None:
                candidates.append((plugin.name, found))
        return candidates

    def reserve(self, pod: PodRecord, node: str) -> Allocation | Rejection:
        """Call `reserve` of all plugins. If one rejects the pod, undo those before it in reverse order."""
        contributions: list[Allocation] = []
        plugins = self.plugins_for(pod).at(RESERVE)
        for index, plugin in enumerate(plugins):
            answer = plugin.reserve(pod, node)
            if answer is NOTHING:
                continue
            if isinstance(answer, Rejection):
                undone = ((done.name, done.unreserve(pod, node)) for done in reversed(plugins[:index]))
                return replace(answer, lost=tuple((name, uids) for name, uids in undone if uids))
            contributions.append(answer)
        return combined(contributions) if contributions else NOTHING

    def unreserve(self, pod: PodRecord, node: str, *, caused_by: str = "") -> list[tuple[str, Sequence[str]]]:
        """Call `unreserve` of all plugins in reverse order, also of plugins that no longer concern the pod.
        `caused_by`: name of a plugin that has undone its own reservation already and is not called; "" for none.
        Returns (plugin, uids of pods at Permit that lose their nodes as well).
        """
        rejected: list[tuple[str, Sequence[str]]] = []
        for plugin in reversed(self.profile.plugins.at(RESERVE)):
            if plugin.name != caused_by:
                uids = plugin.unreserve(pod, node)
                if uids:
                    rejected.append((plugin.name, uids))
        return rejected

    def permit(self, pod: PodRecord, node: str) -> Rejection | Wait | Allow:
        """Return the first rejection of a Permit plugin, otherwise the shortest wait, otherwise the last permission."""
        wait: Wait | None = None
        allowed = ALLOWED
        for plugin in self.plugins_for(pod).at(PERMIT):
            answer = plugin.permit(pod, node)
            match answer:
                case Rejection():
                    return answer
                case Wait(seconds=seconds):
                    wait = answer if wait is None or seconds < wait.seconds else wait
                case Allow():
                    allowed = answer
        return allowed if wait is None else wait

    def pre_bind(self, pod: PodRecord, node: str) -> dict[str, str]:
        """Return annotation -> text to write on the pod when it is bound, from all PreBind plugins."""
        written: dict[str, str] = {}
        for plugin in self.plugins_for(pod).at(PRE_BIND):
            written.update(plugin.pre_bind(pod, node))
        return written

    def post_bind(self, pod: PodRecord, node: str) -> list[str]:
        """Return the uids of pods that shall be attempted because the log has stored the placement."""
        return [uid for plugin in self.plugins_for(pod).at(POST_BIND) for uid in plugin.post_bind(pod, node)]

    def is_dealt_with(self, pod: PodRecord, message: str) -> bool:
        """Return whether a plugin has handled the failed attempt, so that no explanation must be published."""
        return any(plugin.before_failure(pod, message) for plugin in self.plugins_for(pod).at(BEFORE_FAILURE))

    def after_failure(self, pod: PodRecord, message: str) -> None:
        for plugin in self.plugins_for(pod).at(AFTER_FAILURE):
            plugin.after_failure(pod, message)

    def after_post_filter(self, pod: PodRecord, message: str) -> Failure:
        """Call the AfterPostFilter plugins for a failed attempt. Return the consequences for other pods."""
        failures = [plugin.after_post_filter(pod, message) for plugin in self.plugins_for(pod).at(AFTER_POST_FILTER)]
        return next((failure for failure in failures if failure.message), failures[0] if failures else Failure())


class Frameworks:
    """All profiles of the scheduler process by scheduler name, and the plugins that act outside of cycles. `packages`:
    Python package -> plugin, for installed plugins.
    """

    def __init__(
        self,
        cluster: Cluster,
        profiles: Sequence[Profile],
        aliases: Iterable[str] = (),
        gates: SchedulerGates | None = None,
        optimisations: Optimisations = ALL_ON,
        packages: Mapping[str, str] | None = None,
    ) -> None:
        self.cluster = cluster
        self.packages = dict(packages or {})
        self.gates = gates or SchedulerGates()
        own = {profile.scheduler_name: Framework(cluster, profile, optimisations) for profile in profiles}
        self.first = next(iter(own.values()))
        self._by_name = {**dict.fromkeys(aliases, self.first), **own}
        cluster.schedulers = frozenset(self._by_name)
        # The plugin that chooses pods before the queue does; None if there is none.
        self.next_pod = next((found for each in profiles if (found := each.plugins.one_at(NEXT_POD)) is not None), None)
        self.folding = self._by_key(FOLD)  # `<scheduler name>/<plugin>` -> plugin with its own state
        self.controllers = self._by_key(CONTROLLER)  # `<scheduler name>/<plugin>` -> plugin with a controller
        self._folds: dict[str, list[FoldingPlugin]] = {}
        for plugin in self.folding.values():
            for kind in plugin.kinds:
                self._folds.setdefault(kind, []).append(plugin)
        self.folded_kinds = frozenset(self._folds)  # Kinds of aggregates that plugins fold
        self.clocks = list(self._by_key(CLOCK).values())  # Plugins whose state expires
        self.hinting = list(self._by_key(QUEUEING_HINTS).values())  # Plugins with queueing hints
        # Whether an event on a node may help pods that plugins rejected before nodes were filtered.
        self.wakes_on_nodes = any(framework.wakes_on_nodes for framework in own.values())
        self._observing = list(self._by_key(OBSERVE).values())
        self.watch: Stopwatch | None = None  # Measures the present attempt; None if it is not measured

    def _by_key(self, point: ExtensionPoint[P]) -> dict[str, P]:
        """`<scheduler name>/<plugin>` -> plugin for an extension point. A plugin that profiles share occurs once."""
        found: dict[str, P] = {}
        for framework in self.all():
            profile = framework.profile
            for plugin in profile.plugins.at(point):
                if not any(plugin is known for known in found.values()):
                    found[f"{profile.scheduler_name}/{plugin.name}"] = plugin
        return found

    def of(self, pod: Pod) -> Framework | None:
        """None if the pod belongs to another scheduler."""
        return self._by_name.get(scheduler_name_of(pod))

    @staticmethod
    def framework_of(pod: PodRecord) -> Framework:
        """Return the framework of a pod that belongs to this scheduler and has a spec."""
        framework = pod.framework
        assert isinstance(framework, Framework), f"pod {pod.uid} is not ours, or has no spec"
        return framework

    def all(self) -> list[Framework]:
        """Each once."""
        return list(dict.fromkeys(self._by_name.values()))

    def engines(self) -> list[Engine]:
        """Each once."""
        return [framework.engine for framework in self.all()]

    def profile_of(self, subject: Subject) -> Framework:
        """Raises KeyError if the subject is another scheduler's."""
        return self._by_name[subject.profile]

    def engine_of(self, subject: Subject) -> Engine:
        """Raises KeyError if the subject is another scheduler's."""
        return self._by_name[subject.profile].engine

    def fold(self, event: Event, stored: StoredEvent) -> bool:
        """Pass an event of the log to the plugins that fold its kind. Return whether it may make waiting pods
        schedulable.
        """
        answers = [plugin.apply(event, stored) for plugin in self._folds[stored.ref.kind]]
        return any(answers)

    def observe(self, node: str, report: NodeUsageReported) -> bool:
        """Pass a usage report to the Observe plugins. Return whether it may make waiting pods schedulable there."""
        answers = [plugin.observe(node, report) for plugin in self._observing]
        return any(answers)

    def advance(self, now: float) -> None:
        """Let plugins discard state that is too old at `now`, in Unix seconds of the service's `Clock`."""
        for plugin in self.clocks:
            plugin.advance(now)


def unreadable(plugin: Plugin, error: InvalidInput) -> Rejection:
    """Return the rejection for a plugin that returned an invalid quantity. Only the present attempt fails."""
    return Rejection(
        plugin=plugin.name, message=f"plugin {plugin.name} returned an invalid quantity: {error.sentence()}"
    )
