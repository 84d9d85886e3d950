"""Eviction for CPU and for memory as strategies. Each asks its features which pods to evict.

The rules are in `domain.qos.evict`. Source: agent spec, 12.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec
from koordcore.protocol.pod_resources import MEMORY
from koordcore.protocol.resource_names import CPU

from koord_agent.domain.metrics.metric_kinds import Kind
from koord_agent.domain.qos.evict import cpu_evict, memory_evict
from koord_agent.domain.qos.evict.allocatable_evict import (
    CPU_ALLOCATABLE_EVICT,
    MEMORY_ALLOCATABLE_EVICT,
    judge_allocatable,
)
from koord_agent.domain.qos.evict.cpu_evict import BeCpu, BeCpuHistory, satisfaction_window_seconds
from koord_agent.domain.qos.evict.eviction_policy import EvictionPolicy, Judgement, eviction_policy
from koord_agent.domain.qos.strategy import RESOURCE_THRESHOLD, CycleState, Needs, Pace, Proposal
from koord_agent.domain.state.node_look import NodeLook
from koord_agent.domain.state.pods import AgentPod


class _EvictionStrategy(ABC):
    """Eviction of one node. Each of its features has a gate of its own.

    Args:
        is_enabled: Whether a feature gate is on.
    """

    needs: Needs

    def __init__(self, is_enabled: Callable[[str], bool]) -> None:
        self._features = frozenset(gate for gate in self.needs.gates if is_enabled(gate))

    def propose(self, look: NodeLook, policy: Mapping[str, Any], state: CycleState) -> Proposal:
        """Propose the pods to evict in this cycle.

        Nothing is evicted unless the policy has `enable`. See `Strategy.propose`.
        """
        if not policy.get("enable"):
            return Proposal()
        pods = [pod for pod in look.pods if pod.uid not in look.frozen]
        judgements = self._judge(look, eviction_policy(policy), pods, state)
        return Proposal(evictions=[judgement.task for judgement in judgements if judgement.task is not None])

    @abstractmethod
    def _judge(
        self, look: NodeLook, policy: EvictionPolicy, pods: list[AgentPod], state: CycleState
    ) -> Iterable[Judgement]:
        """Yield the judgement of each feature that is on."""


class CpuEvictStrategy(_EvictionStrategy):
    """Proposes evictions on one node: because its CPU is short, or because best-effort pods get too little CPU."""

    name = cpu_evict.PLUGIN
    needs = Needs(
        gates=(cpu_evict.BE_CPU_EVICT, CPU_ALLOCATABLE_EVICT, cpu_evict.CPU_EVICT),
        section=RESOURCE_THRESHOLD,
        pace=Pace.CPU_EVICT,
    )

    def _judge(
        self, look: NodeLook, policy: EvictionPolicy, pods: list[AgentPod], state: CycleState
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
    """Proposes evictions because memory is short on one node. Contentions for memory lower its thresholds."""

    name = memory_evict.PLUGIN
    needs = Needs(
        gates=(memory_evict.BE_MEMORY_EVICT, MEMORY_ALLOCATABLE_EVICT, memory_evict.MEMORY_EVICT),
        section=RESOURCE_THRESHOLD,
        pace=Pace.MEMORY_EVICT,
    )

    def _judge(
        self, look: NodeLook, policy: EvictionPolicy, pods: list[AgentPod], state: CycleState
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


def _with_less_memory(policy: EvictionPolicy, points: int) -> EvictionPolicy:
    """Return the policy with the memory threshold and lower bound reduced by the same points."""
    if not points:
        return policy
    threshold, lower = policy.memory_evict_threshold_percent, policy.memory_evict_lower_percent
    return msgspec.structs.replace(
        policy,
        memory_evict_threshold_percent=None if threshold is None else max(threshold - points, min(threshold, 1)),
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
