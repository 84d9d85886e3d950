"""The profiles of one scheduler process over the facts that they share. source    scheduler-core spec, 1 and 3"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from koordcore.events.agents.observation import NodeUsageReported
from koordcore.events.envelope import Event, StoredEvent
from koordcore.protocol.objects import Pod
from koordcore.values.invalid import InvalidInput

from koord_scheduler.domain.columns.node_columns import Rows
from koord_scheduler.domain.config.gates import SchedulerGates
from koord_scheduler.domain.evaluate.engine import Engine, ScoredAs
from koord_scheduler.domain.evaluate.optimisations import ALL_ON, Optimisations
from koord_scheduler.domain.framework.cycle_points import NextPodPlugin
from koord_scheduler.domain.framework.outcomes import Allow, Candidates, Failure, Rejection, Wait
from koord_scheduler.domain.framework.plugin import Plugin
from koord_scheduler.domain.framework.profile import Profile
from koord_scheduler.domain.plugins.resources.load_aware_scheduling import LoadAwareScheduling
from koord_scheduler.domain.pods.equivalence_classes import Subject, scheduler_name_of
from koord_scheduler.domain.pods.record import PodRecord
from koord_scheduler.domain.runtime.cluster import Cluster

if TYPE_CHECKING:
    from koord_scheduler.domain.runtime.timed import Stopwatch

ALLOWED = Allow()


class Framework:
    """One profile: its plugins at every extension point."""

    def __init__(self, cluster: Cluster, profile: Profile, optimisations: Optimisations = ALL_ON) -> None:
        self.profile = profile
        self.engine = Engine(cluster.nodes, profile, optimisations)
        self._templates = cluster.pod_classes

    def pre_enqueue(self, pod: PodRecord) -> str | None:
        """Why the pod may not be attempted now; None: it may. source    scheduler-core spec, 2 (PreEnqueue)"""
        for plugin in self.profile.pre_enqueues:
            refusal = plugin.pre_enqueue(pod)
            if refusal is not None:
                return refusal
        return None

    def before_pre_filter(self, pod: PodRecord, now: float) -> PodRecord | Rejection:
        """The pod as this cycle is to see it: the same record when nobody says otherwise."""
        seen = pod
        for plugin in self.profile.before_pre_filters:
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
        """The first refusal by those who hear what all PreFilters have said."""
        assert pod.pod is not None, f"pod {pod.uid} has no spec"
        for plugin in self.profile.after_pre_filters:
            answer = plugin.after_pre_filter(pod.pod, found)
            if answer is not None:
                return answer
        return None

    def before_score(self, pod: PodRecord, rows: Rows) -> Rejection | ScoredAs:
        """As what which of the feasible rows are scored."""
        assert pod.pod is not None, f"pod {pod.uid} has no spec"
        assert pod.subject is not None, f"pod {pod.uid} has no spec that can be read"
        seen, subject, left_out = pod.pod, pod.subject, dict[str, int]()
        for plugin in self.profile.before_scores:
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
        """The pod with what it is to ask for on the node; None: what it asks for as it is."""
        assert pod.pod is not None, f"pod {pod.uid} has no spec"
        resized = pod.pod
        for plugin in self.profile.resizers:
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
        """What a pod that stands for another is to the plugins; see `PodClasses.as_is`."""
        return self._templates.as_is(pod, self.profile.scheduler_name)

    def pre_filter(self, pod: PodRecord, now: float) -> Rejection | list[tuple[str, Candidates]]:
        """The first refusal, or all restrictions with the plugins that made them."""
        candidates: list[tuple[str, Candidates]] = []
        for plugin in self.profile.pre_filters:
            found = plugin.pre_filter(pod, now)
            if isinstance(found, Rejection):
                return found
            if found is not None:
                candidates.append((plugin.name, found))
        return candidates

    def reserve(self, pod: PodRecord, node: str) -> None:
        """The pod is assumed on the node."""
        for plugin in self.profile.reserves:
            plugin.reserve(pod, node)

    def unreserve(self, pod: PodRecord, node: str, *, said_by: str = "") -> list[str]:
        """It is not, after all: the plugins in reverse order, but the one that said so and has counted it already.

        returns    uids of waiting pods that lose their nodes with it
        """
        rejected: list[str] = []
        for plugin in reversed(self.profile.reserves):
            if plugin.name != said_by:
                rejected += plugin.unreserve(pod, node)
        return rejected

    def permit(self, pod: PodRecord, node: str) -> Rejection | Wait | Allow:
        """Whether the pod may go to its node: any refusal, else the shortest wait, else the last consent."""
        wait: Wait | None = None
        allowed = ALLOWED
        for plugin in self.profile.permits:
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
        """Annotations to be written on the pod when it is bound."""
        written: dict[str, str] = {}
        for plugin in self.profile.pre_binds:
            written.update(plugin.pre_bind(pod, node))
        return written

    def post_bind(self, pod: PodRecord, node: str) -> list[str]:
        """The log has the placement; returns the uids of pods worth an attempt because of it."""
        return [uid for plugin in self.profile.reserves for uid in plugin.post_bind(pod, node)]

    def is_dealt_with(self, pod: PodRecord, message: str) -> bool:
        """Whether a plugin has dealt with the failed attempt, so that its user is not to be told."""
        return any(plugin.before_failure(pod, message) for plugin in self.profile.before_failures)

    def after_failure(self, pod: PodRecord, message: str) -> None:
        """The failed attempt is handled."""
        for plugin in self.profile.after_failures:
            plugin.after_failure(pod, message)

    def after_post_filter(self, pod: PodRecord, message: str) -> Failure:
        """The pod found no node: what that means for others."""
        failures = [plugin.after_post_filter(pod, message) for plugin in self.profile.after_post_filters]
        return next((failure for failure in failures if failure.message), failures[0] if failures else Failure())


class Frameworks:
    """All profiles of the process by scheduler name.

    aliases        further names, whose pods the first profile schedules
    gates          the feature gates
    folding        plugins with a state of their own, by `<scheduler name>/<plugin>`
    controllers    plugins that do something from time to time, likewise
    folded_kinds   aggregate kinds that these fold
    packages       package -> plugin, of those that users have installed
    next_pod       the plugin that picks the next pod past the queue; None: there is none
    watch          measures the present attempt; None: nobody does
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
        self.next_pod: NextPodPlugin | None = next((each.next_pod for each in profiles if each.next_pod), None)
        self.folding = {_key(profile, plugin): plugin for profile in profiles for plugin in profile.folding}
        self.controllers = {_key(profile, plugin): plugin for profile in profiles for plugin in profile.controllers}
        self.folded_kinds = frozenset(kind for plugin in self.folding.values() for kind in plugin.kinds)
        self.watch: Stopwatch | None = None
        self._loads = [plugin for plugin in cluster.node_followers if isinstance(plugin, LoadAwareScheduling)]

    def of(self, pod: Pod) -> Framework | None:
        """The framework of a pod's scheduler name; None: the pod is not ours."""
        return self._by_name.get(scheduler_name_of(pod))

    @staticmethod
    def framework_of(pod: PodRecord) -> Framework:
        """Return the framework of a pod that is ours and has a spec."""
        framework = pod.framework
        assert isinstance(framework, Framework), f"pod {pod.uid} is not ours, or has no spec"
        return framework

    def all(self) -> list[Framework]:
        """The frameworks of all profiles, each once."""
        return list(dict.fromkeys(self._by_name.values()))

    def engines(self) -> list[Engine]:
        """The engines of all profiles, each once."""
        return [framework.engine for framework in self.all()]

    def engine_of(self, subject: Subject) -> Engine:
        """The engine of the profile for which the subject was read. Raises KeyError when it is not ours."""
        return self._by_name[subject.profile].engine

    def fold(self, event: Event, stored: StoredEvent) -> bool:
        """Plugins with a state of their own take note of an event; returns whether it may help pods that wait."""
        answers = [plugin.apply(event, stored) for plugin in self.folding.values() if stored.ref.kind in plugin.kinds]
        return any(answers)

    def reported(self, node: str, report: NodeUsageReported) -> None:
        """A node's agent has reported."""
        for load in self._loads:
            load.reported(node, report)

    def load_may_refuse(self) -> bool:
        """Whether a report can make a node feasible that was not: only where thresholds are set."""
        return any(load.load.has_limits for load in self._loads)

    def advance(self, now: float) -> None:
        """It is `now`, in unix seconds: reports may have expired."""
        for load in self._loads:
            load.advance(now)


def unreadable(plugin: Plugin, error: InvalidInput) -> Rejection:
    """What a plugin showed asks for what is no quantity: the attempt fails, and with it nothing else."""
    return Rejection(plugin=plugin.name, message=f"plugin {plugin.name} shows what cannot be read: {error.sentence()}")


def _key(profile: Profile, plugin: Plugin) -> str:
    return f"{profile.scheduler_name}/{plugin.name}"
