"""Sections of slo-controller-config that go to the nodes: what their agents apply, from NodeSLO.

Source: protocol spec, 6.4 to 6.8; agent spec, 18.
"""

from typing import Annotated, ClassVar

from koordcore.protocol.config.fields import (
    POSITIVE,
    AtLeastOne,
    Bounds,
    Kind,
    NotNegative,
    Part,
    Positive,
    QuantityText,
    Range,
    Seconds,
    Switch,
    Unit,
    WrittenAmount,
    WrittenPercent,
    accepts,
)


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
    cpu_evict_time_window_seconds: Annotated[int, accepts(webhook=POSITIVE)] | None = None
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

    @property
    def bursts_by_buffer(self) -> bool:
        """Whether the policy sets the kernel's burst buffer."""
        return self.policy in ("auto", "cpuBurstOnly")

    @property
    def bursts_by_quota(self) -> bool:
        """Whether the policy raises and lowers the quota in steps."""
        return self.policy in ("auto", "cfsQuotaBurstOnly")


class SystemStrategy(Part, frozen=True):
    """Settings of the node's kernel (protocol spec, 6.7)."""

    min_free_kbytes_factor: Annotated[int, accepts(webhook=POSITIVE)] | None = None
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
