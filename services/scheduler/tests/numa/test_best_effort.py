"""BestEffort places a pod wherever it fits without a policy, in few zones, and within a bounded time."""

import json
from typing import Any

from koordcore.events.objects import CustomObjectObserved
from koordcore.protocol import keys
from koordcore.protocol.objects import Pod
from koordcore.values.allocation import Allocation
from support.scheduler.devices import RDMA, asking, device, gpu, nic
from support.scheduler.numa import add_numa_node, lsr_pod, node_topology, say_topology
from support.scheduler.scheduling import Scheduler, SmallLog, node, with_metadata

OFFERED = {"nvidia.com/gpu": "8", "koordinator.sh/gpu-core": "800", "koordinator.sh/gpu-memory-ratio": "800"}


def allocation_of(scheduler: Scheduler, uid: str) -> Allocation:
    placed = scheduler.state.pods[uid].node
    assert placed, f"{uid} has no node"
    return scheduler.state.assumed.ledgers.holders(placed)[uid].allocation


def holding(uid: str, cpuset: str, cpus: int, zones: dict[int, str] | None = None) -> Pod:
    """A pod that another scheduler put on node `a` with these CPUs, and this CPU of zones."""
    status: dict[str, Any] = {"cpuset": cpuset}
    if zones:
        status["numaNodeResources"] = [{"node": zone, "resources": {"cpu": cpu}} for zone, cpu in zones.items()]
    plain = lsr_pod(uid, cpus, nodeName="a")
    return with_metadata(plain, annotations={keys.RESOURCE_STATUS: json.dumps(status)}, labels={keys.QOS_CLASS: "LSR"})


def with_eight_zones() -> SmallLog:
    """A node of 8 zones with 16 CPUs, a GPU and an RDMA device each. Only the GPU of zone 7 is free, and only 6 CPUs of
    this zone are.
    """
    log = SmallLog()
    log.add_node(node("a", cpu="128", memory="1Ti", more={**OFFERED, RDMA: "800"}))
    say_topology(log, node_topology("a", zones_per_socket=8, cores_per_zone=8))
    devices = [gpu(zone, numa=zone, pcie=str(zone)) for zone in range(8)]
    devices += [nic(zone + 1, numa=zone, pcie=str(zone), functions=0) for zone in range(8)]
    log.say("customspec", "devices=a", CustomObjectObserved(object=device("a", devices)))
    log.add_pod(holding("other", "112-121", 10, {7: "10"}))
    for number in range(7):
        log.add_pod(asking(f"gpu-{number}", {"cpu": "0", "nvidia.com/gpu": "1"}))
    return log


def test_a_gpu_of_one_zone_and_cpus_of_another_are_joined_at_once_whatever_the_combinations() -> None:
    log = with_eight_zones()
    scheduler = Scheduler(log)
    scheduler.run()
    log.add_pod(lsr_pod("p", 8, memory="4Gi", policy="BestEffort", more={"nvidia.com/gpu": "1", RDMA: "1"}))
    scheduler.run(now=60.0)
    given = allocation_of(scheduler, "p")
    assert ("gpu", 7) in [(each.type, each.minor) for each in given.devices]
    assert [zone.zone for zone in given.zones] == [0, 7]


def test_a_pod_that_fits_without_a_policy_fits_with_best_effort_though_other_pods_recorded_no_zones() -> None:
    for policy in ("", "BestEffort"):
        log = SmallLog()
        add_numa_node(log, "a", cores_per_zone=4)
        log.add_pod(holding("other", "0-6", 7))
        log.add_pod(lsr_pod("p", 9, policy=policy))
        scheduler = Scheduler(log)
        scheduler.run()
        assert allocation_of(scheduler, "p").cpuset == "7-15"


def test_a_pod_whose_memory_no_zones_have_is_placed_without_zones() -> None:
    log = SmallLog()
    add_numa_node(log, "a", cores_per_zone=4)
    log.add_pod(holding("other", "0-6", 7))
    log.add_pod(lsr_pod("p", 4, memory="40Gi", policy="BestEffort"))
    scheduler = Scheduler(log)
    scheduler.run()
    given = allocation_of(scheduler, "p")
    assert (len(given.cpus), given.zones) == (4, ())


def test_a_node_without_enough_cpus_is_refused_by_the_filter_with_the_number() -> None:
    log = SmallLog()
    add_numa_node(log, "a", cores_per_zone=4)
    log.add_pod(holding("other", "0-7", 1))
    log.add_pod(lsr_pod("p", 9, policy="BestEffort"))
    scheduler = Scheduler(log)
    scheduler.run()
    told = [each.event for each in scheduler.explanations if each.uid == "p"]
    assert "needs 9 free CPUs" in str(told[-1])


def test_a_gpu_that_states_no_zone_is_given_though_others_state_one() -> None:
    log = SmallLog()
    log.add_node(node("a", cpu="16", memory="64Gi", more=OFFERED))
    say_topology(log, node_topology("a"))
    log.say("customspec", "devices=a", CustomObjectObserved(object=device("a", [gpu(0, numa=0, pcie="0"), gpu(1)])))
    log.add_pod(lsr_pod("p", 2, policy="BestEffort", more={"nvidia.com/gpu": "2"}))
    scheduler = Scheduler(log)
    scheduler.run()
    assert [each.minor for each in allocation_of(scheduler, "p").devices] == [0, 1]
