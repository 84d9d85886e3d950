"""State of each aggregate kind; how one event changes it is in `evolution`.

An aggregate's state depends on the events of its own subject alone, so any object can be rebuilt as of any position
from a handful of events. Every state keeps `seq`, the sequence of its last event: the expectation of the next append.

Source:
    event-bus spec, 2.1 and 4.1
"""

from typing import Any

import msgspec

from koordcore.events.agents.nodestate import NodeTopologyReported
from koordcore.events.management.nodepolicy import MidTerms, OvercommitTerms, ZoneOvercommit
from koordcore.events.management.recommendation import ContainerRecommendation, RecommendationCondition
from koordcore.events.objects.gateway import PodEvictionRequested
from koordcore.events.scheduling.cluster_topology import ClusterTopologyComputed
from koordcore.events.scheduling.gang import GangPhaseChanged, PlacedMember
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
    """What the API server answered to the binding of one placement (`placement`: sequence of its `PodPlaced`).

    Attributes:
        failure: "" bound; else the reason why it never will be.
    """

    placement: int
    node: str
    failure: str = ""


class PodSpecState(AggregateState, frozen=True, kw_only=True, omit_defaults=True):
    """A pod as its user wants it. `added_at` is the time of submission; `added_seq` orders pods by arrival.

    Attributes:
        binding: Outcome of the last binding that was tried; None: none yet, or no Kubernetes.
    """

    object: Pod
    added_at: str
    added_seq: int
    binding: BindingOutcome | None = None


class NodeSpecState(AggregateState, frozen=True, kw_only=True, omit_defaults=True):
    """A node as the API server has it; None once it is gone (its name may come back)."""

    object: Node | None = None


class PodState(AggregateState, frozen=True, kw_only=True, omit_defaults=True):
    """Where a pod is placed. `node` is "" after a release that leaves the pod to be placed again.

    Attributes:
        nominated: Node that it is nominated to, "" none.
        allocation: Of the placement; see `PodPlaced`.
        gang: Of the placement; see `PodPlaced`.
        annotations: Of the placement; see `PodPlaced`.
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
    """What pods hold on a node, by uid. `requested` is the sum of their requests."""

    pods: dict[str, PodOnNode] = {}
    requested: dict[str, int] = {}


class NodeHealth(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A node's health as last assessed; see `NodeHealthAssessed`.

    Attributes:
        annotation: Text of `slo-health` as it stands on the node: only what is worth a write.
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
    """What the manager decided for a node: resources lent, ratios, devices, NodeSLO, how to measure.

    batch_*, mid_*       None: not published

    Attributes:
        origin: Of the batch resources: before third parties, and what those hold.
        third_party: Of the batch resources: before third parties, and what those hold.
        cpu_normalization: Text of the annotation; None: the manager never wrote one.
        amplification: Text of the annotation; None: there is none.
        ratios_computed: Whether the two ratios were ever decided.
        devices: What the node's devices give it; devices_computed: whether that was ever decided.
        device_labels: What the node's devices give it; devices_computed: whether that was ever decided.
        slo: None: not rendered; metric_policy: likewise.
        health: None: never adjusted.
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
    """What the node's agent has done: who it is, pods running there, quota of the best-effort class in force.

    Attributes:
        evicting: Uid -> reason of the pods that the agent evicted and that are not known to have stopped.
        evicted: Pods that it has evicted so far.
        contended: Contention -> pod and signal, of the contentions that go on.
        topology: CPUs and NUMA nodes as last reported; None: not reported.
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


class NamespaceState(AggregateState, frozen=True, kw_only=True, omit_defaults=True):
    """A namespace; None once it is gone."""

    object: Namespace | None = None


class PriorityClassState(AggregateState, frozen=True, kw_only=True, omit_defaults=True):
    """A priority class; None once it is gone."""

    object: PriorityClass | None = None


class WorkloadState(AggregateState, frozen=True, kw_only=True, omit_defaults=True):
    """A Deployment or Job."""

    object: Workload


class ConfigState(AggregateState, frozen=True, kw_only=True, omit_defaults=True):
    """A ConfigMap: the version in force (None: none, or gone), why a newer one was rejected, and what to look at."""

    object: ConfigMap | None = None
    accepted_seq: int = 0
    rejected: dict[str, str] = {}
    warnings: dict[str, str] = {}


class CustomObjectState(AggregateState, frozen=True, kw_only=True, omit_defaults=True):
    """A custom resource as stored, in Kubernetes' shape; None once it is gone (its name may come back)."""

    object: dict[str, Any] | None = None


class ControllerState(AggregateState, frozen=True, kw_only=True, omit_defaults=True):
    """A controller's look at the whole cluster: whether too many nodes look abnormal (`controller.slo-adjust`)."""

    mass_abnormal: bool = False


class QuotaProfileState(AggregateState, frozen=True, kw_only=True, omit_defaults=True):
    """The root quota that a profile asks for; see `QuotaProfileRendered`."""

    quota_namespace: str = ""
    quota_name: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    min: dict[str, str] = {}
    max: dict[str, str] = {}
    fault: str = ""


class RecommendationState(AggregateState, frozen=True, kw_only=True, omit_defaults=True):
    """What a Recommendation recommends; without a target once it is gone (its name may come back)."""

    target: str = ""
    mode: str = "Off"
    containers: list[ContainerRecommendation] = []
    conditions: list[RecommendationCondition] = []
    pods: int = 0
    updated_at: str = ""
    spec_version: int = 0


class EvictionState(AggregateState, frozen=True, kw_only=True, omit_defaults=True):
    """An eviction that is asked for and not done; dropped when it is over."""

    request: PodEvictionRequested
    requested_at: str


class GangState(AggregateState, frozen=True, kw_only=True, omit_defaults=True):
    """What became of a gang: members placed together the last time, and the status of its PodGroup (None: unsaid)."""

    namespace: str
    name: str
    placed: list[PlacedMember] = []
    status: GangPhaseChanged | None = None


class QuotaState(AggregateState, frozen=True, kw_only=True, omit_defaults=True):
    """Status of a quota."""

    status: QuotaStatusComputed


class ScheduleExplanationState(AggregateState, frozen=True, kw_only=True, omit_defaults=True):
    """What a ScheduleExplanation says."""

    status: ScheduleExplanationComputed


class ClusterTopologyState(AggregateState, frozen=True, kw_only=True, omit_defaults=True):
    """The domains of the network."""

    status: ClusterTopologyComputed


class DriftState(AggregateState, frozen=True, kw_only=True, omit_defaults=True):
    """How often in a row sweeps found the same difference; dropped when it is healed."""

    difference: str
    fingerprint: str
    times: int


class GenesisState(AggregateState, frozen=True, kw_only=True, omit_defaults=True):
    """The epoch that the log was begun with."""

    cluster_epoch: int


class FoldControlState(AggregateState, frozen=True, kw_only=True, omit_defaults=True):
    """Events that an operator told a fold to skip."""

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
    "gang": GangState,
    "quota": QuotaState,
    "scheduleexplanation": ScheduleExplanationState,
    "clustertopology": ClusterTopologyState,
    "drift": DriftState,
    "genesis": GenesisState,
    "fold": FoldControlState,
}
"""Aggregate kind -> type of its state."""
