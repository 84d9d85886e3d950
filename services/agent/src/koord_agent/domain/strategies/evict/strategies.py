"""Eviction for CPU and for memory as strategies, and the evictor that carries their tasks out.

Each strategy asks its features which pods to evict; a strategy that evicted pods then pauses for some time (it
*rests*). The pass over the tasks is `eviction.release`. The facts also request the eviction from the component that
runs the pods.

Source: agent spec, 12.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
from koordcore.events.nodestate import EvictedPod, PodsEvictedByAgent
from koordcore.protocol.config.node_strategies import ThresholdStrategy
from koordcore.protocol.lenient_json import convert
from koordcore.protocol.pod_resources import MEMORY
from koordcore.protocol.resource_names import CPU

from koord_agent.domain.metrics.metric_kinds import Kind
from koord_agent.domain.node.node_look import NodeLook
from koord_agent.domain.node.pods import AgentPod
from koord_agent.domain.strategies.evict import cpu_evict, memory_evict
from koord_agent.domain.strategies.evict.cpu_evict import BeCpu, BeCpuHistory, satisfaction_window_seconds
from koord_agent.domain.strategies.evict.eviction import Judgement, release
from koord_agent.domain.strategies.evict.thresholds import (
    CPU_ALLOCATABLE_EVICT,
    MEMORY_ALLOCATABLE_EVICT,
    judge_allocatable,
)
from koord_agent.domain.strategies.strategy import RESOURCE_THRESHOLD, CycleState, EvictionTask, Needs, Pace, Proposal

EVICTED_LATELY_MS = 120_000


class _EvictionStrategy(ABC):
    """Each of its features has a gate of its own. Nothing is evicted unless the policy has `enable`."""

    needs: Needs

    def __init__(self, is_enabled: Callable[[str], bool]) -> None:
        self._features = frozenset(gate for gate in self.needs.gates if is_enabled(gate))

    def propose(self, look: NodeLook, policy: Mapping[str, Any], state: CycleState) -> Proposal:
        if not policy.get("enable"):
            return Proposal()
        pods = [pod for pod in look.pods if pod.uid not in look.frozen]
        judgements = self._judge(look, convert(policy, ThresholdStrategy), pods, state)
        return Proposal(evictions=[judgement.task for judgement in judgements if judgement.task is not None])

    @abstractmethod
    def _judge(
        self, look: NodeLook, policy: ThresholdStrategy, pods: list[AgentPod], state: CycleState
    ) -> Iterable[Judgement]:
        """Only features that are on."""


class CpuEvictStrategy(_EvictionStrategy):
    """Evicts because CPU is short, or because best-effort pods get too little CPU."""

    name = cpu_evict.PLUGIN
    needs = Needs(
        gates=(cpu_evict.BE_CPU_EVICT, CPU_ALLOCATABLE_EVICT, cpu_evict.CPU_EVICT),
        section=RESOURCE_THRESHOLD,
        pace=Pace.CPU_EVICT,
    )

    def _judge(
        self, look: NodeLook, policy: ThresholdStrategy, pods: list[AgentPod], state: CycleState
    ) -> Iterable[Judgement]:
        used = {
            pod.uid: int(cores * 1000)
            for pod in pods
            if (cores := look.metrics.last(Kind.POD_CPU, pod.uid)) is not None
        }
        interval = look.metrics.interval_ms / 1000
        window_ms = int(satisfaction_window_seconds(policy, interval) * 1000)
        if cpu_evict.BE_CPU_EVICT in self._features:
            yield cpu_evict.judge_be_satisfaction(
                policy,
                _be_history(look, window_ms),
                collect_interval_seconds=interval,
                allocatable=look.allocatable,
                pods=pods,
                used_milli=used,
            )
        if CPU_ALLOCATABLE_EVICT in self._features:
            active = [pod for pod in pods if pod.is_active]
            yield judge_allocatable(
                CPU_ALLOCATABLE_EVICT, policy, allocatable=look.allocatable, pods=active, measured=used
            )
        if cpu_evict.CPU_EVICT in self._features:
            yield cpu_evict.judge_cpu_usage(
                policy,
                look.metrics.average(Kind.NODE_CPU, window_ms),
                capacity_milli=look.capacity.get(CPU, 0),
                pods=pods,
                used_milli=used,
            )


class MemoryEvictStrategy(_EvictionStrategy):
    """Evicts because memory is short. Contentions for memory lower its thresholds."""

    name = memory_evict.PLUGIN
    needs = Needs(
        gates=(memory_evict.BE_MEMORY_EVICT, MEMORY_ALLOCATABLE_EVICT, memory_evict.MEMORY_EVICT),
        section=RESOURCE_THRESHOLD,
        pace=Pace.MEMORY_EVICT,
    )

    def _judge(
        self, look: NodeLook, policy: ThresholdStrategy, pods: list[AgentPod], state: CycleState
    ) -> Iterable[Judgement]:
        lowered = _with_less_memory(policy, state.effects.memory_points)
        used = {pod.uid: int(size) for pod in pods if (size := look.metrics.last(Kind.POD_MEMORY, pod.uid)) is not None}
        node, capacity = look.metrics.last(Kind.NODE_MEMORY), look.capacity.get(MEMORY, 0)
        for feature in self.needs.gates:
            if feature not in self._features:
                continue
            if feature == MEMORY_ALLOCATABLE_EVICT:
                active = [pod for pod in pods if pod.is_active]
                yield judge_allocatable(feature, lowered, allocatable=look.allocatable, pods=active, measured=used)
            else:
                yield memory_evict.judge_memory_usage(
                    feature, lowered, node, capacity_bytes=capacity, pods=pods, used_bytes=used
                )


def _with_less_memory(policy: ThresholdStrategy, points: int) -> ThresholdStrategy:
    """Threshold and lower bound are reduced by the same points."""
    if not points:
        return policy
    threshold, lower = policy.memory_evict_threshold_percent, policy.memory_evict_lower_percent
    return msgspec.structs.replace(
        policy,
        memory_evict_threshold_percent=max(threshold - points, min(threshold, 1)),
        memory_evict_lower_percent=None if lower is None else max(lower - points, min(lower, 0)),
    )


def _be_history(look: NodeLook, window_ms: int) -> BeCpuHistory | None:
    kinds = (Kind.BE_CPU_USAGE, Kind.BE_CPU_REQUEST, Kind.BE_CPU_REAL_LIMIT)
    averages = [look.metrics.average(kind, window_ms) for kind in kinds]
    last = [look.metrics.last(kind) for kind in kinds]
    known = [value for value in (*averages, *last) if value is not None]
    if len(known) < 2 * len(kinds):
        return None
    return BeCpuHistory(
        average=BeCpu(usage_milli=known[0], request_milli=known[1], real_limit_milli=known[2]),
        last=BeCpu(usage_milli=known[3], request_milli=known[4], real_limit_milli=known[5]),
        count=min(look.metrics.count(kind, window_ms) for kind in kinds),
    )


@dataclass(slots=True)
class Evictor:
    """Evicts pods of one node, and remembers which strategies pause. Only the node's `QosCycle` uses it."""

    rest_ms: Mapping[str, int]  # Strategy -> milliseconds for which it pauses after an eviction
    rest_at_start: tuple[str, ...] = ()  # Strategies that also pause after the start of the agent
    _evicted_ms: dict[str, int] = field(default_factory=dict[str, int])
    _rests_until_ms: dict[str, int] = field(default_factory=dict[str, int])
    _has_started: bool = False

    def resting(self, now_ms: int) -> frozenset[str]:
        """The strategies that pause now after an eviction. A clock that is set back does not prolong a pause."""
        if not self._has_started:
            self._has_started = True
            self._rests_until_ms.update((name, now_ms + self.rest_ms[name]) for name in self.rest_at_start)
        until = self._rests_until_ms
        return frozenset(name for name in until if 0 < until[name] - now_ms <= self.rest_ms[name])

    def evict(
        self, look: NodeLook, evictions: Mapping[str, Sequence[EvictionTask]], end: Callable[[str], bool]
    ) -> tuple[PodsEvictedByAgent, ...]:
        """Evict pods until the tasks of all strategies are done or no candidate is left. Return one fact per feature.

        If `end` cannot end the processes of a pod on this node (False), the eviction remains a request.
        """
        # a clock that was set back must not hide pods that were evicted long ago
        lately = self._evicted_ms.items()
        self._evicted_ms = {uid: at for uid, at in lately if 0 <= look.now_ms - at < EVICTED_LATELY_MS}
        facts: list[PodsEvictedByAgent] = []
        for name, tasks in evictions.items():
            done = self._release(look, tasks, end)
            if done:
                self._rests_until_ms[name] = look.now_ms + self.rest_ms[name]
                facts.extend(done)
        return tuple(facts)

    def _release(
        self, look: NodeLook, tasks: Sequence[EvictionTask], end: Callable[[str], bool]
    ) -> list[PodsEvictedByAgent]:
        ended: dict[str, bool] = {}

        def evict(_task: EvictionTask, uid: str) -> bool:
            ended[uid] = end(uid)
            self._evicted_ms[uid] = look.now_ms
            return True

        done = release(tasks, already_evicted=frozenset(self._evicted_ms), evict=evict)
        by_feature: dict[str, list[EvictedPod]] = {}
        for victim in done.victims:
            pod = look.by_uid[victim.uid]
            by_feature.setdefault(victim.feature, []).append(
                EvictedPod(
                    uid=victim.uid,
                    namespace=pod.namespace,
                    name=pod.name,
                    releases=victim.releases,
                    ended=ended[victim.uid],
                )
            )
        return [
            PodsEvictedByAgent(
                feature=task.feature,
                pods=by_feature[task.feature],
                reason=task.reason,
                to_release=task.to_release,
                unmet=done.unmet.get(task.feature, {}),
            )
            for task in tasks
            if task.feature in by_feature
        ]
