"""Feature gates of the agent with their defaults.

Source: agent spec, 2.1; runtime spec, 2.9.
"""

from typing import Final

from koordcore.service.configuration.gates import Gate, Stage, parse_feature_gates

from koord_agent.domain.gate_names import (
    BATCH_RESOURCE,
    BE_CPU_MANAGER,
    BE_CPU_SUPPRESS,
    BLKIO_RECONCILE,
    CGROUP_RECONCILE,
    CORE_SCHED,
    CPU_BURST,
    CPU_NORMALIZATION,
    CPUSET_ALLOCATOR,
    GPU_ENV_INJECT,
    GROUP_IDENTITY,
    HAMI_MONITOR,
    OOM_SCORE_ADJ,
    POD_RESOURCES_PROXY,
    RDMA_DEVICE_INJECT,
    RDT_RESCTRL,
    RESCTRL,
    SYSTEM_CONFIG,
    TC_NETWORK_QOS,
    TERWAY_QOS,
)
from koord_agent.domain.qos.evict.allocatable_evict import CPU_ALLOCATABLE_EVICT, MEMORY_ALLOCATABLE_EVICT
from koord_agent.domain.qos.evict.cpu_evict import BE_CPU_EVICT, CPU_EVICT
from koord_agent.domain.qos.evict.memory_evict import BE_MEMORY_EVICT, MEMORY_EVICT

NODE_METRIC_PROM_METRICS: Final = "NodeMetricPromMetrics"
AUDIT_EVENTS: Final = "AuditEvents"
AUDIT_EVENTS_HTTP: Final = "AuditEventsHTTPHandler"
EVICTIONS: Final = (
    BE_CPU_EVICT,
    CPU_ALLOCATABLE_EVICT,
    CPU_EVICT,
    BE_MEMORY_EVICT,
    MEMORY_ALLOCATABLE_EVICT,
    MEMORY_EVICT,
)

_BETA: Final = (
    BE_CPU_SUPPRESS,
    CPU_BURST,
    RDT_RESCTRL,
    "NodeTopologyReport",
    GROUP_IDENTITY,
    CPUSET_ALLOCATOR,
    BATCH_RESOURCE,
)
_ALPHA: Final = (
    BE_CPU_MANAGER,
    *EVICTIONS,
    CGROUP_RECONCILE,
    BLKIO_RECONCILE,
    SYSTEM_CONFIG,
    CORE_SCHED,
    "Accelerators",
    "RDMADevices",
    "CPICollector",
    "Libpfm4",
    "PSICollector",
    "ResctrlCollector",
    "ColdPageCollector",
    "HugePageReport",
    POD_RESOURCES_PROXY,
    NODE_METRIC_PROM_METRICS,
    "PerCPUMetric",
    HAMI_MONITOR,
    CPU_NORMALIZATION,
    GPU_ENV_INJECT,
    RDMA_DEVICE_INJECT,
    RESCTRL,
    OOM_SCORE_ADJ,
    TERWAY_QOS,
    TC_NETWORK_QOS,
    AUDIT_EVENTS,
    AUDIT_EVENTS_HTTP,
)

GATES: Final = (
    *(Gate(name, default=True, stage=Stage.BETA) for name in _BETA),
    *(Gate(name, default=False, stage=Stage.ALPHA) for name in _ALPHA),
)
"""Every gate that the agent knows."""
DEFAULT_GATES: Final = parse_feature_gates([], GATES)
