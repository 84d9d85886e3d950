"""Settings of CPU suppression."""

from dataclasses import dataclass
from enum import StrEnum


class CpuSuppressPolicy(StrEnum):
    """Kind of file with which CPU suppression limits best-effort pods: a CPU quota or CPU lists."""

    CPUSET = "cpuset"
    CFS_QUOTA = "cfsQuota"


@dataclass(frozen=True, slots=True, kw_only=True)
class SuppressPolicy:
    """Settings of CPU suppression of a node: `resourceUsedThresholdWithBE`.

    Attributes:
        enable: Whether best-effort pods are suppressed.
        threshold_percent: Percentage of the node's CPU that all pods together may use.
        min_percent: Percentage of the node's CPU that best effort always keeps. None: no such minimum.
        by: Whether the cpusets or the CFS quota of best-effort pods are limited.
    """

    enable: bool
    threshold_percent: int = 65
    min_percent: int | None = None
    by: CpuSuppressPolicy = CpuSuppressPolicy.CPUSET
