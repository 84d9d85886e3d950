"""CPU shares, quota and memory limit of best-effort pods by their batch resources.

Source: runtime spec, 3.4 (BatchResource). Vectors: batchresource_hook.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
from koordcore.protocol import keys
from koordcore.protocol.lenient_json import decode
from koordcore.protocol.resource_names import BATCH_CPU, BATCH_MEMORY
from koordcore.values.invalid import InvalidInput
from koordcore.values.quantity import quantity_from_json
from koordcore.values.resources import Amounts

from koord_agent.domain.hooks.cpu_normalization import scaled_quota_us
from koord_agent.domain.kernel.cgroup_files import UNLIMITED, milli_to_quota_us, milli_to_shares
from koord_agent.domain.state.pods import AgentContainer

CFS_QUOTA_POLICY = "cfsQuota"


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchContainer:
    """Batch resources of one container: cpu in milli-cores, memory in bytes. A missing limit means unlimited."""

    requests: Amounts = field(default_factory=dict[str, int])
    limits: Amounts = field(default_factory=dict[str, int])


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchValues:
    """Values for the cgroup files of a best-effort pod or container; -1 means unlimited.

    Attributes:
        cpu_shares: Value of cpu.shares.
        cfs_quota_us: CPU quota in microseconds per period of 100 ms.
        memory_limit_bytes: Memory limit in bytes.
    """

    cpu_shares: int
    cfs_quota_us: int
    memory_limit_bytes: int


class _Resources(msgspec.Struct):
    requests: dict[str, str | int | float | None] = {}
    limits: dict[str, str | int | float | None] = {}


class _ExtendedSpec(msgspec.Struct):
    containers: dict[str, _Resources] | None = None


def batch_containers(
    containers: Iterable[AgentContainer], annotations: Mapping[str, str]
) -> dict[str, BatchContainer] | None:
    """Return the batch resources of a pod by container name.

    Args:
        containers: Containers of the pod's spec; empty if unknown. Batch resources in the spec take precedence.
        annotations: Annotations of the pod. An invalid extended-resource-spec counts as absent.

    Returns:
        None if the pod has no batch resources.
    """
    of_spec = {
        one.name: BatchContainer(requests=_batch(one.requests), limits=_batch(one.limits))
        for one in containers
        if not one.is_init and (_batch(one.requests) or _batch(one.limits))
    }
    if of_spec:
        return of_spec
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


def pod_batch_values(
    containers: Mapping[str, BatchContainer], *, ratio: float | None = None, is_suppressed_by_quota: bool = False
) -> BatchValues:
    """Return the values for the cgroup of a pod: sums over its containers.

    If one container has no limit for CPU (or memory), the pod has none for it, either.

    Args:
        containers: Container name -> batch resources.
        ratio: CPU normalization ratio of the node. None if there is none.
        is_suppressed_by_quota: Whether CPU suppression limits the best-effort class by its quota. Then the quota of
            pods is unlimited.
    """
    listed = tuple(containers.values())
    shares = milli_to_shares(sum(max(one.requests.get(BATCH_CPU, 0), 0) for one in listed))
    quota = milli_to_quota_us(_sum(listed, BATCH_CPU))
    memory = _sum(listed, BATCH_MEMORY)
    return _values(shares, quota, memory, ratio, is_suppressed_by_quota=is_suppressed_by_quota)


def container_batch_values(
    container: BatchContainer, *, ratio: float | None = None, is_suppressed_by_quota: bool = False
) -> BatchValues:
    """Return the values for the cgroup of one container. A missing limit gives -1, a missing request the least shares.

    Args:
        container: Batch resources of the container.
        ratio: CPU normalization ratio of the node. None if there is none.
        is_suppressed_by_quota: Whether CPU suppression limits the best-effort class by its quota. Then the quota of
            the container is unlimited.
    """
    quota = milli_to_quota_us(container.limits.get(BATCH_CPU, 0))
    memory = container.limits.get(BATCH_MEMORY, 0)
    shares = milli_to_shares(container.requests.get(BATCH_CPU, 0))
    return _values(shares, quota, memory, ratio, is_suppressed_by_quota=is_suppressed_by_quota)


def is_suppressed_by_quota(threshold: Mapping[str, Any]) -> bool:
    """Return whether CPU suppression limits the best-effort class by its quota.

    Then the quotas of pods have to be unlimited, because a quota must not exceed that of the parent.

    Args:
        threshold: The section `resourceUsedThresholdWithBE` of the NodeSLO as JSON.
    """
    return bool(threshold.get("enable")) and threshold.get("cpuSuppressPolicy") == CFS_QUOTA_POLICY


def _values(
    shares: int, quota_us: int, memory: int, ratio: float | None, *, is_suppressed_by_quota: bool
) -> BatchValues:
    return BatchValues(
        cpu_shares=shares,
        cfs_quota_us=UNLIMITED if is_suppressed_by_quota else scaled_quota_us(quota_us, ratio or 1.0),
        memory_limit_bytes=memory if memory > 0 else UNLIMITED,
    )


def _sum(containers: Iterable[BatchContainer], resource: str) -> int:
    """Return the sum of the limits; 0 (unlimited) if a container has no limit or there is no container."""
    limits = [container.limits.get(resource, 0) for container in containers]
    return sum(limits) if limits and all(limit > 0 for limit in limits) else 0


def _batch(amounts: Amounts) -> dict[str, int]:
    return {name: amounts[name] for name in (BATCH_CPU, BATCH_MEMORY) if name in amounts}


def _amounts(written: Mapping[str, str | int | float | None]) -> dict[str, int]:
    return {
        name: quantity_from_json(written[name]).value()
        for name in (BATCH_CPU, BATCH_MEMORY)
        if written.get(name) is not None
    }
