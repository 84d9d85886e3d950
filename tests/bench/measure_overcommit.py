"""What the manager's decisions cost: nodes recomputed from their reports, recommendations, a health round.

5,000 nodes that report once a minute are 83 nodes a second: the target leaves them a twentieth of a core.
"""

import time
from collections.abc import Iterator

from bench.results import Better, Result
from koord_manager.domain.controllers.node_policies import RENDERED
from koord_manager.domain.controllers.recommender.controller import RecommenderController
from koord_manager.domain.controllers.slo_adjust.controller import LOOKS_AT_ONCE, HealthController
from koordcore.events.nodepolicy import NodeOvercommitComputed
from koordcore.events.observation import PodUsage
from support.manager.world import GIB, ManagerWorld, usage_of

NODES = 500
PODS_PER_NODE = 30
CLUSTER = 5_000
NODES_PER_SECOND = CLUSTER / 60
SHARE_OF_A_CORE = 0.05
TEMPLATES = (
    {"labels": {"koordinator.sh/qosClass": "LS"}, "requests": {"cpu": "500m", "memory": "1Gi"}},
    {"labels": {"koordinator.sh/qosClass": "LSR"}, "requests": {"cpu": "2", "memory": "4Gi"}},
    {
        "labels": {"koordinator.sh/qosClass": "BE", "koordinator.sh/priority-class": "koord-batch"},
        "requests": {"kubernetes.io/batch-cpu": "1000", "kubernetes.io/batch-memory": "1Gi"},
    },
)


def _world() -> tuple[ManagerWorld, dict[str, list[PodUsage]]]:
    """Nodes of 64 cores with pods of three classes, and a sample of each pod by node (token)."""
    world = ManagerWorld()
    world.configure(
        colocation={"enable": True, "midUnallocatedPercent": 20},
        resource_threshold={"clusterStrategy": {"enable": True}},
        slo_adjust={"enable": True},
    )
    world.workload("Deployment", "web", uid="d")
    samples: dict[str, list[PodUsage]] = {}
    for number in range(NODES):
        token = world.plain_node(f"n{number}", cpu="64", memory="256Gi", pool=f"p{number % 10}")
        for index in range(PODS_PER_NODE):
            template = TEMPLATES[index % len(TEMPLATES)]
            document = {
                "metadata": {
                    "labels": template["labels"],
                    "ownerReferences": [{"kind": "Deployment", "name": "web", "uid": "d", "controller": True}],
                },
                "spec": {"containers": [{"name": "c", "resources": {"requests": template["requests"]}}]},
                "status": {"phase": "Running"},
            }
            pod = world.pod(f"u{number}-{index}", document, on=token)
            samples.setdefault(token, []).append(usage_of(pod, 300 + index, GIB))
    return world, samples


def measure() -> Iterator[Result]:
    """Nodes a second, and shares of a core for 5,000 nodes."""
    world, samples = _world()
    tokens = world.view.nodes()
    for decision in RENDERED:
        world.take([draft for token in tokens for draft in world.decided(decision.event, token)])
    seconds: list[float] = []
    for minute in range(3):
        world.pass_time(60)
        for token in tokens:
            world.report(token, cpu_milli=15_000 + 500 * minute, memory_bytes=60 * GIB, pods=samples[token])
        began = time.process_time()
        drafts = [draft for token in tokens for draft in world.decided(NodeOvercommitComputed, token)]
        seconds.append(time.process_time() - began)
        world.take(drafts)
    yield Result(
        name=f"overcommit of a node with {PODS_PER_NODE} pods",
        value=NODES / min(seconds),
        unit="nodes/s",
        target=NODES_PER_SECOND / SHARE_OF_A_CORE,
    )
    began = time.process_time()
    for decision in RENDERED:
        assert not [draft for token in tokens for draft in world.decided(decision.event, token)]
    yield Result(
        name="policies of a changed node, found unchanged",
        value=NODES / (time.process_time() - began),
        unit="nodes/s",
        target=CLUSTER,
    )
    began = time.process_time()
    health = HealthController()
    for _ in range(0, NODES, LOOKS_AT_ONCE):
        health.drafts(world.policies, world.view, world.now)
    yield Result(
        name="health of 5,000 nodes once a minute, share of a core",
        value=100 * (time.process_time() - began) * CLUSTER / NODES / 60,
        unit="%",
        target=1,
        better=Better.LOWER,
    )
    yield from _recommender(world, samples)


def _recommender(world: ManagerWorld, samples: dict[str, list[PodUsage]]) -> Iterator[Result]:
    """Every pod of the cluster is looked at by a Recommendation: the worst case."""
    target = {"type": "workload", "workload": {"kind": "Deployment", "name": "web"}}
    world.custom(
        "recommendations",
        {"kind": "Recommendation", "metadata": {"namespace": "default", "name": "web"}, "spec": {"target": target}},
    )
    rounds = RecommenderController()
    seconds = 0.0
    for _ in range(2):
        world.pass_time(60)
        reports = {token: world.report(token, pods=samples[token]) for token in world.view.nodes()}
        began = time.process_time()
        for token, report in reports.items():
            rounds.book.observe(world.view, world.view.obs_position, token, report)
        seconds = time.process_time() - began  # the second time: answers for pods are known
    yield Result(name="samples into histograms", value=NODES * PODS_PER_NODE / seconds, unit="samples/s", target=50_000)
    began = time.process_time()
    while not rounds.drafts(world.view, world.now):
        pass
    yield Result(
        name=f"recommender round over {NODES * PODS_PER_NODE:,} pods",
        value=1000 * (time.process_time() - began),
        unit="ms",
        target=200,
        better=Better.LOWER,
    )
