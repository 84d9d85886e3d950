"""What nodes and pods say: reservations, amplification, malformed documents, the page of a node."""

import random
from typing import Any, cast

import numpy as np
import pytest
from koord_scheduler.domain.columns.node_shape import node_shape
from koord_scheduler.domain.config.koordinator_args import NodeNUMAResourceArgs
from koord_scheduler.domain.framework.cluster import Cluster
from koord_scheduler.domain.framework.extension_points import PAGES
from koord_scheduler.domain.plugins.books import make_books
from koord_scheduler.domain.plugins.numa.plugin import NodeNUMAResource
from koordcore.events.explanations import PodUnschedulable
from koordcore.protocol import keys
from koordcore.values.cpuset import parse_cpuset
from support.depth import seeds
from support.scheduler.numa import add_numa_node, lsr_pod, node_topology, say_topology
from support.scheduler.scheduling import Scheduler, SmallLog, node, pod, with_metadata


def cpuset_of(scheduler: Scheduler, uid: str) -> frozenset[int]:
    """The CPUs of a placed pod."""
    placed = scheduler.state.pods[uid].node
    assert placed, f"{uid} has no node"
    return parse_cpuset(scheduler.state.assumed.ledgers.holders(placed)[uid].allocation.cpuset)


@pytest.mark.parametrize(
    ("reservation", "kept"),
    [
        ('{"reservedCPUs":"0-3"}', {0, 1, 2, 3}),
        ('{"resources":{"cpu":"4"}}', {0, 1, 2, 3}),
        ('{"reservedCPUs":"14-15","applyPolicy":"ReservedCPUsOnly"}', {14, 15}),
    ],
)
def test_reserved_cpus_are_never_given(reservation: str, kept: set[int]) -> None:
    log = SmallLog()
    log.add_node(node("a", cpu="16", memory="64Gi", annotations={keys.NODE_RESERVATION: reservation}))
    say_topology(log, node_topology("a"))
    for index in range(8):
        log.add_pod(lsr_pod(f"p{index}", 2))
    scheduler = Scheduler(log)
    scheduler.run()
    placed = [uid for uid in (f"p{index}" for index in range(8)) if scheduler.state.pods[uid].node]
    given = [cpu for uid in placed for cpu in cpuset_of(scheduler, uid)]
    assert sorted(given) == sorted(set(range(16)) - kept)


def test_a_shortage_of_memory_in_one_zone_is_told_with_numbers() -> None:
    log = SmallLog()
    add_numa_node(log, "a")
    log.add_pod(lsr_pod("first", 2, memory="12Gi", policy="SingleNUMANode"))
    log.add_pod(lsr_pod("big", 2, memory="20Gi", policy="SingleNUMANode"))
    scheduler = Scheduler(log)
    scheduler.run()
    told = [each.event for each in scheduler.explanations if each.uid == "big"][-1]
    assert isinstance(told, PodUnschedulable)
    assert told.diagnosis is not None
    failure = told.diagnosis.failures[0]
    assert failure.reason == "needs 20.0Gi memory in one zone"
    assert failure.details == ["a: needs 20.0Gi memory in one zone: zone 0 has 4.0Gi, zone 1 has 16.0Gi"]


def test_bound_cpus_weigh_more_on_an_amplified_node() -> None:
    log = SmallLog()
    ratio = {keys.RESOURCE_AMPLIFICATION_RATIO: '{"cpu":2}'}
    log.add_node(node("a", cpu="32", memory="64Gi", annotations=ratio))
    say_topology(log, node_topology("a"))
    log.add_pod(lsr_pod("bound", 8))
    log.add_pod(pod("fits", {"cpu": "16"}))
    scheduler = Scheduler(log)
    scheduler.run()
    log.add_pod(pod("late", {"cpu": "1"}))
    scheduler.run(now=60.0)
    assert len(cpuset_of(scheduler, "bound")) == 8
    assert scheduler.state.pods["fits"].node == "a"
    assert not scheduler.state.pods["late"].node, "8 bound CPUs weigh 16: 16 + 16 + 1 of 32"


def test_a_pod_with_a_malformed_annotation_is_refused_with_the_reason() -> None:
    log = SmallLog()
    add_numa_node(log, "a")
    log.add_pod(with_metadata(pod("p", {"cpu": "2"}), annotations={keys.RESOURCE_SPEC: "{"}))
    log.add_pod(lsr_pod("q", "1500m"))
    scheduler = Scheduler(log)
    scheduler.run()
    told = {each.uid: str(getattr(each.event, "message", "")) for each in scheduler.explanations}
    assert keys.RESOURCE_SPEC in told["p"]
    assert "the requested CPUs must be integer" in told["q"]


def test_the_page_of_a_node_shows_who_has_which_cpus() -> None:
    log = SmallLog()
    add_numa_node(log, "a")
    log.add_pod(lsr_pod("p", 4, policy="SingleNUMANode"))
    scheduler = Scheduler(log)
    scheduler.run()
    plugins = scheduler.state.frameworks.first.profile.plugins.at(PAGES)
    plugin = next(each for each in plugins if each.name == "NodeNUMAResource")
    page: Any = plugin.pages()["nodes/{node}"]({"node": "a"})
    assert page["pods"]["p"]["cpuset"] == "0-3"
    assert page["pods"]["p"]["numaNodeResources"] == {"0": {"cpu": "4", "memory": "1073741824"}}
    assert page["availableCPUs"] == "4-15"
    assert page["topology"]["numaNodes"] == [0, 1]
    assert plugin.pages()["nodes/{node}"]({"node": "absent"}) is None


JUNK: list[Any] = [
    None,
    "",
    "{",
    "[]",
    "null",
    -1,
    1 << 70,
    1e309,
    [],
    {},
    "node-99999",
    "0-4095",
    "9999999999",
    True,
    "x",
]


def spoiled(value: Any, chance: random.Random) -> Any:
    """The document with some of its values replaced by junk."""
    if chance.random() < 0.04:
        return chance.choice(JUNK)
    if isinstance(value, dict):
        entries = cast("dict[str, Any]", value).items()
        return {key: spoiled(each, chance) for key, each in entries if chance.random() > 0.02}
    if isinstance(value, list):
        return [spoiled(each, chance) for each in cast("list[Any]", value)]
    return value


@pytest.mark.parametrize("seed", seeds(400, few=20))
def test_malformed_topologies_are_ignored_and_never_fail(seed: int) -> None:
    chance = random.Random(seed)
    cluster = Cluster()
    books = make_books(cluster)
    plugin = NodeNUMAResource(cluster, books.numa, books.reservations, NodeNUMAResourceArgs())
    cluster.join(plugin)
    junk = str(chance.choice(JUNK))
    annotations = {key: str(chance.choice([junk, chance.choice(JUNK), '{"cpu":1e308}'])) for key in ANNOTATIONS}
    described = node("a", cpu="16", annotations=annotations)
    row, _ = cluster.nodes.put("a", node_shape(described))
    cluster.put_node(row, described, cluster.nodes.shape_of(row))
    document = spoiled(node_topology("a", policies=("SingleNUMANodePodLevel",), annotations=annotations), chance)
    cluster.put_object("noderesourcetopologies", document)
    wanted = lsr_pod("p", 2, policy=chance.choice(["", "SingleNUMANode", "BestEffort"]))
    pod_class = cluster.pod_classes.of(wanted)
    codes = plugin.filter(pod_class, cluster.nodes, np.array([row], np.intp))
    if codes is not None and codes[0]:
        assert plugin.reasons(pod_class, cluster.nodes, int(codes[0]))
    plugin.estimate(pod_class, row)


ANNOTATIONS = (
    keys.NODE_RESERVATION,
    keys.SYSTEM_QOS_RESOURCE,
    keys.RESOURCE_AMPLIFICATION_RATIO,
    keys.POD_CPU_ALLOCS,
    keys.KUBELET_CPU_MANAGER_POLICY,
)
