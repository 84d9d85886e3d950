"""CPU shares, quotas and memory limits of pods, which hooks set before a container starts, also as a strategy.

The quota of latency-sensitive pods follows the CPU normalization ratio of the node, the values of best-effort pods
their batch resources. The strategy proposes its plans when pods or rules changed, and renews them every 10 s. So a pod
that started while no hook answered gets its values, too. It scales no quota that another writer set (`own_quotas`).

Source: runtime spec, 1.2 (scale), 2.6 (cpu.shares, cpu.cfs_quota_us, memory.limit_in_bytes), 3.4 (CPUNormalization,
BatchResource). Vectors: cpunormalization_hook, batchresource_hook.
"""

import math
import posixpath
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
from koordcore.protocol import keys
from koordcore.protocol.amplification import parse_cpu_normalization_ratio
from koordcore.protocol.lenient_json import decode
from koordcore.protocol.qos import QosClass
from koordcore.protocol.resource_names import BATCH_CPU, BATCH_MEMORY, CPU
from koordcore.values.invalid import InvalidInput
from koordcore.values.quantity import quantity_from_json
from koordcore.values.resources import Amounts

from koord_agent.domain.gate_names import BATCH_RESOURCE, CPU_NORMALIZATION
from koord_agent.domain.kernel.cfs_bandwidth import MIN_QUOTA_US, QUOTA, UNLIMITED
from koord_agent.domain.kernel.cgroup_files import SHARES, milli_to_quota_us, milli_to_shares
from koord_agent.domain.node.node_look import NodeLook
from koord_agent.domain.node.pods import AgentPod
from koord_agent.domain.node.policies import CFS_QUOTA_POLICY
from koord_agent.domain.plans.plan import Band, CgroupFile, Plan
from koord_agent.domain.strategies.be_cpuset import cannot_shrink
from koord_agent.domain.strategies.cpuset import ResourceStatus, status_of_pod
from koord_agent.domain.strategies.own_quotas import OwnQuotas
from koord_agent.domain.strategies.strategy import RESOURCE_THRESHOLD, CycleState, Needs, Proposal, Readings

BATCH_PLUGIN = "BatchResource"
NORMALIZATION_PLUGIN = "CPUNormalization"
MEMORY_LIMIT = "memory.limit_in_bytes"
RENEW_AFTER_MS = 10_000
SMALLEST_CHANGE = 0.01
"""Smallest change of the normalization ratio that counts."""
AUDIT_REASON = "UpdatePodResources"
RESTORING = 1.0
"""Ratio at which quotas are those of the limits."""
_Value = tuple[str, CgroupFile, int]


def normalization_ratio(annotations: Mapping[str, str]) -> float | None:
    """None if it is absent or invalid."""
    try:
        return parse_cpu_normalization_ratio(annotations)
    except InvalidInput:
        return None


def scaled_quota_us(quota_us: int, ratio: float) -> int:
    """For a CPU that is `ratio` times as fast as normal: max(1000, ceil(quota / ratio)).

    If the quota is unlimited (at most 0) or the ratio is at most 1, return the quota.
    """
    return max(MIN_QUOTA_US, math.ceil(quota_us / ratio)) if quota_us > 0 and ratio > 1 else quota_us


def normalized_quota_us(
    ratio: float | None, qos_label: str, status: ResourceStatus, quota_us: int | None
) -> int | None:
    """Return the quota of a pod or container; None if it must not be changed.

    Only LS pods and pods without label ("") are scaled. A pod without label that owns CPUs counts as LSR. A quota of
    None, 0 or less means unlimited.
    """
    if ratio is None or quota_us is None or quota_us <= 0 or qos_label not in ("", QosClass.LS):
        return None
    if not qos_label and status.cpuset:
        return None
    return scaled_quota_us(quota_us, ratio)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchContainer:
    """Milli-cores and bytes. A missing limit means unlimited."""

    requests: Amounts = field(default_factory=dict[str, int])
    limits: Amounts = field(default_factory=dict[str, int])


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchValues:
    """-1 means unlimited."""

    cpu_shares: int
    cfs_quota_us: int  # CPU quota in microseconds per period of 100 ms
    memory_limit_bytes: int  # Memory limit in bytes


class _Resources(msgspec.Struct):
    requests: dict[str, str | int | float | None] = {}
    limits: dict[str, str | int | float | None] = {}


class _ExtendedSpec(msgspec.Struct):
    containers: dict[str, _Resources] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPod:
    """Batch resources of a pod and, by name, of its containers, init containers and sidecars that have any."""

    of_pod: BatchContainer
    containers: Mapping[str, BatchContainer]


def batch_pod(pod: AgentPod | None, annotations: Mapping[str, str]) -> BatchPod | None:
    """Return the batch resources of a pod; None if it has none.

    The amounts of the pod are those that the kubelet computes for its cgroup:

        overhead + max( containers + sidecars, max over init containers i of (i + sidecars before i) )

    If a container with batch resources has no limit for CPU (or memory), the pod has none for it, either.

    Args:
        pod: The pod as the kubelet or the node's ledger has it; None if unknown. The annotation counts for a container
            without batch resources here, and for the pod if none of its containers has any.
        annotations: Those that the container runtime got. Of the batch resources, the annotation extended-resource-spec
            has only those of containers, and of sidecars if our manager wrote it; an invalid one counts as absent. If
            only the ledger knows the pod, its amounts there count if they are larger.
    """
    of_spec = {
        one.name: BatchContainer(requests=_batch(one.requests), limits=_batch(one.limits))
        for one in (() if pod is None else pod.containers)
        if _batch(one.requests) or _batch(one.limits)
    }
    annotated = _of_annotation(annotations)
    counted = of_spec or annotated
    if counted is None:
        return None
    requests, limits = ({}, {}) if pod is None else (_batch(pod.requests), _batch(pod.limits))
    if not of_spec:
        listed = tuple(counted.values())
        requests = _largest(requests, (one.requests for one in listed))
        limits = _largest(limits, (one.limits for one in listed))
    is_limited = {name: all(one.limits.get(name, 0) > 0 for one in counted.values()) for name in limits}
    limits = {name: amount for name, amount in limits.items() if is_limited[name]}
    of_pod = BatchContainer(requests=requests, limits=limits)
    return BatchPod(of_pod=of_pod, containers={**(annotated or {}), **of_spec})


def _of_annotation(annotations: Mapping[str, str]) -> dict[str, BatchContainer] | None:
    text = annotations.get(keys.EXTENDED_RESOURCE_SPEC)
    try:
        listed = decode(text, _ExtendedSpec).containers if text else None
        if listed is None:
            return None
        return {
            name: BatchContainer(requests=_amounts(one.requests), limits=_amounts(one.limits))
            for name, one in listed.items()
        }
    except InvalidInput:
        return None


def _largest(amounts: Amounts, containers: Iterable[Amounts]) -> Amounts:
    """Per resource, the larger of an amount and the sum over containers, in which a negative amount counts as 0."""
    summed: Counter[str] = Counter()
    for container in containers:
        summed.update({name: max(amount, 0) for name, amount in container.items()})
    return {name: max(summed[name], amounts.get(name, 0)) for name in summed.keys() | amounts.keys()}


def batch_values(
    batch: BatchContainer, *, ratio: float | None = None, is_suppressed_by_quota: bool = False
) -> BatchValues:
    """Return the values of a pod or container. A missing limit gives -1, a missing request the least shares.

    If CPU suppression limits the best-effort class by its quota, the quota is unlimited.
    """
    quota = milli_to_quota_us(batch.limits.get(BATCH_CPU, 0))
    memory = batch.limits.get(BATCH_MEMORY, 0)
    return BatchValues(
        cpu_shares=milli_to_shares(batch.requests.get(BATCH_CPU, 0)),
        cfs_quota_us=UNLIMITED if is_suppressed_by_quota else scaled_quota_us(quota, ratio or 1.0),
        memory_limit_bytes=memory if memory > 0 else UNLIMITED,
    )


def pod_shares(pod: AgentPod) -> int:
    """The cpu.shares of a pod without group identity: by its batch resources, else as the kubelet sets them."""
    batch = batch_pod(pod, pod.annotations) if pod.qos_label == QosClass.BE else None
    return (
        milli_to_shares(pod.requests_in_force.get(CPU, 0)) if batch is None else batch_values(batch.of_pod).cpu_shares
    )


def is_suppressed_by_quota(threshold: Mapping[str, Any], node_cpus: int = 0) -> bool:
    """Whether CPU suppression limits the best-effort class by its quota (`resourceUsedThresholdWithBE` as JSON).

    Then the quotas of pods have to be unlimited, because a quota must not exceed that of the parent. `node_cpus` of 0
    means unknown. If the gates keep CPU suppression off, its settings say nothing.
    """
    by_quota = threshold.get("cpuSuppressPolicy") == CFS_QUOTA_POLICY or cannot_shrink(node_cpus)
    return bool(threshold.get("enable")) and by_quota


def _batch(amounts: Amounts) -> dict[str, int]:
    return {name: amounts[name] for name in (BATCH_CPU, BATCH_MEMORY) if name in amounts}


def _amounts(written: Mapping[str, str | int | float | None]) -> dict[str, int]:
    return {
        name: quantity_from_json(written[name]).value()
        for name in (BATCH_CPU, BATCH_MEMORY)
        if written.get(name) is not None
    }


@dataclass(slots=True)
class PodResourcesStrategy:
    """Proposes the values of best-effort pods by their batch resources, and quotas by the normalization ratio."""

    name = "PodResources"
    needs = Needs(gates=(BATCH_RESOURCE, CPU_NORMALIZATION), node_slo=False)
    batch: bool  # Whether the gate BatchResource is on
    normalization: bool  # Whether the gate CPUNormalization is on
    suppresses: bool = True  # Whether the gates let CPU suppression limit best-effort pods
    _seen: tuple[object, ...] = ()
    _pods: tuple[AgentPod, ...] = ()
    _ratio: float | None = None
    _restore_until_ms: int | None = None
    _at_ms: int = 0
    _own: OwnQuotas = field(default_factory=OwnQuotas)
    _lifted: dict[str, int] = field(default_factory=dict[str, int])
    """Directory of a best-effort pod whose containers are unknown, or below it -> the quota that was lifted there."""

    def propose(self, look: NodeLook, policy: Mapping[str, Any], state: CycleState) -> Proposal:
        """No plans while the inputs are unchanged and less than 10 s have passed since the last plans."""
        problems = self._take_ratio(look)
        by_quota = self.suppresses and is_suppressed_by_quota(look.section(RESOURCE_THRESHOLD), look.cpu_count)
        seen = (self._ratio, self._restore_until_ms, by_quota, look.frozen)
        if seen == self._seen and look.has_same_pods(self._pods) and 0 <= look.now_ms - self._at_ms < RENEW_AFTER_MS:
            return Proposal(problems=problems)
        self._seen, self._pods, self._at_ms = seen, look.pods, look.now_ms
        wanted: list[_Value] = []
        for pod in look.pods:
            if pod.uid in look.frozen:
                continue
            if pod.qos_label == QosClass.BE:
                wanted.extend(self._batch_values(look, pod, state.readings, by_quota=by_quota) if self.batch else ())
            else:
                wanted.extend(self._scaled_quotas(look, pod, state.readings.quota_us))
        if look.has_all_pods:
            there = {look.pod_directory(pod) for pod in look.pods}
            self._own.end_cycle(lambda directory: directory in there or posixpath.dirname(directory) in there)
            self._lifted = {
                directory: quota
                for directory, quota in self._lifted.items()
                if any(directory == of_pod or directory.startswith(f"{of_pod}/") for of_pod in there)
            }
        plans = [
            Plan(
                plugin=plugin,
                # CPU burst raises the quotas that normalization sets, and holds them by plans of a higher band
                band=Band.ISOLATION if plugin == BATCH_PLUGIN else Band.RECOVER,
                file=file,
                value=str(value),
                created_ms=look.now_ms,
                ttl_ms=state.ttl_ms,
                reason=AUDIT_REASON,
            )
            for plugin, file, value in wanted
        ]
        return Proposal(plans, problems=problems)

    def _take_ratio(self, look: NodeLook) -> tuple[str, ...]:
        """Take the ratio of the node. If it is removed, quotas of limits are proposed twice, and then no more."""
        if not self.normalization:
            return ()
        try:
            ratio = parse_cpu_normalization_ratio(look.annotations)
        except InvalidInput as error:
            return (f"node: the CPU normalization ratio stays as it was: {error}",)
        if ratio is not None:
            self._restore_until_ms = None
            if self._ratio is None or abs(ratio - self._ratio) >= SMALLEST_CHANGE:
                self._ratio = ratio
            return ()
        if self._ratio is not None and self._restore_until_ms is None:
            self._ratio, self._restore_until_ms = RESTORING, look.now_ms + 2 * RENEW_AFTER_MS
        elif self._restore_until_ms is not None and look.now_ms >= self._restore_until_ms:
            self._ratio = self._restore_until_ms = None
        return ()

    def _batch_values(self, look: NodeLook, pod: AgentPod, readings: Readings, *, by_quota: bool) -> Iterator[_Value]:
        batch = batch_pod(pod, pod.annotations)
        if batch is None:
            if not pod.containers:
                yield from self._quotas_of_hooks(look, pod, readings, by_quota=by_quota)
            return
        listed = [(look.pod_directory(pod), batch.of_pod)]
        for container, directory in look.created_containers(pod):
            if container.name in batch.containers:
                listed.append((directory, batch.containers[container.name]))
        for directory, of_batch in listed:
            values = batch_values(of_batch, ratio=self._ratio, is_suppressed_by_quota=by_quota)
            yield from _values(directory, values)

    def _quotas_of_hooks(
        self, look: NodeLook, pod: AgentPod, readings: Readings, *, by_quota: bool
    ) -> Iterator[_Value]:
        """Quotas that hooks set in a pod whose containers are unknown (no kubelet).

        While the quota of the class limits it, they are unlimited: on cgroup v1, the kernel refuses to lower the class
        below any cgroup in it. Afterwards, the pod has that of its limit, also if a hook left it unlimited or an agent
        that has ended lifted it. Below the pod, what was lifted is put back.
        """
        of_pod = look.pod_directory(pod)
        of_limit = scaled_quota_us(milli_to_quota_us(pod.limits.get(BATCH_CPU, 0)), self._ratio or 1.0)
        for directory in readings.tree(of_pod):
            present = readings.quota_us(directory)
            if by_quota:
                if present not in (None, UNLIMITED):
                    self._lifted.setdefault(directory, present)  # a later one may be a cap of an antagonist
                    yield BATCH_PLUGIN, CgroupFile(directory, QUOTA), UNLIMITED
            elif present != UNLIMITED:  # in place again, or another writer's
                self._lifted.pop(directory, None)
            elif look.slo is not None:  # else the class may still have its quota
                is_limited = directory == of_pod and of_limit != UNLIMITED
                quota = of_limit if is_limited else self._lifted.get(directory, UNLIMITED)
                if quota != UNLIMITED:
                    yield BATCH_PLUGIN, CgroupFile(directory, QUOTA), quota

    def _scaled_quotas(
        self, look: NodeLook, pod: AgentPod, read_quota: Callable[[str], int | None]
    ) -> Iterator[_Value]:
        """On cgroup v1, a pod keeps the quota of its limits, which are enough together with those of its containers.

        There, a container that starts needs a pod with the whole quota of its limit: the runtime writes it first.
        """
        if self._ratio is None:
            return
        try:
            status = status_of_pod(pod)
        except InvalidInput:
            return
        limits = [
            (directory, container.limits.get(CPU, 0), self._ratio)
            for container, directory in look.created_containers(pod)
        ]
        if all(container.limits.get(CPU, 0) > 0 for container in pod.containers):
            # with an unlimited container, the kubelet gives the pod no quota
            of_pod = RESTORING if look.cgroup_version == 1 else self._ratio
            limits.append((look.pod_directory(pod), pod.limits.get(CPU, 0), of_pod))
        for directory, limit_milli, ratio in limits:
            of_limit, present = milli_to_quota_us(limit_milli), read_quota(directory)
            quota = normalized_quota_us(ratio, pod.qos_label, status, of_limit)
            if quota is None or present is None:
                continue
            if not self._own.may_change(directory, present, of_limit, is_likely=present < of_limit):
                continue
            self._own.remember(directory, present, quota)
            yield NORMALIZATION_PLUGIN, CgroupFile(directory, QUOTA), quota


def _values(directory: str, values: BatchValues) -> Iterator[_Value]:
    yield BATCH_PLUGIN, CgroupFile(directory, SHARES), values.cpu_shares
    yield BATCH_PLUGIN, CgroupFile(directory, QUOTA), values.cfs_quota_us
    yield BATCH_PLUGIN, CgroupFile(directory, MEMORY_LIMIT), values.memory_limit_bytes
