"""Names of the series that this agent keeps, as the protocol spells them (agent spec, 5)."""

from enum import StrEnum


class Kind(StrEnum):
    """Metric kind; the object of a series is "" for the node, else pod uid, NUMA node id or application name."""

    NODE_CPU = "node_cpu_usage"
    NODE_MEMORY = "node_memory_usage"
    NODE_MEMORY_WITH_PAGE_CACHE = "node_memory_usage_with_page_cache"
    NODE_MEMORY_WITH_HOT_PAGE = "node_memory_with_hot_page_usage"
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
    POD_CPU_THROTTLED = "pod_cpu_throttled"
    HOST_APP_CPU = "host_application_cpu_usage"
    HOST_APP_MEMORY = "host_application_memory_usage"
    HOST_APP_MEMORY_WITH_PAGE_CACHE = "host_application_memory_usage_with_page_cache"
    HOST_APP_MEMORY_WITH_HOT_PAGE = "host_application_memory_with_hot_page_usage"
