"""Quota of latency-sensitive pods on a node with a CPU normalization ratio.

Source: runtime spec, 1.2 (scale), 3.4 (CPUNormalization). Vectors: cpunormalization_hook.
"""

import math
from collections.abc import Mapping

from koordcore.protocol.annotations.normalization import parse_cpu_normalization_ratio
from koordcore.protocol.qos import QosClass
from koordcore.values.invalid import InvalidInput

from koord_agent.domain.hooks.cpuset import ResourceStatus
from koord_agent.domain.kernel.cgroup_files import MIN_QUOTA_US


def normalization_ratio(annotations: Mapping[str, str]) -> float | None:
    """Return the ratio of a node. None if it has none or a malformed one."""
    try:
        return parse_cpu_normalization_ratio(annotations)
    except InvalidInput:
        return None


def scaled_quota_us(quota_us: int, ratio: float) -> int:
    """Return the max(1000, ceil(quota / ratio)) if the quota is limited and the ratio above 1, else the quota."""
    return max(MIN_QUOTA_US, math.ceil(quota_us / ratio)) if quota_us > 0 and ratio > 1 else quota_us


def normalized_quota_us(
    ratio: float | None, qos_label: str, status: ResourceStatus, quota_us: int | None
) -> int | None:
    """Return the quota of a pod or container. None leaves it alone.

    Args:
        ratio: Of the node. None if there is none.
        qos_label: QoS class of the pod, "" means none. Only LS and none are scaled. A pod of no class that owns CPUs
            counts
            as LSR.
        status: What the scheduler gave to the pod.
        quota_us: Quota of its limits. None or not above 0 means unlimited.
    """
    if ratio is None or quota_us is None or quota_us <= 0 or qos_label not in ("", QosClass.LS):
        return None
    if not qos_label and status.cpuset:
        return None
    return scaled_quota_us(quota_us, ratio)
