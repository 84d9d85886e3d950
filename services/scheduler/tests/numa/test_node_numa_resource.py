"""Pods get whole CPUs and zones of their own through the whole cycle, and nobody gets them twice."""

import json

from koord_scheduler.domain.cluster.record import Phase
from koord_scheduler.domain.framework.topology_hints import TopologyPolicy, admitted
from koord_scheduler.domain.plugins.numa.hinting import Strategy, zone_hints
from koord_scheduler.domain.plugins.numa.plugin import NodeNUMAResource
from koord_scheduler.domain.plugins.numa.zones import NodeZones, Shortage, allocate
from koordcore.events.explanations import PodUnschedulable
from koordcore.protocol import keys
from koordcore.values.allocation import NOTHING, Allocation
from koordcore.values.cpuset import parse_cpuset
from support.scheduler.numa import add_numa_node, lsr_pod, node_topology, remove_topology, say_topology
from support.scheduler.scheduling import Scheduler, SmallLog, node, pod, with_metadata


def allocation_of(scheduler: Scheduler, uid: str) -> Allocation:
    """What the ledger of its node has for the pod."""
    placed = scheduler.state.pods[uid].node
    assert placed, f"{uid} has no node"
    return scheduler.state.assumed.ledgers.holders(placed)[uid].allocation


def reasons_of(scheduler: Scheduler, uid: str) -> list[str]:
    """Why the last attempt of the pod failed."""
    told = [each.event for each in scheduler.explanations if each.uid == uid]
    assert told, f"{uid} was told nothing"
    event = told[-1]
    assert isinstance(event, PodUnschedulable)
    return [reason for exclusion in event.explanation.exclusions for reason in exclusion.reasons]


def test_an_lsr_pod_gets_whole_cores_and_the_next_one_gets_others() -> None:
    log = SmallLog()
    add_numa_node(log, "a")
    for uid in ("p", "q"):
        log.add_pod(lsr_pod(uid, 4))
    scheduler = Scheduler(log)
    scheduler.run()
    first, second = allocation_of(scheduler, "p"), allocation_of(scheduler, "q")
    assert first.cpu_bind_policy == second.cpu_bind_policy == "FullPCPUs"
    assert {first.cpuset, second.cpuset} == {"0-3", "8-11"}, "LeastAllocated: the zone with more free CPUs first"


def test_the_label_of_a_node_decides_which_zone_comes_first_and_the_page_names_it() -> None:
    log = SmallLog()
    add_numa_node(log, "a", labels={keys.NUMA_ALLOCATE_STRATEGY: "MostAllocated"})
    for uid in ("p", "q"):
        log.add_pod(lsr_pod(uid, 4))
    scheduler = Scheduler(log)
    scheduler.run()
    assert {allocation_of(scheduler, uid).cpuset for uid in ("p", "q")} == {"0-3", "4-7"}
    (plugin,) = [
        each for each in scheduler.state.frameworks.first.profile.filters if isinstance(each, NodeNUMAResource)
    ]
    answer = plugin.pages()["nodes/{node}"]
    page = json.loads(json.dumps(answer({"node": "a"})))
    assert {uid: held["cpuset"] for uid, held in page["pods"].items()} in (
        {"p": "0-3", "q": "4-7"},
        {"p": "4-7", "q": "0-3"},
    )
    assert (page["availableCPUs"], page["topology"]["numaAllocateStrategy"]) == ("8-15", "MostAllocated")
    assert page["allocatedCPUs"]["0"] == {"refCount": 1, "exclusivePolicy": "None"}
    assert answer({"node": "unknown"}) is None


def test_a_plain_pod_gets_nothing_and_is_not_concerned() -> None:
    log = SmallLog()
    add_numa_node(log, "a")
    log.add_pod(pod("plain", {"cpu": "4"}))
    scheduler = Scheduler(log)
    scheduler.run()
    assert allocation_of(scheduler, "plain") is NOTHING
    subject = scheduler.state.pods["plain"].subject
    plugins = [type(plugin).__name__ for plugin in scheduler.state.cluster.pod_classes.concerned]
    assert subject is not None
    assert not subject.pod_class.concerned >> plugins.index("NodeNUMAResource") & 1


def test_cores_that_are_given_back_are_given_again() -> None:
    log = SmallLog()
    add_numa_node(log, "a")
    log.add_pod(lsr_pod("p", 16))
    scheduler = Scheduler(log)
    scheduler.run()
    assert allocation_of(scheduler, "p").cpuset == "0-15"
    log.add_pod(lsr_pod("q", 16))
    scheduler.run()
    assert scheduler.state.pods["q"].phase is Phase.QUEUED
    log.remove_pod("p")
    scheduler.run(now=60.0)
    scheduler.run(now=120.0)
    assert allocation_of(scheduler, "q").cpuset == "0-15"


def test_a_node_that_imposes_for_the_first_time_may_return_with_pods() -> None:
    log = SmallLog()
    log.add_node(node("a"))
    log.add_pod(pod("p", {"cpu": "1"}))
    scheduler = Scheduler(log)
    scheduler.run()
    log.remove_node("a")
    scheduler.follow()
    log.add_node(node("a", labels={keys.CPU_BIND_POLICY: "FullPCPUsOnly"}))
    scheduler.follow()
    row = scheduler.state.nodes.row("a")
    assert row is not None
    assert scheduler.state.nodes.requested[scheduler.state.nodes.column("cpu"), row] == 1000


def test_a_node_that_imposes_full_cores_binds_plain_pods_too() -> None:
    log = SmallLog()
    log.add_pod(pod("plain", {"cpu": "2"}))
    scheduler = Scheduler(log)
    scheduler.run()
    add_numa_node(log, "a", labels={keys.CPU_BIND_POLICY: "FullPCPUsOnly"})
    log.add_pod(pod("odd", {"cpu": "1500m"}))
    scheduler.run(now=60.0)
    assert parse_cpuset(allocation_of(scheduler, "plain").cpuset) == {0, 1}
    assert reasons_of(scheduler, "odd") == ["the requested CPUs must be integer"]


def test_single_numa_node_takes_everything_from_one_zone() -> None:
    log = SmallLog()
    add_numa_node(log, "a", zone_resources={"hugepages-2Mi": "1Gi"})
    log.add_node(node("a", cpu="16", memory="32Gi", more={"hugepages-2Mi": "2Gi"}))
    wanted = lsr_pod("p", 4, memory="8Gi", policy="SingleNUMANode", more={"hugepages-2Mi": "512Mi"})
    log.add_pod(wanted)
    scheduler = Scheduler(log)
    scheduler.run()
    found = allocation_of(scheduler, "p")
    assert [zone.zone for zone in found.zones] == [0]
    assert found.zones[0].amounts == {"cpu": 4000, "memory": 8 << 30, "hugepages-2Mi": 512 << 20}
    assert found.cpuset == "0-3"


def test_a_refusal_has_numbers() -> None:
    log = SmallLog()
    add_numa_node(log, "a")
    for index, cpus in enumerate((2, 6)):
        log.add_pod(lsr_pod(f"small{index}", cpus, policy="SingleNUMANode", required="FullPCPUs"))
    log.add_pod(lsr_pod("big", 8, policy="SingleNUMANode", required="FullPCPUs"))
    scheduler = Scheduler(log)
    scheduler.run()
    assert reasons_of(scheduler, "big") == ["needs 4 whole cores in one zone"]
    told = [each.event for each in scheduler.explanations if each.uid == "big"][-1]
    assert isinstance(told, PodUnschedulable)
    assert told.diagnosis is not None
    details = [detail for failure in told.diagnosis.failures for detail in failure.details]
    assert details == ["a: needs 4 whole cores in one zone: zone 0 has 3, zone 1 has 1"]


def test_a_topology_that_comes_late_lets_the_pod_in() -> None:
    log = SmallLog()
    log.add_node(node("a", cpu="16", memory="32Gi"))
    log.add_pod(lsr_pod("p", 4))
    scheduler = Scheduler(log)
    scheduler.run()
    assert reasons_of(scheduler, "p") == ["node(s) invalid CPU Topology"]
    say_topology(log, node_topology("a"))
    scheduler.run(now=60.0)
    assert allocation_of(scheduler, "p").cpuset == "0-3"
    remove_topology(log, "a")
    log.add_pod(lsr_pod("q", 4))
    scheduler.run(now=120.0)
    assert reasons_of(scheduler, "q") == ["node(s) invalid CPU Topology"]


def test_a_preemptor_of_four_cores_evicts_the_fewest_pods_that_give_them() -> None:
    log = SmallLog()
    add_numa_node(log, "a", cores_per_zone=8)
    for index in range(8):
        log.add_pod(lsr_pod(f"low{index}", 4, priority=9100, policy="SingleNUMANode"))
    scheduler = Scheduler(log)
    scheduler.run()
    log.add_pod(lsr_pod("high", 8, priority=9900, policy="SingleNUMANode", required="FullPCPUs"))
    scheduler.run(now=60.0)
    scheduler.run(now=120.0)
    left = [uid for uid in (f"low{index}" for index in range(8)) if uid in scheduler.state.pods]
    assert len(left) == 6, "two pods with two cores each had to leave"
    assert len(parse_cpuset(allocation_of(scheduler, "high").cpuset)) == 8


def test_one_large_victim_of_one_zone_is_preferred_to_several_small_ones_of_another() -> None:
    log = SmallLog()
    add_numa_node(log, "a")
    scheduler = Scheduler(log)
    for uid, cpus in (("large", 8), *((f"small{index}", 2) for index in range(4))):
        log.add_pod(lsr_pod(uid, cpus, priority=9100, policy="SingleNUMANode"))
        scheduler.run()
    log.add_pod(lsr_pod("high", 8, priority=9900, policy="SingleNUMANode", required="FullPCPUs"))
    scheduler.run(now=60.0)
    evicted = [stored.ref.id for stored in log.events if stored.ref.kind == "eviction"]
    assert evicted == ["large"], "it gives the four cores alone"


def test_a_pod_that_another_scheduler_bound_keeps_its_cores() -> None:
    log = SmallLog()
    add_numa_node(log, "a")
    status = {keys.RESOURCE_STATUS: '{"cpuset":"0-7"}'}
    log.add_pod(with_metadata(pod("foreign", {"cpu": "8"}, nodeName="a"), annotations=status))
    for uid in ("p", "q", "r"):
        log.add_pod(lsr_pod(uid, 4))
    scheduler = Scheduler(log)
    scheduler.run()
    placed = [uid for uid in ("p", "q", "r") if scheduler.state.pods[uid].node]
    assert sorted(allocation_of(scheduler, uid).cpuset for uid in placed) == ["12-15", "8-11"]


def test_best_effort_admits_all_zones_when_nothing_is_large_enough_and_the_allocation_says_what_is_short() -> None:
    amounts = {"cpu": 52_000, "memory": 128 << 30}
    zones = NodeZones(layout=None, allocatable={0: amounts, 1: amounts})
    requests = {"cpu": 120_000, "memory": 8 << 30}
    strategy = Strategy(most_allocated=False, weights=(("cpu", 1), ("memory", 1)))
    hints = zone_hints(zones, requests, None, TopologyPolicy.BEST_EFFORT, strategy)
    assert hints == {"cpu": [], "memory": []}
    admission = admitted(TopologyPolicy.BEST_EFFORT, zones.zones, [hints])
    assert (admission.is_admitted, admission.zones, admission.preferred) == (True, zones.zones, False)
    assert allocate(zones, requests, None, zones.zones) == Shortage(("Insufficient NUMA cpu",))
