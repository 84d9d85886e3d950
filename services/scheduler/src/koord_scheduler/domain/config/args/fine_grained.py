"""Arguments of the plugins for fine-grained resources.

Source:
    scheduler-fine-grained spec, 1.11, 2.12, 3.13
"""

import re
from typing import Annotated, Final, Literal

from koordcore.protocol import component_config
from koordcore.protocol.hardware.device_requests import GPU_TEMPLATES
from koordcore.protocol.resource_names import FPGA, GPU_MEMORY, GPU_MEMORY_RATIO, HUAWEI_NPU_CORE, RDMA
from koordcore.values.invalid import InvalidInput
from pydantic import AfterValidator, field_validator

from koord_scheduler.domain.config.args.kubernetes import CPU_AND_MEMORY, ScoredResources, WeightedResource

Allocation = Literal["LeastAllocated", "MostAllocated"]


class NumaScoringStrategy(component_config.WireModel):
    """How NodeNUMAResource scores nodes or NUMA zones: least or most allocated first, by weighted resources."""

    type: Allocation = "LeastAllocated"
    resources: ScoredResources = CPU_AND_MEMORY


class NodeNUMAResourceArgs(component_config.WireModel):
    """Arguments of NodeNUMAResource.

    Attributes:
        default_cpu_bind_policy: CPU bind policy of LSE and LSR pods without the annotation. "": their CPUs are not
            bound.
        scoring_strategy: How nodes are scored.
        numa_scoring_strategy: How NUMA zones of a node are scored.
    """

    default_cpu_bind_policy: Literal["", "FullPCPUs", "SpreadByPCPUs"] = "FullPCPUs"
    scoring_strategy: NumaScoringStrategy = NumaScoringStrategy()
    numa_scoring_strategy: NumaScoringStrategy = NumaScoringStrategy()


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
    """One entry of a workload description: requests that many pods have in common, and how frequent such pods are.

    Attributes:
        milli_cpu: CPU request in milli-cores.
        gpu_milli: Thousandths of each GPU; 1000 is a whole GPU.
        num_gpu: Number of GPUs; 0: the pod uses none.
        gpu_models: Allowed GPU models, joined by "|"; empty: any.
        frequency: Fraction of all pods, above 0 and at most 1.
    """

    milli_cpu: component_config.NotNegative
    gpu_milli: Annotated[int, component_config.within(0, 1000)] = 0
    num_gpu: component_config.NotNegative = 0
    gpu_models: component_config.Text = ""
    frequency: Annotated[float, AfterValidator(_positive)]


class TypicalPodLearning(component_config.WireModel):
    """Settings by which the scheduler learns the typical pods of GPU fragmentation from the pods of the cluster.

    Attributes:
        window: Seconds. Pods that were created earlier do not count.
        popularity_threshold_percent: The most frequent requests are typical until they cover this percentage of the
            pods.
        refresh_interval: Least number of seconds between two results.
    """

    window: component_config.Duration = 86_400.0
    popularity_threshold_percent: Annotated[int, component_config.within(1, 100)] = 95
    refresh_interval: Annotated[component_config.Duration, AfterValidator(_at_least_a_second)] = 600.0


class GpuFragmentation(component_config.WireModel):
    """Settings of DeviceShare's scores by GPU fragmentation. Koordinator has no such scores; they are off by default.

    Attributes:
        policy: FGD, or ExpectedFilling, which allocates more GPUs in the benchmark.
        weight: Weight beside the score of the scoring strategy, which has weight 1.
        typical_pods: Requests that many pods have. If empty, they are learned from the pods of the cluster.
        learning: Settings of this learning.
    """

    enabled: component_config.Bool = False
    policy: Literal["FGD", "ExpectedFilling"] = "FGD"
    weight: component_config.Positive = 1
    typical_pods: tuple[TypicalGpuPod, ...] = ()
    learning: TypicalPodLearning = TypicalPodLearning()


class DeviceShareArgs(component_config.WireModel):
    """Arguments of DeviceShare. `allocator` is accepted without effect, as in Koordinator.

    Attributes:
        scoring_strategy: How nodes and devices are scored.
        disable_device_numa_topology_alignment: Whether devices are chosen without regard to NUMA topology policies.
        gpu_shared_resource_templates_config: Where templates of shared GPU resources are, and what they apply to.
        gpu_share_unsupported_models: Nodes with these GPU models refuse pods that request a part of a GPU.
        gpu_fragmentation: Settings of the scores by GPU fragmentation.
        enable_pcie_level_exclusive: Whether the exclusive policy PCIeLevel of the annotation `device-allocate-hint` has
            its documented effect: only PCIe switches whose devices of the type are all unused. In Koordinator it has
            no effect.
    """

    allocator: component_config.Text = ""
    scoring_strategy: DeviceScoringStrategy = DeviceScoringStrategy()
    disable_device_numa_topology_alignment: component_config.Bool = False
    gpu_shared_resource_templates_config: GpuTemplates = GpuTemplates()
    gpu_share_unsupported_models: tuple[DeviceModel, ...] = ()
    gpu_fragmentation: GpuFragmentation = GpuFragmentation()
    enable_pcie_level_exclusive: component_config.Bool = False


class PreAllocationConfig(component_config.WireModel):
    """Settings of pre-allocation: a Reservation takes the place of pods that are still running.

    Attributes:
        enable_cluster_mode: Whether Reservations in cluster mode are placed. If not, they are rejected.
        cluster_label_key: In cluster mode, only pods whose label with this key is "true" may lose their place.
        cluster_priority_annotation_key: In cluster mode, pods with a greater integer in this annotation come first.
        prefer_no_pre_allocated_pods: Whether a Reservation takes no pod's place on a node where it fits without,
            unless it requires pre-allocation.
    """

    enable_cluster_mode: component_config.Bool = False
    cluster_label_key: component_config.Text = "pod.koordinator.sh/is-pre-allocatable"
    cluster_priority_annotation_key: component_config.Text = "pod.koordinator.sh/pre-allocatable-priority"
    prefer_no_pre_allocated_pods: component_config.Bool = False


class ReservationSelectorIndex(component_config.WireModel):
    """Label keys for which metrics count the pods that select Reservations by them.

    In Koordinator, an index of Reservations has these keys. This scheduler needs no such index, and no outcome depends
    on the settings.

    Attributes:
        enabled: Whether anything is counted.
        key_prefixes: Keys with one of these prefixes count as indexed.
        keys: Further keys that count as indexed.
    """

    enabled: component_config.Bool = False
    key_prefixes: tuple[component_config.Text, ...] = ()
    keys: tuple[component_config.Text, ...] = ()

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
    """Arguments of the plugin Reservation. Durations are in seconds; 0 stands for the default.

    Attributes:
        enable_preemption: Whether the plugin may evict pods if a Reservation, or a pod that it concerns, finds no
            feasible node. If not, no plugin evicts pods for a Reservation.
        min_candidate_nodes_percentage: Percentage of all nodes that such a preemption examines.
        min_candidate_nodes_absolute: Number of nodes that it examines at least.
        controller_workers: Accepted without effect: one task does this work.
        gc_duration_seconds: How long an ended Reservation is kept. It is deleted earlier if its node is gone.
        gc_interval_seconds: Least time between two checks of whether an ended Reservation is to be deleted.
        resync_interval_seconds: Accepted without effect: the log brings every change of a Reservation.
        disable_garbage_collection: Whether ended Reservations are never deleted.
        pre_allocation_config: Settings of Reservations that take the place of running pods.
        ignored_resources: Resources that the plugin's filter does not compare.
        ignored_resource_groups: Domains of such resources, for example `example.com`.
        reservation_selector_index: Label keys for metrics.
    """

    enable_preemption: component_config.Bool = False
    min_candidate_nodes_percentage: component_config.Percent = 10
    min_candidate_nodes_absolute: component_config.NotNegative = 100
    controller_workers: component_config.Positive = 1
    gc_duration_seconds: component_config.NotNegative = 86_400
    gc_interval_seconds: component_config.NotNegative = 60
    resync_interval_seconds: component_config.NotNegative = 60
    disable_garbage_collection: component_config.Bool = False
    pre_allocation_config: PreAllocationConfig = PreAllocationConfig()
    ignored_resources: tuple[Annotated[component_config.Text, AfterValidator(_extended)], ...] = ()
    ignored_resource_groups: tuple[Annotated[component_config.Text, AfterValidator(_extended_group)], ...] = ()
    reservation_selector_index: ReservationSelectorIndex = ReservationSelectorIndex()

    @field_validator("gc_duration_seconds", mode="after")
    @classmethod
    def _a_day(cls, seconds: int) -> int:
        return seconds or 86_400

    @field_validator("gc_interval_seconds", "resync_interval_seconds", mode="after")
    @classmethod
    def _a_minute(cls, seconds: int) -> int:
        return seconds or 60
