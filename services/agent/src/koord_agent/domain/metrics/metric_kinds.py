"""Names of the series that the agent keeps, as the protocol spells them, and their labels.

Source: agent spec, 5.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final


class Kind(StrEnum):
    """`LABELS` names the labels that identify one series of a kind, for example the UID of the pod."""

    NODE_CPU = "node_cpu_usage"
    NODE_MEMORY = "node_memory_usage"
    NODE_MEMORY_WITH_PAGE_CACHE = "node_memory_usage_with_page_cache"
    NODE_MEMORY_WITH_HOT_PAGE = "node_memory_with_hot_page_usage"
    NODE_MEMORY_COLD_PAGE = "node_memory_cold_page_size"
    SYSTEM_CPU = "sys_cpu_usage"
    SYSTEM_MEMORY = "sys_memory_usage"
    NUMA_CPU = "node_numa_cpu_usage"
    NUMA_MEMORY = "node_numa_memory_usage"
    SYSTEM_NUMA_CPU = "sys_numa_cpu_usage"
    SYSTEM_NUMA_MEMORY = "sys_numa_memory_usage"
    BE_CPU_USAGE = "node_be/cpu/usage"
    BE_CPU_REAL_LIMIT = "node_be/cpu/real-limit"
    BE_CPU_REQUEST = "node_be/cpu/request"
    POD_CPU = "pod_cpu_usage"
    POD_MEMORY = "pod_memory_usage"
    POD_MEMORY_WITH_PAGE_CACHE = "pod_memory_usage_with_page_cache"
    POD_MEMORY_WITH_HOT_PAGE = "pod_memory_with_hot_page_usage"
    POD_MEMORY_COLD_PAGE = "pod_memory_cold_page_size"
    POD_CPU_THROTTLED = "pod_cpu_throttled"
    CONTAINER_CPU = "container_cpu_usage"
    CONTAINER_MEMORY = "container_memory_usage"
    CONTAINER_MEMORY_WITH_PAGE_CACHE = "container_memory_usage_with_page_cache"
    CONTAINER_MEMORY_WITH_HOT_PAGE = "container_memory_with_hot_page_usage"
    CONTAINER_MEMORY_COLD_PAGE = "container_memory_cold_page_size"
    CONTAINER_CPU_THROTTLED = "container_cpu_throttled"
    HOST_APP_CPU = "host_application_cpu_usage"
    HOST_APP_MEMORY = "host_application_memory_usage"
    HOST_APP_MEMORY_WITH_PAGE_CACHE = "host_application_memory_usage_with_page_cache"
    HOST_APP_MEMORY_WITH_HOT_PAGE = "host_application_memory_with_hot_page_usage"
    HOST_APP_MEMORY_COLD_PAGE = "host_application_memory_cold_page_size"
    CONTAINER_CPI = "container_cpi"
    POD_PSI = "pod_psi"
    CONTAINER_PSI = "container_psi"
    POD_PSI_CPU_FULL_SUPPORTED = "pod_psi_cpu_full_supported"
    CONTAINER_PSI_CPU_FULL_SUPPORTED = "container_psi_cpu_full_supported"
    RESCTRL_LLC = "resctrl_resource_llc"
    RESCTRL_MB = "resctrl_resource_mb"
    POD_SCHED_DELAY = "pod_sched_delay"
    """Mean wait of the pod's threads for a CPU per time slice, in milliseconds (18)."""
    POD_MEMORY_ALLOC_STALL = "pod_memory_alloc_stall"
    """Share of time in which a thread waited for memory (18)."""
    POD_DISK_AWAIT = "pod_disk_await"
    """Milliseconds per request to the disks of the pod (18)."""
    POD_TCP_RETRANSMIT = "pod_tcp_retransmit"
    """Share of the pod's TCP segments that were retransmitted (18)."""
    NODE_GPU_CORE = "node_gpu_core_usage"
    NODE_GPU_MEMORY = "node_gpu_memory_usage"
    POD_GPU_CORE = "pod_gpu_core_usage"
    POD_GPU_MEMORY = "pod_gpu_memory_usage"
    CONTAINER_GPU_CORE = "container_gpu_core_usage"
    CONTAINER_GPU_MEMORY = "container_gpu_memory_usage"
    EXTENSION = "extension"
    """Values of collectors of installed packages (22)."""


_POD: Final = ("pod_uid",)
_CONTAINER: Final = ("container_id",)
_HOST_APP: Final = ("host_app_name",)
_NUMA: Final = ("numa_node_id",)
_GPU: Final = ("gpu_minor", "gpu_device_uuid")
_PSI: Final = ("psi_resource", "psi_precision", "psi_degree")

LABELS: Final[Mapping[Kind, tuple[str, ...]]] = {
    Kind.NODE_CPU: (),
    Kind.NODE_MEMORY: (),
    Kind.NODE_MEMORY_WITH_PAGE_CACHE: (),
    Kind.NODE_MEMORY_WITH_HOT_PAGE: (),
    Kind.NODE_MEMORY_COLD_PAGE: (),
    Kind.SYSTEM_CPU: (),
    Kind.SYSTEM_MEMORY: (),
    Kind.NUMA_CPU: _NUMA,
    Kind.NUMA_MEMORY: _NUMA,
    Kind.SYSTEM_NUMA_CPU: _NUMA,
    Kind.SYSTEM_NUMA_MEMORY: _NUMA,
    Kind.BE_CPU_USAGE: (),
    Kind.BE_CPU_REAL_LIMIT: (),
    Kind.BE_CPU_REQUEST: (),
    Kind.POD_CPU: _POD,
    Kind.POD_MEMORY: _POD,
    Kind.POD_MEMORY_WITH_PAGE_CACHE: _POD,
    Kind.POD_MEMORY_WITH_HOT_PAGE: _POD,
    Kind.POD_MEMORY_COLD_PAGE: _POD,
    Kind.POD_CPU_THROTTLED: _POD,
    Kind.CONTAINER_CPU: _CONTAINER,
    Kind.CONTAINER_MEMORY: _CONTAINER,
    Kind.CONTAINER_MEMORY_WITH_PAGE_CACHE: _CONTAINER,
    Kind.CONTAINER_MEMORY_WITH_HOT_PAGE: _CONTAINER,
    Kind.CONTAINER_MEMORY_COLD_PAGE: _CONTAINER,
    Kind.CONTAINER_CPU_THROTTLED: _CONTAINER,
    Kind.HOST_APP_CPU: _HOST_APP,
    Kind.HOST_APP_MEMORY: _HOST_APP,
    Kind.HOST_APP_MEMORY_WITH_PAGE_CACHE: _HOST_APP,
    Kind.HOST_APP_MEMORY_WITH_HOT_PAGE: _HOST_APP,
    Kind.HOST_APP_MEMORY_COLD_PAGE: _HOST_APP,
    Kind.CONTAINER_CPI: ("pod_uid", "container_id", "cpi_resource"),
    Kind.POD_PSI: ("pod_uid", *_PSI),
    Kind.CONTAINER_PSI: ("pod_uid", "container_id", *_PSI),
    Kind.POD_PSI_CPU_FULL_SUPPORTED: _POD,
    Kind.CONTAINER_PSI_CPU_FULL_SUPPORTED: ("pod_uid", "container_id"),
    Kind.RESCTRL_LLC: ("qos", "cache_id"),
    Kind.RESCTRL_MB: ("qos", "cache_id", "resctrl_mb_type"),
    Kind.POD_SCHED_DELAY: _POD,
    Kind.POD_MEMORY_ALLOC_STALL: _POD,
    Kind.POD_DISK_AWAIT: _POD,
    Kind.POD_TCP_RETRANSMIT: _POD,
    Kind.NODE_GPU_CORE: _GPU,
    Kind.NODE_GPU_MEMORY: _GPU,
    Kind.POD_GPU_CORE: (*_POD, *_GPU),
    Kind.POD_GPU_MEMORY: (*_POD, *_GPU),
    Kind.CONTAINER_GPU_CORE: (*_CONTAINER, *_GPU),
    Kind.CONTAINER_GPU_MEMORY: (*_CONTAINER, *_GPU),
    Kind.EXTENSION: ("collector", "metric", "of"),
}
"""Kind -> names of its labels, in the order of the values of `of`."""

PSI_PRECISION: Final = "10"
CYCLES: Final = "cycle"
INSTRUCTIONS: Final = "instruction"
