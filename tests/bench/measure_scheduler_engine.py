"""The engine alone: decisions a second with explanations, nothing between a pod and its node but the plugins."""

import time
from collections.abc import Iterator

from bench.results import Better, Result
from koord_scheduler.domain.cluster.info import PodInfo
from koord_scheduler.domain.columns.node_shape import node_shape
from koord_scheduler.domain.engine.decision import Placed
from koord_scheduler.domain.framework.cluster import Cluster
from koordcore.events.envelope import BasedOn
from koordcore.protocol.objects import Node
from support.scheduler.scheduling import frameworks, node, pod

PODS = 5_000
KINDS = 10


def register(cluster: Cluster, one: Node) -> None:
    """A node is there."""
    shape = node_shape(one)
    row, _ = cluster.nodes.put(one.metadata.name, shape)
    cluster.put_node(row, one, shape)


def decisions_a_second(nodes: int, kinds: int) -> float:
    """Places 5,000 pods of `kinds` different requests on empty nodes."""
    made = frameworks()
    cluster, engine = made.cluster, made.first.engine
    for number in range(nodes):
        name = f"node-{number}"
        register(cluster, node(name, cpu="64", memory="256Gi", pods="1000"))
    wanted = [
        cluster.pod_classes.read(pod(f"kind-{kind}", {"cpu": f"{100 + 10 * kind}m", "memory": "200Mi"})).subject
        for kind in range(kinds)
    ]
    began = time.perf_counter()
    for number in range(PODS):
        subject = wanted[number % kinds]
        uid = f"uid-{number}"
        decision = engine.decide(subject, uid, BasedOn(number, 0))
        assert isinstance(decision, Placed)
        cluster.accounting.take(decision.row, PodInfo(uid, subject.pod_class.demand, subject.pod_class, subject.kind))
    return PODS / (time.perf_counter() - began)


def refusals_a_second(nodes: int) -> float:
    """Attempts of pods that fit nowhere, each with its reasons."""
    made = frameworks()
    cluster, engine = made.cluster, made.first.engine
    for number in range(nodes):
        register(cluster, node(f"node-{number}", cpu="1"))
    subject = cluster.pod_classes.read(pod("big", {"cpu": "2"})).subject
    began = time.perf_counter()
    for number in range(PODS):
        engine.decide(subject, f"uid-{number}", BasedOn(number, 0))
    return PODS / (time.perf_counter() - began)


def measure() -> Iterator[Result]:
    """Rates at 1,000 and 5,000 nodes."""
    for nodes, target in ((1000, 6000.0), (5000, 4000.0)):
        for kinds in (1, KINDS):
            yield Result(
                name=f"scheduler engine, {nodes} nodes, {kinds} kind{'s' if kinds > 1 else ''} of pods",
                value=decisions_a_second(nodes, kinds),
                unit="pods/s",
                target=target,
                better=Better.HIGHER,
            )
    yield Result(name="scheduler engine, refusals at 1000 nodes", value=refusals_a_second(1000), unit="pods/s")
