"""Settings of CPU suppression."""

from dataclasses import dataclass
from enum import StrEnum


class CpuSuppressPolicy(StrEnum):
    """Method with which best-effort pods are suppressed."""

    CPUSET = "cpuset"
    CFS_QUOTA = "cfsQuota"


@dataclass(frozen=True, slots=True, kw_only=True)
class SuppressPolicy:
    """Settings of CPU suppression of a node: `resourceUsedThresholdWithBE`.

    Attributes:
        enable: Whether best effort is suppressed.
        threshold_percent: Share of the CPU of the node that all pods together may use.
        min_percent: Share that best effort keeps in any case. None means not set, 0 is a value.
        by: The file that holds best effort back.
    """

    enable: bool
    threshold_percent: int = 65
    min_percent: int | None = None
    by: CpuSuppressPolicy = CpuSuppressPolicy.CPUSET
