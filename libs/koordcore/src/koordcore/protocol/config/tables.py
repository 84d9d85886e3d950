"""Tables of slo-controller-config: fields, types, defaults and ranges of every section.

They state sections 6.3 to 6.9 of the protocol spec and section 16.1 of the manager spec as data. parse.py, kinds.merge,
admission.py and agent.py all use these tables.
"""

from __future__ import annotations

from koordcore.protocol.config.kinds import (
    AT_LEAST_ONE,
    NOT_NEGATIVE,
    PERCENT,
    POSITIVE,
    SWITCH,
    Bool,
    Bounds,
    DurationText,
    Field,
    Float,
    Int,
    ListOf,
    MapOf,
    Obj,
    OpenMap,
    PercentOrQuantity,
    QuantityValue,
    Range,
    Text,
)

COLOCATION = Obj(
    (
        Field("enable", Bool(), default=False),
        Field("metricAggregateDurationSeconds", Int(), default=300, runtime=POSITIVE, webhook=AT_LEAST_ONE),
        Field("metricReportIntervalSeconds", Int(), default=60, runtime=POSITIVE, webhook=AT_LEAST_ONE),
        Field(
            "metricAggregatePolicy",
            Obj((Field("durations", ListOf(DurationText()), default=["5m0s", "10m0s", "30m0s"]),)),
        ),
        Field(
            "metricMemoryCollectPolicy",
            Text(("usageWithoutPageCache", "usageWithHotPageCache", "usageWithPageCache")),
            default="usageWithoutPageCache",
        ),
        Field("cpuReclaimThresholdPercent", Int(), default=60, runtime=NOT_NEGATIVE, webhook=NOT_NEGATIVE),
        Field("cpuCalculatePolicy", Text(("usage", "maxUsageRequest")), default="usage"),
        Field("memoryReclaimThresholdPercent", Int(), default=65, runtime=NOT_NEGATIVE, webhook=NOT_NEGATIVE),
        Field("memoryCalculatePolicy", Text(("usage", "request", "maxUsageRequest")), default="usage"),
        Field("degradeTimeMinutes", Int(), default=15, runtime=POSITIVE, webhook=AT_LEAST_ONE),
        Field("updateTimeThresholdSeconds", Int(), default=300, runtime=POSITIVE, webhook=AT_LEAST_ONE),
        Field(
            "resourceDiffThreshold",
            Float(),
            default=0.1,
            runtime=POSITIVE,
            webhook=Range(minimum=0, maximum=1, exclusive_minimum=True),
        ),
        Field("midReclaimMode", Text(("static",))),
        Field("midCPUThresholdPercent", Int(), default=100, runtime=PERCENT, webhook=PERCENT),
        Field("midMemoryThresholdPercent", Int(), default=100, runtime=PERCENT, webhook=PERCENT),
        Field("midUnallocatedPercent", Int(), default=0, runtime=PERCENT, webhook=PERCENT),
        Field("midStaticCPUReservedPercent", Int(), default=0, runtime=NOT_NEGATIVE, webhook=PERCENT),
        Field("midStaticMemoryReservedPercent", Int(), default=0, runtime=NOT_NEGATIVE, webhook=PERCENT),
        Field("batchCPUThresholdPercent", Int(), runtime=NOT_NEGATIVE, webhook=NOT_NEGATIVE),
        Field("batchMemoryThresholdPercent", Int(), runtime=NOT_NEGATIVE, webhook=NOT_NEGATIVE),
        Field("extensions", OpenMap()),
    )
)
"""Fields of the section colocation (protocol spec, 6.3)."""

RESOURCE_THRESHOLD = Obj(
    (
        Field("enable", Bool(), default=False),
        Field("cpuSuppressThresholdPercent", Int(), default=65, webhook=PERCENT),
        Field("cpuSuppressMinPercent", Int(), webhook=PERCENT),
        Field("cpuSuppressPolicy", Text(("cpuset", "cfsQuota")), default="cpuset"),
        Field("memoryEvictThresholdPercent", Int(), default=70, webhook=PERCENT),
        Field("memoryEvictLowerPercent", Int(), webhook=PERCENT),
        Field("memoryAllocatableEvictThresholdPercent", Int(), webhook=NOT_NEGATIVE),
        Field("memoryAllocatableEvictLowerPercent", Int(), webhook=NOT_NEGATIVE),
        Field("cpuEvictBESatisfactionUpperPercent", Int(), webhook=PERCENT),
        Field("cpuEvictBESatisfactionLowerPercent", Int(), webhook=PERCENT),
        Field("cpuEvictBEUsageThresholdPercent", Int(), webhook=PERCENT),
        Field("cpuEvictTimeWindowSeconds", Int(), webhook=POSITIVE),
        Field("cpuEvictThresholdPercent", Int(), webhook=PERCENT),
        Field("cpuEvictLowerPercent", Int(), webhook=PERCENT),
        Field("cpuAllocatableEvictThresholdPercent", Int(), webhook=NOT_NEGATIVE),
        Field("cpuAllocatableEvictLowerPercent", Int(), webhook=NOT_NEGATIVE),
        Field("cpuEvictPolicy", Text(("evictByRealLimit", "evictByAllocatable")), default="evictByRealLimit"),
        Field("evictEnabledPriorityThreshold", Int(bits=32)),
        Field("allocatableEvictPriorityThreshold", Int(bits=32), webhook=Range(minimum=0, maximum=7999)),
    ),
    bounds=(
        Bounds("memoryEvictThresholdPercent", "memoryEvictLowerPercent", lower_has_default=True),
        Bounds("cpuEvictThresholdPercent", "cpuEvictLowerPercent", lower_has_default=True),
        # the ledger features have no fallback for the lower: an upper alone would silently do nothing
        Bounds("memoryAllocatableEvictThresholdPercent", "memoryAllocatableEvictLowerPercent", lower_has_default=False),
        Bounds("cpuAllocatableEvictThresholdPercent", "cpuAllocatableEvictLowerPercent", lower_has_default=False),
        Bounds("cpuEvictBESatisfactionUpperPercent", "cpuEvictBESatisfactionLowerPercent", lower_has_default=False),
    ),
)
"""Fields of the section resource-threshold (protocol spec, 6.4)."""

CPU_QOS = Obj(
    (
        Field("enable", Bool()),
        Field("groupIdentity", Int(), webhook=Range(minimum=-1, maximum=2)),
        Field("schedIdle", Int(), webhook=SWITCH),
        Field("coreExpeller", Bool()),
    )
)

RESCTRL_QOS = Obj(
    (
        Field("enable", Bool()),
        Field("catRangeStartPercent", Int(), webhook=PERCENT),
        Field("catRangeEndPercent", Int(), webhook=PERCENT),
        Field("mbaPercent", Int(), webhook=PERCENT),
    ),
    bounds=(Bounds("catRangeEndPercent", "catRangeStartPercent", lower_has_default=True),),
)

MEMORY_QOS = Obj(
    (
        Field("enable", Bool()),
        Field("minLimitPercent", Int(), webhook=PERCENT),
        Field("lowLimitPercent", Int(), webhook=PERCENT),
        Field("throttlingPercent", Int(), webhook=PERCENT),
        Field("wmarkRatio", Int(), webhook=PERCENT),
        Field("wmarkScalePermill", Int(), webhook=Range(minimum=1, maximum=1000)),
        Field("wmarkMinAdj", Int(), webhook=Range(minimum=-25, maximum=50)),
        Field("priorityEnable", Int(), webhook=SWITCH),
        Field("priority", Int(), webhook=Range(minimum=0, maximum=12)),
        Field("oomKillGroup", Int(), webhook=SWITCH),
        Field("pageCacheEnable", Bool()),
        Field("pageCacheReclaimSync", Bool()),
        Field("pageCacheLimitPercent", Int(), webhook=PERCENT),
        Field("pageCacheLimitSize", Int()),
    )
)

IO_CFG = Obj(
    (
        *(Field(name, Int()) for name in ("readIOPS", "writeIOPS", "readBPS", "writeBPS")),
        Field("ioWeightPercent", Int()),
        *(Field(name, Int()) for name in ("readLatency", "writeLatency")),
        *(Field(name, Int()) for name in ("readLatencyPercent", "writeLatencyPercent")),
        Field("enableUserModel", Bool()),
        *(
            Field(name, Int())
            for name in (
                "modelReadBPS",
                "modelWriteBPS",
                "modelReadSeqIOPS",
                "modelWriteSeqIOPS",
                "modelReadRandIOPS",
                "modelWriteRandIOPS",
            )
        ),
    )
)
"""Fields of a block device. Admission does not check block lists (manager spec, 12.2); the NodeSLO schema does."""

BLKIO_QOS = Obj(
    (
        Field("enable", Bool()),
        Field(
            "blocks",
            ListOf(
                Obj(
                    (
                        Field("name", Text()),
                        Field("type", Text(("device", "volumegroup", "podvolume"))),
                        Field("ioCfg", IO_CFG),
                    )
                )
            ),
        ),
    )
)

NETWORK_QOS = Obj(
    (
        Field("enable", Bool()),
        Field("ingressRequest", PercentOrQuantity()),
        Field("ingressLimit", PercentOrQuantity()),
        Field("egressRequest", PercentOrQuantity()),
        Field("egressLimit", PercentOrQuantity()),
    )
)

QOS_CLASS = Obj(
    (
        Field("cpuQOS", CPU_QOS),
        Field("memoryQOS", MEMORY_QOS),
        Field("blkioQOS", BLKIO_QOS),
        Field("resctrlQOS", RESCTRL_QOS),
        Field("networkQOS", NETWORK_QOS),
    )
)

RESOURCE_QOS = Obj(
    (
        Field(
            "policies",
            Obj(
                (
                    Field("cpuPolicy", Text(("groupIdentity", "coreSched"))),
                    Field("netQOSPolicy", Text(("tc", "terway-qos"))),
                )
            ),
        ),
        Field("lsrClass", QOS_CLASS),
        Field("lsClass", QOS_CLASS),
        Field("beClass", QOS_CLASS),
        Field("systemClass", QOS_CLASS),
        Field("cgroupRoot", QOS_CLASS),
    )
)
"""Fields of the section resource-qos (protocol spec, 6.5). The agent adds the defaults; see agent.py."""

CPU_BURST = Obj(
    (
        Field("policy", Text(("none", "cpuBurstOnly", "cfsQuotaBurstOnly", "auto")), default="none"),
        Field("cpuBurstPercent", Int(), default=1000, webhook=Range(minimum=1, maximum=10000)),
        Field("cfsQuotaBurstPercent", Int(), default=300, webhook=Range(minimum=100)),
        Field("cfsQuotaBurstPeriodSeconds", Int(), default=-1, webhook=Range(minimum=-1)),
        Field("sharePoolThresholdPercent", Int(), default=50, webhook=PERCENT),
    )
)
"""Fields of the section cpu-burst (protocol spec, 6.6)."""

SYSTEM = Obj(
    (
        Field("minFreeKbytesFactor", Int(), webhook=POSITIVE),
        Field("watermarkScaleFactor", Int(), webhook=Range(minimum=0, maximum=400, exclusive_minimum=True)),
        Field("memcgReapBackGround", Int(), webhook=SWITCH),
        Field("schedGroupIdentityEnabled", Int()),
        Field("schedIdleSaverWmark", Int()),
        Field("schedFeatures", MapOf(Bool())),
        Field("pageCacheLimitEnabled", Int(), webhook=SWITCH),
        Field("totalNetworkBandwidth", QuantityValue(), default="0"),
    )
)
"""Fields of the section system (protocol spec, 6.7)."""

APPLICATION = Obj(
    (
        Field("name", Text()),
        Field("priority", Text()),
        Field("qos", Text()),
        Field(
            "cgroupPath",
            Obj(
                (
                    Field("base", Text(("CgroupRoot", "Kubepods", "KubepodsBurstable", "KubepodsBesteffort"))),
                    Field("parentDir", Text()),
                    Field("relativePath", Text()),
                )
            ),
        ),
        Field("strategy", Obj(())),
    )
)

HOST_APPLICATION = Obj((Field("applications", ListOf(APPLICATION), default=[]),))
"""Fields of the section host-application (protocol spec, 6.8)."""

CPU_NORMALIZATION = Obj(
    (
        Field("enable", Bool(), default=False),
        Field("defaultRatio", Float()),
        Field(
            "ratioModel",
            MapOf(
                Obj(
                    (
                        Field("baseRatio", Float()),
                        Field("hyperThreadEnabledRatio", Float()),
                        Field("turboEnabledRatio", Float()),
                        Field("hyperThreadTurboEnabledRatio", Float()),
                    )
                )
            ),
        ),
    )
)

RESOURCE_AMPLIFICATION = Obj(
    (
        Field("enable", Bool(), default=False),
        Field("resourceAmplificationRatio", MapOf(Float())),
    )
)
"""Fields of the section resource-amplification (protocol spec, 6.9)."""


def _signal(warn: float, critical: float) -> Obj:
    return Obj((Field("warn", Float(), default=warn), Field("critical", Float(), default=critical)))


_UNIT = Range(minimum=0, maximum=1)

SLO_ADJUST = Obj(
    (
        Field("enable", Bool(), default=False),
        Field("intervalSeconds", Int(), default=60, runtime=POSITIVE),
        Field("smoothingFactor", Float(), default=0.3, runtime=Range(minimum=0, maximum=1, exclusive_minimum=True)),
        Field("warnLevel", Float(), default=0.5, runtime=_UNIT),
        Field("criticalLevel", Float(), default=0.8, runtime=_UNIT),
        Field("recoverLevel", Float(), default=0.3, runtime=_UNIT),
        Field("minWeight", Int(), default=10, runtime=PERCENT),
        Field("stepDown", Int(), default=5, runtime=NOT_NEGATIVE),
        Field("stepUp", Int(), default=1, runtime=NOT_NEGATIVE),
        Field("maxDrop", Int(), default=20, runtime=PERCENT),
        Field("healthyRoundsBeforeRaise", Int(), default=5, runtime=NOT_NEGATIVE),
        Field("suppressFloorPercent", Int(), default=40, runtime=PERCENT),
        Field("memoryEvictFloorPercent", Int(), default=50, runtime=PERCENT),
        Field("maxAbnormalRatio", Float(), default=0.2, runtime=_UNIT),
        Field(
            "signals",
            Obj(
                (
                    Field("cpuUtil", _signal(70, 85)),
                    Field("memoryUtil", _signal(75, 90)),
                    Field("cpuPressure", _signal(20, 60)),
                    Field("memoryPressure", _signal(5, 20)),
                    Field("cpuThrottled", _signal(10, 40)),
                    Field("cpuSuppressed", _signal(50, 90)),
                    Field("beEvictions", _signal(0, 5)),
                )
            ),
        ),
    )
)
"""Fields of the section slo-adjust (manager spec, 16.1). It is Koordstream's own section."""


INTERFERENCE = Obj(
    (
        Field("enable", Bool(), default=False),
        Field(
            "psi",
            Obj(
                (
                    Field("cpuSome", Float(), default=20, runtime=POSITIVE),
                    Field("memFull", Float(), default=5, runtime=POSITIVE),
                    Field("ioFull", Float(), default=10, runtime=POSITIVE),
                    Field("enterSamples", Int(), default=3, runtime=AT_LEAST_ONE),
                    Field("leaveSamples", Int(), default=3, runtime=AT_LEAST_ONE),
                    Field("act", Bool(), default=False),
                )
            ),
        ),
        Field(
            "cpi",
            Obj(
                (
                    Field("enable", Bool(), default=False),
                    Field("sigma", Float(), default=2, runtime=POSITIVE),
                    Field("minUsage", Float(), default=0.25, runtime=NOT_NEGATIVE),
                    Field("outliers", Int(), default=3, runtime=AT_LEAST_ONE),
                    Field("windowSeconds", Int(), default=300, runtime=POSITIVE),
                    Field("correlationSeconds", Int(), default=600, runtime=POSITIVE),
                    Field("correlation", Float(), default=0.35, runtime=_UNIT),
                    Field("capSeconds", Int(), default=300, runtime=POSITIVE),
                )
            ),
        ),
        Field("schedDelayMs", Float(), default=5, runtime=POSITIVE),
        Field("memAllocRatio", Float(), default=0.1, runtime=POSITIVE),
    )
)
"""Fields of the section interference (agent spec, 18). The node gets it as `extensions.interference`."""
