"""What ElasticQuota is told: its plugin arguments and the feature gates that concern it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from koordcore.protocol.resource_names import CPU, MEMORY

UNLIMITED_UNITS: Final = ((1 << 63) - 1) // 5
"""Default maximum of the default and the system quota, in cores and in bytes."""


def unlimited() -> dict[str, int]:
    """That maximum as amounts."""
    return {CPU: UNLIMITED_UNITS * 1000, MEMORY: UNLIMITED_UNITS}


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaGates:
    """Feature gates; every default is off.

    Source:
        scheduler-core spec, 15
    """

    multi_quota_tree: bool = False
    ignore_pod_overhead: bool = False
    ignore_terminating_pod: bool = False
    immediate_ignore_terminating_pod: bool = False
    guarantee_usage: bool = False
    disable_default_quota: bool = False
    support_parent_quota_submit_pod: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaSettings:
    """ElasticQuotaArgs with their defaults. Durations are seconds, maxima amounts.

    Attributes:
        monitor_all_quotas: Switches the revoke of overuse on (it also needs enable_runtime_quota).
        delay_evict_seconds: How long a quota may be over its runtime before pods are revoked.
        revoke_pod_interval_seconds: How often that is looked at.
        quota_snapshot_interval_seconds: Accepted; hints here read the present quotas, which are never older.

    Source:
        scheduler-core spec, 4.1
    """

    delay_evict_seconds: float = 120.0
    revoke_pod_interval_seconds: float = 1.0
    default_quota_group_max: Mapping[str, int] = field(default_factory=unlimited)
    system_quota_group_max: Mapping[str, int] = field(default_factory=unlimited)
    quota_group_namespace: str = "koordinator-system"
    monitor_all_quotas: bool = False
    enable_check_parent_quota: bool = False
    enable_runtime_quota: bool = True
    enable_min_quota_scale: bool = True
    disable_default_quota_preemption: bool = True
    enable_queue_hint: bool = False
    quota_snapshot_interval_seconds: float = 120.0
    gates: QuotaGates = field(default_factory=QuotaGates)

    @property
    def revokes_overuse(self) -> bool:
        """Whether pods of quotas above their runtime are revoked.

        Source:
            scheduler-core spec, 10.8
        """
        return self.monitor_all_quotas and self.enable_runtime_quota
