"""State of each aggregate kind, and how one event changes it.

An aggregate's state depends on the events of its own subject alone, so any object can be rebuilt as of any position
from a handful of events. `evolve` records facts: it has no failure branch for valid events and consults no clock.
Every state keeps `seq`, the sequence of its last event: the expectation of the next append.

source    event-bus spec, 2.1 and 4.1
"""

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from koordcore.events.adjustment import ConfigWarned, MassAbnormalityChanged, NodeHealthAssessed
from koordcore.events.cluster_topology import ClusterTopologyComputed
from koordcore.events.control import EventSkipped
from koordcore.events.custom import CustomObjectDeleted, CustomObjectObserved
from koordcore.events.envelope import Event, StoredEvent
from koordcore.events.gang import GangPhaseChanged, GangPlaced, PlacedMember
from koordcore.events.gateway import (
    DriftHealed,
    DriftObserved,
    GenesisRecorded,
    PodBindFailed,
    PodBound,
    PodEvicted,
    PodEvictionFailed,
    PodEvictionRequested,
)
from koordcore.events.mirror import (
    ConfigAccepted,
    ConfigDeleted,
    ConfigRejected,
    NamespaceDeleted,
    NamespaceObserved,
    NodeSpecAdded,
    NodeSpecChanged,
    NodeSpecDeleted,
    PodSpecAdded,
    PodSpecChanged,
    PodSpecDeleted,
    PriorityClassDeleted,
    PriorityClassObserved,
    WorkloadDeleted,
    WorkloadObserved,
    WorkloadPodsCreated,
)
from koordcore.events.node import NodeResourcesReturned, NodeResourcesTaken
from koordcore.events.nodepolicy import (
    MidTerms,
    NodeDevicesComputed,
    NodeMetricPolicyRendered,
    NodeOvercommitComputed,
    NodeRatiosComputed,
    NodeSloRendered,
    OvercommitTerms,
    ZoneOvercommit,
)
from koordcore.events.nodestate import (
    AgentStarted,
    AgentStopped,
    BeCpuReleased,
    BeCpuSuppressed,
    InterferenceDetected,
    InterferenceEnded,
    KnobsChanged,
    NodeTopologyReported,
    PodsEvictedByAgent,
    PodsStarted,
    PodsStopped,
)
from koordcore.events.pod import (
    PodNominated,
    PodNominationCleared,
    PodPlaced,
    PodReleased,
)
from koordcore.events.quota import QuotaStatusComputed
from koordcore.events.quota_profile import QuotaProfileRendered
from koordcore.events.recommendation import (
    ContainerRecommendation,
    RecommendationComputed,
    RecommendationCondition,
    RecommendationDropped,
)
from koordcore.events.schedule_explanation import ScheduleExplanationComputed
from koordcore.protocol.objects import ConfigMap, Namespace, Node, Pod, PriorityClass, Workload


class AggregateState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Base of all aggregate states. `seq` is the sequence of the last event of this aggregate."""

    seq: int


class BindingOutcome(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the API server answered to the binding of one placement (`placement`: sequence of its `PodPlaced`).

    failure     "" bound; else the reason why it never will be
    """

    placement: int
    node: str
    failure: str = ""


class PodSpecState(AggregateState, frozen=True, kw_only=True, omit_defaults=True):
    """A pod as its user wants it. `added_at` is the time of submission; `added_seq` orders pods by arrival.

    binding     outcome of the last binding that was tried; None: none yet, or no Kubernetes
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

    nominated    node that it is nominated to, "" none
    """

    namespace: str
    name: str
    node: str = ""
    nominated: str = ""
    requests: dict[str, int] = {}
    placed_at: str = ""
    placements: int = 0
    annotations: dict[str, str] = {}


class NodeLedger(AggregateState, frozen=True, kw_only=True, omit_defaults=True):
    """What pods hold on a node. `requested` is the sum over `pods` (uid -> requests)."""

    pods: dict[str, dict[str, int]] = {}
    requested: dict[str, int] = {}


class NodeHealth(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A node's health as last assessed; see `NodeHealthAssessed`.

    annotation    text of `slo-health` as it stands on the node: only what is worth a write
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
    origin, third_party  of the batch resources: before third parties, and what those hold
    cpu_normalization    text of the annotation; None: the manager never wrote one
    amplification        text of the annotation; None: there is none
    ratios_computed      whether the two ratios were ever decided
    devices, device_labels   what the node's devices give it; devices_computed: whether that was ever decided
    slo                  None: not rendered; metric_policy: likewise
    health               None: never adjusted
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

    evicting    uid -> reason of the pods that the agent evicted and that are not known to have stopped
    evicted     pods that it has evicted so far
    contended   contention -> pod and signal, of the contentions that go on
    topology    CPUs and NUMA nodes as last reported; None: not reported
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
    """How a quota stands."""

    status: QuotaStatusComputed


class ScheduleExplanationState(AggregateState, frozen=True, kw_only=True, omit_defaults=True):
    """What a ScheduleExplanation says."""

    status: ScheduleExplanationComputed


class ClusterTopologyState(AggregateState, frozen=True, kw_only=True, omit_defaults=True):
    """The network's domains."""

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
    """Events that an operator told a fold to pass over."""

    skipped: list[int] = []


S = TypeVar("S", bound=AggregateState)
Evolve = Callable[[Any, Any, StoredEvent], AggregateState | None]
"""(state or None, event, stored) -> new state; None drops the aggregate for good (its id never comes back)."""

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


def _pod_submitted(state: PodSpecState | None, event: PodSpecAdded | PodSpecChanged, at: StoredEvent) -> PodSpecState:
    added_at, added_seq = (state.added_at, state.added_seq) if state else (at.occurred_at, at.seq)
    return PodSpecState(
        seq=at.seq,
        object=event.object,
        added_at=added_at,
        added_seq=added_seq,
        binding=state.binding if state else None,
    )


def _pod_bound(state: PodSpecState | None, event: PodBound | PodBindFailed, at: StoredEvent) -> PodSpecState | None:
    failure = event.reason if isinstance(event, PodBindFailed) else ""
    binding = BindingOutcome(placement=event.placement, node=event.node, failure=failure)
    return msgspec.structs.replace(state, seq=at.seq, binding=binding) if state else None


def _node_registered(_: NodeSpecState | None, event: NodeSpecAdded | NodeSpecChanged, at: StoredEvent) -> NodeSpecState:
    return NodeSpecState(seq=at.seq, object=event.object)


def _pod_placed(state: PodState | None, event: PodPlaced, at: StoredEvent) -> PodState:
    return PodState(
        seq=at.seq,
        namespace=event.namespace,
        name=event.name,
        node=event.node,
        requests=event.requests,
        placed_at=at.occurred_at,
        placements=(state.placements if state else 0) + 1,
        annotations=event.annotations,
    )


def _pod_released(state: PodState | None, event: PodReleased, at: StoredEvent) -> PodState | None:
    if event.reason == "deleted":
        return None
    placements = state.placements if state else 0
    return PodState(seq=at.seq, namespace=event.namespace, name=event.name, placements=placements)


def _pod_nominated(state: PodState | None, event: PodNominated, at: StoredEvent) -> PodState:
    base = state or PodState(seq=at.seq, namespace=event.namespace, name=event.name)
    return msgspec.structs.replace(base, seq=at.seq, nominated=event.node)


def _nomination_cleared(state: PodState | None, event: PodNominationCleared, at: StoredEvent) -> PodState | None:
    if event.reason == "deleted":
        return None
    base = state or PodState(seq=at.seq, namespace=event.namespace, name=event.name)
    return msgspec.structs.replace(base, seq=at.seq, nominated="")


def _added(total: dict[str, int], part: dict[str, int], sign: int) -> dict[str, int]:
    """total + sign * part, entries that become 0 dropped."""
    result = dict(total)
    for name, amount in part.items():
        value = result.get(name, 0) + sign * amount
        if value:
            result[name] = value
        else:
            result.pop(name, None)
    return result


def _resources_taken(state: NodeLedger | None, event: NodeResourcesTaken, at: StoredEvent) -> NodeLedger:
    pods, requested = (dict(state.pods), state.requested) if state else ({}, {})
    for pod in event.pods:
        if pod.uid in pods:
            requested = _added(requested, pods[pod.uid], -1)
        pods[pod.uid] = pod.requests
        requested = _added(requested, pod.requests, 1)
    return NodeLedger(seq=at.seq, pods=pods, requested=requested)


def _resources_returned(state: NodeLedger | None, event: NodeResourcesReturned, at: StoredEvent) -> NodeLedger:
    pods, requested = (dict(state.pods), state.requested) if state else ({}, {})
    for uid in event.pods:
        if uid in pods:
            requested = _added(requested, pods.pop(uid), -1)
    return NodeLedger(seq=at.seq, pods=pods, requested=requested)


def _policy(state: NodePolicyState | None, at: StoredEvent, **changed: Any) -> NodePolicyState:
    return msgspec.structs.replace(state or NodePolicyState(seq=at.seq), seq=at.seq, **changed)


def _overcommit_computed(
    state: NodePolicyState | None, event: NodeOvercommitComputed, at: StoredEvent
) -> NodePolicyState:
    return _policy(
        state,
        at,
        batch_cpu_milli=event.batch_cpu_milli,
        batch_memory_bytes=event.batch_memory_bytes,
        reason=event.reason,
        terms=event.terms,
        computed_at=at.occurred_at,
        mid_cpu_milli=event.mid_cpu_milli,
        mid_memory_bytes=event.mid_memory_bytes,
        mid_terms=event.mid_terms,
        normalization=event.normalization,
        origin=event.origin,
        third_party=event.third_party,
        zones=event.zones,
    )


def _slo_rendered(state: NodePolicyState | None, event: NodeSloRendered, at: StoredEvent) -> NodePolicyState:
    return _policy(state, at, slo=event.spec, slo_config_version=event.config_version, slo_fault=event.fault)


def _metric_policy_rendered(
    state: NodePolicyState | None, event: NodeMetricPolicyRendered, at: StoredEvent
) -> NodePolicyState:
    return _policy(state, at, metric_policy=event.spec)


def _ratios_computed(state: NodePolicyState | None, event: NodeRatiosComputed, at: StoredEvent) -> NodePolicyState:
    kept = state.cpu_normalization if state else None
    return _policy(
        state,
        at,
        cpu_normalization=kept if event.cpu_normalization is None else event.cpu_normalization,
        amplification=event.amplification,
        ratio_faults=event.faults,
        ratios_computed=True,
    )


def _devices_computed(state: NodePolicyState | None, event: NodeDevicesComputed, at: StoredEvent) -> NodePolicyState:
    return _policy(state, at, devices=event.resources, device_labels=event.labels, devices_computed=True)


def _agent_started(state: NodeAgentState | None, event: AgentStarted, at: StoredEvent) -> NodeAgentState:
    base = state or NodeAgentState(seq=at.seq)
    return msgspec.structs.replace(
        base, seq=at.seq, host=event.host, started_at=at.occurred_at, starts=base.starts + 1, contended={}
    )


def _pods_started(state: NodeAgentState | None, event: PodsStarted, at: StoredEvent) -> NodeAgentState:
    base = state or NodeAgentState(seq=at.seq)
    return msgspec.structs.replace(base, seq=at.seq, running=sorted({*base.running, *event.pods}))


def _pods_stopped(state: NodeAgentState | None, event: PodsStopped, at: StoredEvent) -> NodeAgentState:
    base = state or NodeAgentState(seq=at.seq)
    gone = set(event.pods)
    evicting = {uid: reason for uid, reason in base.evicting.items() if uid not in gone} if base.evicting else {}
    running = sorted(set(base.running).difference(gone))
    return msgspec.structs.replace(base, seq=at.seq, running=running, evicting=evicting)


def _be_suppressed(state: NodeAgentState | None, event: BeCpuSuppressed, at: StoredEvent) -> NodeAgentState:
    base = state or NodeAgentState(seq=at.seq)
    return msgspec.structs.replace(base, seq=at.seq, be_quota_us=event.new_quota_us, suppression_reason=event.reason)


def _be_released(state: NodeAgentState | None, event: BeCpuReleased, at: StoredEvent) -> NodeAgentState:
    base = state or NodeAgentState(seq=at.seq)
    return msgspec.structs.replace(base, seq=at.seq, be_quota_us=-1, suppression_reason=event.reason)


def _interference_detected(
    state: NodeAgentState | None, event: InterferenceDetected, at: StoredEvent
) -> NodeAgentState:
    base = state or NodeAgentState(seq=at.seq)
    contended = {**base.contended, event.contention: f"{event.namespace}/{event.name} {event.signal}"}
    return msgspec.structs.replace(base, seq=at.seq, contended=contended)


def _interference_ended(state: NodeAgentState | None, event: InterferenceEnded, at: StoredEvent) -> NodeAgentState:
    base = state or NodeAgentState(seq=at.seq)
    contended = {name: what for name, what in base.contended.items() if name != event.contention}
    return msgspec.structs.replace(base, seq=at.seq, contended=contended)


def _agent_evicted(state: NodeAgentState | None, event: PodsEvictedByAgent, at: StoredEvent) -> NodeAgentState:
    base = state or NodeAgentState(seq=at.seq)
    evicting = {**base.evicting, **{pod.uid: f"{event.feature}: {event.reason}" for pod in event.pods}}
    return msgspec.structs.replace(base, seq=at.seq, evicting=evicting, evicted=base.evicted + len(event.pods))


def _agent_seen(state: NodeAgentState | None, _: AgentStopped | KnobsChanged, at: StoredEvent) -> NodeAgentState:
    return msgspec.structs.replace(state or NodeAgentState(seq=at.seq), seq=at.seq)


def _topology_reported(state: NodeAgentState | None, event: NodeTopologyReported, at: StoredEvent) -> NodeAgentState:
    return msgspec.structs.replace(state or NodeAgentState(seq=at.seq), seq=at.seq, topology=event)


def _config_accepted(_: ConfigState | None, event: ConfigAccepted, at: StoredEvent) -> ConfigState:
    return ConfigState(seq=at.seq, object=event.object, accepted_seq=at.seq)


def _config_rejected(state: ConfigState | None, event: ConfigRejected, at: StoredEvent) -> ConfigState:
    base = state or ConfigState(seq=at.seq)
    return msgspec.structs.replace(base, seq=at.seq, rejected=event.reasons)


def _gang_placed(state: GangState | None, event: GangPlaced, at: StoredEvent) -> GangState:
    base = state or GangState(seq=at.seq, namespace=event.namespace, name=event.name)
    return msgspec.structs.replace(base, seq=at.seq, placed=event.members)


def _gang_phase(state: GangState | None, event: GangPhaseChanged, at: StoredEvent) -> GangState:
    base = state or GangState(seq=at.seq, namespace=event.namespace, name=event.name)
    return msgspec.structs.replace(base, seq=at.seq, status=event)


def _eviction_requested(_: EvictionState | None, event: PodEvictionRequested, at: StoredEvent) -> EvictionState:
    return EvictionState(seq=at.seq, request=event, requested_at=at.occurred_at)


def _drift_observed(state: DriftState | None, event: DriftObserved, at: StoredEvent) -> DriftState:
    again = state is not None and state.fingerprint == event.fingerprint
    times = state.times + 1 if state is not None and again else 1
    return DriftState(seq=at.seq, difference=event.difference, fingerprint=event.fingerprint, times=times)


def _event_skipped(state: FoldControlState | None, event: EventSkipped, at: StoredEvent) -> FoldControlState:
    skipped = state.skipped if state else []
    return FoldControlState(seq=at.seq, skipped=sorted({*skipped, event.seq}))


def _health_assessed(state: NodePolicyState | None, event: NodeHealthAssessed, at: StoredEvent) -> NodePolicyState:
    before = state.health if state else None
    return _policy(
        state,
        at,
        health=NodeHealth(
            level=event.level,
            abnormality=event.abnormality,
            weight=event.weight,
            reported_weight=event.reported_weight,
            offsets=event.offsets,
            healthy_rounds=event.healthy_rounds,
            reasons=event.reasons,
            effective=event.effective,
            annotation=event.annotation or (before.annotation if before else ""),
        ),
    )


def _config_warned(state: ConfigState | None, event: ConfigWarned, at: StoredEvent) -> ConfigState:
    base = state or ConfigState(seq=at.seq)
    return msgspec.structs.replace(base, seq=at.seq, warnings=event.warnings)


def _quota_profile_rendered(
    state: QuotaProfileState | None, event: QuotaProfileRendered, at: StoredEvent
) -> QuotaProfileState:
    if event.fault and state is not None:
        return msgspec.structs.replace(state, seq=at.seq, fault=event.fault)
    return QuotaProfileState(
        seq=at.seq,
        quota_namespace=event.quota_namespace,
        quota_name=event.quota_name,
        labels=event.labels,
        annotations=event.annotations,
        min=event.min,
        max=event.max,
        fault=event.fault,
    )


def _recommendation_computed(
    _: RecommendationState | None, event: RecommendationComputed, at: StoredEvent
) -> RecommendationState:
    return RecommendationState(
        seq=at.seq,
        target=event.target,
        mode=event.mode,
        containers=event.containers,
        conditions=event.conditions,
        pods=event.pods,
        updated_at=at.occurred_at,
        spec_version=event.spec_version,
    )


def _dropped(_: AggregateState | None, __: Event, ___: StoredEvent) -> None:
    """The aggregate's id is a uid: it never comes back, nothing needs to be remembered."""


EVOLVE: dict[type[Event], Evolve] = {
    PodSpecAdded: _pod_submitted,
    PodSpecChanged: _pod_submitted,
    PodSpecDeleted: _dropped,
    NodeSpecAdded: _node_registered,
    NodeSpecChanged: _node_registered,
    NodeSpecDeleted: lambda _, __, at: NodeSpecState(seq=at.seq),
    PodPlaced: _pod_placed,
    PodReleased: _pod_released,
    PodNominated: _pod_nominated,
    PodNominationCleared: _nomination_cleared,
    NodeResourcesTaken: _resources_taken,
    NodeResourcesReturned: _resources_returned,
    NodeOvercommitComputed: _overcommit_computed,
    NodeSloRendered: _slo_rendered,
    NodeMetricPolicyRendered: _metric_policy_rendered,
    NodeRatiosComputed: _ratios_computed,
    NodeDevicesComputed: _devices_computed,
    NodeHealthAssessed: _health_assessed,
    MassAbnormalityChanged: lambda _, event, at: ControllerState(seq=at.seq, mass_abnormal=event.active),
    ConfigWarned: _config_warned,
    QuotaProfileRendered: _quota_profile_rendered,
    RecommendationComputed: _recommendation_computed,
    RecommendationDropped: lambda _, __, at: RecommendationState(seq=at.seq),
    AgentStarted: _agent_started,
    PodsStarted: _pods_started,
    PodsStopped: _pods_stopped,
    BeCpuSuppressed: _be_suppressed,
    BeCpuReleased: _be_released,
    AgentStopped: _agent_seen,
    KnobsChanged: _agent_seen,
    PodsEvictedByAgent: _agent_evicted,
    InterferenceDetected: _interference_detected,
    InterferenceEnded: _interference_ended,
    NodeTopologyReported: _topology_reported,
    NamespaceObserved: lambda _, event, at: NamespaceState(seq=at.seq, object=event.object),
    NamespaceDeleted: lambda _, __, at: NamespaceState(seq=at.seq),
    PriorityClassObserved: lambda _, event, at: PriorityClassState(seq=at.seq, object=event.object),
    PriorityClassDeleted: lambda _, __, at: PriorityClassState(seq=at.seq),
    WorkloadObserved: lambda _, event, at: WorkloadState(seq=at.seq, object=event.object),
    WorkloadPodsCreated: lambda state, _, at: msgspec.structs.replace(state, seq=at.seq) if state else None,
    WorkloadDeleted: _dropped,
    ConfigAccepted: _config_accepted,
    ConfigRejected: _config_rejected,
    ConfigDeleted: lambda _, __, at: ConfigState(seq=at.seq),
    CustomObjectObserved: lambda _, event, at: CustomObjectState(seq=at.seq, object=event.object),
    CustomObjectDeleted: lambda _, __, at: CustomObjectState(seq=at.seq),
    PodBound: _pod_bound,
    PodBindFailed: _pod_bound,
    PodEvictionRequested: _eviction_requested,
    GangPlaced: _gang_placed,
    GangPhaseChanged: _gang_phase,
    QuotaStatusComputed: lambda _, event, at: QuotaState(seq=at.seq, status=event),
    ScheduleExplanationComputed: lambda _, event, at: ScheduleExplanationState(seq=at.seq, status=event),
    ClusterTopologyComputed: lambda _, event, at: ClusterTopologyState(seq=at.seq, status=event),
    PodEvicted: _dropped,
    PodEvictionFailed: _dropped,
    DriftObserved: _drift_observed,
    DriftHealed: lambda _, __, at: DriftState(seq=at.seq, difference="", fingerprint="", times=0),
    GenesisRecorded: lambda _, event, at: GenesisState(seq=at.seq, cluster_epoch=event.cluster_epoch),
    EventSkipped: _event_skipped,
}
"""Event type -> its evolve function; complete for every type of the facts stream (tested)."""
