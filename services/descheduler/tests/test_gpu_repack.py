"""Few moves make room for a waiting gang, within the limits, all or none."""

from dataclasses import replace
from typing import Any

import pytest
from koord_descheduler.domain.framework.eviction import EvictionLimiter, EvictionLimits, Result
from koord_descheduler.domain.framework.registry import SharedState
from koord_descheduler.domain.framework.round import Profile, RoundOutcome, run_round
from koord_descheduler.domain.jobs.in_flight import JobsInFlight
from koord_descheduler.domain.jobs.limits import MAX_PER_NAMESPACE
from koord_descheduler.domain.jobs.plugin import JobRequests
from koord_descheduler.domain.plugins.registry import BUILT_IN
from koord_descheduler.domain.rounds.memory import dry_run_changes, refusal_changes, refusals_of
from koord_descheduler.domain.rounds.reporting import Refused
from koord_descheduler.domain.view.cluster import ClusterView, GpuInventory
from koord_descheduler.domain.view.pods import PodView
from koord_descheduler.domain.view.workloads import WorkloadView
from koordcore.events.descheduling import DryRunMovesChanged, Number, RefusalsChanged
from koordcore.events.envelope import Event
from koordcore.events.node_ledger import PodOnNode, pod_on_node
from koordcore.protocol import keys
from koordcore.state.aggregates import NodeLedger
from koordcore.state.descheduling import RoundsState
from koordcore.values.allocation import AllocatedDevice, Allocation
from support.descheduler.views import node_view_from_json, pod_view_from_json

GIB = 1 << 30
NOW = 1000.0
FREE = {"maxMigratingPerNode": 0, "maxMigratingPerWorkload": "90%", "maxUnavailablePerWorkload": "90%"}


def gpu_amounts(percent: int) -> dict[str, str]:
    return {"koordinator.sh/gpu-core": str(percent), "koordinator.sh/gpu-memory-ratio": str(percent)}


def a_pod(name: str, percent: int, node: str = "", gang: str = "") -> PodView:
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "r", "controller": True}
    labels = {keys.POD_GROUP: gang} if gang else {}
    resources = {"requests": {"cpu": "1", "memory": "1Gi", **gpu_amounts(percent)}}
    return pod_view_from_json(
        {
            "metadata": {"name": name, "namespace": "d", "uid": name, "labels": labels, "ownerReferences": [owner]},
            "spec": {
                "nodeName": node,
                "schedulerName": "koord-scheduler",
                "containers": [{"name": "c", "resources": resources}],
            },
            "status": {"phase": "Running" if node else "Pending", "conditions": [{"type": "Ready", "status": "True"}]},
        }
    )


def a_cluster(placed: dict[str, list[tuple[str, int, int]]], waiting: list[PodView], members: int) -> ClusterView:
    """A cluster of nodes with two GPUs: node -> pods with (name, percent of a GPU, minor of the GPU)."""
    pods, ledgers, devices = list[PodView](), dict[str, NodeLedger](), dict[str, dict[str, Any]]()
    for node, holders in placed.items():
        entries = dict[str, PodOnNode]()
        for name, percent, minor in holders:
            pod = a_pod(name, percent, node)
            pods.append(pod)
            amounts = {"koordinator.sh/gpu-core": percent, "koordinator.sh/gpu-memory-ratio": percent}
            held = Allocation(devices=(AllocatedDevice(type="gpu", minor=minor, amounts=amounts),))
            entries[name] = pod_on_node(name, pod.object, held)
        requested = {"cpu": 1000 * len(holders), "memory": GIB * len(holders)}
        ledgers[node] = NodeLedger(seq=1, pods=entries, requested=requested)
        cards = [{"type": "gpu", "minor": minor, "health": True, "resources": gpu_amounts(100)} for minor in (0, 1)]
        devices[node] = {"metadata": {"name": node}, "spec": {"devices": cards}}
    nodes = tuple(
        node_view_from_json(
            {"metadata": {"name": name}, "status": {"allocatable": {"cpu": "16", "memory": "64Gi", "pods": "110"}}}
        )
        for name in placed
    )
    group = {"metadata": {"namespace": "d", "name": "train"}, "spec": {"minMember": members}}
    return ClusterView(
        now=NOW,
        nodes=nodes,
        pods=(*pods, *waiting),
        workloads={"r": WorkloadView(20, ("r",))},
        gpus=GpuInventory(devices=devices, ledgers=ledgers, groups={("d", "train"): group}),
    )


def a_plugin(shared: SharedState, **arguments: Any) -> Any:
    """FragmentationAware that only repacks GPUs."""
    kind = BUILT_IN["FragmentationAware"]
    repack = {"enabled": True, "waitSeconds": 0}
    return kind.make(kind.decode({"imbalanceThreshold": 100.0, "gpuRepack": repack, **arguments}), shared)


def a_round(
    cluster: ClusterView, limits: EvictionLimits | None = None, **arguments: Any
) -> tuple[RoundOutcome, SharedState, EvictionLimiter]:
    """Run one round of FragmentationAware with the repacking of GPUs."""
    shared, limiter = SharedState(), EvictionLimiter(limits or EvictionLimits())
    controller = BUILT_IN["MigrationController"]
    evictor: Any = controller.make(controller.decode({**FREE, **arguments}), shared)
    profile = Profile(name="p", balance=[a_plugin(shared)], filters=[evictor], evict=evictor)
    outcome = run_round([profile], cluster, limiter)
    assert not outcome.faults, outcome.faults
    return outcome, shared, limiter


SPREAD = {"a": [("pa", 50, 0)], "b": [("pb", 50, 0)], "c": [("pc", 50, 0)]}
GANG = [a_pod("t0", 200, gang="train"), a_pod("t1", 200, gang="train")]


def test_two_pods_move_to_the_third_node_and_the_jobs_are_one_plan() -> None:
    outcome, shared, limiter = a_round(a_cluster(SPREAD, GANG, 2))
    plans = {attempt.plan.id: attempt.plan for attempt in outcome.attempts if attempt.plan is not None}
    (plan,) = plans.values()
    assert plan.gang == "d/train"
    assert plan.gpus == 4
    assert {pod.name for pod in plan.members} == {"t0", "t1"}
    assert {pod.node for pod in plan.pods} == plan.nodes
    assert len(plan.nodes) == len(plan.pods) == limiter.total == 2
    assert plan.fragment_after < plan.fragment_before
    requests = shared.of(JobRequests).take()
    assert {request.plan for request in requests} == {plan.id}


def test_gang_that_lacks_members_gets_no_plan() -> None:
    outcome, _, _ = a_round(a_cluster(SPREAD, GANG[:1], 2))
    assert outcome.attempts == []


def test_gang_with_room_moves_nobody() -> None:
    outcome, _, _ = a_round(a_cluster({**SPREAD, "d": [], "e": []}, GANG, 2))
    assert outcome.attempts == []


def test_pods_that_fit_nowhere_else_stay() -> None:
    full = {node: [(f"{node}{minor}", 100, minor) for minor in (0, 1)] for node in ("a", "b", "c")}
    outcome, _, _ = a_round(a_cluster(full, GANG, 2))
    assert outcome.attempts == []


def test_plan_that_exceeds_the_limit_of_the_round_moves_nobody_and_counts_nothing() -> None:
    outcome, shared, limiter = a_round(a_cluster(SPREAD, GANG, 2), EvictionLimits(total=1))
    assert not [each for each in outcome.attempts if each.is_move]
    assert not limiter.is_exhausted
    assert shared.of(JobRequests).take() == []
    assert limiter.total == 0
    assert shared.of(JobsInFlight).others("") == 0


FULL_ROUND = "maxNoOfPodsToEvictTotal"


@pytest.mark.parametrize(
    ("limits", "arguments", "code"),
    [
        (EvictionLimits(total=1), {}, FULL_ROUND),
        (EvictionLimits(), {"maxMigratingPerNamespace": 1}, MAX_PER_NAMESPACE),
    ],
)
def test_a_plan_that_is_refused_is_recorded_once_with_its_reason_and_asked_for_in_each_round(
    limits: EvictionLimits, arguments: dict[str, int], code: str
) -> None:
    shared, limiter, refused = SharedState(), EvictionLimiter(limits), Refused()
    controller = BUILT_IN["MigrationController"]
    evictor: Any = controller.make(controller.decode({**FREE, **arguments}), shared)
    profile = Profile(name="p", balance=[a_plugin(shared)], filters=[evictor], evict=evictor)
    cluster, state, told = a_cluster(SPREAD, GANG, 2), None, list[RefusalsChanged]()
    for number_of_round in range(12):
        now = replace(cluster, now=NOW + 10 * number_of_round)
        outcome = run_round([profile], now, limiter)
        facts = list(refusal_changes(refusals_of(now.now, outcome.attempts, refused, limiter), state))
        told += facts
        for fact in facts:
            state = RoundsState(seq=1, refusals={each.move.choice: each.codes for each in fact.refused})
    (changed,) = told
    assert {tuple(each.codes) for each in changed.refused} == {(code,)}
    move = changed.refused[0].move
    assert "d/train" in move.reason
    assert move.inputs["moves"] == Number(value=2)
    assert move.inputs[code] == Number(value=1, limit=1)
    assert shared.of(JobRequests).take() == []
    limiter.limits = EvictionLimits()
    wide: Any = controller.make(controller.decode(FREE), shared)
    profile = Profile(name="p", balance=[a_plugin(shared)], filters=[wide], evict=wide)
    outcome = run_round([profile], replace(cluster, now=NOW + 115), limiter)
    assert [each.result for each in outcome.attempts] == [Result.SUCCESS] * 2, "the search is not due yet"


def test_limit_per_node_chooses_a_node_with_fewer_pods() -> None:
    placed = {
        "a": [("a0", 40, 0), ("a1", 40, 0)],
        "b": [("b0", 80, 0)],
        "c": [("c0", 10, 0), ("c1", 100, 1)],
    }
    one = [a_pod("t0", 200, gang="train")]
    outcome, _, _ = a_round(a_cluster(placed, one, 1), maxMigratingPerNode=1)
    assert [attempt.pod.name for attempt in outcome.attempts] == ["b0"]


def test_pod_that_the_filters_refuse_is_not_moved() -> None:
    cluster = a_cluster(SPREAD, [a_pod("t0", 200, gang="train")], 1)
    outcome, _, _ = a_round(cluster, labelSelector={"matchLabels": {"none": "such"}})
    assert outcome.attempts == []


@pytest.mark.parametrize("who", ["plugin", "configuration", "evict plugin"])
def test_dry_run_shows_its_plan_in_each_round_and_moves_nobody(who: str) -> None:
    shared, limiter = SharedState(), EvictionLimiter(EvictionLimits())
    controller = BUILT_IN["MigrationController"]
    evictor: Any = controller.make(controller.decode({**FREE, "dryRun": who == "evict plugin"}), shared)
    profile = Profile(name="p", balance=[a_plugin(shared, dryRun=who == "plugin")], filters=[evictor], evict=evictor)
    cluster = a_cluster(SPREAD, GANG, 2)
    told: list[Event] = []
    state: RoundsState | None = None
    for number in range(3):
        now = replace(cluster, now=NOW + 10 * number)
        outcome = run_round([profile], now, limiter, is_dry_run=who == "configuration")
        facts = list(dry_run_changes(now.now, outcome.attempts, state))
        told += facts
        for fact in facts:
            assert isinstance(fact, DryRunMovesChanged)
            state = RoundsState(seq=1, tried=[move.choice for move in fact.chosen])
        assert {attempt.result for attempt in outcome.attempts} == {Result.DRY_RUN}
    (changed,) = told
    assert isinstance(changed, DryRunMovesChanged)
    assert len(changed.chosen) == 2
    assert changed.chosen[0].inputs["gpus"] == Number(value=4)
    assert shared.of(JobRequests).take() == []
    moved = replace(cluster, pods=cluster.pods[1:], now=NOW + 40)
    assert run_round([profile], moved, limiter, is_dry_run=who == "configuration").attempts == [], "tried again later"
