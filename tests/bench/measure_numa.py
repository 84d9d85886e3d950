"""The engine with pods that bind whole cores, or take everything from one NUMA zone: decision, reservation, account.

Nodes have two sockets with two zones of 26 cores with two threads each, and are filled to 90 %.
"""

import random
import time
from collections.abc import Iterator

from bench.measure_scheduler_engine import register
from bench.results import Better, Result
from koord_scheduler.domain.cluster.info import PodInfo
from koord_scheduler.domain.cluster.record import PodRecord
from koord_scheduler.domain.engine.decision import Placed
from koord_scheduler.domain.engine.frameworks import Frameworks
from koord_scheduler.domain.framework.extension_points import RESERVE
from koord_scheduler.domain.framework.outcomes import Rejection
from koord_scheduler.domain.plugins.books import books_of
from koordcore.events.envelope import BasedOn
from koordcore.protocol.hardware.node_topology import NodeResourceTopology
from koordcore.protocol.objects import Pod, object_from_json
from koordcore.values.allocation import Allocation
from support.scheduler.numa import lsr_pod, node_topology
from support.scheduler.scheduling import frameworks, node

NODES = 5_000
PODS = 5_000
CPUS_OF_NODE = 208
PATTERNS = 16
FILLED = 0.9


def big_nodes(made: Frameworks, count: int) -> None:
    """Nodes of the kind that the rows are about."""
    for number in range(count):
        name = f"node-{number}"
        register(
            made.cluster, node(name, cpu=str(CPUS_OF_NODE), memory="1Ti", pods="500", more={"hugepages-2Mi": "64Gi"})
        )
        report = node_topology(
            name,
            sockets=2,
            zones_per_socket=2,
            cores_per_zone=26,
            zone_resources={"memory": "256Gi", "hugepages-2Mi": "16Gi"},
        )
        books_of(made.cluster).numa.put_topology(object_from_json(report, NodeResourceTopology))


def fill(made: Frameworks, pod: Pod, count: int) -> None:
    """Put equal pods on every node, as the plugin allocates; nodes differ in which of more pods have left again."""
    cluster = made.cluster
    chance, subject = random.Random(7), cluster.pod_classes.read(pod).subject
    allocator = books_of(cluster).numa.allocator
    assert allocator is not None
    cpus = max(1, subject.pod_class.requests["cpu"] // 1000)
    infos: list[PodInfo] = []
    for index in range(CPUS_OF_NODE // cpus):
        found = allocator.estimate(subject.pod_class, 0)
        if found is None:
            break
        infos.append(PodInfo(f"filler-{index}", subject.pod_class.demand, subject.pod_class, allocation=found))
        cluster.accounting.take(0, infos[-1])
    for info in infos:
        cluster.accounting.give(0, info)
    patterns = [chance.sample(infos, min(len(infos), count)) for _ in range(PATTERNS)]
    for row in range(len(cluster.nodes)):
        for info in patterns[row % PATTERNS]:
            cluster.accounting.take(row, info)


def placed_a_second(pod: Pod, nodes: int = NODES, pods: int = PODS) -> float:
    """Decide, reserve and count equal pods on nodes that are filled to 90 % with such pods."""
    made = frameworks()
    big_nodes(made, nodes)
    cpus = int(str(pod.spec.containers[0].resources.requests["cpu"]))
    fill(made, pod, int(FILLED * CPUS_OF_NODE) // cpus)
    cluster, framework = made.cluster, made.first
    subject = cluster.pod_classes.read(pod).subject
    plugins = framework.profile.concerning(subject.pod_class.concerned).at(RESERVE)
    engine = framework.engine
    engine.decide(subject, "first", BasedOn(0, 0))
    began = time.perf_counter()
    for number in range(pods):
        uid = f"uid-{number}"
        decision = engine.decide(subject, uid, BasedOn(number, 0))
        assert isinstance(decision, Placed), decision
        record = PodRecord(uid=uid, pod=pod, subject=subject)
        allocation = _reserved(made, record, decision.node)
        info = PodInfo(uid, subject.pod_class.demand, subject.pod_class, subject.kind, allocation=allocation)
        cluster.accounting.take(decision.row, info)
    assert plugins
    return pods / (time.perf_counter() - began)


def _reserved(made: Frameworks, record: PodRecord, node_name: str) -> Allocation:
    allocation = made.first.reserve(record, node_name)
    assert not isinstance(allocation, Rejection), allocation
    assert allocation.cpuset or allocation.zones
    return allocation


def measure() -> Iterator[Result]:
    """Rates at 5,000 nodes."""
    yield Result(
        name="scheduler engine, LSR pods of 4 whole cores, 5000 nodes filled to 90 %",
        value=placed_a_second(lsr_pod("cores", 8, required="FullPCPUs")),
        unit="pods/s",
        target=8000.0,
        better=Better.HIGHER,
    )
    yield Result(
        name="scheduler engine, SingleNUMANode with CPU, memory and huge pages, 5000 nodes filled to 90 %",
        value=placed_a_second(
            lsr_pod("zone", 4, memory="4Gi", policy="SingleNUMANode", more={"hugepages-2Mi": "256Mi"})
        ),
        unit="pods/s",
        target=5000.0,
        better=Better.HIGHER,
    )
