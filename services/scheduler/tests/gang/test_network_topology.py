"""Gangs and single pods placed by the network's topology, through the whole scheduler."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from koord_scheduler.domain.cluster.record import PodRecord
from koord_scheduler.domain.config.effective import effective_configuration
from koord_scheduler.domain.engine.decision import Restriction
from koord_scheduler.domain.framework.gates import SchedulerGates
from koord_scheduler.domain.framework.outcomes import Rejection
from koord_scheduler.domain.framework.plugin import Point
from koord_scheduler.domain.loop.controllers import next_status_due, status_facts
from koord_scheduler.domain.loop.profiles import frameworks_of
from koord_scheduler.domain.loop.state.cycle_view import NodeOffers
from koord_scheduler.domain.loop.state.known_state import Settings
from koord_scheduler.domain.loop.state.state import SchedulerState
from koord_scheduler.shell.observing import SchedulerMetrics
from koordcore.events.cluster import ClusterTopologyComputed
from koordcore.events.explanations import PodUnschedulable
from koordcore.events.objects import CustomObjectObserved, custom_ref
from koordcore.protocol import keys
from koordcore.protocol.objects import Pod
from koordcore.values.allocation import NOTHING, Allocation
from prometheus_client import CollectorRegistry
from support.depth import examples
from support.scheduler.plugins import MadeUp
from support.scheduler.scheduling import Scheduler, SmallLog, node, pod, with_metadata

CONFIGURATION = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: koord-scheduler
  plugins:
    preEnqueue: {enabled: [{name: Coscheduling}]}
    preFilter: {enabled: [{name: Coscheduling}]}
    postFilter: {enabled: [{name: Coscheduling}]}
    preScore: {enabled: [{name: Coscheduling}]}
    score: {enabled: [{name: Coscheduling, weight: 10}]}
    reserve: {enabled: [{name: Coscheduling}]}
    permit: {enabled: [{name: Coscheduling}]}
  pluginConfig:
  - name: Coscheduling
    args: {awareNetworkTopology: true}
"""
TOPOLOGY: dict[str, Any] = {
    "metadata": {"name": "default"},
    "spec": {
        "networkTopologySpec": [
            {"topologyLayer": "SpineLayer", "labelKey": ["spine"]},
            {"topologyLayer": "BlockLayer", "parentTopologyLayer": "SpineLayer", "labelKey": ["block"]},
            {"topologyLayer": "NodeTopologyLayer", "parentTopologyLayer": "BlockLayer"},
        ]
    },
}
INLINE = [SchedulerGates(), SchedulerGates(enable_inline_batch_schedule=True)]


def cluster_of(blocks: dict[str, tuple[str, list[int]]], gates: SchedulerGates | None = None) -> Scheduler:
    """Block -> its spine and the cpus of its nodes, which are called `<block><number>`."""
    log = SmallLog()
    for block, (spine, cpus) in blocks.items():
        for index, cpu in enumerate(cpus):
            log.add_node(node(f"{block}{index}", cpu=str(cpu), labels={"spine": spine, "block": block}))
    ref = custom_ref("clusternetworktopologies", "", "default")
    log.say(ref.kind, ref.id, CustomObjectObserved(object=TOPOLOGY))
    return Scheduler(log, CONFIGURATION, gates)


def job(size: int, *rules: tuple[str, str], cpu: str = "1", name: str = "g", priority: int = 0) -> list[Pod]:
    spec = {"gatherStrategy": [{"layer": layer, "strategy": strategy} for layer, strategy in rules]}
    return [
        with_metadata(
            pod(f"{name}{index}", {"cpu": cpu}, priority=priority),
            labels={keys.POD_GROUP_NAME: name, keys.POD_GROUP_MIN_AVAILABLE: str(size)},
            annotations={
                keys.GANG_NETWORK_TOPOLOGY_SPEC: json.dumps(spec),
                keys.GANG_NETWORK_TOPOLOGY_INDEX: str(index),
                keys.NETWORK_TOPOLOGY_SELECTOR: name,
            },
        )
        for index in range(size)
    ]


def run(scheduler: Scheduler, pods: list[Pod], now: float = 0.0) -> dict[str, str]:
    """Submit them; returns pod -> node."""
    for each in pods:
        scheduler.log.add_pod(each)
    scheduler.run(now)
    return {uid: record.node for uid, record in scheduler.state.pods.items() if record.node}


def refusals(scheduler: Scheduler) -> list[str]:
    return [
        explanation.event.message
        for explanation in scheduler.explanations
        if isinstance(explanation.event, PodUnschedulable)
    ]


@pytest.mark.parametrize("gates", INLINE)
def test_job_gathers_in_the_block_that_it_fills_best(gates: SchedulerGates) -> None:
    scheduler = cluster_of({"a": ("s", [3, 3, 3]), "b": ("s", [2, 2]), "c": ("t", [1])}, gates)
    assert run(scheduler, job(4, ("BlockLayer", "MustGather"))) == {"g0": "b0", "g1": "b0", "g2": "b1", "g3": "b1"}
    assert not scheduler.explanations


@pytest.mark.parametrize("gates", INLINE)
def test_job_that_no_block_can_take_is_placed_nowhere(gates: SchedulerGates) -> None:
    scheduler = cluster_of({"a": ("s", [2]), "b": ("s", [2])}, gates)
    assert run(scheduler, job(3, ("BlockLayer", "MustGather"))) == {}
    text = refusals(scheduler)[0]
    assert "no candidate topology nodes can accommodate job, desiredOfferSlot: 3" in text
    assert "topology topologyNode BlockLayer/a: 2" in text
    assert not len(scheduler.state.assumed.waiting)
    # a node more in one of the blocks helps
    scheduler.log.add_node(node("a1", cpu="1", labels={"spine": "s", "block": "a"}))
    assert run(scheduler, [], now=20.0) == {"g0": "a0", "g1": "a0", "g2": "a1"}


class Hot(MadeUp):
    """Refuses pods at Reserve on hot nodes, which no filter knows: all pods, or only the last member."""

    name = "Hot"

    def __init__(self, nodes: frozenset[str], only: str) -> None:
        super().__init__()
        self.hot_nodes = nodes
        self.only = only

    def reserve(self, pod: PodRecord, node: str) -> Allocation | Rejection:
        if node in self.hot_nodes and self.only in ("", pod.uid):
            return Rejection(plugin=self.name, message=f"node {node} is hot")
        return NOTHING

    def unreserve(self, pod: PodRecord, node: str) -> Sequence[str]:
        return ()


def hot(scheduler: Scheduler, nodes: set[str], only: str = "") -> Scheduler:
    """The same cluster, with a plugin that refuses pods on these nodes at Reserve."""
    effective = effective_configuration(CONFIGURATION.encode())
    (profile,) = effective.profiles
    points = {**profile.points, Point.RESERVE: (*profile.points[Point.RESERVE], Hot.name)}
    effective = replace(effective, profiles=(replace(profile, points=points),))
    plugin = Hot(frozenset(nodes), only)
    scheduler.state = SchedulerState(frameworks_of(effective, INLINE[1], more={Hot.name: lambda _, __: plugin}))
    return scheduler


def over_time(scheduler: Scheduler, pods: list[Pod], seconds: int) -> dict[str, str]:
    for each in pods:
        scheduler.log.add_pod(each)
    for second in range(seconds):
        scheduler.run(now=float(second))
    return {uid: record.node for uid, record in scheduler.state.pods.items() if record.node}


@pytest.mark.parametrize("only", ["", "g0", "g1"])
def test_a_planned_job_avoids_a_node_that_refused_a_member_twice_at_reserve(only: str) -> None:
    scheduler = hot(cluster_of({"a": ("s", [2]), "b": ("s", [3])}), {"a0"}, only)
    assert over_time(scheduler, job(2, ("BlockLayer", "MustGather")), 30) == {"g0": "b0", "g1": "b0"}
    assert sum("node a0 is hot" in text for text in refusals(scheduler)) == 4, "two attempts, two members"
    assert len(scheduler.state.refusals) == 0


def test_a_planned_job_without_another_node_is_told_why() -> None:
    scheduler = hot(cluster_of({"a": ("s", [2])}), {"a0"})
    assert over_time(scheduler, job(2, ("BlockLayer", "MustGather")), 30) == {}
    assert "1 refused a pod of the job twice at Reserve and have not changed since" in refusals(scheduler)[-1]
    assert sum("node a0 is hot" in text for text in refusals(scheduler)) == 4, "two attempts, two members"


def test_preferred_layer_lets_the_job_spread() -> None:
    scheduler = cluster_of({"a": ("s", [2]), "b": ("s", [2])})
    assert set(run(scheduler, job(3, ("BlockLayer", "PreferGather"))).values()) == {"a0", "b0"}


def test_gang_without_a_topology_of_the_cluster_is_told_so() -> None:
    log = SmallLog()
    log.add_node(node("n"))
    scheduler = Scheduler(log, CONFIGURATION)
    assert run(scheduler, job(2, ("BlockLayer", "MustGather"))) == {}
    assert "no cluster network topology" in refusals(scheduler)[0]


def test_gang_without_topology_spec_is_placed_as_ever() -> None:
    scheduler = cluster_of({"a": ("s", [1]), "b": ("t", [1])})
    plain = [
        with_metadata(
            pod(f"g{index}", {"cpu": "1"}), labels={keys.POD_GROUP_NAME: "g", keys.POD_GROUP_MIN_AVAILABLE: "2"}
        )
        for index in range(2)
    ]
    assert set(run(scheduler, plain).values()) == {"a0", "b0"}


def test_single_pod_goes_near_its_running_peers() -> None:
    scheduler = cluster_of({"a": ("s", [4, 4]), "b": ("s", [4, 4]), "c": ("t", [4, 4])})
    first = with_metadata(
        pod("w0", {"cpu": "3"}, nodeSelector={"block": "b"}), annotations={keys.NETWORK_TOPOLOGY_SELECTOR: "w"}
    )
    where = run(scheduler, [first])["w0"]
    more = with_metadata(pod("w1", {"cpu": "3"}), annotations={keys.NETWORK_TOPOLOGY_SELECTOR: "w"})
    assert run(scheduler, [more])["w1"] == ({"b0", "b1"} - {where}).pop()


def test_offers_leave_no_trace() -> None:
    scheduler = cluster_of({"a": ("s", [8, 8]), "b": ("s", [2])})
    run(scheduler, job(9, ("BlockLayer", "MustGather"), name="big"))
    nodes = scheduler.state.nodes
    before = nodes.free.copy(), nodes.non_zero.copy()
    assert run(scheduler, job(20, ("BlockLayer", "MustGather"))).keys() == {f"big{index}" for index in range(9)}
    assert (nodes.free == before[0]).all()
    assert (nodes.non_zero == before[1]).all()


def test_members_that_exclude_each_other_have_no_slot_without_a_candidate_node() -> None:
    scheduler = cluster_of({"a": ("s", [1])})
    term = {"labelSelector": {"matchLabels": {keys.POD_GROUP_NAME: "g"}}, "topologyKey": "kubernetes.io/hostname"}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    members = [
        with_metadata(
            pod(each.metadata.name, {"cpu": "1"}, affinity=affinity),
            labels=each.metadata.labels,
            annotations=each.metadata.annotations,
        )
        for each in job(2, ("BlockLayer", "MustGather"))
    ]
    assert run(scheduler, members) == {}
    record, uids = scheduler.state.pods["g0"], ["g0", "g1"]
    assert NodeOffers(scheduler.state, record, Restriction(), 0.0).slots(uids) == {"a0": 1}
    nowhere = Restriction(rows=np.array([], np.intp))
    assert NodeOffers(scheduler.state, record, nowhere, 0.0).slots(uids) == {}


@pytest.mark.parametrize("gates", INLINE)
def test_member_that_comes_too_late_for_the_plan_goes_alone(gates: SchedulerGates) -> None:
    scheduler = cluster_of({"a": ("s", [4])}, gates)
    *most, last = job(3, ("BlockLayer", "MustGather"))
    early = [with_metadata(each, labels={keys.POD_GROUP_MIN_AVAILABLE: "2"}) for each in most]
    run(scheduler, early)
    assert run(scheduler, [last]).keys() == {"g0", "g1", "g2"}


BLOCKS = st.lists(st.lists(st.integers(0, 5), min_size=1, max_size=3), min_size=1, max_size=3)
JOBS = st.lists(
    st.tuples(st.integers(1, 6), st.integers(1, 2), st.sampled_from(["BlockLayer", "SpineLayer"]), st.booleans()),
    max_size=4,
)


@settings(max_examples=examples(30))
@given(BLOCKS, JOBS)
def test_jobs_are_placed_whole_in_one_domain_or_not_at_all(
    blocks: list[list[int]], jobs: list[tuple[int, int, str, bool]]
) -> None:
    """size, cpu of a member, layer, and whether it must gather there; a job in one cycle fares as one pod by pod."""
    described = {f"b{index}x": (f"s{index % 2}", cpus) for index, cpus in enumerate(blocks)}
    outcomes: list[dict[str, str]] = []
    for gates in INLINE:
        scheduler = cluster_of(described, gates)
        placed: dict[str, str] = {}
        for number, (size, cpu, layer, must) in enumerate(jobs):
            strategy = "MustGather" if must else "PreferGather"
            members = job(size, (layer, strategy), cpu=str(cpu), name=f"j{number}x")
            placed = run(scheduler, members, now=number * 100.0)
            nodes = {placed[each.metadata.uid] for each in members if each.metadata.uid in placed}
            count = sum(each.metadata.uid in placed for each in members)
            assert count in (0, size)
            if must:
                assert len({node.partition("x")[0] if layer == "BlockLayer" else _spine(node) for node in nodes}) <= 1
        assert (scheduler.state.nodes.free >= 0).all()
        assert not len(scheduler.state.assumed.waiting)
        outcomes.append(placed)
    assert outcomes[0] == outcomes[1]


def _spine(node: str) -> int:
    return int(node[1 : node.index("x")]) % 2


def domains_said(scheduler: Scheduler, now: float) -> list[list[tuple[str, str, list[str], int]]]:
    """What is said of the network: layer, name, children and number of nodes of each domain."""
    scheduler.run(now)
    status_writes = status_facts(scheduler.state, now)
    for write in status_writes:
        scheduler.state.status.writes.put(write)
    scheduler.run(now)
    events = [event for write in status_writes for _, event in write.facts]
    return [
        [(each.layer, each.name, each.children, each.nodes) for each in event.domains]
        for event in events
        if isinstance(event, ClusterTopologyComputed)
    ]


def test_the_network_s_domains_are_said_when_they_change_at_most_every_ten_seconds() -> None:
    scheduler = cluster_of({"a": ("s", [4, 4]), "b": ("s", [4])})
    [said] = domains_said(scheduler, 100.0)
    assert said == [
        ("ClusterTopologyLayer", "", ["s"], 3),
        ("SpineLayer", "s", ["a", "b"], 3),
        ("BlockLayer", "a", [], 2),
        ("BlockLayer", "b", [], 1),
    ]
    assert next_status_due(scheduler.state) is None
    scheduler.log.add_node(node("c0", labels={"spine": "s", "block": "c"}))
    assert domains_said(scheduler, 105.0) == []
    assert next_status_due(scheduler.state) == 110.0
    [changed] = domains_said(scheduler, 110.0)
    assert ("BlockLayer", "c", [], 1) in changed
    ref = custom_ref("clusternetworktopologies", "", "default")
    scheduler.log.say(ref.kind, ref.id, CustomObjectObserved(object={**TOPOLOGY, "status": {"detailStatus": []}}))
    assert domains_said(scheduler, 130.0) == []


def test_without_the_argument_or_the_setting_nothing_is_said_of_the_network() -> None:
    log = SmallLog()
    log.add_node(node("a0", labels={"spine": "s", "block": "a"}))
    ref = custom_ref("clusternetworktopologies", "", "default")
    log.say(ref.kind, ref.id, CustomObjectObserved(object=TOPOLOGY))
    scheduler = Scheduler(log)
    assert domains_said(scheduler, 100.0) == []
    scheduler.state.settings = Settings(tells_topology=True)
    assert len(domains_said(scheduler, 110.0)) == 1


def test_attempts_about_a_whole_job_are_counted_with_their_result() -> None:
    scheduler = cluster_of({"a": ("s", [4, 4])}, INLINE[1])
    assert len(run(scheduler, job(2, ("BlockLayer", "MustGather")))) == 2
    registry = CollectorRegistry()
    metrics = SchedulerMetrics(registry, ["koord-scheduler"])
    metrics.jobs_attempted(scheduler.state.reports.job_attempts, 0.5)
    name = "scheduler_inline_batch_schedule_duration_seconds_sum"
    assert registry.get_sample_value(name, {"result": "success"}) == 0.5
    assert not scheduler.state.reports.job_attempts
