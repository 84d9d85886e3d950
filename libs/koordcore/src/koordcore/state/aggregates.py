"""State of each aggregate kind. The package `evolution` defines how events change it.

An aggregate's state depends on the events of its own subject alone, so any object can be rebuilt as of any position
from a handful of events. Every state has `seq`, the sequence of its last event. The next append must name it as the
expected position.

Source:
    event-bus spec, 2.1 and 4.1
"""

from typing import Any

import msgspec

from koordcore.events.agents.nodestate import DeviceInventoryChanged, NodeTopologyReported
from koordcore.events.management.nodepolicy import MidTerms, OvercommitTerms, ZoneOvercommit
from koordcore.events.management.recommendation import ContainerRecommendation, RecommendationCondition
from koordcore.events.objects.gateway import PodEvictionRequested
from koordcore.events.scheduling.cluster_topology import ClusterTopologyComputed
from koordcore.events.scheduling.gang import GangPhaseChanged, PlacedMember
from koordcore.events.scheduling.gpu_workload import TypicalPodsLearned
from koordcore.events.scheduling.node_ledger import PodOnNode
from koordcore.events.scheduling.quota import QuotaStatusComputed
from koordcore.events.scheduling.schedule_explanation import ScheduleExplanationComputed
from koordcore.protocol.annotations.gang import BoundGang
from koordcore.protocol.objects import ConfigMap, Namespace, Node, Pod, PriorityClass, Workload
from koordcore.values.allocation import NOTHING, Allocation


class AggregateState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Base of all aggregate states. `seq` is the sequence of the last event of this aggregate."""

    seq: int


class BindingOutcome(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Answer of the API server to the binding of one placement.

    `placement` is the sequence of its `PodPlaced`.

    Attributes:
        failure: Reason why the pod cannot be bound there; "" if it was bound.
    """

    placement: int
    node: str
    failure: str = ""


class PodSpecState(AggregateState, frozen=True, kw_only=True, omit_defaults=True):
    """A pod as its user specified it.

    `added_at` is the time of submission. `added_seq` orders pods by arrival.

    Attributes:
        binding: Outcome of the last binding attempt; None if there was none, or without Kubernetes.
    """

    object: Pod
    added_at: str
    added_seq: int
    binding: BindingOutcome | None = None


class NodeSpecState(AggregateState, frozen=True, kw_only=True, omit_defaults=True):
    """A node object; None after it was deleted. The same name may be used again."""

    object: Node | None = None


class PodState(AggregateState, frozen=True, kw_only=True, omit_defaults=True):
    """Placement of a pod. `node` is "" after a release, until the pod is placed again.

    Attributes:
        nominated: Node that the pod is nominated to; "" if none.
        allocation: Allocation of the placement; see `PodPlaced`.
        gang: Gang group that is bound together; see `PodPlaced`.
        annotations: Annotations that installed plugins set; see `PodPlaced`.
    """

    namespace: str
    name: str
    node: str = ""
    nominated: str = ""
    requests: dict[str, int] = {}
    placed_at: str = ""
    placements: int = 0
    allocation: Allocation = NOTHING
    gang: BoundGang | None = None
    annotations: dict[str, str] = {}


class NodeLedger(AggregateState, frozen=True, kw_only=True, omit_defaults=True):
    """Pods and Reservations that hold resources of a node, by uid.

    Attributes:
        requested: Sum of the pods' requests and of what the Reservations hold beyond the amounts that pods took
            from them.
    """

    pods: dict[str, PodOnNode] = {}
    requested: dict[str, int] = {}


class NodeHealth(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The health of a node as last assessed; see `NodeHealthAssessed`.

    Attributes:
        annotation: Text of the annotation `slo-health` on the node. Small changes are not written.
    """

    level: str
    abnormality: float
    weight: int
    reported_weight: int
    offsets: dict[str, int] = {}
    healthy_rounds: int = 0
    reasons: list[str] = []
    effective: dict[str, int] = {}
    annotation: str = ""


class NodePolicyState(AggregateState, frozen=True, kw_only=True, omit_defaults=True):
    """Decisions of the manager for a node: overcommitted resources, ratios, devices, NodeSLO, metric collection.

    Fields that begin with `batch_` or `mid_` are None if the resource is not published.

    Attributes:
        origin: Batch resources before the amounts of third parties are subtracted.
        third_party: Amounts of batch resources that third parties use.
        cpu_normalization: Text of the annotation; None if the manager never wrote one.
        amplification: Text of the annotation; None if there is none.
        ratios_computed: Whether the two ratios were ever decided.
        devices: Resource name -> amount that the node's devices provide.
        device_labels: Labels that the node's devices set on the node.
        slo: NodeSLO spec; None if it was not rendered yet.
        health: Health of the node; None if it was never assessed.
    """

    batch_cpu_milli: int | None = None
    batch_memory_bytes: int | None = None
    reason: str = ""
    terms: dict[str, OvercommitTerms] = {}
    computed_at: str = ""
    slo: dict[str, Any] | None = None
    slo_config_version: int = 0
    mid_cpu_milli: int | None = None
    mid_memory_bytes: int | None = None
    mid_terms: dict[str, MidTerms] = {}
    normalization: str = ""
    origin: dict[str, int] = {}
    third_party: dict[str, int] = {}
    zones: dict[str, ZoneOvercommit] = {}
    cpu_normalization: str | None = None
    amplification: str | None = None
    ratio_faults: dict[str, str] = {}
    ratios_computed: bool = False
    devices: dict[str, int] = {}
    device_labels: dict[str, str] = {}
    devices_computed: bool = False
    slo_fault: str = ""
    metric_policy: dict[str, Any] | None = None
    health: NodeHealth | None = None


class NodeAgentState(AggregateState, frozen=True, kw_only=True, omit_defaults=True):
    """State that the node's agent reported: its identity, running pods, and the quota of best-effort pods.

    Attributes:
        evicting: Uid -> reason, for pods that the agent evicted and that have not stopped yet.
        evicted: Number of pods that the agent has evicted.
        contended: Id of a current contention -> its pod and signal.
        topology: CPUs and NUMA nodes as last reported; None if never reported.
    """

    host: str = ""
    started_at: str = ""
    starts: int = 0
    running: list[str] = []
    be_quota_us: int = -1
    suppression_reason: str = ""
    evicting: dict[str, str] = {}
    evicted: int = 0
    contended: dict[str, str] = {}
    topology: NodeTopologyReported | None = None
    devices: DeviceInventoryChanged | None = None
    health_since: dict[str, str] = {}


class NamespaceState(AggregateState, frozen=True, kw_only=True, omit_defaults=True):
    """A namespace; None after it was deleted."""

    object: Namespace | None = None


class PriorityClassState(AggregateState, frozen=True, kw_only=True, omit_defaults=True):
    """A priority class; None after it was deleted."""

    object: PriorityClass | None = None


class WorkloadState(AggregateState, frozen=True, kw_only=True, omit_defaults=True):
    """State of a Deployment or Job: its object, reduced to the fields that Koordstream reads."""

    object: Workload


class ConfigState(AggregateState, frozen=True, kw_only=True, omit_defaults=True):
    """A ConfigMap: the version in force, the reasons why a newer one was rejected, and warnings.

    The version is None if there was none or it was deleted.
    """

    object: ConfigMap | None = None
    accepted_seq: int = 0
    rejected: dict[str, str] = {}
    warnings: dict[str, str] = {}


class CustomObjectState(AggregateState, frozen=True, kw_only=True, omit_defaults=True):
    """A custom resource as stored, as a Kubernetes object; None after it was deleted.

    The same name may be used again.
    """

    object: dict[str, Any] | None = None


class ControllerState(AggregateState, frozen=True, kw_only=True, omit_defaults=True):
    """Cluster-wide state of a controller: whether too many nodes look abnormal (`controller.slo-adjust`)."""

    mass_abnormal: bool = False


class QuotaProfileState(AggregateState, frozen=True, kw_only=True, omit_defaults=True):
    """The root quota that a profile defines; see `QuotaProfileRendered`."""

    quota_namespace: str = ""
    quota_name: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    min: dict[str, str] = {}
    max: dict[str, str] = {}
    fault: str = ""


class RecommendationState(AggregateState, frozen=True, kw_only=True, omit_defaults=True):
    """Amounts that a Recommendation recommends. It has no target after the object was deleted."""

    target: str = ""
    mode: str = "Off"
    containers: list[ContainerRecommendation] = []
    conditions: list[RecommendationCondition] = []
    pods: int = 0
    updated_at: str = ""
    spec_version: int = 0


class EvictionState(AggregateState, frozen=True, kw_only=True, omit_defaults=True):
    """A requested eviction that has not finished. It is dropped when the eviction ends."""

    request: PodEvictionRequested
    requested_at: str


class ReservationState(AggregateState, frozen=True, kw_only=True, omit_defaults=True):
    """How a Reservation failed or ended; see `events.scheduling.reservation`. Times are RFC 3339.

    Attributes:
        phase: "Succeeded" or "Failed"; empty while it is neither.
        reason: "Succeeded" or "Expired"; empty while `phase` is empty.
        node: Its node when it ended; empty if it had none.
        allocatable: What it held when it ended.
        available_since: When it got its node; empty if it never had one.
        ended_at: When it ended.
        message: Why it failed, or why no node was found last.
        unschedulable_since: When no node was found for the first time; empty if that never happened.
        unschedulable_at: When no node was found last.
        is_collected: Whether its object is to be deleted.
    """

    name: str
    phase: str = ""
    reason: str = ""
    node: str = ""
    allocatable: dict[str, int] = {}
    available_since: str = ""
    ended_at: str = ""
    message: str = ""
    unschedulable_since: str = ""
    unschedulable_at: str = ""
    is_collected: bool = False


class GangState(AggregateState, frozen=True, kw_only=True, omit_defaults=True):
    """Last placement of a gang, and the status of its PodGroup (None: not published yet)."""

    namespace: str
    name: str
    placed: list[PlacedMember] = []
    status: GangPhaseChanged | None = None


class QuotaState(AggregateState, frozen=True, kw_only=True, omit_defaults=True):
    """Status of a quota."""

    status: QuotaStatusComputed


class ScheduleExplanationState(AggregateState, frozen=True, kw_only=True, omit_defaults=True):
    """The published answer to a ScheduleExplanation."""

    status: ScheduleExplanationComputed


class ClusterTopologyState(AggregateState, frozen=True, kw_only=True, omit_defaults=True):
    """The domains of the cluster's network."""

    status: ClusterTopologyComputed


class GpuWorkloadState(AggregateState, frozen=True, kw_only=True, omit_defaults=True):
    """The typical pods that were learned last."""

    learned: TypicalPodsLearned


class DriftState(AggregateState, frozen=True, kw_only=True, omit_defaults=True):
    """Number of consecutive sweeps that found the same drift. It is dropped when the drift has ended."""

    difference: str
    fingerprint: str
    times: int


class GenesisState(AggregateState, frozen=True, kw_only=True, omit_defaults=True):
    """The cluster epoch with which the log began."""

    cluster_epoch: int


class FoldControlState(AggregateState, frozen=True, kw_only=True, omit_defaults=True):
    """Positions that an operator told a fold to skip."""

    skipped: list[int] = []


STATE_TYPES: dict[str, type[AggregateState]] = {
    "podspec": PodSpecState,
    "nodespec": NodeSpecState,
    "pod": PodState,
    "node": NodeLedger,
    "nodepolicy": NodePolicyState,
    "nodestate": NodeAgentState,
    "namespace": NamespaceState,
    "priorityclass": PriorityClassState,
    "workloadspec": WorkloadState,
    "config": ConfigState,
    "customspec": CustomObjectState,
    "controller": ControllerState,
    "quotaprofile": QuotaProfileState,
    "recommendation": RecommendationState,
    "eviction": EvictionState,
    "reservation": ReservationState,
    "gang": GangState,
    "quota": QuotaState,
    "scheduleexplanation": ScheduleExplanationState,
    "clustertopology": ClusterTopologyState,
    "gpuworkload": GpuWorkloadState,
    "drift": DriftState,
    "genesis": GenesisState,
    "fold": FoldControlState,
}
"""Aggregate kind -> type of its state."""
