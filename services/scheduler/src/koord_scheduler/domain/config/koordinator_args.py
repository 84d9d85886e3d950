"""Arguments of Koordinator's plugins.

Source: scheduler-core spec, 4.1; scheduler-fine-grained spec, 1.11, 2.12, 3.13
"""

import re
from collections.abc import Mapping
from typing import Annotated, Final, Literal

from koordcore.protocol import component_config
from koordcore.protocol.hardware.device_requests import GPU_TEMPLATES
from koordcore.protocol.resource_names import CPU, FPGA, GPU_MEMORY, GPU_MEMORY_RATIO, HUAWEI_NPU_CORE, MEMORY, RDMA
from koordcore.values.invalid import InvalidInput
from koordcore.values.quantity import Quantity, of_value
from pydantic import AfterValidator, ValidationInfo, field_validator

from koord_scheduler.domain.config.kubernetes_args import CPU_AND_MEMORY, ScoredResources, WeightedResource


class CoschedulingArgs(component_config.WireModel):
    """Arguments of Coscheduling. `skip_check_schedule_cycle` has no effect, as in Koordinator since v1.5."""

    # Seconds that members wait at Permit for their gang, if the gang does not state it.
    default_timeout: component_config.Duration = 600.0
    controller_workers: component_config.Positive = 1  # Accepted without effect: one task does this work
    skip_check_schedule_cycle: component_config.Bool = False
    enable_preemption: component_config.Bool = False  # Whether a gang may preempt other pods
    # Whether gangs with a topology spec are placed by the network topology.
    aware_network_topology: component_config.Bool = False
    # Match policy of a gang that does not state one.
    default_match_policy: Literal["once-satisfied", "only-waiting", "waiting-and-running"] = "once-satisfied"


class HookPlugin(component_config.WireModel):
    """The name and arguments of a hook of Koordinator's quota manager. This scheduler calls no such hooks."""

    key: component_config.Text
    factory_key: component_config.Text
    factory_args: component_config.Text = ""


UNLIMITED: Final = of_value(component_config.INT64_MAX // 5)
_UNLIMITED_GROUP: Final[Mapping[str, Quantity]] = {CPU: UNLIMITED, MEMORY: UNLIMITED}


class ElasticQuotaArgs(component_config.WireModel):
    """Arguments of ElasticQuota. Times are in seconds."""

    # How long a quota may use more than its runtime before its pods are evicted.
    delay_evict_time: component_config.Duration = 120.0
    # Interval between two checks of whether quotas use more than their runtime.
    revoke_pod_interval: component_config.Duration = 1.0
    # Max of the default quota, which pods without a quota use.
    default_quota_group_max: component_config.Resources = _UNLIMITED_GROUP
    system_quota_group_max: component_config.Resources = _UNLIMITED_GROUP
    # Namespace of the objects of the root, default and system quotas.
    quota_group_namespace: component_config.Text = "koordinator-system"
    # Whether pods of quotas that use more than their runtime are evicted. Also needs `enable_runtime_quota`.
    monitor_all_quotas: component_config.Bool = False
    # Whether a pod must fit all ancestors of its quota, and not its quota alone.
    enable_check_parent_quota: component_config.Bool = False
    # Whether a quota is limited by its runtime, which lends what others leave. If not, by max.
    enable_runtime_quota: component_config.Bool = True
    # Whether mins of sibling quotas shrink together if the cluster has less than their sum.
    enable_min_quota_scale: component_config.Bool = True
    # Whether a pod of the default quota evicts no pod of its quota to get a place.
    disable_default_quota_preemption: component_config.Bool = True
    # Accepted without effect: a refused pod is always attempted again only if its quota admits it.
    enable_queue_hint: component_config.Bool = False
    # Accepted without effect: a refused pod is compared with the present quotas.
    quota_snapshot_update_interval: component_config.Duration = 120.0
    # Hooks of Koordinator's quota manager. Accepted without effect: no hooks of quotas are called.
    hook_plugins: tuple[HookPlugin, ...] = ()


class SchedulingHintArgs(component_config.WireModel):
    """Arguments of SchedulingHint."""

    # Maximum number of a pod's preferred nodes (in its hint annotation) that are tried.
    max_hint_nodes: component_config.Positive = 100


class ResourceStrategy(component_config.WireModel):
    """Strategy of NodeResourcesFitPlus for one resource: the preferred nodes (`type`), and the weight of the score."""

    type: Literal["MostAllocated", "LeastAllocated"] = "LeastAllocated"
    weight: component_config.Weight = 1


class NodeResourcesFitPlusArgs(component_config.WireModel):
    """Arguments of NodeResourcesFitPlus: resource -> strategy."""

    resources: Mapping[component_config.Text, ResourceStrategy] = {}


class ScarceResourceAvoidanceArgs(component_config.WireModel):
    """Arguments of ScarceResourceAvoidance: resources that pods should leave to the pods that request them."""

    resources: tuple[component_config.Text, ...] = ()


Allocation = Literal["LeastAllocated", "MostAllocated"]


class NumaScoringStrategy(component_config.WireModel):
    """How NodeNUMAResource scores nodes or NUMA zones: least or most allocated first, by weighted resources."""

    type: Allocation = "LeastAllocated"
    resources: ScoredResources = CPU_AND_MEMORY


class NodeNUMAResourceArgs(component_config.WireModel):
    """Arguments of NodeNUMAResource."""

    # CPU bind policy of LSE and LSR pods without the annotation. "": their CPUs are not bound.
    default_cpu_bind_policy: Literal["", "FullPCPUs", "SpreadByPCPUs"] = "FullPCPUs"
    scoring_strategy: NumaScoringStrategy = NumaScoringStrategy()  # How nodes are scored
    numa_scoring_strategy: NumaScoringStrategy = NumaScoringStrategy()  # How NUMA zones of a node are scored


_DEVICES: Final = tuple(WeightedResource(name=name) for name in (GPU_MEMORY_RATIO, GPU_MEMORY, RDMA, FPGA))


def _or_devices(resources: tuple[WeightedResource, ...]) -> tuple[WeightedResource, ...]:
    return resources or _DEVICES


class DeviceScoringStrategy(component_config.WireModel):
    """Strategy of DeviceShare for scores of nodes and devices: least or most allocated first, by weighted resources."""

    type: Allocation = "LeastAllocated"
    resources: Annotated[tuple[WeightedResource, ...], AfterValidator(_or_devices)] = _DEVICES


def _positive(value: float) -> float:
    if not 0 < value <= 1:
        raise InvalidInput("a number above 0 and at most 1", value)
    return value


class GpuTemplates(component_config.WireModel):
    """Settings of templates of shared GPU resources: their ConfigMap, and the resources for which they are used."""

    config_map_namespace: component_config.Text = GPU_TEMPLATES[0]
    config_map_name: component_config.Text = GPU_TEMPLATES[1]
    matched_resources: tuple[component_config.Text, ...] = (HUAWEI_NPU_CORE,)


class DeviceModel(component_config.WireModel):
    """The vendor and the model of a device, as its labels name them."""

    vendor: component_config.Text
    model: component_config.Text


def _at_least_a_second(seconds: float) -> float:
    if seconds < 1:
        raise InvalidInput("a duration of at least 1s", f"{seconds}s")
    return seconds


class TypicalGpuPod(component_config.WireModel):
    """One entry of a workload description: requests that many pods have in common, and how frequent such pods are."""

    milli_cpu: component_config.NotNegative  # CPU request in milli-cores
    gpu_milli: Annotated[int, component_config.within(0, 1000)] = 0  # Thousandths of each GPU; 1000 is a whole GPU
    num_gpu: component_config.NotNegative = 0  # Number of GPUs; 0: the pod uses none
    gpu_models: component_config.Text = ""  # Allowed GPU models, joined by "|"; empty: any
    frequency: Annotated[float, AfterValidator(_positive)]  # Fraction of all pods, above 0 and at most 1


class TypicalPodLearning(component_config.WireModel):
    """Settings by which the scheduler learns the typical pods of GPU fragmentation from the pods of the cluster."""

    window: component_config.Duration = 86_400.0  # Seconds. Pods that were created earlier do not count.
    # The most frequent requests are typical until they cover this percentage of the pods.
    popularity_threshold_percent: Annotated[int, component_config.within(1, 100)] = 95
    # Least number of seconds between two results.
    refresh_interval: Annotated[component_config.Duration, AfterValidator(_at_least_a_second)] = 600.0


class GpuFragmentation(component_config.WireModel):
    """DeviceShare's scores by GPU fragmentation. Koordinator has no such scores; they are off by default."""

    enabled: component_config.Bool = False
    # FGD, or ExpectedFilling, which allocates more GPUs in the benchmark.
    policy: Literal["FGD", "ExpectedFilling"] = "FGD"
    weight: component_config.Positive = 1  # Weight beside the score of the scoring strategy, which has weight 1
    # Requests that many pods have. If empty, they are learned from the pods of the cluster.
    typical_pods: tuple[TypicalGpuPod, ...] = ()
    learning: TypicalPodLearning = TypicalPodLearning()  # Settings of this learning


class DeviceShareArgs(component_config.WireModel):
    """Arguments of DeviceShare. `allocator` is accepted without effect, as in Koordinator."""

    allocator: component_config.Text = ""
    scoring_strategy: DeviceScoringStrategy = DeviceScoringStrategy()  # How nodes and devices are scored
    # Whether devices are chosen without regard to NUMA topology policies.
    disable_device_numa_topology_alignment: component_config.Bool = False
    # Where templates of shared GPU resources are, and what they apply to.
    gpu_shared_resource_templates_config: GpuTemplates = GpuTemplates()
    # Nodes with these GPU models refuse pods that request a part of a GPU.
    gpu_share_unsupported_models: tuple[DeviceModel, ...] = ()
    gpu_fragmentation: GpuFragmentation = GpuFragmentation()  # Settings of the scores by GPU fragmentation
    # Whether the exclusive policy PCIeLevel of the annotation `device-allocate-hint` has its documented effect: only
    # PCIe switches whose devices of the type are all unused. In Koordinator it has no effect.
    enable_pcie_level_exclusive: component_config.Bool = False


class PreAllocationConfig(component_config.WireModel):
    """Settings of pre-allocation: a Reservation takes the place of pods that are still running."""

    # Whether Reservations in cluster mode are placed. If not, they are rejected.
    enable_cluster_mode: component_config.Bool = False
    # In cluster mode, only pods whose label with this key is "true" may lose their place.
    cluster_label_key: component_config.Text = "pod.koordinator.sh/is-pre-allocatable"
    # In cluster mode, pods with a greater integer in this annotation come first.
    cluster_priority_annotation_key: component_config.Text = "pod.koordinator.sh/pre-allocatable-priority"
    # Whether a Reservation takes no pod's place on a node where it fits without, unless it requires pre-allocation.
    prefer_no_pre_allocated_pods: component_config.Bool = False


class ReservationSelectorIndex(component_config.WireModel):
    """Label keys for which metrics count the pods that select Reservations by them. In Koordinator, an index of
    Reservations has these keys. This scheduler needs no such index, and no outcome depends on the settings.
    """

    enabled: component_config.Bool = False  # Whether anything is counted
    key_prefixes: tuple[component_config.Text, ...] = ()  # Keys with one of these prefixes count as indexed
    keys: tuple[component_config.Text, ...] = ()  # Further keys that count as indexed

    def has(self, key: str) -> bool:
        """Return whether a label key counts as indexed. Always False if `enabled` is False."""
        return self.enabled and (key in self.keys or key.startswith(self.key_prefixes))


_DOMAIN: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_NATIVE: Final = "kubernetes.io"


def _is_native(domain: str) -> bool:
    return domain == _NATIVE or domain.endswith(f".{_NATIVE}")


def _extended(name: str) -> str:
    domain, _, rest = name.partition("/")
    if not rest or _is_native(domain) or name.startswith("requests.") or not _DOMAIN.fullmatch(domain):
        raise InvalidInput("an extended resource name such as example.com/gpu; native ones cannot be ignored", name)
    return name


def _extended_group(group: str) -> str:
    if _is_native(group) or not _DOMAIN.fullmatch(group):
        raise InvalidInput("the domain of extended resources: without '/', not kubernetes.io", group)
    return group


class ReservationArgs(component_config.WireModel):
    """Arguments of the plugin Reservation. Durations are in seconds; 0 stands for the default."""

    # Whether the plugin may evict pods if a Reservation, or a pod that it concerns, finds no feasible node. If not, no
    # plugin evicts pods for a Reservation.
    enable_preemption: component_config.Bool = False
    # Percentage of all nodes that such a preemption examines.
    min_candidate_nodes_percentage: component_config.Percent = 10
    min_candidate_nodes_absolute: component_config.NotNegative = 100  # Number of nodes that it examines at least
    controller_workers: component_config.Positive = 1  # Accepted without effect: one task does this work
    # How long an ended Reservation is kept. It is deleted earlier if its node is gone.
    gc_duration_seconds: component_config.NotNegative = 86_400
    # Least time between two checks of whether an ended Reservation is to be deleted.
    gc_interval_seconds: component_config.NotNegative = 60
    # Accepted without effect: the log brings every change of a Reservation.
    resync_interval_seconds: component_config.NotNegative = 60
    disable_garbage_collection: component_config.Bool = False  # Whether ended Reservations are never deleted
    # Settings of Reservations that take the place of running pods.
    pre_allocation_config: PreAllocationConfig = PreAllocationConfig()
    # Resources that the plugin's filter does not compare.
    ignored_resources: tuple[Annotated[component_config.Text, AfterValidator(_extended)], ...] = ()
    # Domains of such resources, for example `example.com`.
    ignored_resource_groups: tuple[Annotated[component_config.Text, AfterValidator(_extended_group)], ...] = ()
    reservation_selector_index: ReservationSelectorIndex = ReservationSelectorIndex()  # Label keys for metrics

    @field_validator("gc_duration_seconds", mode="after")
    @classmethod
    def _a_day(cls, seconds: int) -> int:
        return seconds or 86_400

    @field_validator("gc_interval_seconds", "resync_interval_seconds", mode="after")
    @classmethod
    def _a_minute(cls, seconds: int) -> int:
        return seconds or 60


AggregationType = Literal["", "avg", "p50", "p90", "p95", "p99"]

DEFAULT_WEIGHTS: Final = {CPU: 1, MEMORY: 1}
DEFAULT_THRESHOLDS: Final = {CPU: 65, MEMORY: 95}
DEFAULT_FACTORS: Final = {CPU: 85, MEMORY: 70}
DEFAULT_ESTIMATOR: Final = "defaultEstimator"
RECOMMENDED_ESTIMATOR: Final = "recommendedEstimator"
ESTIMATORS: Final = frozenset({"", DEFAULT_ESTIMATOR, RECOMMENDED_ESTIMATOR})
"""Allowed values of `estimator`. The default multiplies requests by factors; the last one uses recommended usage."""


def _known_estimator(name: str) -> str:
    if name not in ESTIMATORS:
        raise InvalidInput(f"empty, {DEFAULT_ESTIMATOR} or {RECOMMENDED_ESTIMATOR}, the estimators that exist", name)
    return name


class AggregatedArgs(component_config.WireModel):
    """Percentiles of usage that LoadAwareScheduling uses; with an empty type, it uses the average."""

    usage_thresholds: component_config.Percents = {}  # Thresholds of the filter in percent, by resource
    usage_aggregation_type: AggregationType = ""  # Percentile that the filter compares
    # Period of this percentile in seconds; 0 for the longest recorded period.
    usage_aggregated_duration: component_config.Duration = 0.0
    score_aggregation_type: AggregationType = ""  # Percentile that the score uses
    # Period of this percentile in seconds; 0 for the longest recorded period.
    score_aggregated_duration: component_config.Duration = 0.0


class LoadAwareSchedulingArgs(component_config.WireModel):
    """Arguments of LoadAwareScheduling. Thresholds and factors are percentages by resource."""

    # Whether the filter acts on a last report that is too old. If not, it uses it.
    filter_expired_node_metrics: component_config.Bool = True
    node_metric_expiration_seconds: component_config.Positive = 180  # Age at which a report is too old
    # How it acts: True passes the node, False refuses it.
    enable_schedule_when_node_metrics_expired: component_config.Bool = False
    dominant_resource_weight: component_config.Percent = 0  # Weight of the least score among all resources
    resource_weights: component_config.Weights = {}  # Weight of each resource in the score
    # Usage of a node, with the pod, above which the filter refuses the node.
    usage_thresholds: component_config.Percents = {}
    # The same for koord-prod pods, compared with the usage of such pods alone. If empty, `usage_thresholds` apply to
    # them as well.
    prod_usage_thresholds: component_config.Percents = {}
    # Whether usage by the system counts as usage of koord-prod pods.
    prod_usage_include_sys: component_config.Bool = False
    # Whether nodes are scored for koord-prod pods by the usage of such pods alone.
    score_according_prod_usage: component_config.Bool = False
    # How the usage of a pod is estimated, one of `ESTIMATORS`.
    estimator: Annotated[component_config.Text, AfterValidator(_known_estimator)] = ""
    # Estimated usage in percent of the larger one of request and limit.
    estimated_scaling_factors: component_config.Weights = {}
    # Length of the window after scheduling in which a pod's estimate always counts; None for no window.
    estimated_seconds_after_pod_scheduled: component_config.NotNegative | None = None
    # Length of the window after initialization, which replaces the other one once the pod is initialized; None to keep
    # the other one.
    estimated_seconds_after_initialized: component_config.NotNegative | None = None
    # Whether annotations of a pod may override how it is estimated.
    allow_customize_estimation: component_config.Bool = False
    # Resources that are considered besides those that other arguments name.
    supported_resources: tuple[component_config.Text, ...] = ()
    aggregated: AggregatedArgs | None = None  # Percentiles to use; None for averages only

    @field_validator("resource_weights", mode="after")
    @classmethod
    def _default_weights(cls, weights: Mapping[str, int], info: ValidationInfo) -> Mapping[str, int]:
        return weights or (DEFAULT_WEIGHTS if info.data.get("dominant_resource_weight") == 0 else {})

    @field_validator("usage_thresholds", mode="after")
    @classmethod
    def _default_thresholds(cls, thresholds: Mapping[str, int]) -> Mapping[str, int]:
        return thresholds or DEFAULT_THRESHOLDS

    @field_validator("estimated_scaling_factors", mode="after")
    @classmethod
    def _complete_factors(cls, factors: Mapping[str, int], info: ValidationInfo) -> Mapping[str, int]:
        complete = {**DEFAULT_FACTORS, **factors}
        lacking = sorted(set(info.data.get("resource_weights", ())) - complete.keys())
        if lacking:
            raise InvalidInput(f"given for every weighted resource; {', '.join(lacking)} has none", dict(factors))
        return complete

    @property
    def resources(self) -> tuple[str, ...]:
        """Return the resources that filter and score consider, sorted: cpu, memory and other names in the arguments.
        Source: scheduler-core spec, 7.1.
        """
        named = {CPU, MEMORY, *self.supported_resources}
        for part in (
            self.resource_weights,
            self.usage_thresholds,
            self.prod_usage_thresholds,
            self.estimated_scaling_factors,
        ):
            named.update(part)
        if self.aggregated is not None:
            named.update(self.aggregated.usage_thresholds)
        return tuple(sorted(named))
