"""Decisions about pods with devices: kept answers and rankings give what an evaluation of every node gives."""

from random import Random

import msgspec
import pytest
from koord_scheduler.domain.cluster.info import PodInfo
from koord_scheduler.domain.cluster.record import PodRecord
from koord_scheduler.domain.columns.node_shape import node_shape
from koord_scheduler.domain.engine.decision import Optimisations, Placed
from koord_scheduler.domain.engine.engine import Engine
from koord_scheduler.domain.framework.cluster import Cluster
from koord_scheduler.domain.framework.outcomes import Rejection
from koordcore.events.envelope import BasedOn
from koordcore.protocol.objects import Pod
from support.depth import seeds
from support.scheduler.devices import CORE, RATIO, asking, board, device, random_board, random_pod
from support.scheduler.scheduling import frameworks, node

EVERY_NODE = Optimisations(dynamic_index=False, equivalence_classes=False)
PREFERRED = {
    "nodeAffinity": {
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 3, "preference": {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}}
        ]
    }
}


def put_node(cluster: Cluster, random: Random, name: str) -> None:
    taints = [{"key": "a", "effect": "PreferNoSchedule"}] if random.random() < 0.3 else []
    zone = random.choice(["a", "b", ""])
    cpu = str(random.choice([8, 16, 1000]))
    one = node(name, cpu=cpu, memory="4Ti", more={RATIO: "800"}, labels={"zone": zone}, taints=taints)
    row, _ = cluster.nodes.put(name, node_shape(one))
    cluster.put_node(row, one, node_shape(one))


def remove_node(cluster: Cluster, name: str, running: dict[str, tuple[int, PodInfo]]) -> None:
    row = cluster.nodes.row(name)
    if row is None:
        return
    for uid in [uid for uid, (used, _) in running.items() if used == row]:
        cluster.accounting.give(*running.pop(uid))
    cluster.drop_node(row, name)
    cluster.nodes.remove(name)


def put_device(cluster: Cluster, random: Random, name: str) -> None:
    document = device(name, board()) if random.random() < 0.7 else random_board(random)
    document["metadata"]["name"] = name
    cluster.put_object("devices", document)


def some_pod(random: Random, uid: str) -> Pod:
    if random.random() < 0.3:
        return random_pod(random, uid)
    affinity = PREFERRED if random.random() < 0.3 else {}
    share = {"cpu": str(random.randrange(1, 3)), RATIO: str(random.choice([25, 40, 70]))}
    if random.random() < 0.3:
        share[CORE] = str(random.choice([10, 40, 90]))
    return asking(uid, share, affinity=affinity)


@pytest.mark.parametrize(("least_family", "least_without_view"), [(1, 100), (3, 20), (1000, 0)])
@pytest.mark.parametrize("seed", seeds(8))
def test_kept_answers_give_the_decisions_of_an_evaluation_of_every_node(
    seed: int, least_family: int, least_without_view: int
) -> None:
    random = Random(seed)
    made = frameworks(optimisations=Optimisations(least_family=least_family))
    cluster, kept = made.cluster, made.first.engine
    every = Engine(cluster.nodes, kept.profile, EVERY_NODE)
    names = [f"node-{number}" for number in range(40)]
    for name in names:
        put_device(cluster, random, name)
        put_node(cluster, random, name)
    running: dict[str, tuple[int, PodInfo]] = {}
    placed = without_view = 0
    for number in range(250):
        uid = f"uid-{number}"
        pod = some_pod(random, uid)
        subject = cluster.pod_classes.read(pod).subject
        decision = kept.decide(subject, uid, BasedOn(number, 0))
        assert decision == every.decide(subject, uid, BasedOn(number, 0)), number
        without_view += not kept.views.keeps(subject.pod_class)
        if isinstance(decision, Placed):
            given = made.first.reserve(PodRecord(uid=uid, pod=pod, subject=subject), decision.node)
            if not isinstance(given, Rejection):
                info = PodInfo(uid, subject.pod_class.demand, subject.pod_class, subject.kind)
                info = msgspec.structs.replace(info, allocation=given)
                cluster.accounting.take(decision.row, info)
                running[uid] = (decision.row, info)
                placed += 1
        if running and random.random() < 0.3:
            cluster.accounting.give(*running.pop(random.choice(sorted(running))))
        if random.random() < 0.05:
            put_device(cluster, random, random.choice(names))
        if random.random() < 0.05:
            put_node(cluster, random, random.choice(names))
        if random.random() < 0.1:
            names.append(f"node-{len(names)}")
            put_device(cluster, random, names[-1])
            put_node(cluster, random, names[-1])
        if random.random() < 0.05:
            remove_node(cluster, random.choice(names), running)
    assert placed > 100
    assert without_view >= least_without_view, "classes of a family need no view"
