"""Eviction path of a round: budgets, dry run, filter plugins, evict plugin.

Source:
    descheduler spec, 5
"""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from koordcore.events.descheduling import Inputs, Number

from koord_descheduler.domain.framework.plugin import (
    CountingPlugin,
    EvictPlugin,
    FilterPlugin,
    LimitingEvictPlugin,
    MovePlan,
    PlanEvictPlugin,
)
from koord_descheduler.domain.view.cluster import ClusterView
from koord_descheduler.domain.view.pods import PodView

INITIATOR: Final = "descheduler"
REASON: Final = "Descheduled"
LONGEST_MESSAGE: Final = 1024
EVICTED: Final = "eviction_under_way"
"""Code of the reason why a pod is refused that is being evicted, by this round or since an earlier one."""


class Result(StrEnum):
    """Result of a request for an eviction, with the text that the metric `descheduler_pods_evicted` uses.

    It succeeded, was a dry run, failed, would give the pod no node or the cluster no gain, got no answer of the
    scheduler, or would exceed a limit per node, per namespace or in total.
    """

    SUCCESS = "success"
    DRY_RUN = "dry_run"
    ERROR = "error"
    NO_PLACE = "no node for the pod"
    NOT_BETTER = "no better cluster after the move"
    UNPROVED = "no answer of the scheduler"
    NODE_LIMIT = "maximum number of pods per node reached"
    NAMESPACE_LIMIT = "maximum number of pods per namespace reached"
    TOTAL_LIMIT = "maximum number of pods in total reached"


LIMIT_NAMES: Final = {
    Result.NODE_LIMIT: "maxNoOfPodsToEvictPerNode",
    Result.NAMESPACE_LIMIT: "maxNoOfPodsToEvictPerNamespace",
    Result.TOTAL_LIMIT: "maxNoOfPodsToEvictTotal",
}
"""Result of a request that a limit of the round refused -> name of the limit in the configuration."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictionLimits:
    """Largest numbers of evictions in one round. None means no limit; 0 means that no pod is evicted."""

    per_node: int | None = None
    per_namespace: int | None = None
    total: int | None = None  # Limit of the whole round


@dataclass(slots=True)
class EvictionLimiter:
    """Counts the evictions of one round against the limits; all profiles share it (descheduler spec, 5.2)."""

    limits: EvictionLimits
    total: int = 0
    by_node: Counter[str] = field(default_factory=Counter[str])  # Node -> number of its evictions in this round
    # Namespace -> number of its evictions in this round.
    by_namespace: Counter[str] = field(default_factory=Counter[str])
    # Whether the total limit has refused an eviction. Then it refuses all further evictions of this round.
    is_exhausted: bool = False

    def reset(self) -> None:
        self.total = 0
        self.is_exhausted = False
        self.by_node.clear()
        self.by_namespace.clear()

    def refusal(self, node: str, namespace: str) -> Result | None:
        """The limit that one more eviction would exceed; None if no limit refuses it. Counts nothing.

        If the total limit refuses it, `is_exhausted` becomes True. `node`: "" if the pod has none.
        """
        limits = self.limits
        if node and _is_reached(self.by_node[node], limits.per_node):
            return Result.NODE_LIMIT
        if _is_reached(self.by_namespace[namespace], limits.per_namespace):
            return Result.NAMESPACE_LIMIT
        self.is_exhausted = _is_reached(self.total, limits.total)
        return Result.TOTAL_LIMIT if self.is_exhausted else None

    def number(self, result: Result, node: str, namespace: str) -> Number | None:
        """The evictions that count against the limit that gave a result; None if no limit gave it."""
        match result:
            case Result.NODE_LIMIT:
                return Number(value=self.by_node[node], limit=self.limits.per_node)
            case Result.NAMESPACE_LIMIT:
                return Number(value=self.by_namespace[namespace], limit=self.limits.per_namespace)
            case Result.TOTAL_LIMIT:
                return Number(value=self.total, limit=self.limits.total)
            case _:
                return None

    def count(self, node: str, namespace: str) -> None:
        """Evictions of a dry run count like those that are carried out. Pods without a node, "", count for no node."""
        self._add(node, namespace, 1)

    def uncount(self, node: str, namespace: str) -> None:
        self._add(node, namespace, -1)
        self.is_exhausted = False

    def _add(self, node: str, namespace: str, change: int) -> None:
        self.total += change
        self.by_namespace[namespace] += change
        if node:
            self.by_node[node] += change


def _is_reached(count: int, limit: int | None) -> bool:
    return limit is not None and count + 1 > limit


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    pod: PodView
    profile: str
    plugin: str
    reason: str
    evictor: str
    result: Result
    plan: MovePlan | None = None  # The plan that moves the pod together with others; None if it moves alone
    target: str = ""  # Node on which the scheduler would place the pod; "" if the scheduler was not asked
    # Whether the eviction counts against the limits if it succeeds. False if the plugin itself is in dry run.
    is_counted: bool = True
    # The numbers because of which the plugin chose the pod, such as usage and threshold.
    inputs: Inputs = field(default_factory=dict[str, Number])
    # Codes of the reasons why filter plugins refuse the pod, if that is the result; else empty.
    codes: Sequence[str] = ()

    @property
    def is_move(self) -> bool:
        """Whether the pod is evicted, or would be if configuration and evict plugin were not in dry run."""
        return self.is_counted and self.result in (Result.SUCCESS, Result.DRY_RUN)


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictionPath:
    """The eviction path of one profile in one round, which implements `Evictor` (descheduler spec, 5.1, 5.4)."""

    profile: str
    cluster: ClusterView
    filters: Sequence[FilterPlugin]  # Filter plugins of the profile; all must accept a pod
    evict_plugin: EvictPlugin
    limiter: EvictionLimiter
    # Whether evictions are only counted, because the configuration or the evict plugin is in dry run.
    is_dry_run: bool = False
    attempts: list[Attempt] = field(default_factory=list[Attempt])  # Requests of this round, in order
    # Uids of the pods that are being evicted, by any profile of this round or since an earlier round. No plugin may
    # choose them again.
    evicted: set[str] = field(default_factory=set[str])
    # (uid of a pod, name of a plugin in dry run that would evict it).
    tried: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])

    @property
    def is_exhausted(self) -> bool:
        return self.limiter.is_exhausted

    def refusals(self, pod: PodView) -> tuple[str, ...]:
        if pod.uid in self.evicted:
            return (EVICTED,)
        if len(self.filters) == 1:
            return self.filters[0].refusals(pod, self.cluster)
        return tuple(code for plugin in self.filters for code in plugin.refusals(pod, self.cluster))

    def pre_eviction_refusals(self, pod: PodView) -> tuple[str, ...]:
        return tuple(code for plugin in self.filters for code in plugin.pre_eviction_refusals(pod, self.cluster))

    def numbers(self, pod: PodView, codes: Collection[str]) -> Inputs:
        counted = (each for each in (self.evict_plugin, *self.filters) if isinstance(each, CountingPlugin))
        found = {code: number for each in counted for code, number in each.numbers(pod, self.cluster).items()}
        return {code: found[code] for code in codes if code in found}

    def evict(self, pod: PodView, reason: str, plugin: str, inputs: Inputs) -> bool:
        """Evict a pod if the limits of the round allow it, and record the attempt. The filter plugins are not asked.

        False, and no attempt, if it is being evicted already. It counts against the limits if it is evicted, or would
        be in a dry run.
        """
        if pod.uid in self.evicted:
            return False
        result = self.limiter.refusal(pod.node, pod.namespace)
        if result is None:
            if self.is_dry_run:
                result = Result.DRY_RUN
            else:
                done = self.evict_plugin.evict(pod, reason, plugin, self.cluster)
                result = Result.SUCCESS if done else Result.ERROR
                inputs = inputs if done else {**inputs, **self._shortage(pod)}
        attempt = Attempt(
            pod=pod,
            profile=self.profile,
            plugin=plugin,
            reason=reason,
            evictor=self.evict_plugin.name,
            result=result,
            inputs=inputs,
        )
        self.attempts.append(attempt)
        is_done = result in (Result.SUCCESS, Result.DRY_RUN)
        if is_done:
            self.limiter.count(pod.node, pod.namespace)
            self.evicted.add(pod.uid)
        return is_done

    def try_evict(self, pod: PodView, reason: str, plugin: str, inputs: Inputs) -> None:
        """Record once that a plugin in dry run would evict a pod. Limits are not checked."""
        if (pod.uid, plugin) in self.tried:
            return
        self.tried.add((pod.uid, plugin))
        attempt = Attempt(
            pod=pod,
            profile=self.profile,
            plugin=plugin,
            reason=reason,
            evictor=self.evict_plugin.name,
            result=Result.DRY_RUN,
            is_counted=False,
            inputs=inputs,
        )
        self.attempts.append(attempt)

    def try_evict_together(self, plan: MovePlan, plugin: str) -> PodView | None:
        """Record once that a plugin in dry run would evict all pods of a plan. Limits are not checked.

        If the evict plugin cannot carry out plans, nothing is recorded and the first pod is returned.
        """
        if not isinstance(self.evict_plugin, PlanEvictPlugin):
            return plan.pods[0]
        for pod in plan.pods:
            self.try_evict(pod, plan.reason, plugin, plan.inputs)
        return None

    def evict_together(self, plan: MovePlan, plugin: str) -> PodView | None:
        """Evict all pods of a plan and record one attempt for each, or evict none and record why the plan is refused.

        Only an evict plugin that makes Reservations first can evict pods together.
        """
        evictor = self.evict_plugin
        begun: list[PodView] = []
        for pod in plan.pods:
            refused = self._refused(plan, pod, plugin)
            if refused is not None:
                if isinstance(evictor, PlanEvictPlugin):
                    evictor.withdraw(plan)
                for each in begun:
                    self.limiter.uncount(each.node, each.namespace)
                if pod.uid not in self.evicted:
                    self.attempts.append(refused)
                return pod
            begun.append(pod)
            self.limiter.count(pod.node, pod.namespace)
        result = Result.DRY_RUN if self.is_dry_run else Result.SUCCESS
        self.evicted.update(pod.uid for pod in plan.pods)
        self.attempts.extend(replace(self._attempt(plan, pod, plugin, result), plan=plan) for pod in plan.pods)
        return None

    def _refused(self, plan: MovePlan, pod: PodView, plugin: str) -> Attempt | None:
        """Why a pod of a plan may not leave after those before it; None if it may. Its job is asked for then."""
        evictor = self.evict_plugin
        if not isinstance(evictor, PlanEvictPlugin):
            return self._attempt(plan, pod, plugin, Result.ERROR)
        codes = self.refusals(pod)
        if codes:
            inputs = {**plan.inputs, **self.numbers(pod, codes)}
            return replace(self._attempt(plan, pod, plugin, Result.ERROR), codes=codes, inputs=inputs)
        result = self.limiter.refusal(pod.node, pod.namespace)
        if result is not None:
            return self._attempt(plan, pod, plugin, result)
        if self.is_dry_run or evictor.evict_for(plan, pod, plugin, self.cluster):
            return None
        return replace(self._attempt(plan, pod, plugin, Result.ERROR), inputs={**plan.inputs, **self._shortage(pod)})

    def _shortage(self, pod: PodView) -> Inputs:
        """The numbers for which the evict plugin refuses a pod that the filter plugins accept."""
        plugin = self.evict_plugin
        return plugin.shortage(pod, self.cluster) if isinstance(plugin, LimitingEvictPlugin) else {}

    def _attempt(self, plan: MovePlan, pod: PodView, plugin: str, result: Result) -> Attempt:
        number, inputs = self.limiter.number(result, pod.node, pod.namespace), plan.inputs
        return Attempt(
            pod=pod,
            profile=self.profile,
            plugin=plugin,
            reason=plan.reason,
            evictor=self.evict_plugin.name,
            result=result,
            inputs=inputs if number is None else {**inputs, LIMIT_NAMES[result]: number},
        )
