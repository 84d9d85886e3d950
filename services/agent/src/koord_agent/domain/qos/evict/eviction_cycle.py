"""All eviction features of a node in one round: which are on, who was evicted lately, when a plug-in must rest.

Tasks come from `cpu_evict` and `memory_evict`, the pass over them from `eviction`. What comes out are facts that are
requests at the same time: whoever runs the pods removes them. Source: agent spec, 12.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
from koordcore.events.agents.nodestate import EvictedPod, PodsEvictedByAgent
from koordcore.protocol.pod_resources import MEMORY
from koordcore.protocol.resource_names import CPU

from koord_agent.domain.metrics.metric_kinds import Kind
from koord_agent.domain.qos.evict import cpu_evict, memory_evict
from koord_agent.domain.qos.evict.cpu_evict import BeCpu, BeCpuHistory, satisfaction_window_seconds
from koord_agent.domain.qos.evict.eviction import EvictionTask, release
from koord_agent.domain.qos.evict.eviction_policy import EvictionPolicy, Judgement, eviction_policy
from koord_agent.domain.qos.intervals import DEFAULT_OPTIONS, QosOptions, Turn
from koord_agent.domain.state.node_look import NodeLook
from koord_agent.domain.state.pods import AgentPod

EVICTED_LATELY_MS = 120_000


@dataclass(slots=True)
class EvictionBook:
    """Victims of the last two minutes and the plug-ins' rests, of one node. Owned by its agent.

    features   names of the gates that are on
    options    how often the plug-ins look, how long they rest
    round_ms   between two rounds
    """

    features: frozenset[str]
    options: QosOptions = DEFAULT_OPTIONS
    round_ms: int = 1_000
    _evicted_ms: dict[str, int] = field(default_factory=dict[str, int])
    _rests_until_ms: dict[str, int] = field(default_factory=dict[str, int])
    _began: bool = False
    _turns: tuple[Turn, Turn] = field(init=False)

    def __post_init__(self) -> None:
        options = self.options
        self._turns = Turn(options.cpu_evict_ms, self.round_ms), Turn(options.memory_evict_ms, self.round_ms)

    def run(
        self,
        look: NodeLook,
        section: Mapping[str, Any],
        *,
        memory_points: int = 0,
        end: Callable[[str], bool],
    ) -> tuple[PodsEvictedByAgent, ...]:
        """One round of every feature that is on; the facts of new evictions.

        section         `resourceUsedThresholdWithBE` in wire spelling; without `enable` nothing is evicted
        memory_points   by which memory contention lowers the usage threshold
        end             ends a pod's processes here and now if this node can; False = the request alone stands
        raises          InvalidInput for a section with a field of a wrong type
        """
        if not self._began:
            self._began = True
            self._rests_until_ms[cpu_evict.PLUGIN] = look.now_ms + self.options.cpu_evict_rest_ms
        if not self.features or not section.get("enable"):
            return ()
        policy = eviction_policy(section)
        if memory_points:
            policy = _with_less_memory(policy, memory_points)
        # a clock that was set back must not keep pods that are short of memory waiting
        lately = self._evicted_ms.items()
        self._evicted_ms = {uid: at for uid, at in lately if 0 <= look.now_ms - at < EVICTED_LATELY_MS}
        facts: list[PodsEvictedByAgent] = []
        of_cpu, of_memory = self._turns
        for plugin, turn, rest_ms, judge in (
            (cpu_evict.PLUGIN, of_cpu, self.options.cpu_evict_rest_ms, self._cpu_tasks),
            (memory_evict.PLUGIN, of_memory, self.options.memory_evict_rest_ms, self._memory_tasks),
        ):
            rests = 0 < self._rests_until_ms.get(plugin, 0) - look.now_ms <= rest_ms
            if rests or not turn.comes(look.now_ms):
                continue
            done = self._evict(look, judge(look, policy), end)
            if done:
                self._rests_until_ms[plugin] = look.now_ms + rest_ms
                facts.extend(done)
        return tuple(facts)

    def _evict(
        self, look: NodeLook, tasks: Sequence[EvictionTask], end: Callable[[str], bool]
    ) -> list[PodsEvictedByAgent]:
        if not tasks:
            return []
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

    def _cpu_tasks(self, look: NodeLook, policy: EvictionPolicy) -> list[EvictionTask]:
        pods = _pods(look)
        used = {
            pod.uid: int(cores * 1000)
            for pod in pods
            if (cores := look.metrics.last(Kind.POD_CPU, pod.uid)) is not None
        }
        interval = look.metrics.interval_ms / 1000
        judged: list[Judgement] = []
        if cpu_evict.BE_CPU_EVICT in self.features:
            window_ms = int(satisfaction_window_seconds(policy, interval) * 1000)
            history = _be_history(look, window_ms)
            judged.append(
                cpu_evict.judge_be_satisfaction(
                    policy,
                    history,
                    collect_interval_seconds=interval,
                    allocatable=look.allocatable,
                    pods=pods,
                    used_milli=used,
                )
            )
        if cpu_evict.CPU_ALLOCATABLE_EVICT in self.features:
            active = [pod for pod in pods if pod.is_active]
            judged.append(
                cpu_evict.judge_cpu_allocatable(policy, allocatable=look.allocatable, pods=active, used_milli=used)
            )
        if cpu_evict.CPU_EVICT in self.features:
            window_ms = int(satisfaction_window_seconds(policy, interval) * 1000)
            judged.append(
                cpu_evict.judge_cpu_usage(
                    policy,
                    look.metrics.average(Kind.NODE_CPU, window_ms),
                    capacity_milli=look.capacity.get(CPU, 0),
                    pods=pods,
                    used_milli=used,
                )
            )
        return [judgement.task for judgement in judged if judgement.task is not None]

    def _memory_tasks(self, look: NodeLook, policy: EvictionPolicy) -> list[EvictionTask]:
        pods = _pods(look)
        used = {pod.uid: int(size) for pod in pods if (size := look.metrics.last(Kind.POD_MEMORY, pod.uid)) is not None}
        node, capacity = look.metrics.last(Kind.NODE_MEMORY), look.capacity.get(MEMORY, 0)
        judged: list[Judgement] = []
        if memory_evict.BE_MEMORY_EVICT in self.features:
            judged.append(
                memory_evict.judge_be_memory(policy, node, capacity_bytes=capacity, pods=pods, used_bytes=used)
            )
        if memory_evict.MEMORY_ALLOCATABLE_EVICT in self.features:
            active = [pod for pod in pods if pod.is_active]
            judged.append(
                memory_evict.judge_memory_allocatable(
                    policy, allocatable=look.allocatable, pods=active, used_bytes=used
                )
            )
        if memory_evict.MEMORY_EVICT in self.features:
            judged.append(
                memory_evict.judge_memory_usage(policy, node, capacity_bytes=capacity, pods=pods, used_bytes=used)
            )
        return [judgement.task for judgement in judged if judgement.task is not None]


def _with_less_memory(policy: EvictionPolicy, points: int) -> EvictionPolicy:
    """Threshold and lower bound of memory lowered together, so that the one stays below the other."""
    threshold, lower = policy.memory_evict_threshold_percent, policy.memory_evict_lower_percent
    return msgspec.structs.replace(
        policy,
        memory_evict_threshold_percent=None if threshold is None else max(threshold - points, min(threshold, 1)),
        memory_evict_lower_percent=None if lower is None else max(lower - points, min(lower, 0)),
    )


def _pods(look: NodeLook) -> list[AgentPod]:
    return [pod for pod in look.pods if pod.uid not in look.frozen]


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
