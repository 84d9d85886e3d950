"""CPU shares, quotas and memory limits of pods, which hooks set before a container starts, as a strategy.

It proposes its plans when pods or rules changed, and renews them every 10 s. So a pod that started while no hook
answered gets its values, too. Source: runtime spec, 2.6 (cpu.shares, cpu.cfs_quota_us, memory.limit_in_bytes), 3.4.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from koordcore.protocol.amplification import parse_cpu_normalization_ratio
from koordcore.protocol.qos import QosClass
from koordcore.protocol.resource_names import CPU
from koordcore.values.invalid import InvalidInput

from koord_agent.domain.gate_names import BATCH_RESOURCE, CPU_NORMALIZATION
from koord_agent.domain.hooks.batch_resource import (
    BatchValues,
    batch_containers,
    container_batch_values,
    is_suppressed_by_quota,
    pod_batch_values,
)
from koord_agent.domain.hooks.cpu_normalization import normalized_quota_us
from koord_agent.domain.hooks.cpuset import status_of_pod
from koord_agent.domain.kernel.cgroup_files import QUOTA, milli_to_quota_us
from koord_agent.domain.kernel.cgroup_layout import UnknownContainerId
from koord_agent.domain.plans.plan import Band, CgroupFile, Plan
from koord_agent.domain.qos.strategy import RESOURCE_THRESHOLD, CycleState, Needs, Proposal
from koord_agent.domain.state.node_look import NodeLook
from koord_agent.domain.state.pods import AgentContainer, AgentPod

BATCH_PLUGIN = "BatchResource"
NORMALIZATION_PLUGIN = "CPUNormalization"
SHARES = "cpu.shares"
MEMORY_LIMIT = "memory.limit_in_bytes"
RENEW_AFTER_MS = 10_000
SMALLEST_CHANGE = 0.01
"""Smallest change of the normalization ratio that counts."""
AUDIT_REASON = "UpdatePodResources"
RESTORING = 1.0
"""Ratio at which quotas are those of the limits."""

_Value = tuple[str, CgroupFile, int]


@dataclass(slots=True)
class PodResourcesStrategy:
    """Proposes the values of best-effort pods by their batch resources, and quotas by the normalization ratio.

    Attributes:
        batch: Whether the gate BatchResource is on.
        normalization: Whether the gate CPUNormalization is on.
    """

    name = "PodResources"
    needs = Needs(gates=(BATCH_RESOURCE, CPU_NORMALIZATION), node_slo=False)
    batch: bool
    normalization: bool
    _seen: tuple[object, ...] = ()
    _pods: tuple[AgentPod, ...] = ()
    _ratio: float | None = None
    _restore_until_ms: int | None = None
    _at_ms: int = 0

    def propose(self, look: NodeLook, policy: Mapping[str, Any], state: CycleState) -> Proposal:
        """Propose CPU shares, quotas and memory limits of pods for this cycle.

        No plans while the inputs are unchanged and less than 10 s have passed since the last plans. See
        `Strategy.propose`.
        """
        problems = self._take_ratio(look)
        by_quota = is_suppressed_by_quota(look.section(RESOURCE_THRESHOLD))
        seen = (self._ratio, self._restore_until_ms, by_quota, look.frozen)
        same_pods = len(self._pods) == len(look.pods) and all(
            old is new for old, new in zip(self._pods, look.pods, strict=True)
        )
        if seen == self._seen and same_pods and 0 <= look.now_ms - self._at_ms < RENEW_AFTER_MS:
            return Proposal(problems=problems)
        self._seen, self._pods, self._at_ms = seen, look.pods, look.now_ms
        wanted: list[_Value] = []
        for pod in look.pods:
            if pod.uid in look.frozen:
                continue
            if pod.qos_label == QosClass.BE:
                wanted.extend(self._batch_values(look, pod, is_suppressed_by_quota=by_quota) if self.batch else ())
            else:
                wanted.extend(self._scaled_quotas(look, pod))
        plans = [
            Plan(
                plugin=plugin,
                # CPU burst raises the quotas that normalization sets; its plans have a higher band
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

    def _batch_values(self, look: NodeLook, pod: AgentPod, *, is_suppressed_by_quota: bool) -> Iterator[_Value]:
        batch = batch_containers(pod.containers, pod.annotations)
        if batch is None:
            return
        ratio = self._ratio
        of_pod = pod_batch_values(batch, ratio=ratio, is_suppressed_by_quota=is_suppressed_by_quota)
        yield from _values(look.pod_directory(pod), of_pod)
        for container, directory in _containers(look, pod):
            if container.name in batch:
                values = container_batch_values(
                    batch[container.name], ratio=ratio, is_suppressed_by_quota=is_suppressed_by_quota
                )
                yield from _values(directory, values)

    def _scaled_quotas(self, look: NodeLook, pod: AgentPod) -> Iterator[_Value]:
        if self._ratio is None:
            return
        try:
            status = status_of_pod(pod)
        except InvalidInput:
            return
        limits = [(directory, container.limits.get(CPU, 0)) for container, directory in _containers(look, pod)]
        if all(container.limits.get(CPU, 0) > 0 for container in pod.containers):
            # with an unlimited container, the kubelet gives the pod no quota
            limits.append((look.pod_directory(pod), pod.limits.get(CPU, 0)))
        for directory, limit_milli in limits:
            quota = normalized_quota_us(self._ratio, pod.qos_label, status, milli_to_quota_us(limit_milli))
            if quota is not None:
                yield NORMALIZATION_PLUGIN, CgroupFile(directory, QUOTA), quota


def _values(directory: str, values: BatchValues) -> Iterator[_Value]:
    yield BATCH_PLUGIN, CgroupFile(directory, SHARES), values.cpu_shares
    yield BATCH_PLUGIN, CgroupFile(directory, QUOTA), values.cfs_quota_us
    yield BATCH_PLUGIN, CgroupFile(directory, MEMORY_LIMIT), values.memory_limit_bytes


def _containers(look: NodeLook, pod: AgentPod) -> Iterator[tuple[AgentContainer, str]]:
    """Yield the containers that exist, with their directories."""
    for container in pod.containers:
        if container.container_id:
            try:
                yield container, look.container_directory(pod, container.container_id)
            except UnknownContainerId:
                continue
