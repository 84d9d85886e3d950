"""The metrics about nodes and pods that are read at each scrape: their names, labels and meanings.

Names and labels are those of Koordinator's agent.

Source: agent spec, 21.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from prometheus_client.core import GaugeMetricFamily

PREFIX: Final = "koordlet_"
_AMOUNT: Final = ("node", "resource", "unit")
_PREDICTED: Final = ("node", "predictor", "resource", "unit")
_NUMA: Final = ("node", "numa_node_id", "resource", "unit")
_LOOKS: Final = ("node", "status")
PER_POD: Final[tuple[str, ...]] = ("node", "pod_namespace", "pod_name", "pod_uid")
PER_CONTAINER: Final[tuple[str, ...]] = (*PER_POD, "container_id", "container_name")
PSI: Final = ("psi_resource_type", "psi_precision", "psi_degree", "cpu_full_supported")
_SCALED: Final = ("node", "pod_namespace", "pod_name", "container_id", "container_name")


class Series(NamedTuple):
    """A metric: a sentence about it, and its labels."""

    meaning: str
    labels: tuple[str, ...]


SERIES: Final[Mapping[str, Series]] = {
    "be_suppress_be_used_cpu_cores": Series("CPU that best-effort pods use, in cores", ("node",)),
    "be_suppress_cpu_cores": Series("CPU that best-effort pods may use, in cores", ("node", "type")),
    "be_suppress_ls_used_cpu_cores": Series("CPU that all other pods use, in cores", ("node",)),
    "collect_node_cpu_info_status": Series("Readings of the node's CPUs, by result", _LOOKS),
    "collect_node_local_storage_info_status": Series("Readings of the node's disks, by result", _LOOKS),
    "collect_node_numa_info_status": Series("Readings of the node's NUMA zones, by result", _LOOKS),
    "container_core_sched_cookie": Series(
        "1 for each container with a core scheduling cookie", (*PER_CONTAINER, "core_sched_group", "core_sched_cookie")
    ),
    "container_cpi": Series("Cycles and instructions of a container in the last window", (*PER_CONTAINER, "cpi_field")),
    "container_oom_score_adj": Series("OOM score that a container's processes have", (*PER_POD, "container_name")),
    "container_psi": Series("Share of time for which a container waited for a resource", (*PER_CONTAINER, *PSI)),
    "container_resource_limits": Series("Limits of a container; cpu in cores", (*PER_CONTAINER, "resource", "unit")),
    "container_resource_requests": Series(
        "Requests of a container; cpu in cores", (*PER_CONTAINER, "resource", "unit")
    ),
    "container_scaled_cfs_burst_us": Series("Burst buffer in the file of a container, in microseconds", _SCALED),
    "container_scaled_cfs_quota_us": Series("CPU quota in the file of a container, in microseconds", _SCALED),
    "core_sched_cookie_manage_status": Series(
        "Core scheduling cookies that were made, by result", ("node", "core_sched_group", "status")
    ),
    "cpuset_be_share_pool_cpu_cores": Series("CPUs that best-effort pods share", ("node",)),
    "cpuset_be_share_pool_info": Series(
        "1 for each CPU that best-effort pods share; needs the gate PerCPUMetric", ("node", "cpu")
    ),
    "cpuset_share_pool_cpu_cores": Series("CPUs that pods without CPUs of their own share", ("node",)),
    "cpuset_share_pool_info": Series(
        "1 for each CPU that pods without CPUs of their own share; needs the gate PerCPUMetric", ("node", "cpu")
    ),
    "extension_metric": Series(
        "Last value of a collector of an installed package", ("node", "collector", "metric", "of")
    ),
    "host_application_resource_usage": Series(
        "Use of a host application; cpu in cores", (*_AMOUNT, "host_application_name", "priority_class", "qos")
    ),
    "node_metric_node_usage": Series("Use of the node in the last report; cpu in cores", _AMOUNT),
    "node_metric_numa_node_usage": Series("Use of a NUMA zone in the last report; cpu in cores", _NUMA),
    "node_metric_numa_system_usage": Series("Use of a NUMA zone by the system in the last report; cpu in cores", _NUMA),
    "node_metric_system_usage": Series("Use by the system in the last report; cpu in cores", _AMOUNT),
    "node_predicted_resource_peak": Series("Predicted peak of the use by production pods; cpu in cores", _PREDICTED),
    "node_predicted_resource_reclaimable": Series(
        "Requests of production pods above their predicted peak; cpu in cores", _PREDICTED
    ),
    "node_priority_resource_reclaimable": Series(
        "Reclaimable resources in the last report; cpu in cores", ("node", "priority", "resource", "unit")
    ),
    "node_resource_allocatable": Series("What pods may request on the node; cpu in cores", _AMOUNT),
    "node_resource_priority_reclaimable_status": Series(
        "0 if reclaimable resources are predicted, else 1", ("node", "priority")
    ),
    "node_used_cpu_cores": Series("CPU that the node uses, in cores", ("node",)),
    "node_used_memory_bytes": Series("Memory that the node uses", ("node",)),
    "pod_psi": Series("Share of time for which a pod waited for a resource", (*PER_POD, *PSI)),
    "resctrl_llc_occupancy": Series(
        "Bytes of a last-level cache that a class of pods occupies", ("node", "cache_id", "qos")
    ),
    "resctrl_memory_bandwidth": Series(
        "Memory bandwidth of a class of pods, by cache", ("node", "cache_id", "qos", "mb_type")
    ),
    "tsdb_series": Series("Series in the store of samples", ("node",)),
    "tsdb_size_bytes": Series("Size of the store of samples", ("node",)),
}
"""Name without `PREFIX` -> metric. Each one is a gauge."""


class Families:
    """Prometheus metric families by name. A family is created with its first sample."""

    def __init__(self) -> None:
        self.all: dict[str, GaugeMetricFamily] = {}

    def add(self, name: str, labels: Mapping[str, str], value: float | None) -> None:
        """Each label needs a value. No-op if the value is None."""
        if value is None:
            return
        meaning, names = SERIES[name]
        family = self.all.get(name)
        if family is None:
            family = self.all[name] = GaugeMetricFamily(PREFIX + name, meaning, labels=names)
        family.add_metric([labels[label] for label in names], value)
