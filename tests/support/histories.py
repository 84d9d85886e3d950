"""Histories of a small cluster for tests: valid sequences of events, sealed and numbered as a log would hold them.

`history(actions)` is deterministic in its actions, so hypothesis shrinks a failing history to its essence.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec
from hypothesis import strategies as st
from koordcore.events import CATALOGUE
from koordcore.events.agents.criproxy import (
    HookServerFailed,
    HookServersChanged,
    ProxyFactsDropped,
    RegisteredHookServer,
)
from koordcore.events.agents.hooks import (
    ContainerHookApplied,
    ContainerHookFailed,
    HookedValue,
    HookRegistrationChanged,
)
from koordcore.events.agents.nodestate import (
    AgentFactLeftOut,
    AgentStarted,
    AgentStopped,
    BeCpuReleased,
    BeCpuSuppressed,
    DeviceInventoryChanged,
    EvictedPod,
    InterferenceDetected,
    InterferenceEnded,
    KnobChange,
    KnobsChanged,
    NodeTopologyReported,
    PodsEvictedByAgent,
    PodsStarted,
    PodsStopped,
    ReportedDevice,
    Suspect,
    TopologyZone,
)
from koordcore.events.control import EventSkipped
from koordcore.events.descheduling.decisions import (
    DeletionCostsCarriedOut,
    DeletionCostsDecided,
    DetectorGroup,
    DetectorState,
    DryRunMovesChanged,
    EvictionRefused,
    PodCost,
    ReadReports,
    RefusalsChanged,
    RoundCarriedOut,
    RoundDecided,
    RoundMove,
    RoundMovesAdded,
)
from koordcore.events.descheduling.drain import (
    DrainAborted,
    DrainCompleted,
    DrainConfirmed,
    DrainedPod,
    DrainForgotten,
    DrainGroupChanged,
    DrainGroupForgotten,
    DrainGroupNodeJudged,
    DrainGroupNodePlanned,
    DrainGroupStarted,
    DrainPodsChanged,
    DrainStarted,
    DrainWaiting,
)
from koordcore.events.descheduling.migration import (
    MigratedPod,
    MigrationAdvanced,
    MigrationArbitrated,
    MigrationCondition,
    MigrationEnded,
    MigrationForgotten,
    MigrationHeld,
    MigrationProgress,
)
from koordcore.events.descheduling.operation import ChangedField
from koordcore.events.envelope import (
    AggregateRef,
    BasedOn,
    Draft,
    Event,
    Origin,
    StoredEvent,
    name_token,
    namespaced_token,
)
from koordcore.events.log import LOG, LogRestored
from koordcore.events.management.adjustment import SLO_ADJUST, ConfigWarned, MassAbnormalityChanged, NodeHealthAssessed
from koordcore.events.management.nodepolicy import (
    MidTerms,
    NodeDevicesComputed,
    NodeMetricPolicyRendered,
    NodeOvercommitComputed,
    NodeRatiosComputed,
    NodeSloRendered,
    OvercommitTerms,
    ZoneOvercommit,
)
from koordcore.events.management.quota_profile import QuotaProfileDropped, QuotaProfileRendered
from koordcore.events.management.recommendation import (
    ContainerRecommendation,
    RecommendationComputed,
    RecommendationDropped,
    RecommendedAmounts,
)
from koordcore.events.objects.custom import CustomObjectDeleted, CustomObjectObserved, custom_ref
from koordcore.events.objects.gateway import (
    GENESIS,
    DriftHealed,
    DriftObserved,
    GenesisRecorded,
    PodBindFailed,
    PodBound,
    PodEvicted,
    PodEvictionDelayed,
    PodEvictionFailed,
    PodEvictionRequested,
)
from koordcore.events.objects.mirror import (
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
from koordcore.events.scheduling.cluster_topology import ClusterTopologyComputed, TopologyDomain
from koordcore.events.scheduling.gang import GangPhaseChanged, GangPlaced, PlacedMember
from koordcore.events.scheduling.gpu_workload import TypicalPod, TypicalPodsLearned
from koordcore.events.scheduling.node_ledger import NodeResourcesReturned, NodeResourcesTaken, pod_on_node
from koordcore.events.scheduling.placement_explanation import NodeScore, PlacementExplanation, PluginExclusion
from koordcore.events.scheduling.pod import (
    PodDeviceUnhealthy,
    PodNominated,
    PodNominationCleared,
    PodPlaced,
    PodReallocated,
    PodReleased,
    UnhealthyDevice,
)
from koordcore.events.scheduling.quota import QuotaStatusComputed
from koordcore.events.scheduling.reservation import (
    ReservationCollected,
    ReservationDeleted,
    ReservationFailed,
    ReservationSucceeded,
    ReservationUnschedulable,
)
from koordcore.events.scheduling.schedule_explanation import (
    DomainOutlook,
    ScheduleExplanationComputed,
    SchedulingOutlook,
)
from koordcore.protocol.objects import (
    ConfigMap,
    Container,
    Namespace,
    Node,
    NodeSpec,
    NodeStatus,
    ObjectMeta,
    Pod,
    PodSpec,
    PodTemplate,
    PriorityClass,
    ResourceRequirements,
    Workload,
)
from koordcore.protocol.pod_resources import pod_requests
from koordcore.state import ClusterState
from koordcore.state.aggregates import EvictionState, NodeLedger, NodeSpecState, PodSpecState, PodState, WorkloadState
from koordcore.state.reserved_amounts import taken_from_reservations
from koordcore.values.allocation import NOTHING, Allocation, ReservationUse
from support.descheduler.history import write_operation, write_plan

NODES = ("node-a", "node-b.example", "node-c")


class Action(NamedTuple):
    """One step of a history: what, on which pod or node (small numbers), with which variation."""

    what: str
    subject: int
    variation: int


ACTIONS = (
    "add-pod", "change-pod", "delete-pod", "place", "release", "add-node", "change-node", "delete-node",
    "overcommit", "withdraw", "slo", "agent", "started", "stopped", "suppress", "unsuppress",
    "disturbed", "undisturbed", "agent-evicts", "knobs", "hooks", "proxy",
    "agent-stops", "agent-topology", "agent-devices",
    "namespace", "no-namespace", "class", "no-class", "workload", "scale", "no-workload",
    "config", "bad-config", "no-config", "skip", "restored", "nominate", "unnominate", "reallocate", "device-fails",
    "gang", "gang-phase", "quota", "explanation", "topology", "gpu-workload", "drain", "migration", "round",
    "reserve", "take",
    "reservation-wait", "reservation-end", "reservation-collect", "reservation-delete",
    "custom", "no-custom",
    "recommend", "no-recommendation", "no-quota-profile",
    "bound", "bind-failed", "evict", "evicted", "evict", "evict-delayed", "not-evicted", "drift", "no-drift", "genesis",
)  # fmt: skip

actions = st.lists(
    st.builds(Action, st.sampled_from(ACTIONS), st.integers(0, 5), st.integers(0, 3)), min_size=0, max_size=60
)
"""Hypothesis strategy of action sequences."""


def pod(number: int, cpu_milli: int = 500, *, best_effort: bool = False) -> Pod:
    """A pod of the default namespace with uid `uid-<number>`."""
    requests: dict[str, str | int | float] = {"cpu": f"{cpu_milli}m", "memory": "1Gi"}
    labels = {"app": "web"}
    if best_effort:
        requests = {"kubernetes.io/batch-cpu": cpu_milli, "kubernetes.io/batch-memory": "1Gi"}
        labels["koordinator.sh/qosClass"] = "BE"
    return Pod(
        metadata=ObjectMeta(name=f"pod-{number}", namespace="default", uid=f"uid-{number}", labels=labels),
        spec=PodSpec(
            containers=[Container(name="main", image="pause", resources=ResourceRequirements(requests=requests))]
        ),
    )


def node(name: str, cpu: int = 8, *, unschedulable: bool = False) -> Node:
    """A node with `cpu` cores and 4 GiB for each."""
    amounts: dict[str, str | int | float] = {"cpu": cpu, "memory": f"{cpu * 4}Gi", "pods": 110}
    return Node(
        metadata=ObjectMeta(name=name, labels={"kubernetes.io/hostname": name}),
        spec=NodeSpec(unschedulable=unschedulable),
        status=NodeStatus(capacity=dict(amounts), allocatable=dict(amounts)),
    )


def stored(seq: int, draft: Draft, *, causation: str = "test", at: str | None = None) -> StoredEvent:
    """The event of a draft as it stands in a log at `seq`; one second passes per event."""
    origin = Origin(
        causation_id=f"{causation}-{seq}",
        correlation_id=draft.ref.id,
        actor="test/0",
        occurred_at=at or f"2026-01-01T{seq // 3600 % 24:02d}:{seq // 60 % 60:02d}:{seq % 60:02d}.000000Z",
        based_on=seq - 1,
        traceparent=f"00-{seq:032x}-{seq:016x}-01",
    )
    sealed = CATALOGUE.seal([draft], origin)[0]
    return StoredEvent(seq, sealed.ref, sealed.headers, sealed.body, seq * 1_000_000_000)


class Recorder:
    """Appends valid events and keeps the state that makes the next ones valid."""

    def __init__(self) -> None:
        self.state = ClusterState()
        self.events: list[StoredEvent] = []

    def write(self, kind: str, id_: str, event: Event) -> None:
        """One event on one aggregate."""
        ref = AggregateRef(kind, id_)
        draft = Draft(ref, event, self.state.last_seq(ref))
        entry = stored(len(self.events) + 1, draft)
        self.events.append(entry)
        self.state.apply(entry)


def _place(log: Recorder, number: int, variation: int, allocation: Allocation = NOTHING) -> None:
    uid = f"uid-{number}"
    spec = log.state.of_kind(PodSpecState).get(uid)
    placed = log.state.of_kind(PodState).get(uid)
    if spec is None or (placed is not None and placed.node):
        return
    chosen = NODES[variation % len(NODES)]
    explanation = PlacementExplanation(
        nodes_considered=3,
        nodes_feasible=2,
        exclusions=[PluginExclusion("NodeResourcesFit", 1, {"Insufficient cpu": 1})],
        top=[NodeScore(chosen, 90, {"NodeResourcesFit": 90})],
        policy_version="test",
        based_on=BasedOn(len(log.events), 0),
    )
    placement = PodPlaced(
        namespace="default",
        name=f"pod-{number}",
        node=chosen,
        requests=pod_requests(spec.object),
        attempt=1,
        queued_at=spec.added_at,
        explanation=explanation,
        allocation=allocation,
    )
    log.write("pod", uid, placement)
    log.write("node", name_token(chosen), NodeResourcesTaken(pods=[pod_on_node(uid, spec.object, allocation)]))


def _reallocate(log: Recorder, number: int, variation: int) -> None:
    """Let a placed pod take its amounts from a Reservation from now on."""
    uid = f"uid-{number}"
    placed = log.state.of_kind(PodState).get(uid)
    held = None if placed is None else log.state.of_kind(NodeLedger).get(name_token(placed.node))
    if placed is None or held is None or uid not in held.pods:
        return
    used = Allocation(reservation=ReservationUse(name=f"resv-{variation}", uid=f"r-{variation}"))
    event = PodReallocated(
        namespace="default",
        name=f"pod-{number}",
        node=placed.node,
        requests=placed.requests,
        allocation=used,
        reason="pre-allocated",
    )
    log.write("pod", uid, event)
    pods = [msgspec.structs.replace(held.pods[uid], allocation=used)]
    log.write("node", name_token(placed.node), NodeResourcesTaken(pods=pods))


def _reserve(log: Recorder, number: int, variation: int) -> None:
    """Place a Reservation: under its own uid, with an allocation that names itself."""
    uid, template = f"r-{number}", pod(number, 1000 * (variation + 1))
    own = Allocation(reservation=ReservationUse(name=f"resv-{number}", uid=uid))
    chosen = NODES[variation % len(NODES)]
    placement = PodPlaced(
        namespace="default",
        name=f"resv-{number}",
        node=chosen,
        requests=pod_requests(template),
        attempt=1,
        queued_at="2026-01-01T00:00:00.000000Z",
        explanation=PlacementExplanation(
            nodes_considered=3, nodes_feasible=3, policy_version="test", based_on=BasedOn(len(log.events), 0)
        ),
        allocation=own,
    )
    log.write("pod", uid, placement)
    log.write("node", name_token(chosen), NodeResourcesTaken(pods=[pod_on_node(uid, template, own)]))


def _drain(log: Recorder, number: int) -> None:
    """Write every kind of fact of a drain and of its group."""
    at = "2026-01-01T00:00:00.000000Z"
    pod = DrainedPod(uid=f"u-{number}", namespace="d", name="p", phase="Ready", since=at, phase_since=at)
    of_node: tuple[Event, ...] = (
        DrainWaiting(object_uid="o", node="n", message="another drain runs"),
        DrainStarted(object_uid="o", node="n", pods=[pod]),
        DrainPodsChanged(pods=[pod], conditions=["OnceAvailable"]),
        DrainConfirmed(),
        DrainCompleted(conditions=["OnceAvailable"]),
        DrainAborted(reason="the node does not exist"),
        DrainForgotten(),
    )
    of_group: tuple[Event, ...] = (
        DrainGroupStarted(object_uid="o", nodes=["n"]),
        DrainGroupNodePlanned(node="n"),
        DrainGroupNodeJudged(node="n", available=bool(number % 2), reason="" if number % 2 else "no place"),
        DrainGroupChanged(object_uid="o", phase="Running", confirmed=["n"], running=1),
        DrainGroupForgotten(),
    )
    for event in of_node:
        log.write("drain", f"d-{number}", event)
    for event in of_group:
        log.write("draingroup", f"g-{number}", event)


def _migration(log: Recorder, number: int) -> None:
    """Write every kind of fact of a migration; the end is missing for some numbers."""
    pod = MigratedPod(namespace="d", name="p", uid=f"u-{number}")
    evicting = MigrationCondition(type="Eviction", reason="Evicting")
    events: tuple[Event, ...] = (
        MigrationHeld(job="j", pod=pod, limits=["max_migrating_per_node"]),
        MigrationArbitrated(job="j", pod=pod, node="n", controller="c", trigger="LowNodeLoad", reason="hot"),
        MigrationAdvanced(
            pod=pod,
            progress=MigrationProgress(phase="Running", conditions=[evicting]),
            soft_eviction=ChangedField(after="{}"),
        ),
        MigrationEnded(job="j", pod=pod, progress=MigrationProgress(phase="Succeeded", status="Complete")),
        MigrationForgotten(),
    )
    for event in events[: len(events) - (number - 1) % len(events)]:
        log.write("migration", f"m-{number}", event)
    write_plan(log.write, number)
    write_operation(log.write, number)


def _round(log: Recorder, number: int, variation: int) -> None:
    """Write every kind of fact of a round of the descheduler; the end is missing for some numbers."""
    at = "2026-01-01T00:00:00.000000Z"
    move = RoundMove(
        namespace="d", name="p", uid=f"u-{number}", node="n", profile="p", plugin="LowNodeLoad", reason="hot"
    )
    state = DetectorState(abnormal=variation, last_abnormal=at) if variation else None
    events: tuple[Event, ...] = (
        RoundDecided(
            started_at=at,
            moves=[move],
            detectors=[DetectorGroup(usage="node", nodes=[f"n-{number}"], state=state)],
            reports=ReadReports(nodes=1, last=number, digest="0" * 16, positions={"n": number}),
        ),
        RoundMovesAdded(moves=[move]),
        RoundCarriedOut(refused=["u"]),
    )
    for event in events[: len(events) - (number - 1) % len(events)]:
        log.write("descheduling", "rounds", event)
    log.write("descheduling", "dry-runs", DryRunMovesChanged(chosen=[move], dropped=[f"u-{number - 1}/p/LowNodeLoad"]))
    refused = EvictionRefused(move=move, codes=["daemonset", "pvc"][variation % 2 :])
    ended = [f"u-{number - 1}/p/LowNodeLoad"]
    log.write("descheduling", "refusals", RefusalsChanged(refused=[refused], ended=ended, dropped=variation))
    costs = [
        PodCost(namespace="d", name=f"p-{each}", uid=f"u-{each}", node="n", before="", after=str(each))
        for each in range(variation + 1)
    ]
    decided = DeletionCostsDecided(started_at=at, profile="p", plugin="ScaleDownBinPack", costs=costs)
    log.write("descheduling", "costs", decided)
    if number % 2:
        log.write("descheduling", "costs", DeletionCostsCarriedOut(refused={"u-0": "it is gone"}))


def _take(log: Recorder, number: int, variation: int) -> None:
    """Place a pod that takes some of its amounts from a Reservation, which may be on the node or not."""
    used = ReservationUse(name=f"resv-{number % 3}", uid=f"r-{number % 3}", amounts={"cpu": 400 * variation + 1})
    _place(log, number, variation, Allocation(reservation=used))


def _release(log: Recorder, number: int, reason: str, *, uid: str = "") -> None:
    uid = uid or f"uid-{number}"
    placed = log.state.of_kind(PodState).get(uid)
    if placed is None or not placed.node:
        return
    log.write("pod", uid, PodReleased(namespace="default", name=f"pod-{number}", node=placed.node, reason=reason))
    log.write("node", name_token(placed.node), NodeResourcesReturned(pods=[uid]))


def _clear_nomination(log: Recorder, number: int, reason: str) -> None:
    uid = f"uid-{number}"
    state = log.state.of_kind(PodState).get(uid)
    if state is not None and state.nominated:
        cleared = PodNominationCleared(namespace="default", name=f"pod-{number}", node=state.nominated, reason=reason)
        log.write("pod", uid, cleared)


def _step(log: Recorder, action: Action) -> None:
    what, number, variation = action
    uid, name = f"uid-{number}", NODES[number % len(NODES)]
    token = name_token(name)
    pods, nodes = log.state.of_kind(PodSpecState), log.state.of_kind(NodeSpecState)
    exists = token in nodes
    config = ConfigMap(
        metadata=ObjectMeta(name="slo-controller-config", namespace="koordinator-system"), data={"k": str(variation)}
    )
    config_id = namespaced_token("koordinator-system", "slo-controller-config")
    match what:
        case "add-pod" if uid not in pods and uid not in log.state.of_kind(PodState):
            log.write(
                "podspec", uid, PodSpecAdded(object=pod(number, 100 * (variation + 1), best_effort=variation == 3))
            )
        case "change-pod" if uid in pods:
            changed = pod(number, 100 * (variation + 1))
            changed.metadata.labels["version"] = str(variation)
            log.write("podspec", uid, PodSpecChanged(object=changed))
        case "delete-pod" if uid in pods:
            log.write("podspec", uid, PodSpecDeleted(namespace="default", name=f"pod-{number}"))
            _release(log, number, "deleted")
            _clear_nomination(log, number, "deleted")
        case "place":
            _place(log, number, variation)
        case "release":
            _release(log, number, "node-gone")
        case "nominate" if uid in pods:
            chosen = NODES[variation % len(NODES)]
            nominated = PodNominated(namespace="default", name=f"pod-{number}", node=chosen, plugin="DefaultPreemption")
            log.write("pod", uid, nominated)
        case "unnominate" if uid in log.state.of_kind(PodState):
            _clear_nomination(log, number, "outranked")
        case "reallocate":
            _reallocate(log, number, variation)
        case "device-fails" if uid in log.state.of_kind(PodState):
            pod_node = log.state.of_kind(PodState)[uid].node
            broken = [UnhealthyDevice(type="gpu", minor=minor, id=f"GPU-{minor}") for minor in range(variation)]
            log.write(
                "pod", uid, PodDeviceUnhealthy(namespace="default", name=f"pod-{number}", node=pod_node, devices=broken)
            )
        case "gang":
            member = PlacedMember(uid=uid, namespace="default", name=f"pod-{number}", node=name)
            log.write(
                "gang", f"default=g{number}", GangPlaced(namespace="default", name=f"g{number}", members=[member])
            )
        case "gang-phase":
            phase = GangPhaseChanged(namespace="default", name=f"g{number}", phase="Running", running=variation)
            log.write("gang", f"default=g{number}", phase)
        case "quota":
            log.write("quota", f"q-{number}", QuotaStatusComputed(name=f"q-{number}", used={"cpu": variation}))
        case "explanation":
            outlook = SchedulingOutlook(failed_message=f"{variation} Insufficient cpu")
            explained = ScheduleExplanationComputed(
                namespace="default",
                name=f"why-{number}",
                last_update_time="2026-01-01T00:00:00.000000Z",
                domains=[DomainOutlook(scheduling=outlook, preemption=SchedulingOutlook())],
            )
            log.write("scheduleexplanation", f"default=why-{number}", explained)
        case "drain":
            _drain(log, number)
        case "migration":
            _migration(log, number)
        case "round":
            _round(log, number, variation)
        case "topology":
            domain = TopologyDomain(layer="ClusterTopologyLayer", nodes=variation)
            log.write("clustertopology", "default", ClusterTopologyComputed(name="default", domains=[domain]))
        case "gpu-workload":
            typical = TypicalPod(milli_cpu=1000, gpu_milli=100 * variation, num_gpu=1, frequency=1.0)
            event = TypicalPodsLearned(pods=number, window_seconds=600, typical_pods=[typical])
            log.write("gpuworkload", "default", event)
        case "reserve" if f"r-{number}" not in log.state.of_kind(PodState):
            _reserve(log, number, variation)
        case "take" if uid in pods and uid not in log.state.of_kind(PodState):
            _take(log, number, variation)
        case "reservation-wait":
            waits = ReservationUnschedulable(name=f"resv-{number}", message=f"0/{variation} nodes are available")
            log.write("reservation", f"r-{number}", waits)
        case "reservation-end":
            ended = (
                ReservationSucceeded(name=f"resv-{number}", node="", owner=uid),
                ReservationFailed(name=f"resv-{number}", message="its time is over"),
            )
            log.write("reservation", f"r-{number}", ended[variation % 2])
            _release(log, number, "finished", uid=f"r-{number}")
        case "reservation-collect":
            log.write("reservation", f"r-{number}", ReservationCollected(name=f"resv-{number}"))
        case "reservation-delete":
            log.write("reservation", f"r-{number}", ReservationDeleted(name=f"resv-{number}"))
            _release(log, number, "deleted", uid=f"r-{number}")
        case "add-node" if not exists:
            log.write("nodespec", token, NodeSpecAdded(object=node(name, 4 * (variation + 1))))
        case "change-node" if exists:
            log.write("nodespec", token, NodeSpecChanged(object=node(name, 8, unschedulable=variation % 2 == 0)))
        case "delete-node" if exists:
            log.write("nodespec", token, NodeSpecDeleted(name=name))
        case "overcommit":
            terms = OvercommitTerms(
                capacity=8000,
                margin=3200,
                system_used=100,
                reserved=0,
                high_priority_used=1000,
                high_priority_request=2000,
                result=3700 - variation,
                policy="usage",
            )
            computed = NodeOvercommitComputed(
                batch_cpu_milli=3700 - variation,
                batch_memory_bytes=1 << 30,
                reason="changed",
                terms={"cpu": terms},
                mid_cpu_milli=500,
                mid_memory_bytes=1 << 29,
                mid_terms={"cpu": MidTerms(mode="dynamic", capacity=8000, cap=8000, result=500)},
                origin={"kubernetes.io/batch-cpu": 3700},
                third_party={"kubernetes.io/batch-cpu": variation},
                zones={"node-0": ZoneOvercommit(1850, 1 << 29)},
                normalization="1.10",
                metric_updated_at="2026-01-01T00:00:00.000000Z",
                config_version=1,
                based_on=BasedOn(len(log.events), 1),
            )
            log.write("nodepolicy", token, computed)
        case "withdraw":
            gone = NodeOvercommitComputed(reason="degraded: metric expired", based_on=BasedOn(len(log.events), 1))
            log.write("nodepolicy", token, gone)
        case "slo":
            spec = {"resourceUsedThresholdWithBE": {"enable": variation % 2 == 0, "cpuSuppressThresholdPercent": 65}}
            log.write("nodepolicy", token, NodeSloRendered(spec=spec, config_version=variation))
            log.write("nodepolicy", token, NodeMetricPolicyRendered(spec={"reportIntervalSeconds": 60 + variation}))
            log.write("nodepolicy", token, NodeRatiosComputed(cpu_normalization="1.10", amplification='{"cpu":1.10}'))
            gpus = NodeDevicesComputed(resources={"koordinator.sh/gpu": 100 * variation}, device_version=1)
            log.write("nodepolicy", token, gpus)
            health = NodeHealthAssessed(
                level="Warning",
                abnormality=0.6,
                weight=40,
                reported_weight=100 if variation % 2 else 40,
                offsets={"cpu": -5, "memory": 0},
                reasons=["cpuUtil"],
                cause="level",
            )
            log.write("nodepolicy", token, health)
            log.write(*SLO_ADJUST, MassAbnormalityChanged(active=variation % 2 == 1, abnormal=1, cap=1, nodes=3))
            quota = QuotaProfileRendered(quota_namespace="default", quota_name="root", min={"cpu": str(variation)})
            log.write("quotaprofile", "default=pool", quota)
        case "agent":
            log.write("nodestate", token, AgentStarted(host="simulated", version="0.1.0"))
        case "started":
            log.write("nodestate", token, PodsStarted(pods=[uid]))
        case "stopped":
            log.write("nodestate", token, PodsStopped(pods=[uid]))
        case "suppress":
            terms = {"capacity": 8000, "threshold_percent": 65, "budget": 1000 * variation}
            suppressed = BeCpuSuppressed(
                old_quota_us=-1, new_quota_us=100_000 * (variation + 1), terms=terms, reason="the budget fell"
            )
            log.write("nodestate", token, suppressed)
        case "unsuppress":
            log.write("nodestate", token, BeCpuReleased(old_quota_us=100_000, reason="disabled"))
        case "disturbed":
            detected = InterferenceDetected(
                contention=f"psi-cpu/{uid}/{variation}",
                pod_uid=uid,
                namespace="default",
                name=uid,
                qos="LS",
                signal="psi-cpu",
                value=30.0,
                threshold=20.0,
                suspects=[Suspect(uid="other", namespace="default", name="other", qos="BE", score=0.9, cpu_milli=3000)],
                mitigation=["the best-effort budget is computed with a threshold lower by 5 points"],
            )
            log.write("nodestate", token, detected)
        case "undisturbed":
            ended = InterferenceEnded(
                contention=f"psi-cpu/{uid}/{variation}", pod_uid=uid, signal="psi-cpu", lasted_seconds=12.5
            )
            log.write("nodestate", token, ended)
        case "agent-evicts":
            victim = EvictedPod(uid=uid, namespace="default", name=uid, releases={"memory": 1 << 30}, ended=True)
            memory = {"memory": 1 << 31}
            log.write(
                "nodestate",
                token,
                PodsEvictedByAgent(feature="BEMemoryEvict", pods=[victim], reason="memory is short", to_release=memory),
            )
        case "knobs":
            change = KnobChange(knob="kubepods/besteffort/cpu.cfs_quota_us", old="-1", new="200000", writes=3)
            log.write("nodestate", token, KnobsChanged(seconds=60.0, writes=3, changes=[change]))
        case "hooks":
            hooked = f"p{number}"
            value = HookedValue(name="cpuset", plugin="CPUSetAllocator", new="2-3")
            applied = ContainerHookApplied(uid=hooked, namespace="d", pod=hooked, mode="Reconciler", values=[value])
            log.write("nodestate", token, applied)
            failed = ContainerHookFailed(
                uid=hooked,
                namespace="d",
                pod=hooked,
                stage="s",
                mode="NRI",
                plugin="Resctrl",
                policy="Ignore",
                error="e",
            )
            log.write("nodestate", token, failed)
            log.write("nodestate", token, HookRegistrationChanged(endpoint="/s", policy="Ignore", stages=["s"]))
        case "proxy":
            server = RegisteredHookServer(
                file="koordlet.json", endpoint="/s", policy="Fail", hooks=["PreRunPodSandbox"]
            )
            log.write("criproxy", token, HookServersChanged(servers=[server][: variation % 2]))
            away = HookServerFailed(
                uid=f"p{number}",
                namespace="d",
                pod=f"p{number}",
                hook="PreRunPodSandbox",
                server="koordlet.json",
                policy="Fail",
                error="e",
            )
            log.write("criproxy", token, away)
            log.write("criproxy", token, ProxyFactsDropped(facts=variation))
        case "agent-topology":
            zone = TopologyZone(name="node-0", capacity={"cpu": 1000 * (variation + 1)})
            log.write("nodestate", token, NodeTopologyReported(policies=["None"], zones=[zone]))
        case "agent-devices":
            device = ReportedDevice(
                type="gpu", minor=0, id="g", amounts={"koordinator.sh/gpu-core": 100}, healthy=variation % 2 == 0
            )
            log.write("nodestate", token, DeviceInventoryChanged(devices=[device], labels={"v": str(variation)}))
        case "agent-stops":
            log.write("nodestate", token, AgentStopped(left={"kubepods/besteffort/cpu.cfs_quota_us": "200000"}))
            log.write("nodestate", token, AgentFactLeftOut(type="KnobsChanged", size_bytes=2_000_000, reason="r"))
        case "namespace":
            meta = ObjectMeta(name=f"ns-{number}", labels={"v": str(variation)})
            log.write("namespace", f"ns-{number}", NamespaceObserved(object=Namespace(metadata=meta)))
        case "no-namespace":
            log.write("namespace", f"ns-{number}", NamespaceDeleted(name=f"ns-{number}"))
        case "class":
            priority_class = PriorityClass(metadata=ObjectMeta(name=f"class-{number}"), value=9000 + variation)
            log.write("priorityclass", f"class-{number}", PriorityClassObserved(object=priority_class))
        case "no-class":
            log.write("priorityclass", f"class-{number}", PriorityClassDeleted(name=f"class-{number}"))
        case "workload":
            meta = ObjectMeta(name=f"web-{number}", namespace="default", uid=f"w-{number}")
            template = PodTemplate(spec=pod(0).spec)
            workload = Workload(
                kind="Deployment", api_version="apps/v1", metadata=meta, replicas=variation, template=template
            )
            log.write("workloadspec", f"w-{number}", WorkloadObserved(object=workload))
        case "scale" if f"w-{number}" in log.state.of_kind(WorkloadState):
            log.write("workloadspec", f"w-{number}", WorkloadPodsCreated(pods=[uid]))
        case "no-workload":
            log.write("workloadspec", f"w-{number}", WorkloadDeleted(namespace="default", name=f"web-{number}"))
        case "config":
            log.write("config", config_id, ConfigAccepted(object=config))
            warned = ConfigWarned(namespace="koordinator-system", name="slo-controller-config", warnings={"a": "b"})
            log.write("config", config_id, warned)
        case "recommend":
            amounts = RecommendedAmounts(100 + variation, 1 << 20)
            container = ContainerRecommendation(
                name="c", target=amounts, lower_bound=amounts, upper_bound=amounts, uncapped_target=amounts
            )
            computed_status = RecommendationComputed(
                namespace="default", name="web", target="Deployment/web", containers=[container], cause="amounts"
            )
            log.write("recommendation", "default=web", computed_status)
        case "no-recommendation":
            log.write("recommendation", "default=web", RecommendationDropped(namespace="default", name="web"))
        case "no-quota-profile":
            log.write("quotaprofile", "default=pool", QuotaProfileDropped())
        case "bad-config":
            meta = config.metadata
            rejected = ConfigRejected(
                namespace=meta.namespace, name=meta.name, data={"k": "{"}, reasons={"k": "must be JSON, got '{'"}
            )
            log.write("config", config_id, rejected)
        case "no-config":
            log.write("config", config_id, ConfigDeleted(namespace="koordinator-system", name="slo-controller-config"))
        case "custom":
            quota = {
                "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
                "kind": "ElasticQuota",
                "metadata": {"name": f"q-{number}", "namespace": "default"},
                "spec": {"max": {"cpu": variation}},
            }
            ref = custom_ref("elasticquotas", "default", f"q-{number}")
            log.write(ref.kind, ref.id, CustomObjectObserved(object=quota))
        case "no-custom":
            ref = custom_ref("elasticquotas", "default", f"q-{number}")
            gone_quota = CustomObjectDeleted(kind="ElasticQuota", namespace="default", name=f"q-{number}")
            log.write(ref.kind, ref.id, gone_quota)
        case "bound" if uid in pods:
            log.write("podspec", uid, PodBound(node=name, placement=variation))
        case "bind-failed" if uid in pods:
            log.write("podspec", uid, PodBindFailed(node=name, placement=variation, reason="AssignedElsewhere"))
        case "evict":
            wanted = PodEvictionRequested(
                namespace="default", name=f"pod-{number}", initiator="agent", reason="Evicted"
            )
            log.write("eviction", uid, wanted)
        case "evict-delayed" if uid in log.state.of_kind(EvictionState):
            log.write("eviction", uid, PodEvictionDelayed(reason="TooManyRequests"))
        case "evicted" if uid in log.state.of_kind(EvictionState):
            log.write("eviction", uid, PodEvicted())
        case "not-evicted" if uid in log.state.of_kind(EvictionState):
            log.write("eviction", uid, PodEvictionFailed(reason="TooManyRequests"))
        case "drift":
            found = DriftObserved(aggregate=f"podspec.{uid}", difference="differs", fingerprint=str(variation))
            log.write("drift", f"podspec={uid}", found)
        case "no-drift":
            log.write("drift", f"podspec={uid}", DriftHealed(aggregate=f"podspec.{uid}", how="vanished"))
        case "genesis":
            log.write(*GENESIS, GenesisRecorded(cluster_epoch=variation, observed={"podspec": number}))
        case "skip":
            log.write("fold", "projector", EventSkipped(seq=number + 1, reason="test", operator="test"))
        case "restored":
            cut = LogRestored(position=number, left_out_to=number + 1, asked=str(number), backup_taken_at="")
            log.write(*LOG, cut)
        case _:
            pass  # not possible in the present state: no event


def history(steps: Iterable[Action]) -> list[StoredEvent]:
    """The events of a sequence of actions, sequences from 1 without gaps."""
    log = Recorder()
    for step in steps:
        _step(log, step)
    return log.events


def every_kind_once() -> Sequence[Action]:
    """Actions that give every event type of the facts stream at least once, in a plausible order."""
    return [
        *(Action("add-node", number, number) for number in range(3)),
        *(Action("add-pod", number, number % 4) for number in range(6)),
        *(Action("place", number, number) for number in range(6)),
        *(Action(what, 1, 1) for what in ACTIONS if what not in ("add-pod", "place", "add-node", "delete-pod")),
        Action("reservation-end", 4, 0),
        Action("delete-pod", 2, 0),
        Action("delete-pod", 5, 0),
        Action("place", 1, 2),
        Action("reallocate", 1, 1),
    ]


def ledger_sum(state: ClusterState) -> dict[str, dict[str, int]]:
    """Node token -> sum of the requests of the pods in its ledger, recomputed from scratch."""
    sums: dict[str, dict[str, int]] = {}
    for token, ledger in state.of_kind(NodeLedger).items():
        total: dict[str, int] = {}
        for held in ledger.pods.values():
            for resource, amount in held.requests.items():
                total[resource] = total.get(resource, 0) + amount
        for resource, amount in taken_from_reservations(ledger.pods).items():
            total[resource] -= amount
        total = {resource: amount for resource, amount in total.items() if amount}
        sums[token] = total
    return sums
