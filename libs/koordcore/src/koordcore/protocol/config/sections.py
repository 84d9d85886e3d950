"""The sections of slo-controller-config: one struct with the fields of each, their layouts and special rules.

Source: protocol spec, 6.1 to 6.9; manager spec, 16.1.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, Final

import msgspec

from koordcore.protocol.config.fields import (
    ABOVE_ZERO_TO_ONE,
    POSITIVE,
    Amount,
    Count,
    Duration,
    JsonObject,
    MergedPercent,
    Part,
    Percent,
    Period,
    Reserved,
    Seconds,
    Unit,
    accepts,
    defaults_of,
)
from koordcore.protocol.config.node_strategies import (
    CpuBurstStrategy,
    HostApplications,
    Interference,
    QosStrategy,
    SystemStrategy,
    ThresholdStrategy,
)
from koordcore.values.duration import parse_seconds


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
    """Rules for offering unused resources of a node to batch and mid pods, and for measuring usage. Fields
    `..._percent` are whole percents of the node's capacity. A reclaim threshold may exceed 100.

    Source: protocol spec, 6.3; manager spec, 4.1.
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
    resource_diff_threshold: Annotated[float, accepts(runtime=POSITIVE, webhook=ABOVE_ZERO_TO_ONE)] = 0.1
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
        return tuple(parse_seconds(text) for text in self.metric_aggregate_policy.durations)

    @property
    def mid_reclaim_static(self) -> bool:
        """Whether mid resources are a fixed percentage of the capacity, and not predicted."""
        return self.mid_reclaim_mode == "static"


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
    smoothing_factor: Annotated[float, accepts(runtime=ABOVE_ZERO_TO_ONE)] = 0.3
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
