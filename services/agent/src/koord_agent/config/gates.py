"""Feature gates of the agent with their defaults.

Source: agent spec, 2.1.
"""

from typing import Final

from koordcore.service.configuration.gates import Gate, Stage, parse_feature_gates

from koord_agent.domain.gate_names import (
    BE_CPU_MANAGER,
    BE_CPU_SUPPRESS,
    BLKIO_RECONCILE,
    CGROUP_RECONCILE,
    CORE_SCHED,
    CPU_BURST,
    CPUSET_ALLOCATOR,
    GROUP_IDENTITY,
    RDT_RESCTRL,
    SYSTEM_CONFIG,
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

_BETA: Final = (BE_CPU_SUPPRESS, CPU_BURST, RDT_RESCTRL, "NodeTopologyReport", GROUP_IDENTITY, CPUSET_ALLOCATOR)
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
    "PodResourcesProxy",
    NODE_METRIC_PROM_METRICS,
    "PerCPUMetric",
    "HamiCoreVGPUMonitor",
    AUDIT_EVENTS,
    AUDIT_EVENTS_HTTP,
)

GATES: Final = (
    *(Gate(name, default=True, stage=Stage.BETA) for name in _BETA),
    *(Gate(name, default=False, stage=Stage.ALPHA) for name in _ALPHA),
)
"""Every gate that the agent knows."""
DEFAULT_GATES: Final = parse_feature_gates([], GATES)
