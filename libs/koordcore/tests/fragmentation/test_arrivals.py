"""Pods that arrive one by one."""

import random

import numpy as np
import pytest
from koordcore.fragmentation.arrivals import Arrivals, Draws, Placed
from koordcore.fragmentation.nodes import GpuColumns, NodeGpus, columns_of
from koordcore.fragmentation.pods import GpuPod, TypicalPod, typical_pods
from koordcore.fragmentation.policies import NodeTags, PolicyName, affinity_tag, min_max, policy_of

NODES = [NodeGpus(16000, (1000, 1000), "T4")] * 3 + [NodeGpus(32000, (1000,) * 4, "G2")] * 3
KINDS = [
    GpuPod(2000, 500, 1),
    GpuPod(3000, 300, 1, "T4"),
    GpuPod(8000, 1000, 1),
    GpuPod(6000, 0, 0),
    GpuPod(9000, 1000, 2),
]
TYPICAL = typical_pods(KINDS, 100)
DETERMINED = [name for name in PolicyName if name is not PolicyName.RANDOM]


def arrivals(nodes: list[NodeGpus], name: PolicyName, typical: list[TypicalPod] = TYPICAL) -> Arrivals:
    columns = columns_of(nodes)
    memory = np.full(len(nodes), 100_000)
    return Arrivals(columns, memory, policy_of(name, typical, columns.models))


def afresh(nodes: GpuColumns, name: PolicyName, pod: GpuPod, tags: list[set[str]]) -> Placed | None:
    """Return the placement that scoring every node anew gives."""
    feasible = nodes.fitting(pod) & (nodes.milli_cpu_left >= pod.milli_cpu)
    if not feasible.any():
        return None
    here = NodeTags(np.array([affinity_tag(pod) in each for each in tags]), np.array([len(each) for each in tags]))
    policy = policy_of(name, TYPICAL, nodes.models)
    scored = policy.scored(nodes, pod, here)
    scores = policy.compared(scored.scores, feasible)
    row = max(np.flatnonzero(feasible), key=lambda each: (scores[each], -each))
    return Placed(int(row), nodes.assigned(int(row), pod, int(scored.gpus[row])))


@pytest.mark.parametrize("name", DETERMINED)
def test_kept_scores_choose_as_scoring_all_nodes_anew(name: PolicyName) -> None:
    draw = random.Random(7)
    cluster = arrivals(NODES, name)
    tags: list[set[str]] = [set() for _ in NODES]
    placed = 0
    for _ in range(60):
        pod = draw.choice(KINDS)
        expected = afresh(cluster.nodes, name, pod, tags)
        found = cluster.place(pod, 10)
        assert found == expected
        if found is not None:
            tags[found.node].add(affinity_tag(pod))
            placed += 1
    assert 10 < placed < 60
    assert cluster.nodes.gpu_milli_left.min() >= 0


def test_the_first_of_equal_nodes_is_chosen() -> None:
    cluster = arrivals(NODES[:2], PolicyName.FGD)
    assert cluster.place(GpuPod(2000, 500, 1), 10) == Placed(0, (0,))


def test_a_node_without_the_memory_takes_no_pod() -> None:
    cluster = arrivals(NODES[:1], PolicyName.BEST_FIT)
    assert cluster.place(GpuPod(1, 500, 1), 100_001) is None
    assert cluster.place(GpuPod(1, 500, 1), 100_000) == Placed(0, (0,))
    assert cluster.place(GpuPod(1, 500, 1), 1) is None


def test_a_pod_of_several_gpus_gets_idle_ones() -> None:
    cluster = arrivals(NODES[3:4], PolicyName.FGD)
    cluster.place(GpuPod(1, 500, 1), 1)
    assert cluster.place(GpuPod(1, 1000, 2), 1) == Placed(0, (1, 2))
    assert cluster.place(GpuPod(1, 1000, 2), 1) is None


def test_random_draws_choose_the_node_and_the_gpu() -> None:
    cluster = arrivals(NODES, PolicyName.RANDOM)
    assert cluster.place(GpuPod(1, 500, 1), 1, Draws(0.99, 0.7)) == Placed(5, (2,))
    assert cluster.place(GpuPod(1, 600, 1), 1, Draws(0.99, 0.5)) == Placed(5, (1,))


def test_scores_are_stretched_over_the_feasible_nodes() -> None:
    feasible = np.array([True, True, False, True])
    assert min_max(np.array([10, 20, 90, 13]), feasible)[feasible].tolist() == [0, 100, 30]
    assert min_max(np.array([7, 7, 1, 7]), feasible)[feasible].tolist() == [0, 0, 0]
