"""The scheduler's feature gates.

Source: scheduler-core spec, 15
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Final, Self

_SPELLED: Final = {
    "compatible_csi_storage_capacity": "CompatibleCSIStorageCapacity",
    "disable_csi_storage_capacity_informer": "DisableCSIStorageCapacityInformer",
}


_NO_API_SERVER: Final = "the scheduler reads no API server"
WITHOUT_EFFECT: Final[Mapping[str, str]] = {
    "SyncBarrier": "a new leader always folds the whole log first",
    "SkipFilterWithNominatedPods": "Filters always run without nominated pods",
    "EnableBatchScheduleNodeSnapshot": "for a planned job, each node is always evaluated in its present state",
    "LazyReservationRestore": "the unused amounts of Reservations are kept up to date, not restored in each cycle",
    "CompatibleCSIStorageCapacity": _NO_API_SERVER,
    "DisableCSIStorageCapacityInformer": _NO_API_SERVER,
    "CompatiblePodDisruptionBudget": _NO_API_SERVER,
    "DisablePodDisruptionBudgetInformer": _NO_API_SERVER,
    "DisableDynamicResourceAllocationInformer": _NO_API_SERVER,
}
"""Gate that is accepted without effect -> why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerGates:
    """The scheduler's feature gates, each True if it is on. Those in `WITHOUT_EFFECT` are accepted without effect."""

    resize_pod: bool = False
    multi_quota_tree: bool = False
    elastic_quota_ignore_pod_overhead: bool = False
    elastic_quota_ignore_terminating_pod: bool = False
    elastic_quota_immediate_ignore_terminating_pod: bool = False
    elastic_quota_guarantee_usage: bool = False
    disable_default_quota: bool = False
    support_parent_quota_submit_pod: bool = False
    skip_filter_with_nominated_pods: bool = False
    cross_scheduler_nomination: bool = False
    dynamic_scheduler_check: bool = True
    sync_barrier: bool = False
    gang_pending_pods_condition_patch: bool = True
    enable_inline_batch_schedule: bool = False
    enable_batch_schedule_node_snapshot: bool = True
    priority_transformer: bool = False
    preemption_policy_transformer: bool = False
    replace_resources_transformer: bool = False
    lazy_reservation_restore: bool = False
    omit_node_labels_for_reservation: bool = False
    skip_reservation_fits_node: bool = False
    device_plugin_adaption: bool = False
    clean_expired_reservation_allocated: bool = False
    compatible_csi_storage_capacity: bool = False
    disable_csi_storage_capacity_informer: bool = False
    compatible_pod_disruption_budget: bool = False
    disable_pod_disruption_budget_informer: bool = False
    disable_dynamic_resource_allocation_informer: bool = False

    @classmethod
    def from_values(cls, values: Mapping[str, bool]) -> Self:
        """Return gates from the flag `--feature-gates`: name such as `ResizePod` -> whether it is on. Gates that the
        mapping does not name have their defaults. Unknown names are ignored.
        """
        defaults = cls()
        return cls(**{f.name: values.get(gate_name(f.name), getattr(defaults, f.name)) for f in fields(cls)})


def gate_name(attribute: str) -> str:
    """Return the command-line name of a gate for its attribute: `resize_pod` -> `ResizePod`."""
    return _SPELLED.get(attribute) or "".join(word.capitalize() for word in attribute.split("_"))


def gate_defaults() -> dict[str, bool]:
    """Return the command-line name of each gate -> whether it is on by default."""
    defaults = SchedulerGates()
    return {gate_name(f.name): bool(getattr(defaults, f.name)) for f in fields(SchedulerGates)}
