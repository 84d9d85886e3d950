"""BestEffort places a pod wherever it fits without a policy, in few zones, and within a bounded time."""

import json
from typing import Any

from koordcore.events.objects import CustomObjectObserved
from koordcore.protocol import keys
from koordcore.protocol.objects import Pod
from koordcore.values.allocation import Allocation
from support.scheduler.devices import RDMA, asking, device, gpu, nic
from support.scheduler.numa import lsr_pod, node_topology, say_topology
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
