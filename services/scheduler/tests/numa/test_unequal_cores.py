"""Whole cores on nodes whose cores differ: a sibling is offline, or the CPUs are hybrid (kubernetes#124066)."""

import itertools
from typing import Any

import pytest
from koord_scheduler.domain.plugins.numa.accumulator import BindPolicy, CpuRequest, take_cpus
from koord_scheduler.domain.plugins.numa.core_sums import chosen_with, shares_of, sums_of
from koord_scheduler.domain.plugins.numa.cpu_layout import cpus_in, mask_of
from koord_scheduler.domain.plugins.numa.hardware import cpu_layout
from koordcore.protocol import keys
from koordcore.values.allocation import Allocation
from koordcore.values.cpuset import parse_cpuset
from support.scheduler.numa import add_numa_node, lsr_pod, node_topology, say_topology
from support.scheduler.scheduling import Scheduler, SmallLog, node, pod

IMPOSED = {keys.CPU_BIND_POLICY: "FullPCPUsOnly"}
ONE_OFFLINE: dict[str, Any] = {"zones_per_socket": 1, "cores_per_zone": 8, "offline": {7}}
"""CPUs 0 to 15 without 7, two per core: CPU 6 is a core of its own."""


def allocation_of(scheduler: Scheduler, uid: str) -> Allocation | None:
    placed = scheduler.state.pods[uid].node
    return scheduler.state.assumed.ledgers.holders(placed)[uid].allocation if placed else None


def is_whole(cpuset: str, offline: set[int]) -> bool:
    """Whether every online sibling of every CPU is in the set, of cores with two CPUs."""
    cpus = set(parse_cpuset(cpuset))
    return bool(cpus) and cpus == {each for cpu in cpus for each in (cpu & ~1, cpu | 1)} - offline


@pytest.mark.parametrize("policy", ["", "BestEffort", "Restricted", "SingleNUMANode"])
@pytest.mark.parametrize("count", [1, 2, 3, 4, 8, 14, 15])
def test_a_pod_that_requires_whole_cores_gets_them_though_a_sibling_is_offline(count: int, policy: str) -> None:
    log = SmallLog()
    add_numa_node(log, "a", **ONE_OFFLINE)
    log.add_pod(lsr_pod("p", count, required="FullPCPUs", policy=policy))
    scheduler = Scheduler(log)
    scheduler.run()
    found = allocation_of(scheduler, "p")
    assert found is not None
    assert len(parse_cpuset(found.cpuset)) == count
    assert is_whole(found.cpuset, {7})
    assert (6 in parse_cpuset(found.cpuset)) == bool(count % 2), "the single CPU makes the number odd"


def test_a_pod_that_the_cores_of_a_node_cannot_give_goes_to_another_node_and_is_told_why() -> None:
    log = SmallLog()
    add_numa_node(log, "a", **ONE_OFFLINE)
    log.add_pod(lsr_pod("odd", 1, required="FullPCPUs"))
    log.add_pod(lsr_pod("second", 3, required="FullPCPUs"))
    scheduler = Scheduler(log)
    scheduler.run()
    told = [each.event for each in scheduler.explanations if each.uid == "second"]
    assert "needs 3 CPUs of whole cores" in str(told[-1])
    assert "has 14 CPUs of whole cores" in str(told[-1])
    add_numa_node(log, "b", **ONE_OFFLINE)
    scheduler.run(now=60.0)
    assert (scheduler.state.pods["odd"].node, scheduler.state.pods["second"].node) == ("a", "b")


def test_plain_pods_fill_nodes_that_demand_whole_cores_though_one_of_them_has_an_offline_cpu() -> None:
    log = SmallLog()
    add_numa_node(log, "a", labels=IMPOSED, **ONE_OFFLINE)
    add_numa_node(log, "b", labels=IMPOSED, zones_per_socket=1, cores_per_zone=4)
    for number in range(11):
        log.add_pod(pod(f"p{number}", {"cpu": "2"}))
    scheduler = Scheduler(log)
    scheduler.run()
    for number in range(11):
        found = allocation_of(scheduler, f"p{number}")
        assert found is not None
        assert is_whole(found.cpuset, {7} if scheduler.state.pods[f"p{number}"].node == "a" else set())
    assert sorted(scheduler.state.pods[f"p{number}"].node for number in range(11)) == ["a"] * 7 + ["b"] * 4


@pytest.mark.parametrize("policy", ["BestEffort", "Restricted"])
def test_whole_cores_of_several_zones_add_up_though_each_zone_has_a_core_of_one_cpu(policy: str) -> None:
    log = SmallLog()
    add_numa_node(log, "a", zones_per_socket=3, cores_per_zone=2, offline={3, 7, 11})
    log.add_pod(lsr_pod("p", 8, required="FullPCPUs", policy=policy))
    scheduler = Scheduler(log)
    scheduler.run()
    found = allocation_of(scheduler, "p")
    assert found is not None
    assert is_whole(found.cpuset, {3, 7, 11})
    assert sum(zone.amounts["cpu"] for zone in found.zones) == 8000


def test_an_amount_of_a_zone_far_beyond_its_cpus_gives_no_more_than_its_cpus() -> None:
    log = SmallLog()
    ratio = {keys.RESOURCE_AMPLIFICATION_RATIO: '{"cpu":1.5}'}
    log.add_node(node("a", cpu="48", memory="64Gi"))
    amounts = {"cpu": "4000000000000"}
    say_topology(log, node_topology("a", cores_per_zone=8, offline={7}, zone_resources=amounts, annotations=ratio))
    log.add_pod(lsr_pod("p", 20, required="FullPCPUs", policy="Restricted"))
    log.add_pod(lsr_pod("q", 40, required="FullPCPUs", policy="Restricted"))
    scheduler = Scheduler(log)
    scheduler.run()
    found = allocation_of(scheduler, "p")
    assert found is not None
    assert is_whole(found.cpuset, {7})
    assert sum(zone.amounts["cpu"] for zone in found.zones) == 20_000
    assert allocation_of(scheduler, "q") is None


def test_spread_pods_never_share_a_core_of_a_node_whose_cores_differ() -> None:
    log = SmallLog()
    add_numa_node(log, "a", **ONE_OFFLINE)
    log.add_pod(lsr_pod("p", 8, required="SpreadByPCPUs"))
    scheduler = Scheduler(log)
    scheduler.run()
    found = allocation_of(scheduler, "p")
    assert found is not None
    assert len({cpu // 2 for cpu in parse_cpuset(found.cpuset)}) == 8


# --- the arithmetic ---------------------------------------------------------------------------------------------------

SIZES = [list(each) for length in range(5) for each in itertools.product((1, 2, 4), repeat=length)]


def test_cores_are_chosen_exactly_if_some_of_them_have_the_count_together() -> None:
    for sizes in SIZES:
        possible = {sum(each) for length in range(5) for each in itertools.combinations(sizes, length)}
        assert {count for count in range(20) if sums_of(sizes) >> count & 1} == possible
        for count in range(18):
            chosen = chosen_with(sizes, count)
            assert (chosen is not None) == (count in possible)
            assert chosen is None or (sum(sizes[each] for each in chosen), sorted(set(chosen))) == (count, chosen)


def test_shares_of_zones_add_up_if_they_can_and_are_as_equal_as_their_cores_permit() -> None:
    assert shares_of([sums_of([2, 2]), sums_of([2, 2]), sums_of([2, 2])], 6) == [2, 2, 2]
    assert shares_of([sums_of([2, 1]), sums_of([2, 2])], 3) == [1, 2]
    assert shares_of([sums_of([4]), sums_of([2, 2])], 4) == [0, 4]
    assert shares_of([sums_of([4]), sums_of([2])], 3) is None
    assert shares_of([], 0) == []


def test_a_preferred_policy_takes_whole_cores_where_they_add_up_and_else_single_cpus() -> None:
    described = node_topology("n", zones_per_socket=1, cores_per_zone=3, offline={5})
    layout = cpu_layout(described["metadata"]["annotations"][keys.CPU_TOPOLOGY])
    assert layout is not None
    request = CpuRequest(count=3, bind_policy=BindPolicy.FULL_PCPUS)
    assert cpus_in(take_cpus(layout, layout.cpus, request) or 0) == [0, 1, 4]
    assert len(cpus_in(take_cpus(layout, mask_of([0, 1, 2, 3]), request) or 0)) == 3
