"""The sections of slo-controller-config: one struct with the fields of each, their layouts and special rules.

Source:
    protocol spec, 6.1 to 6.9; manager spec, 16.1
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Final

import msgspec

from koordcore.protocol.config.fields import Bounds, JsonObject, Kind, Part, Range, accepts, defaults_of
from koordcore.values.duration import parse_seconds

_PERCENT: Final = Range(minimum=0, maximum=100)
_NOT_NEGATIVE: Final = Range(minimum=0)
_POSITIVE: Final = Range(minimum=0, exclusive_minimum=True)
_AT_LEAST_ONE: Final = Range(minimum=1)
_UNIT: Final = Range(minimum=0, maximum=1)
_ABOVE_ZERO_TO_ONE: Final = Range(minimum=0, maximum=1, exclusive_minimum=True)

# checked in written values only
WrittenPercent = Annotated[int, accepts(webhook=_PERCENT)]
WrittenAmount = Annotated[int, accepts(webhook=_NOT_NEGATIVE)]
Switch = Annotated[int, accepts(webhook=_UNIT)]  # of the kernel: 0 or 1
# checked in merged values, and in written ones
Amount = Annotated[int, accepts(runtime=_NOT_NEGATIVE, webhook=_NOT_NEGATIVE)]
Percent = Annotated[int, accepts(runtime=_PERCENT, webhook=_PERCENT)]
Period = Annotated[int, accepts(runtime=_POSITIVE, webhook=_AT_LEAST_ONE)]
Reserved = Annotated[int, accepts(runtime=_NOT_NEGATIVE, webhook=_PERCENT)]
# checked in merged values only
MergedPercent = Annotated[int, accepts(runtime=_PERCENT)]
Count = Annotated[int, accepts(runtime=_NOT_NEGATIVE)]
AtLeastOne = Annotated[int, accepts(runtime=_AT_LEAST_ONE)]
Seconds = Annotated[int, accepts(runtime=_POSITIVE)]
Positive = Annotated[float, accepts(runtime=_POSITIVE)]
NotNegative = Annotated[float, accepts(runtime=_NOT_NEGATIVE)]
Unit = Annotated[float, accepts(runtime=_UNIT)]

Duration = Annotated[str, accepts(kind=Kind.DURATION)]
QuantityText = Annotated[str, accepts(kind=Kind.QUANTITY)]


class CalculatePolicy(StrEnum):
    """Amounts of high-priority pods that are deducted when batch resources are computed."""

    USAGE = "usage"
    REQUEST = "request"
    MAX_USAGE_REQUEST = "maxUsageRequest"  # for each pod, the larger of usage and request


class MemoryCollectPolicy(StrEnum):
    """Memory that the agent counts as used: without page cache, with hot page cache only, or with all page cache."""

    WITHOUT_PAGE_CACHE = "usageWithoutPageCache"
    WITH_HOT_PAGE_CACHE = "usageWithHotPageCache"
    WITH_PAGE_CACHE = "usageWithPageCache"


_CpuPolicy = Annotated[CalculatePolicy, accepts(known=("usage", "maxUsageRequest"))]


class AggregatePolicy(Part, frozen=True):
    durations: list[Duration] = msgspec.field(default_factory=lambda: ["5m0s", "10m0s", "30m0s"])


class ColocationStrategy(Part, frozen=True):
    """Rules for offering unused resources of a node to batch and mid pods, and for measuring usage.

    Fields `..._percent` are whole percents of the node's capacity. A reclaim threshold may exceed 100.

    Source:
        protocol spec, 6.3; manager spec, 4.1
    """

    enable: bool = False  # whether the node offers batch and mid resources
    metric_aggregate_duration_seconds: Period = 300  # length of the window over which the agent averages usage
    metric_report_interval_seconds: Period = 60  # between two usage reports of the agent
    metric_aggregate_policy: AggregatePolicy = AggregatePolicy()  # windows over which usage is aggregated
    metric_memory_collect_policy: MemoryCollectPolicy = MemoryCollectPolicy.WITHOUT_PAGE_CACHE
    cpu_reclaim_threshold_percent: Amount = 60  # that all pods together may use; the rest is kept free
    cpu_calculate_policy: _CpuPolicy = CalculatePolicy.USAGE
    memory_reclaim_threshold_percent: Amount = 65
    memory_calculate_policy: CalculatePolicy = CalculatePolicy.USAGE
    degrade_time_minutes: Period = 15  # age of the usage report after which batch and mid resources are withdrawn
    update_time_threshold_seconds: Period = 300  # after which amounts are published again, even if they hardly changed
    resource_diff_threshold: Annotated[float, accepts(runtime=_POSITIVE, webhook=_ABOVE_ZERO_TO_ONE)] = 0.1
    # share of the published amount that a change must exceed to be published at once
    mid_reclaim_mode: Annotated[str | None, accepts(known=("static",))] = None  # None: mid resources are predicted
    mid_cpu_threshold_percent: Percent = 100  # that mid pods may request
    mid_memory_threshold_percent: Percent = 100
    mid_unallocated_percent: Percent = 0  # part of the capacity without requests that is added to mid resources
    mid_static_cpu_reserved_percent: Reserved = 0
    mid_static_memory_reserved_percent: Reserved = 0
    batch_cpu_threshold_percent: Amount | None = None  # limit of batch resources; None: no limit
    batch_memory_threshold_percent: Amount | None = None
    extensions: dict[str, Any] = {}  # for plugins; this code does not interpret it

    @property
    def metric_windows_seconds(self) -> tuple[float, ...]:
        """Lengths of the windows over which usage is aggregated."""
        return tuple(parse_seconds(text) for text in self.metric_aggregate_policy.durations)

    @property
    def mid_reclaim_static(self) -> bool:
        """Whether mid resources are a fixed percentage of the capacity, and not predicted."""
        return self.mid_reclaim_mode == "static"


class ThresholdStrategy(Part, frozen=True):
    """Suppression and eviction of best-effort pods (protocol spec, 6.4)."""

    enable: bool = False
    cpu_suppress_threshold_percent: WrittenPercent = 65
    cpu_suppress_min_percent: WrittenPercent | None = None
    cpu_suppress_policy: Annotated[str, accepts(known=("cpuset", "cfsQuota"))] = "cpuset"
    memory_evict_threshold_percent: WrittenPercent = 70
    memory_evict_lower_percent: WrittenPercent | None = None
    memory_allocatable_evict_threshold_percent: WrittenAmount | None = None
    memory_allocatable_evict_lower_percent: WrittenAmount | None = None
    cpu_evict_be_satisfaction_upper_percent: WrittenPercent | None = None
    cpu_evict_be_satisfaction_lower_percent: WrittenPercent | None = None
    cpu_evict_be_usage_threshold_percent: WrittenPercent | None = None
    cpu_evict_time_window_seconds: Annotated[int, accepts(webhook=_POSITIVE)] | None = None
    cpu_evict_threshold_percent: WrittenPercent | None = None
    cpu_evict_lower_percent: WrittenPercent | None = None
    cpu_allocatable_evict_threshold_percent: WrittenAmount | None = None
    cpu_allocatable_evict_lower_percent: WrittenAmount | None = None
    cpu_evict_policy: Annotated[str, accepts(known=("evictByRealLimit", "evictByAllocatable"))] = "evictByRealLimit"
    evict_enabled_priority_threshold: Annotated[int, accepts(kind=Kind.INT32)] | None = None
    allocatable_evict_priority_threshold: (
        Annotated[int, accepts(kind=Kind.INT32, webhook=Range(minimum=0, maximum=7999))] | None
    ) = None

    bounds: ClassVar[tuple[Bounds, ...]] = (
        Bounds("memoryEvictThresholdPercent", "memoryEvictLowerPercent", lower_has_default=True),
        Bounds("cpuEvictThresholdPercent", "cpuEvictLowerPercent", lower_has_default=True),
        # the ledger features have no fallback for the lower: an upper alone would silently do nothing
        Bounds("memoryAllocatableEvictThresholdPercent", "memoryAllocatableEvictLowerPercent", lower_has_default=False),
        Bounds("cpuAllocatableEvictThresholdPercent", "cpuAllocatableEvictLowerPercent", lower_has_default=False),
        Bounds("cpuEvictBESatisfactionUpperPercent", "cpuEvictBESatisfactionLowerPercent", lower_has_default=False),
    )


class CpuQos(Part, frozen=True):
    enable: bool | None = None
    group_identity: Annotated[int, accepts(webhook=Range(minimum=-1, maximum=2))] | None = None
    sched_idle: Switch | None = None
    core_expeller: bool | None = None


class MemoryQos(Part, frozen=True):
    enable: bool | None = None
    min_limit_percent: WrittenPercent | None = None
    low_limit_percent: WrittenPercent | None = None
    throttling_percent: WrittenPercent | None = None
    wmark_ratio: WrittenPercent | None = None
    wmark_scale_permill: Annotated[int, accepts(webhook=Range(minimum=1, maximum=1000))] | None = None
    wmark_min_adj: Annotated[int, accepts(webhook=Range(minimum=-25, maximum=50))] | None = None
    priority_enable: Switch | None = None
    priority: Annotated[int, accepts(webhook=Range(minimum=0, maximum=12))] | None = None
    oom_kill_group: Switch | None = None
    page_cache_enable: bool | None = None
    page_cache_reclaim_sync: bool | None = None
    page_cache_limit_percent: WrittenPercent | None = None
    page_cache_limit_size: int | None = None


class IoConfig(Part, frozen=True):
    """Admission does not check block lists (manager spec, 12.2); the schema of NodeSLO does."""

    read_iops: int | None = None
    write_iops: int | None = None
    read_bps: int | None = None
    write_bps: int | None = None
    io_weight_percent: int | None = None
    read_latency: int | None = None
    write_latency: int | None = None
    read_latency_percent: int | None = None
    write_latency_percent: int | None = None
    enable_user_model: bool | None = None
    model_read_bps: int | None = None
    model_write_bps: int | None = None
    model_read_seq_iops: int | None = None
    model_write_seq_iops: int | None = None
    model_read_rand_iops: int | None = None
    model_write_rand_iops: int | None = None


class Block(Part, frozen=True):
    name: str | None = None
    type: Annotated[str | None, accepts(known=("device", "volumegroup", "podvolume"))] = None
    io_cfg: IoConfig = IoConfig()


class BlkioQos(Part, frozen=True):
    enable: bool | None = None
    blocks: list[Block] | None = None


class ResctrlQos(Part, frozen=True):
    enable: bool | None = None
    cat_range_start_percent: WrittenPercent | None = None
    cat_range_end_percent: WrittenPercent | None = None
    mba_percent: WrittenPercent | None = None

    bounds: ClassVar[tuple[Bounds, ...]] = (
        Bounds("catRangeEndPercent", "catRangeStartPercent", lower_has_default=True),
    )


class NetworkQos(Part, frozen=True):
    """An integer is a percentage of the node's bandwidth, a text a quantity in bits/s."""

    enable: bool | None = None
    ingress_request: int | str | None = None
    ingress_limit: int | str | None = None
    egress_request: int | str | None = None
    egress_limit: int | str | None = None


class QosClass(Part, frozen=True):
    cpu_qos: CpuQos = CpuQos()
    memory_qos: MemoryQos = MemoryQos()
    blkio_qos: BlkioQos = BlkioQos()
    resctrl_qos: ResctrlQos = ResctrlQos()
    network_qos: NetworkQos = NetworkQos()


class QosPolicies(Part, frozen=True):
    cpu_policy: Annotated[str | None, accepts(known=("groupIdentity", "coreSched"))] = None
    net_qos_policy: Annotated[str | None, accepts(known=("tc", "terway-qos"))] = None


class QosStrategy(Part, frozen=True):
    """Features of the QoS classes (protocol spec, 6.5). The agent adds the defaults (node_slo.py)."""

    policies: QosPolicies = QosPolicies()
    lsr_class: QosClass = QosClass()
    ls_class: QosClass = QosClass()
    be_class: QosClass = QosClass()
    system_class: QosClass = QosClass()
    cgroup_root: QosClass = QosClass()


class CpuBurstStrategy(Part, frozen=True):
    """How far containers may exceed their CPU limit for a short time (protocol spec, 6.6)."""

    policy: Annotated[str, accepts(known=("none", "cpuBurstOnly", "cfsQuotaBurstOnly", "auto"))] = "none"
    cpu_burst_percent: Annotated[int, accepts(webhook=Range(minimum=1, maximum=10000))] = 1000  # of the CPU limit
    cfs_quota_burst_percent: Annotated[int, accepts(webhook=Range(minimum=100))] = 300  # of the limit's quota
    cfs_quota_burst_period_seconds: Annotated[int, accepts(webhook=Range(minimum=-1))] = -1
    share_pool_threshold_percent: WrittenPercent = 50  # usage of the shared pool from which on quotas are stepped down


class SystemStrategy(Part, frozen=True):
    """Settings of the node's kernel (protocol spec, 6.7)."""

    min_free_kbytes_factor: Annotated[int, accepts(webhook=_POSITIVE)] | None = None
    watermark_scale_factor: (
        Annotated[int, accepts(webhook=Range(minimum=0, maximum=400, exclusive_minimum=True))] | None
    ) = None
    memcg_reap_back_ground: Switch | None = None
    sched_group_identity_enabled: int | None = None
    sched_idle_saver_wmark: int | None = None
    sched_features: dict[str, bool] = {}
    page_cache_limit_enabled: Switch | None = None
    total_network_bandwidth: QuantityText = "0"  # in bits/s; 0: not known


class CgroupPath(Part, frozen=True):
    base: Annotated[
        str | None, accepts(known=("CgroupRoot", "Kubepods", "KubepodsBurstable", "KubepodsBesteffort"))
    ] = None
    parent_dir: str | None = None
    relative_path: str | None = None


class HostApplication(Part, frozen=True):
    name: str | None = None
    priority: str | None = None
    qos: str | None = None
    cgroup_path: CgroupPath = CgroupPath()
    strategy: Part = Part()  # no fields are known


class HostApplications(Part, frozen=True):
    """Programs of nodes outside of pods (protocol spec, 6.8)."""

    applications: list[HostApplication] = []


class RatioModel(Part, frozen=True):
    base_ratio: float | None = None
    hyper_thread_enabled_ratio: float | None = None
    turbo_enabled_ratio: float | None = None
    hyper_thread_turbo_enabled_ratio: float | None = None


class CpuNormalization(Part, frozen=True):
    enable: bool = False
    default_ratio: float | None = None
    ratio_model: dict[str, RatioModel] = {}  # by the CPU's model


class ResourceAmplification(Part, frozen=True):
    """Ratios by resource (protocol spec, 6.9)."""

    enable: bool = False
    resource_amplification_ratio: dict[str, float] = {}


class SignalBounds(Part, frozen=True):
    """Bounds of one signal of node health, in its unit. Its severity grows linearly from one to the other."""

    warn: float = 0  # severity 0 up to here
    critical: float = 0  # severity 1 from here on


class SloAdjustSignals(Part, frozen=True):
    cpu_util: SignalBounds = SignalBounds(warn=70, critical=85)
    memory_util: SignalBounds = SignalBounds(warn=75, critical=90)
    cpu_pressure: SignalBounds = SignalBounds(warn=20, critical=60)
    memory_pressure: SignalBounds = SignalBounds(warn=5, critical=20)
    cpu_throttled: SignalBounds = SignalBounds(warn=10, critical=40)
    cpu_suppressed: SignalBounds = SignalBounds(warn=50, critical=90)
    be_evictions: SignalBounds = SignalBounds(warn=0, critical=5)


class SloAdjust(Part, frozen=True):
    """When nodes count as unhealthy, and by how much they are lowered: Koordstream's own (manager spec, 16.1)."""

    enable: bool = False
    interval_seconds: Seconds = 60
    smoothing_factor: Annotated[float, accepts(runtime=_ABOVE_ZERO_TO_ONE)] = 0.3
    warn_level: Unit = 0.5
    critical_level: Unit = 0.8
    recover_level: Unit = 0.3
    min_weight: MergedPercent = 10
    step_down: Count = 5
    step_up: Count = 1
    max_drop: MergedPercent = 20
    healthy_rounds_before_raise: Count = 5
    suppress_floor_percent: MergedPercent = 40
    memory_evict_floor_percent: MergedPercent = 50
    max_abnormal_ratio: Unit = 0.2
    signals: SloAdjustSignals = SloAdjustSignals()


class PsiDetector(Part, frozen=True):
    cpu_some: Positive = 20
    mem_full: Positive = 5
    io_full: Positive = 10
    enter_samples: AtLeastOne = 3
    leave_samples: AtLeastOne = 3
    act: bool = False


class CpiDetector(Part, frozen=True):
    enable: bool = False
    sigma: Positive = 2
    min_usage: NotNegative = 0.25
    outliers: AtLeastOne = 3
    window_seconds: Seconds = 300
    correlation_seconds: Seconds = 600
    correlation: Unit = 0.35
    cap_seconds: Seconds = 300


class Interference(Part, frozen=True):
    """Detection of interference between pods (agent spec, 18). The node gets it as `extensions.interference`."""

    enable: bool = False
    psi: PsiDetector = PsiDetector()
    cpi: CpiDetector = CpiDetector()
    sched_delay_ms: Positive = 5
    mem_alloc_ratio: Positive = 0.1


class SectionShape(StrEnum):
    """Layout of the JSON document of a section: where the fields for the cluster and the entries for nodes are."""

    FLAT = "flat"  # fields for the cluster at the top level, entries for nodes in `nodeConfigs`
    STRATEGY = "strategy"  # fields for the cluster in `clusterStrategy`, entries for nodes in `nodeStrategies`
    CLUSTER_ONLY = "cluster-only"  # fields for the cluster at the top level, no entries for nodes


class SectionName(StrEnum):
    COLOCATION = "colocation"
    RESOURCE_THRESHOLD = "resource-threshold"
    RESOURCE_QOS = "resource-qos"
    CPU_BURST = "cpu-burst"
    SYSTEM = "system"
    HOST_APPLICATION = "host-application"
    CPU_NORMALIZATION = "cpu-normalization"
    RESOURCE_AMPLIFICATION = "resource-amplification"
    SLO_ADJUST = "slo-adjust"
    INTERFERENCE = "interference"

    @property
    def key(self) -> str:
        """Key of the section in the ConfigMap's data."""
        return f"{self.value}-config"


@dataclass(frozen=True, slots=True, kw_only=True)
class SectionTable:
    """One section of slo-controller-config: its layout, the struct of its fields and its special rules."""

    name: SectionName
    part: type[Part]
    shape: SectionShape = SectionShape.STRATEGY
    parse_error_event: str = "SLOCfgUnmarshalFailed"  # reason of the Warning event on the ConfigMap
    empty_is_default: bool = False  # an empty text counts as an absent key; else it is invalid (protocol spec, 6.2)
    idle_without_value: bool = False
    # The section is absent while its first text is invalid, so that what uses it does nothing; else the defaults
    # apply then. Without a key in the ConfigMap, the defaults always apply.
    entry_inherits: bool = True  # an entry for nodes is merged over the fields for the cluster; else it replaces them

    @property
    def defaults(self) -> JsonObject:
        """Strategy of the cluster if the ConfigMap lacks the key. Never change it in place."""
        return defaults_of(self.part)

    @property
    def entries_key(self) -> str:
        """JSON key of the list of entries for nodes."""
        return "nodeStrategies" if self.shape is SectionShape.STRATEGY else "nodeConfigs"


_FLAT: Final = SectionShape.FLAT
SECTIONS: Final = {
    table.name: table
    for table in (
        SectionTable(
            name=SectionName.COLOCATION,
            part=ColocationStrategy,
            shape=_FLAT,
            parse_error_event="ColocationCfgUnmarshalFailed",
            empty_is_default=True,
            idle_without_value=True,
        ),
        SectionTable(name=SectionName.RESOURCE_THRESHOLD, part=ThresholdStrategy),
        SectionTable(name=SectionName.RESOURCE_QOS, part=QosStrategy),
        SectionTable(name=SectionName.CPU_BURST, part=CpuBurstStrategy),
        SectionTable(name=SectionName.SYSTEM, part=SystemStrategy),
        SectionTable(name=SectionName.HOST_APPLICATION, part=HostApplications, shape=_FLAT, entry_inherits=False),
        SectionTable(
            name=SectionName.CPU_NORMALIZATION,
            part=CpuNormalization,
            shape=_FLAT,
            parse_error_event="CPUNormalizationCfgUnmarshalFailed",
            idle_without_value=True,
        ),
        SectionTable(
            name=SectionName.RESOURCE_AMPLIFICATION,
            part=ResourceAmplification,
            shape=_FLAT,
            parse_error_event="ResourceAmplificationCfgUnmarshalFailed",
            idle_without_value=True,
        ),
        SectionTable(
            name=SectionName.SLO_ADJUST,
            part=SloAdjust,
            shape=SectionShape.CLUSTER_ONLY,
            parse_error_event="SLOAdjustCfgUnmarshalFailed",
        ),
        SectionTable(name=SectionName.INTERFERENCE, part=Interference),
    )
}
