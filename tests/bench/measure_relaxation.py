"""What random relaxation wins and what it costs (scheduler-core spec, 12.2 c).

On 15,000 nodes, decisions with and without it, for pods that are alike and for pods of which no two are; and how good
the chosen nodes are: the mean total score of the choices, in percent of what looking at all nodes chooses.
"""

import statistics
import time
from collections.abc import Iterator
from random import Random

from bench.options import BenchOptions
from bench.results import Better, Result
from koord_scheduler.configuration import shipped_configuration
from koord_scheduler.domain.cluster.info import PodInfo
from koord_scheduler.domain.columns.node_shape import node_shape
from koord_scheduler.domain.config.effective import effective_configuration
from koord_scheduler.domain.engine.decision import Optimisations, Placed
from koord_scheduler.domain.engine.frameworks import Frameworks
from koord_scheduler.domain.loop.profiles import frameworks_of
from koordcore.events.envelope import BasedOn
from support.scheduler.scheduling import node, pod

NODES = 15_000
PODS = 600


def _cluster(nodes: int, *, relaxed: bool) -> Frameworks:
    """Nodes of four sizes, each partly taken."""
    optimisations = Optimisations(random_relaxation=relaxed)
    made = frameworks_of(effective_configuration(shipped_configuration()), optimisations=optimisations)
    random = Random(1)
    cluster = made.cluster
    taken = [
        cluster.pod_classes.read(pod(f"t{cpu}", {"cpu": str(cpu), "memory": f"{cpu}Gi"})).subject for cpu in range(9)
    ]
    for number in range(nodes):
        one = node(f"node-{number}", cpu=str(random.choice((16, 32, 48, 64))), memory="128Gi")
        shape = node_shape(one)
        row, _ = cluster.nodes.put(one.metadata.name, shape)
        cluster.put_node(row, one, shape)
        subject = random.choice(taken)
        cluster.accounting.take(row, PodInfo(f"t-{number}", subject.pod_class.demand, subject.pod_class, subject.kind))
    return made


def _placed(nodes: int, pods: int, *, relaxed: bool, kinds: int) -> tuple[float, float]:
    """Decisions a second of the engine, and the mean total score of the chosen nodes."""
    made = _cluster(nodes, relaxed=relaxed)
    cluster, engine = made.cluster, made.first.engine
    wanted = [
        cluster.pod_classes.read(pod(f"kind-{kind}", {"cpu": f"{100 + kind}m", "memory": "200Mi"})).subject
        for kind in range(kinds)
    ]
    totals: list[int] = []
    began = time.perf_counter()
    for number in range(pods):
        subject, uid = wanted[number % kinds], f"uid-{number}"
        decision = engine.decide(subject, uid, BasedOn(number, 0))
        assert isinstance(decision, Placed)
        totals.append(decision.explanation.top[0].total)
        cluster.accounting.take(decision.row, PodInfo(uid, subject.pod_class.demand, subject.pod_class, subject.kind))
    return pods / (time.perf_counter() - began), statistics.mean(totals)


def measure(options: BenchOptions) -> Iterator[Result]:
    """Rates with and without relaxation, and its loss."""
    nodes, pods = max(1, int(NODES * options.scale)), max(1, int(PODS * options.scale))
    for kinds, about in ((1, "pods alike"), (pods, "no two pods alike")):
        all_rate, all_mean = _placed(nodes, pods, relaxed=False, kinds=kinds)
        relaxed_rate, relaxed_mean = _placed(nodes, pods, relaxed=True, kinds=kinds)
        where = f"{nodes:,} nodes, {about}"
        yield Result(name=f"all nodes examined, {where}", value=all_rate, unit="pods/s", better=Better.HIGHER)
        yield Result(name=f"random relaxation, {where}", value=relaxed_rate, unit="pods/s", better=Better.HIGHER)
        quality = 100 * relaxed_mean / all_mean
        yield Result(name=f"relaxed choice, score of the best, {where}", value=quality, unit="%", better=Better.HIGHER)
