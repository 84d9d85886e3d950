"""The agent's feature gates with their defaults (agent spec, 2.1)."""

from typing import Final

from koordcore.service.configuration.gates import Gate, Stage

BE_CPU_SUPPRESS: Final = "BECPUSuppress"
CPU_BURST: Final = "CPUBurst"
RDT_RESCTRL: Final = "RdtResctrl"
BE_CPU_MANAGER: Final = "BECPUManager"
CGROUP_RECONCILE: Final = "CgroupReconcile"
BLKIO_RECONCILE: Final = "BlkIOReconcile"
SYSTEM_CONFIG: Final = "SystemConfig"
GROUP_IDENTITY: Final = "GroupIdentity"
CORE_SCHED: Final = "CoreSched"
NODE_METRIC_PROM_METRICS: Final = "NodeMetricPromMetrics"
AUDIT_EVENTS: Final = "AuditEvents"
AUDIT_EVENTS_HTTP: Final = "AuditEventsHTTPHandler"
EVICTIONS: Final = (
    "BECPUEvict",
    "CPUAllocatableEvict",
    "CPUEvict",
    "BEMemoryEvict",
    "MemoryAllocatableEvict",
    "MemoryEvict",
)

_BETA: Final = (BE_CPU_SUPPRESS, CPU_BURST, RDT_RESCTRL, "NodeTopologyReport", GROUP_IDENTITY)
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
