"""CPU quota of latency-sensitive pods on a node with a CPU normalization ratio.

Source: runtime spec, 1.2 (scale), 3.4 (CPUNormalization). Vectors: cpunormalization_hook.
"""

import math
from collections.abc import Mapping

from koordcore.protocol.amplification import parse_cpu_normalization_ratio
from koordcore.protocol.qos import QosClass
from koordcore.values.invalid import InvalidInput

from koord_agent.domain.hooks.cpuset import ResourceStatus
from koord_agent.domain.kernel.cgroup_files import MIN_QUOTA_US


def normalization_ratio(annotations: Mapping[str, str]) -> float | None:
    """Return the CPU normalization ratio in the annotations of a node; None if it is absent or invalid."""
    try:
        return parse_cpu_normalization_ratio(annotations)
    except InvalidInput:
        return None


def scaled_quota_us(quota_us: int, ratio: float) -> int:
    """Return the CFS quota for a CPU that is `ratio` times as fast as normal: max(1000, ceil(quota / ratio)).

    If the quota is unlimited or the ratio is at most 1, return the quota.

    Args:
        quota_us: CFS quota in microseconds per period; at most 0: unlimited.
        ratio: CPU normalization ratio of the node.
    """
    return max(MIN_QUOTA_US, math.ceil(quota_us / ratio)) if quota_us > 0 and ratio > 1 else quota_us


def normalized_quota_us(
    ratio: float | None, qos_label: str, status: ResourceStatus, quota_us: int | None
) -> int | None:
    """Return the quota of a pod or container; None if it must not be changed.

    Args:
        ratio: CPU normalization ratio of the node; None if there is none.
        qos_label: QoS label of the pod, "" for none. Only LS pods and pods without label are scaled. A pod without
            label that owns CPUs counts as LSR.
        status: CPUs and NUMA nodes that the scheduler assigned to the pod.
        quota_us: Quota of its limits. None, 0 or less means unlimited.
    """
    if ratio is None or quota_us is None or quota_us <= 0 or qos_label not in ("", QosClass.LS):
        return None
    if not qos_label and status.cpuset:
        return None
    return scaled_quota_us(quota_us, ratio)
