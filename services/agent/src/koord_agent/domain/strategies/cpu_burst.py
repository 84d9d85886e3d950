"""CPU burst as a strategy: burst buffers and quotas of the pods of a node, and their limiters.

The limiter is a token bucket: a container may exceed its CPU limit while it has tokens that it saved below the limit.
The other values are computed by `cpu_burst_rules`. If the containers of a pod are unknown (no kubelet), the pod itself
is treated as its only container.

Source: agent spec, 13. Vectors: cpu_burst, op limiter.
"""

import posixpath
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

from koordcore.protocol.config import node_strategies
from koordcore.protocol.lenient_json import convert
from koordcore.protocol.resource_names import CPU

from koord_agent.domain.gate_names import CPU_BURST
from koord_agent.domain.kernel.cfs_bandwidth import BURST, QUOTA, UNLIMITED
from koord_agent.domain.kernel.cgroup_files import milli_to_quota_us
from koord_agent.domain.metrics.metric_kinds import Kind
from koord_agent.domain.node.node_look import NodeLook
from koord_agent.domain.node.pods import AgentPod
from koord_agent.domain.plans.plan import Band, CgroupFile, Plan
from koord_agent.domain.strategies import cpu_burst_rules
from koord_agent.domain.strategies.own_quotas import OwnQuotas
from koord_agent.domain.strategies.pod_resources import normalization_ratio, scaled_quota_us
from koord_agent.domain.strategies.strategy import CycleState, Needs, Proposal

CONSUMES_FROM_PERCENT = 100
SAVES_BELOW_PERCENT = 60
LARGEST_START_FRACTION = 0.5
LONGEST_WINDOW_MS = 10_000
WINDOW_INTERVALS = 5
UNKNOWN_USAGE_PERCENT = 100
REST_MS = 10_000
"""Time for which a pod with a burst buffer whose files are in place is not looked at again."""


@dataclass(slots=True, kw_only=True)
class BurstLimiter:
    """The token bucket of one container."""

    period_seconds: int  # Period of the burst policy; a negative period disables the limit
    percent: int  # Highest quota of the burst policy, in percent of the limit
    tokens: int  # Present number of tokens. A token is one percent above the limit for one second.
    updated_ms: int  # Time of the last update in milliseconds

    @property
    def capacity(self) -> int:
        """Largest number of tokens that the container can save."""
        return capacity_tokens(self.period_seconds, self.percent)

    @property
    def expire_seconds(self) -> int:
        """Time without use after which the bucket is dropped: two periods."""
        return 2 * self.period_seconds

    def allows(self) -> bool:
        return self.tokens > 0

    def step(self, usage_percent: int, now_ms: int) -> bool:
        """Spend or save tokens for the time since the last step. Return whether the container may exceed its limit.

        Only whole seconds count, and the rest is lost: pass times that are whole seconds. Tokens are spent at a usage
        of 100 % and above, and saved below 60 %.
        """
        seconds = max(now_ms - self.updated_ms, 0) // 1000
        self.updated_ms = now_ms
        if usage_percent >= CONSUMES_FROM_PERCENT:
            self.tokens -= (usage_percent - 100) * seconds
        elif usage_percent < SAVES_BELOW_PERCENT:
            self.tokens += (100 - usage_percent) * seconds
        self.tokens = min(max(self.tokens, -self.capacity), self.capacity)
        return self.allows()


def capacity_tokens(period_seconds: int, percent: int) -> int:
    """Return period * (percent - 100), where `percent` is the highest quota in percent of the limit."""
    return period_seconds * (percent - 100)


def new_limiter(period_seconds: int, percent: int, *, start_fraction: float, now_ms: int) -> BurstLimiter:
    """A bucket for a policy whose highest quota is `percent` of the limit, filled by `start_fraction`.

    The fraction is random from 0 to 0.5, so that containers do not run out of tokens at the same time.
    """
    tokens = int(capacity_tokens(period_seconds, percent) * min(max(start_fraction, 0.0), LARGEST_START_FRACTION))
    return BurstLimiter(period_seconds=period_seconds, percent=percent, tokens=tokens, updated_ms=now_ms)


class _Rest(NamedTuple):
    """A pod whose files are in place."""

    pod: AgentPod
    policy: node_strategies.CpuBurstStrategy
    since_ms: int


class _Target(NamedTuple):
    key: str  # Id of the container, or UID of the pod
    directory: str  # Its cgroup directory
    limit_milli: int  # CPU limit in milli-cores
    desired_milli: int | None  # CPU limit that a resize asks for; None without one
    is_running: bool  # Whether the container runs
    used_cores: float | None  # Last CPU usage in cores; None if there is no sample
    throttled: float | None  # Last throttled ratio, from 0 to 1; None if there is no sample


@dataclass(slots=True)
class CpuBurstStrategy:
    """Proposes burst buffers and CPU quotas of latency-sensitive pods on one node."""

    name = cpu_burst_rules.PLUGIN
    needs = Needs(gates=(CPU_BURST,), section="cpuBurstStrategy")
    draw: Callable[[], float]  # Returns a random number in 0..1 for the first tokens of a token bucket
    normalizes: bool = False  # Whether the gate CPUNormalization is on. Then quotas start from the normalized ones.
    _limiters: dict[str, BurstLimiter] = field(default_factory=dict[str, BurstLimiter])
    _resting: dict[str, _Rest] = field(default_factory=dict[str, _Rest])
    _own: OwnQuotas = field(default_factory=OwnQuotas)

    def propose(self, look: NodeLook, policy: Mapping[str, Any], state: CycleState) -> Proposal:
        """A pod whose quota is unreadable keeps it, and so does one whose quota another writer set.

        A quota that stays above the limit is proposed again, so that no other strategy puts it back.
        """
        node_policy = convert(policy, node_strategies.CpuBurstStrategy)
        readings, ttl_ms, read_quota = state.readings, state.ttl_ms, cache(state.readings.quota_us)
        pool: cpu_burst_rules.PoolState | None = None
        plans: list[Plan] = []
        seen: set[str] = set()
        for pod in look.pods:
            if not cpu_burst_rules.is_managed(pod) or pod.uid in look.frozen:
                continue
            seen.add(pod.uid)
            own = cpu_burst_rules.policy_of_pod(pod, policy) if pod.annotations else node_policy
            rest = self._resting.get(pod.uid)
            if (
                rest is not None
                and rest[:2] == (pod, own)
                and (not own.bursts_by_buffer or 0 <= look.now_ms - rest.since_ms < REST_MS)
            ):
                continue
            targets = tuple(_targets(look, pod))
            of_pod = look.pod_directory(pod)
            if own.bursts_by_quota and pool is None:
                pool = _pool(look, node_policy)
            quotas, complete = self._quotas(
                look, pod, targets, own, pool or cpu_burst_rules.PoolState.UNKNOWN, read_quota
            )
            of_quotas = [_plan(look, directory, QUOTA, value, ttl_ms) for directory, value in quotas.items()]
            of_bursts = [
                _plan(look, directory, BURST, 0 if read_quota(directory) == UNLIMITED else value, ttl_ms)
                for directory, value in _bursts(own, of_pod, targets).items()
                if readings.read(CgroupFile(directory, BURST)) is not None
            ]
            plans.extend((*of_bursts, *of_quotas))
            is_in_place = all(state.written.get(plan.file, False) for plan in of_bursts)
            if complete and is_in_place and not quotas and not own.bursts_by_quota:
                self._resting[pod.uid] = _Rest(pod, own, look.now_ms)
        self._forget(seen, look)
        return Proposal(plans)

    def _quotas(
        self,
        look: NodeLook,
        pod: AgentPod,
        targets: tuple[_Target, ...],
        policy: node_strategies.CpuBurstStrategy,
        pool: cpu_burst_rules.PoolState,
        read_quota: Callable[[str], int | None],
    ) -> tuple[dict[str, int], bool]:
        """The quotas to write or to hold by directory, and whether every quota could be read."""
        of_pod = look.pod_directory(pod)
        pod_quota = read_quota(of_pod)
        if pod_quota is None:
            return {}, False
        changed: dict[str, int] = {}
        complete, holds, before_us = True, False, pod_quota
        ratio = (normalization_ratio(look.annotations) if self.normalizes else None) or 1.0
        for target in targets:
            if not target.is_running or target.limit_milli <= 0:
                continue
            own = target.directory == of_pod
            quota = pod_quota if own else read_quota(target.directory)
            if quota is None:
                complete = False
                continue
            whole = milli_to_quota_us(target.limit_milli)
            of_limit = scaled_quota_us(whole, ratio)
            allows = self._allows(target, policy, look.now_ms)
            if not self._own.may_change(target.directory, quota, of_limit, is_likely=quota > whole):
                continue
            step = cpu_burst_rules.choose_step(policy, target.throttled, limiter_allows=allows, pool=pool)
            change = cpu_burst_rules.step_quota(
                policy,
                step,
                limit_milli=target.limit_milli,
                container_quota_us=quota,
                pod_quota_us=-1 if own else pod_quota,
                ratio=ratio,
            )
            if change.order or quota > of_limit:
                changed[target.directory] = change.container_quota_us
                self._own.remember(target.directory, quota, change.container_quota_us)
                holds = holds or not own
            if "pod" in change.order:
                pod_quota = change.pod_quota_us
        if holds and before_us != UNLIMITED:
            # on cgroup v1, the runtime must be able to write the whole limits of containers that it starts again
            least_us = _least_us(pod, 1.0 if look.cgroup_version == 1 else ratio)
            changed[of_pod] = max(pod_quota, least_us)
        return changed, complete

    def _allows(self, target: _Target, policy: node_strategies.CpuBurstStrategy, now_ms: int) -> bool:
        """Whether the container's limiter allows a burst (agent spec, 13.4)."""
        period, percent = policy.cfs_quota_burst_period_seconds, policy.cfs_quota_burst_percent
        if not policy.bursts_by_quota or period < 0:
            return True
        if percent < 100:
            return False
        now_ms = now_ms // 1000 * 1000  # a limiter counts whole seconds: what is left of them counts in the next cycle
        limiter = self._limiters.get(target.key)
        if limiter is None or (limiter.period_seconds, limiter.percent) != (period, percent):
            limiter = new_limiter(period, percent, start_fraction=self.draw() / 2, now_ms=now_ms)
            self._limiters[target.key] = limiter
        used = target.used_cores
        usage = UNKNOWN_USAGE_PERCENT if used is None else int(used * 1000 / target.limit_milli * 100)
        return limiter.step(usage, now_ms)

    def _forget(self, pods: set[str], look: NodeLook) -> None:
        now_ms = look.now_ms
        if look.has_all_pods:
            there = {look.pod_directory(pod) for pod in look.pods}
            self._own.end_cycle(lambda directory: directory in there or posixpath.dirname(directory) in there)
        self._resting = {uid: rested for uid, rested in self._resting.items() if uid in pods}
        self._limiters = {
            key: limiter
            for key, limiter in self._limiters.items()
            if now_ms - limiter.updated_ms <= limiter.expire_seconds * 1000
        }


def _targets(look: NodeLook, pod: AgentPod) -> Iterator[_Target]:
    if not pod.containers:
        yield _Target(
            key=pod.uid,
            directory=look.pod_directory(pod),
            limit_milli=pod.limits.get(CPU, 0),
            desired_milli=None,
            is_running=True,
            used_cores=look.metrics.last(Kind.POD_CPU, pod.uid),
            throttled=look.metrics.last(Kind.POD_CPU_THROTTLED, pod.uid),
        )
        return
    for container, directory in look.created_containers(pod):
        if container.is_init:
            continue
        yield _Target(
            key=container.container_id,
            directory=directory,
            limit_milli=container.limits.get(CPU, 0),
            desired_milli=container.desired_cpu_milli,
            is_running=container.is_running,
            used_cores=look.metrics.last(Kind.CONTAINER_CPU, container.container_id),
            throttled=look.metrics.last(Kind.CONTAINER_CPU_THROTTLED, container.container_id),
        )


def _bursts(policy: node_strategies.CpuBurstStrategy, of_pod: str, targets: Iterable[_Target]) -> dict[str, int]:
    """Burst buffers by directory.

    A resize to a lower limit makes room for itself: the kernel would refuse its quota below the burst buffer.
    """
    values: dict[str, int] = {}
    for target in targets:
        value = cpu_burst_rules.burst_value_us(policy, target.limit_milli)
        desired = target.desired_milli
        values[target.directory] = value if desired is None else min(value, milli_to_quota_us(desired))
    values[of_pod] = sum(values.values())
    return values


def _least_us(pod: AgentPod, ratio: float) -> int:
    """The lowest quota of a pod: the sum of its containers' limits, scaled by the normalization ratio.

    Containers that do not exist yet count.
    """
    limits = (container.limits.get(CPU, 0) for container in pod.containers if not container.is_init)
    return sum(scaled_quota_us(milli_to_quota_us(limit), ratio) for limit in limits if limit > 0)


def _pool(look: NodeLook, policy: node_strategies.CpuBurstStrategy) -> cpu_burst_rules.PoolState:
    window_ms = min(WINDOW_INTERVALS * look.metrics.interval_ms, LONGEST_WINDOW_MS)
    window_ms = max(window_ms, 2 * look.metrics.interval_ms)
    used = {
        pod.uid: cores
        for pod in look.pods
        if (cores := look.metrics.average(Kind.POD_CPU, window_ms, pod.uid)) is not None
    }
    return cpu_burst_rules.pool_load(
        node_cpus=len(look.topology) or None,
        node_cpu_used_cores=look.metrics.average(Kind.NODE_CPU, window_ms),
        pods=look.pods,
        used_cores=used,
        threshold_percent=policy.share_pool_threshold_percent,
    ).state


def _plan(look: NodeLook, directory: str, resource: str, value: int, ttl_ms: int) -> Plan:
    return Plan(
        plugin=cpu_burst_rules.PLUGIN,
        band=Band.TUNING,
        file=CgroupFile(directory, resource),
        value=str(value),
        created_ms=look.now_ms,
        ttl_ms=ttl_ms,
        reason="CPUBurst" if resource == BURST else "CFSQuotaBurst",
    )
