"""State of each aggregate kind. The package `evolution` defines how events change it.

A state depends on the events of its own subject alone, so any object can be rebuilt as of any position from few events.

Source: event-bus spec, 2.1 and 4.1; manager spec, 5.5 to 5.12, 16.4.
"""

from datetime import datetime
from typing import Any

import msgspec

from koordcore.events.cluster import ClusterTopologyComputed, TypicalPodsLearned
from koordcore.events.criproxy import RegisteredHookServer
from koordcore.events.gang import GangPhaseChanged, PlacedMember
from koordcore.events.gateway import PodEvictionFailed, PodEvictionRequested, ResizedContainer
from koordcore.events.node_ledger import PodOnNode
from koordcore.events.nodepolicy import MidTerms, OvercommitTerms, ZoneOvercommit
from koordcore.events.nodestate import DeviceInventoryChanged, NodeTopologyReported
from koordcore.events.pod import UnhealthyDevice
from koordcore.events.quota import QuotaStatusComputed
from koordcore.events.recommendation import ContainerRecommendation, RecommendationCondition
from koordcore.events.schedule_explanation import ScheduleExplanationComputed
from koordcore.protocol import keys
from koordcore.protocol.annotations.gang import BoundGang
from koordcore.protocol.objects import ConfigMap, Namespace, Node, Pod, PriorityClass, Workload
from koordcore.protocol.resource_names import BATCH_CPU, BATCH_MEMORY, MID_CPU, MID_MEMORY
from koordcore.state.fold import AggregateState
from koordcore.values.allocation import NOTHING, Allocation


class BindingOutcome(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The answer of the API server to the binding of a pod to the node of one placement."""

    placement: int  # Sequence of the `PodPlaced` that was to be bound
    node: str
    failure: str = ""  # Reason why the API server refused the binding; "" if the pod was bound


class Resize(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The last resize of a pod that a component of ours requested."""

    containers: list[ResizedContainer]  # What was requested
    seq: int  # Sequence of the `PodResizeRequested`
    answered_at: str = ""  # RFC 3339 time of the API server's answer; "" if it has not answered
    failure: str = ""  # Why it refused; "" if it accepted, or has not answered


class PodSpecState(AggregateState, frozen=True, kw_only=True, omit_defaults=True):
    """The API object of one pod, and the outcome of its binding. It is dropped when the pod is deleted."""

    object: Pod  # The pod, reduced to the fields that Koordstream reads
    added_at: str  # RFC 3339 time at which the pod was submitted
    added_seq: int  # Sequence of its `PodSpecAdded`; it orders pods by arrival
    binding: BindingOutcome | None = None  # Outcome of the last binding; None if there was none, or without Kubernetes
    resize: Resize | None = None  # None if none was requested


class NodeSpecState(AggregateState, frozen=True, kw_only=True, omit_defaults=True):
    """The API object of one node. The state is dropped when the node is deleted; the name may be used again."""

    object: Node  # The node, reduced to the fields that Koordstream reads
    added_seq: int = 0  # Sequence of its `NodeSpecAdded`, at which the present life of the name begins


class PodState(AggregateState, frozen=True, kw_only=True, omit_defaults=True):
    """The decisions of schedulers about one pod: its placement and its nomination. `PodPlaced` explains further
    fields.
    """

    namespace: str
    name: str
    node: str = ""  # Node of the placement; "" if the pod has none or was released
    nominated: str = ""  # Node that the pod is nominated to; "" if none
    # Resource -> amount that the placement takes: milli-cores for cpu, whole units for everything else.
    requests: dict[str, int] = {}
    placed_at: str = ""  # RFC 3339 time of the placement; "" if there is none
    placements: int = 0  # Number of placements that the pod has had
    allocation: Allocation = NOTHING
    gang: BoundGang | None = None
    annotations: dict[str, str] = {}
    unhealthy_devices: list[UnhealthyDevice] = []  # Devices of the pod that are unhealthy; see `PodDeviceUnhealthy`


class NodeLedger(AggregateState, frozen=True, kw_only=True, omit_defaults=True):
    """The ledger of one node: the pods and Reservations that hold resources of it, by uid. `requested` is the sum of
    the pods' requests and of what Reservations hold beyond the amounts that pods took from them: milli-cores for cpu,
    whole units for everything else.
    """

    pods: dict[str, PodOnNode] = {}
    requested: dict[str, int] = {}


class NodeHealth(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The health of one node at its last assessment. `NodeHealthAssessed` explains the fields that are not listed
    here.
    """

    level: str  # "Healthy", "Warning" or "Critical"
    abnormality: float
    weight: int
    reported_weight: int
    offsets: dict[str, int] = {}
    healthy_rounds: int = 0
    reasons: list[str] = []
    effective: dict[str, int] = {}
    # Text of the annotation `slo-health` on the node. Small changes of the health do not change it.
    annotation: str = ""


class NodePolicyState(AggregateState, frozen=True, kw_only=True, omit_defaults=True):
    """The last decisions of the manager for one node: overcommitted resources, ratios, devices, NodeSLO, health.

    The fields are those of `NodeOvercommitComputed`, `NodeRatiosComputed`, `NodeDevicesComputed` and `NodeSloRendered`.
    `batch_...`, `mid_...`, `cpu_normalization` and `amplification` are None if the manager publishes no such value;
    `slo` and `health` are None if they were never computed. The state stays when the node is deleted.
    `overcommit_seq`, `devices_seq` and `health_seq` are the sequences of the last `NodeOvercommitComputed`,
    `NodeDevicesComputed` and `NodeHealthAssessed`, 0 if there was none. They show whether a decision is about the
    present node or about an earlier one of its name (`NodeSpecState.added_seq`).
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
    overcommit_seq: int = 0
    devices_seq: int = 0
    health_seq: int = 0


class NodeAgentState(AggregateState, frozen=True, kw_only=True, omit_defaults=True):
    """The facts that the agent of one node has reported: its identity, running pods, topology, devices, QoS actions."""

    host: str = ""  # "linux" or "simulated"
    started_at: str = ""
    starts: int = 0  # Number of starts of the agent
    # Uids of the pods whose processes run on the node. The pod may have left: an agent that was killed reads an old
    # desired state first, so it starts such a pod again, and stops it when it has read on. Readers that mean the pod's
    # own node ask for its placement too.
    running: list[str] = []
    be_quota_us: int = -1  # CFS quota of all best-effort pods together, in microseconds per 100 ms; -1: unlimited
    suppression_reason: str = ""
    evicting: dict[str, str] = {}  # Uid -> reason, for pods that the agent evicted and that have not stopped yet
    evicted: int = 0  # Number of pods that the agent has evicted
    # (RFC 3339 time, number) of the last 32 evictions of best-effort pods, newest last.
    be_evictions: list[tuple[str, int]] = []
    # Id of a current contention -> text "namespace/name signal" with the disturbed pod and its signal.
    contended: dict[str, str] = {}
    topology: NodeTopologyReported | None = None  # Last report of CPUs and NUMA nodes; None if never reported
    devices: DeviceInventoryChanged | None = None  # Last report of the devices; None if never reported
    health_since: dict[str, str] = {}


class CriProxyState(AggregateState, frozen=True, kw_only=True, omit_defaults=True):
    """The hook servers that the CRI proxy of one node asks, and the number of facts that it dropped."""

    servers: list[RegisteredHookServer] = []
    dropped: int = 0


class NamespaceState(AggregateState, frozen=True, kw_only=True, omit_defaults=True):
    """The API object of one namespace. The state is dropped when the namespace is deleted."""

    object: Namespace


class PriorityClassState(AggregateState, frozen=True, kw_only=True, omit_defaults=True):
    """The API object of one PriorityClass. The state is dropped when the PriorityClass is deleted."""

    object: PriorityClass


class WorkloadState(AggregateState, frozen=True, kw_only=True, omit_defaults=True):
    """The API object of one Deployment or Job. The state is dropped when the object is deleted."""

    object: Workload


class ConfigState(AggregateState, frozen=True, kw_only=True, omit_defaults=True):
    """One ConfigMap: the version in force, and what was wrong with a newer version. Dropped with the ConfigMap."""

    object: ConfigMap | None = None  # Version in force; None if there was no valid version
    accepted_seq: int = 0  # Sequence of the event that accepted this version; 0 for none
    # Key -> reason why the newer version was rejected; empty if the newest version is in force.
    rejected: dict[str, str] = {}
    warnings: dict[str, str] = {}  # Field -> warning about the version in force


class CustomObjectState(AggregateState, frozen=True, kw_only=True, omit_defaults=True):
    """One custom resource: the whole object as JSON. The state is dropped when the object is deleted; the name may be
    used again.
    """

    object: dict[str, Any]


class ControllerState(AggregateState, frozen=True, kw_only=True, omit_defaults=True):
    """Whether more nodes are abnormal than may have a lowered weight (aggregate `controller.slo-adjust`)."""

    mass_abnormal: bool = False


class QuotaProfileState(AggregateState, frozen=True, kw_only=True, omit_defaults=True):
    """The root quota that follows from one ElasticQuotaProfile, as last computed; see `QuotaProfileRendered`. `fault`
    is the reason why it could not be computed; "" for none.
    """

    quota_namespace: str = ""
    quota_name: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    min: dict[str, str] = {}
    max: dict[str, str] = {}
    fault: str = ""


class RecommendationState(AggregateState, frozen=True, kw_only=True, omit_defaults=True):
    """The last published status of one Recommendation; see `RecommendationComputed`. Dropped with the object."""

    target: str = ""
    mode: str = "Off"
    containers: list[ContainerRecommendation] = []
    conditions: list[RecommendationCondition] = []
    pods: int = 0
    updated_at: str = ""
    spec_version: int = 0


class EvictionState(AggregateState, frozen=True, kw_only=True, omit_defaults=True):
    """A requested eviction of one pod, which has not succeeded or failed yet."""

    request: PodEvictionRequested
    requested_at: str  # RFC 3339 time of the request
    delays: list[str] = []  # Reasons why attempts to carry it out have failed so far, in the order of their first time

    def expired(self, now: datetime) -> PodEvictionFailed | None:
        """Return the event that ends the request if it is too old to be carried out; None if it is not. It is too old
        after `give_up_after_seconds` of the request; 0 there means no limit. The reason in the event is that of the
        last delay, or "Expired" if no attempt has failed.
        """
        seconds = self.request.give_up_after_seconds
        if not seconds or (now - datetime.fromisoformat(self.requested_at)).total_seconds() <= seconds:
            return None
        reason = self.delays[-1] if self.delays else "Expired"
        return PodEvictionFailed(reason=reason, message=f"the request was not carried out within {seconds} s")


class ReservationState(AggregateState, frozen=True, kw_only=True, omit_defaults=True):
    """The failed attempts and the end of one Reservation; see `koordcore.events.reservation`. Times are RFC 3339; ""
    means never.
    """

    name: str
    phase: str = ""  # "Succeeded" or "Failed"; empty while it is neither
    reason: str = ""  # "Succeeded" or "Expired"; empty while `phase` is empty
    node: str = ""  # Node of the Reservation when it ended; empty if it had none
    # Resource -> amount that it held when it ended: milli-cores for cpu, else whole units.
    allocatable: dict[str, int] = {}
    available_since: str = ""  # Time at which the Reservation got its node
    ended_at: str = ""
    message: str = ""  # Why it failed, or why no node was found at the last attempt
    # Time at which no node was found for the first time; `unschedulable_at`: for the last time.
    unschedulable_since: str = ""
    unschedulable_at: str = ""
    is_collected: bool = False  # Whether the manager has to delete the object of the Reservation


class GangState(AggregateState, frozen=True, kw_only=True, omit_defaults=True):
    """One gang: the members that were placed last, and the published status of its PodGroup (None: none yet)."""

    namespace: str
    name: str
    placed: list[PlacedMember] = []
    status: GangPhaseChanged | None = None


class QuotaState(AggregateState, frozen=True, kw_only=True, omit_defaults=True):
    """The status of one ElasticQuota that a scheduler published last, in `status`."""

    status: QuotaStatusComputed


class ScheduleExplanationState(AggregateState, frozen=True, kw_only=True, omit_defaults=True):
    """The published status of one ScheduleExplanation: whether its pod, job or gang finds a node."""

    status: ScheduleExplanationComputed


class ClusterTopologyState(AggregateState, frozen=True, kw_only=True, omit_defaults=True):
    """The network domains (racks ...) of the cluster that a scheduler published last, in `status`."""

    status: ClusterTopologyComputed


class GpuWorkloadState(AggregateState, frozen=True, kw_only=True, omit_defaults=True):
    """The typical pods that a scheduler learned last (`learned`), by which GPU fragmentation is measured."""

    learned: TypicalPodsLearned


class DriftState(AggregateState, frozen=True, kw_only=True, omit_defaults=True):
    """A difference between the fold and the API server for one object. It is dropped when the difference has ended."""

    difference: str  # "missing-in-log", "missing-in-api" or "differs"
    fingerprint: str  # Digest of the folded and the stored object
    times: int  # Number of consecutive comparisons that found it


class GenesisState(AggregateState, frozen=True, kw_only=True, omit_defaults=True):
    """The cluster epoch: a number that grows each time that a new log is filled from the API server (genesis)."""

    cluster_epoch: int


def policy_resources(policy: NodePolicyState) -> dict[str, int]:
    """Return resource name -> amount that a node gets from its policy: batch, mid and device resources. The manager
    adds them to the node's capacity and allocatable. Amounts are whole units; those of batch and mid cpu are
    milli-cores. Resources that are not published are absent.
    """
    lent = {
        BATCH_CPU: policy.batch_cpu_milli,
        BATCH_MEMORY: policy.batch_memory_bytes,
        MID_CPU: policy.mid_cpu_milli,
        MID_MEMORY: policy.mid_memory_bytes,
    }
    return {name: amount for name, amount in lent.items() if amount is not None} | policy.devices


def policy_annotations(policy: NodePolicyState) -> dict[str, str]:
    """Return key -> text of the annotations that a node policy sets on the node. They are `cpu-normalization-ratio`,
    `resource-amplification-ratio` and `slo-health` (prefix `node.koordinator.sh/`). An annotation that the manager
    removed or never wrote is absent.
    """
    texts = {
        keys.CPU_NORMALIZATION_RATIO: policy.cpu_normalization,
        keys.RESOURCE_AMPLIFICATION_RATIO: policy.amplification,
        keys.SLO_HEALTH: policy.health.annotation if policy.health and policy.health.annotation else None,
    }
    return {key: text for key, text in texts.items() if text is not None}
