"""Feature gates of the agent with their defaults.

Source: agent spec, 2.1; runtime spec, 2.9.
"""

from typing import Final

from koordcore.service.flags import Gate, Stage

from koord_agent.domain import gate_names as gates
from koord_agent.domain.strategies.evict.cpu_evict import BE_CPU_EVICT, CPU_EVICT
from koord_agent.domain.strategies.evict.memory_evict import BE_MEMORY_EVICT, MEMORY_EVICT
from koord_agent.domain.strategies.evict.thresholds import CPU_ALLOCATABLE_EVICT, MEMORY_ALLOCATABLE_EVICT

NODE_METRIC_PROM_METRICS: Final = "NodeMetricPromMetrics"
PER_CPU_METRIC: Final = "PerCPUMetric"
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
    gates.BE_CPU_SUPPRESS,
    gates.CPU_BURST,
    gates.RDT_RESCTRL,
    "NodeTopologyReport",
    gates.GROUP_IDENTITY,
    gates.CPUSET_ALLOCATOR,
    gates.BATCH_RESOURCE,
)
_ALPHA: Final = (
    gates.BE_CPU_MANAGER,
    *EVICTIONS,
    gates.CGROUP_RECONCILE,
    gates.BLKIO_RECONCILE,
    gates.SYSTEM_CONFIG,
    gates.CORE_SCHED,
    "Accelerators",
    "RDMADevices",
    "CPICollector",
    "Libpfm4",
    "PSICollector",
    "ResctrlCollector",
    "ColdPageCollector",
    "HugePageReport",
    gates.POD_RESOURCES_PROXY,
    NODE_METRIC_PROM_METRICS,
    PER_CPU_METRIC,
    gates.HAMI_MONITOR,
    gates.CPU_NORMALIZATION,
    gates.GPU_ENV_INJECT,
    gates.RDMA_DEVICE_INJECT,
    gates.RESCTRL,
    gates.OOM_SCORE_ADJ,
    gates.TERWAY_QOS,
    gates.TC_NETWORK_QOS,
    AUDIT_EVENTS,
    AUDIT_EVENTS_HTTP,
)

_WITHOUT_EFFECT: Final = {"Libpfm4": "the counters of CPICollector are always opened as one group of perf events"}

GATES: Final = (
    *(Gate(name, default=True, stage=Stage.BETA) for name in _BETA),
    *(Gate(name, False, Stage.ALPHA, _WITHOUT_EFFECT.get(name, "")) for name in _ALPHA),
)
"""Every gate that the agent knows."""
