"""CPU burst: how far a latency-sensitive container may exceed its CPU limit for a short time.

It uses two files of a container: the burst buffer of the kernel (`cpu.cfs_burst_us`), and the quota. The quota is
stepped up while the container is throttled and the shared pool is idle, and stepped down otherwise. The *shared pool*
are the CPUs that latency-sensitive pods share. The strategy in `cpu_burst` uses both files.

Source: agent spec, 13. Vectors: cpu_burst.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from koordcore.protocol import keys
from koordcore.protocol.config.fields import JsonObject
from koordcore.protocol.config.node_strategies import CpuBurstStrategy
from koordcore.protocol.config.parse import parse_text
from koordcore.protocol.lenient_json import convert
from koordcore.protocol.qos import QosClass
from koordcore.protocol.resource_names import CPU
from koordcore.values.invalid import InvalidInput

from koord_agent.domain.kernel.cfs_bandwidth import CFS_PERIOD_US, UNLIMITED
from koord_agent.domain.kernel.cgroup_files import milli_to_quota_us
from koord_agent.domain.node.pods import AgentPod
from koord_agent.domain.strategies.pod_resources import scaled_quota_us

PLUGIN = "CPUBurst"
UP, DOWN = 1.2, 0.8
COOLING_FRACTION = 0.9
POD_FIELDS = ("policy", "cpuBurstPercent", "cfsQuotaBurstPercent", "cfsQuotaBurstPeriodSeconds")
"""Fields of the strategy that a pod may override."""


def policy_of_pod(pod: AgentPod, node_section: Mapping[str, Any]) -> CpuBurstStrategy:
    """The settings of the node (`cpuBurstStrategy`), overridden by the pod's annotation.

    An invalid one counts as absent.
    """
    own: JsonObject = {}
    text = pod.annotations.get(keys.CPU_BURST)
    if text:
        with suppress(InvalidInput):
            own = parse_text(CpuBurstStrategy, text, keys.CPU_BURST)
    return convert({**node_section, **{name: own[name] for name in POD_FIELDS if name in own}}, CpuBurstStrategy)


def is_managed(pod: AgentPod) -> bool:
    """The pod is Pending or Running, and its QoS label is not LSR, LSE or BE."""
    return pod.is_active and pod.qos_label not in (QosClass.LSR, QosClass.LSE, QosClass.BE)


def burst_value_us(policy: CpuBurstStrategy, limit_milli: int | None) -> int:
    """Return cpu.cfs_burst_us of a container: int(limit / 1000 * percent / 100 * 100000); 0 without a limit or buffer.

    The kernel takes at most the quota; the arbiter cuts it to that.

    Source: agent spec, 13.1.
    """
    if not policy.bursts_by_buffer or limit_milli is None or limit_milli <= 0:
        return 0
    return int((limit_milli / 1000) * (policy.cpu_burst_percent / 100) * CFS_PERIOD_US)


class PoolState(StrEnum):
    """State of the shared pool, the CPUs that latency-sensitive pods share.

    OVERLOAD: its usage is at least the threshold of the burst policy. COOLING: its usage is at least 90 % of the
    threshold. IDLE: its usage is lower. UNKNOWN: the CPUs or the usage of the node are not known.
    """

    IDLE = "idle"
    COOLING = "cooling"
    OVERLOAD = "overload"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolLoad:
    state: PoolState  # State that the load leads to
    ratio: float | None = None  # Used share of the pool; None while the state is unknown


def pool_load(
    *,
    node_cpus: int | None,
    node_cpu_used_cores: float | None,
    pods: Iterable[AgentPod],
    used_cores: Mapping[str, float],
    threshold_percent: int,
) -> PoolLoad:
    """Return the load of the shared pool, the CPUs that latency-sensitive pods share.

        total = CPUs - requests of LSE and LSR pods
        used = node - usage of LSE, LSR and BE pods

    Args:
        node_cpus: CPUs of the node; None = CPU info is missing, and the state is unknown.
        node_cpu_used_cores: CPU in use on the node in cores; None = no sample.
        used_cores: UID -> average CPU usage over the window in cores; an absent pod has no sample.
        threshold_percent: Usage in percent from which on the pool counts as overloaded; from 90 % of it on, as cooling.

    Source:
        agent spec, 13.2.
    """
    if node_cpu_used_cores is None or node_cpus is None or node_cpus <= 0:
        return PoolLoad(state=PoolState.UNKNOWN)
    total, used = float(node_cpus), node_cpu_used_cores
    for pod in pods:
        if pod.qos_label in (QosClass.LSE, QosClass.LSR):
            total -= pod.requests.get(CPU, 0) / 1000
        if pod.qos_label in (QosClass.LSE, QosClass.LSR, QosClass.BE):
            used -= used_cores.get(pod.uid, 0.0)
    ratio = used / total if total > 0 else 1.0
    threshold = threshold_percent / 100
    if ratio >= threshold:
        return PoolLoad(state=PoolState.OVERLOAD, ratio=ratio)
    if ratio >= threshold * COOLING_FRACTION:
        return PoolLoad(state=PoolState.COOLING, ratio=ratio)
    return PoolLoad(state=PoolState.IDLE, ratio=ratio)


class QuotaStep(StrEnum):
    """RESET: to the quota of the CPU limit."""

    UP = "up"
    DOWN = "down"
    REMAIN = "remain"
    RESET = "reset"


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaChange:
    step: QuotaStep  # The direction
    container_quota_us: int  # Quota of the container in microseconds per period
    pod_quota_us: int  # Quota of the pod in microseconds per period
    # Files to write, in this order: `pod` and `container`, or `container` alone. Empty if no quota changes.
    order: tuple[str, ...] = ()


def choose_step(
    policy: CpuBurstStrategy, throttled_ratio: float | None, *, limiter_allows: bool, pool: PoolState
) -> QuotaStep:
    """Return the direction in which the quota of a container changes, before it is bounded by `step_quota`.

    A policy without quota bursts resets. Otherwise a container goes down if the limiter does not allow a burst or the
    pool is overloaded, and up if it was throttled and the pool is idle. In all other cases it remains.

    Args:
        throttled_ratio: Last throttled ratio of the container; None if there is no sample.
        limiter_allows: Whether the token bucket of the container allows a burst.

    Source:
        agent spec, 13.3, steps 1 and 2.
    """
    if not policy.bursts_by_quota:
        return QuotaStep.RESET
    if not limiter_allows:
        step = QuotaStep.DOWN
    elif throttled_ratio is not None and throttled_ratio > 0:
        step = QuotaStep.UP
    else:
        step = QuotaStep.REMAIN
    if pool is PoolState.OVERLOAD and step in (QuotaStep.UP, QuotaStep.REMAIN):
        return QuotaStep.DOWN
    if pool in (PoolState.COOLING, PoolState.UNKNOWN) and step is QuotaStep.UP:
        return QuotaStep.REMAIN
    return step


def step_quota(
    policy: CpuBurstStrategy,
    step: QuotaStep,
    *,
    limit_milli: int,
    container_quota_us: int,
    pod_quota_us: int,
    ratio: float = 1.0,
) -> QuotaChange:
    """Return the quotas after a step: at least the quota of the CPU limit, and at most `cfsQuotaBurstPercent` of it.

    An unlimited container stays unlimited, because the kubelet wants it so (decision 0051, against D-23): it may have
    exclusive CPUs. An unlimited pod stays unlimited.

    Args:
        container_quota_us: Present quota of the container; -1 = unlimited.
        pod_quota_us: Present quota of the pod; -1 = unlimited.
        ratio: CPU normalization ratio of the node. Above 1, it lowers the quota of the limit.

    Source:
        agent spec, 13.3, steps 3 and 4; runtime spec, 3.4.
    """
    base = scaled_quota_us(milli_to_quota_us(limit_milli), ratio)
    unchanged = QuotaChange(step=step, container_quota_us=container_quota_us, pod_quota_us=pod_quota_us)
    if container_quota_us == UNLIMITED:
        return unchanged
    percent = policy.cfs_quota_burst_percent
    ceiling = int(base * percent / 100) if percent > 100 else base
    match step:
        case QuotaStep.UP:
            wanted = int(container_quota_us * UP)
        case QuotaStep.DOWN:
            wanted = int(container_quota_us * DOWN)
        case QuotaStep.RESET:
            wanted = base
        case QuotaStep.REMAIN:
            wanted = container_quota_us
    target = max(base, min(wanted, ceiling))
    if target == container_quota_us:
        return unchanged
    delta = target - container_quota_us
    if pod_quota_us <= 0:
        return QuotaChange(step=step, container_quota_us=target, pod_quota_us=pod_quota_us, order=("container",))
    order = ("pod", "container") if delta > 0 else ("container", "pod")
    return QuotaChange(step=step, container_quota_us=target, pod_quota_us=pod_quota_us + delta, order=order)
