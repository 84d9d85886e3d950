"""The worst case of aligning a pod to NUMA zones (reality 3.7): 8 zones, and hints for CPU, memory, GPUs and adapters.

No set of zones suits all: the only free GPUs of a node are in zones whose CPUs are taken. The nodes are in 16 states.
"""

import gc
import time
from collections.abc import Iterator

from bench.measure_scheduler_engine import register
from bench.results import Better, Result
from koord_scheduler.domain.cluster.equivalence_classes import Subject
from koord_scheduler.domain.cluster.info import PodInfo
from koord_scheduler.domain.cluster.record import PodRecord
from koord_scheduler.domain.engine.decision import Placed
from koord_scheduler.domain.engine.frameworks import Frameworks
from koord_scheduler.domain.framework.outcomes import Rejection
from koord_scheduler.domain.plugins.books import books_of
from koordcore.events.envelope import BasedOn
from koordcore.protocol.hardware.node_topology import NodeResourceTopology
from koordcore.protocol.objects import Pod, object_from_json
from koordcore.values.allocation import AllocatedDevice, Allocation, ZoneAmounts
from support.scheduler.devices import CORE, MEMORY, RATIO, RDMA, device, gpu, nic
from support.scheduler.numa import lsr_pod, node_topology
from support.scheduler.scheduling import frameworks, node

NODES = 5_000
PODS = 20
STATES = 16
ZONES = 8
CPUS_OF_ZONE = 16
OFFERED = {"nvidia.com/gpu": "8", CORE: "800", RATIO: "800", MEMORY: "640Gi", RDMA: "800"}
WHOLE_GPU = {CORE: 100, RATIO: 100, MEMORY: 80 << 30}


def wanted(policy: str) -> Pod:
    return lsr_pod(policy, 8, memory="4Gi", policy=policy, more={"nvidia.com/gpu": "1", RDMA: "1"})


def full_nodes(made: Frameworks, count: int) -> None:
    books = books_of(made.cluster)
    for number in range(count):
        name = f"node-{number}"
        cpus = str(ZONES * CPUS_OF_ZONE)
        register(made.cluster, node(name, cpu=cpus, memory="1Ti", pods="500", more=OFFERED))
        report = node_topology(name, zones_per_socket=ZONES, cores_per_zone=CPUS_OF_ZONE // 2)
        books.numa.put_topology(object_from_json(report, NodeResourceTopology))
        devices = [gpu(zone, numa=zone, pcie=str(zone)) for zone in range(ZONES)]
        devices += [nic(zone + 1, numa=zone, pcie=str(zone), functions=0) for zone in range(ZONES)]
        books.devices.put(device(name, devices))
        made.cluster.accounting.take(number, holder(made, number % STATES))


def holder(made: Frameworks, state: int) -> PodInfo:
    """What is taken: all GPUs but one in one zone, or in two; and there all CPUs but some."""
    free = {state % ZONES, (state % ZONES + state // ZONES) % ZONES}
    given = tuple(
        AllocatedDevice(type="gpu", minor=zone, amounts=WHOLE_GPU) for zone in range(ZONES) if zone not in free
    )
    taken = 10 + state % 3
    cpus = sorted(f"{zone * CPUS_OF_ZONE}-{zone * CPUS_OF_ZONE + taken - 1}" for zone in free)
    zones = tuple(ZoneAmounts(zone, {"cpu": 1000 * taken}) for zone in sorted(free))
    demand = made.cluster.nodes.demand({"cpu": 1000 * taken * len(free)}, {})
    return PodInfo(f"holder-{state}", demand, allocation=Allocation(cpuset=",".join(cpus), zones=zones, devices=given))


def decided(made: Frameworks, subject: Subject, pod: Pod, number: int) -> float:
    """Seconds of one whole decision: filter, score, reservation and account."""
    uid, framework = f"uid-{pod.metadata.name}-{number}", made.first
    began = time.perf_counter()
    decision = framework.engine.decide(subject, uid, BasedOn(number, 0))
    if isinstance(decision, Placed):
        allocation = framework.reserve(PodRecord(uid=uid, pod=pod, subject=subject), decision.node)
        assert not isinstance(allocation, Rejection), allocation
        info = PodInfo(uid, subject.pod_class.demand, subject.pod_class, subject.kind, allocation=allocation)
        made.cluster.accounting.take(decision.row, info)
    return time.perf_counter() - began


def slowest(policy: str, nodes: int, pods: int) -> tuple[float, float]:
    """Milliseconds of the first decision, in which no node is known yet, and of the slowest later one."""
    made = frameworks()
    full_nodes(made, nodes)
    pod = wanted(policy)
    subject = made.cluster.pod_classes.read(pod).subject
    gc.collect()
    seconds = [decided(made, subject, pod, number) for number in range(pods)]
    return 1000 * seconds[0], 1000 * max(seconds[1:])


def measure() -> Iterator[Result]:
    """One node, and 5,000 nodes, by policy."""
    for policy in ("BestEffort", "Restricted", "SingleNUMANode"):
        of_node, _ = slowest(policy, 1, 2)
        first, later = slowest(policy, NODES, PODS)
        note = f"first decision on 5,000 nodes in {STATES} states {first:.0f} ms"
        yield Result(
            name=f"NUMA search, 8 zones and 4 lists of hints, {policy}, one node",
            value=of_node,
            unit="ms",
            target=10.0,
            better=Better.LOWER,
        )
        yield Result(
            name=f"NUMA search, 8 zones and 4 lists of hints, {policy}, slowest pod, 5000 nodes",
            value=later,
            unit="ms",
            target=100.0,
            better=Better.LOWER,
            note=note,
        )
