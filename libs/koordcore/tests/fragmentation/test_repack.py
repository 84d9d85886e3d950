"""Few moves make room for waiting GPU pods, and no plan takes more than there is."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from koordcore.fragmentation.arrivals import Arrivals
from koordcore.fragmentation.nodes import NodeGpus, columns_of
from koordcore.fragmentation.pods import GpuPod, gpu_pod, typical_pods
from koordcore.fragmentation.policies import Policy, PolicyName, policy_of
from koordcore.fragmentation.repack import Repacker, Running, Waiting

NODE = NodeGpus(32_000, (1000, 1000), "A")
MEMORY = 64
PODS = st.builds(
    GpuPod,
    st.sampled_from([1000, 4000, 20_000]),
    st.sampled_from([300, 500, 700, 1000]),
    st.just(1),
) | st.builds(gpu_pod, st.sampled_from([2000, 16_000]), st.just(1000), st.sampled_from([0, 2]))


def policy(pods: list[GpuPod]) -> Policy:
    return policy_of(PolicyName.FGD, typical_pods(pods), ["A"])


def filled(pods: list[GpuPod], nodes: int) -> tuple[Repacker, list[Waiting]]:
    """A cluster after the arrival of pods, and the pods that found no node."""
    cluster = Arrivals(columns_of([NODE] * nodes), np.full(nodes, MEMORY, dtype=np.int64), policy(pods))
    running, waiting = list[Running](), list[Waiting]()
    for pod in pods:
        placed = cluster.place(pod, 1)
        if placed is None:
            waiting.append(Waiting(pod, 1))
        else:
            running.append(Running(pod, 1, placed))
    return Repacker(cluster.nodes, cluster.memory_mib_left, policy(pods), running), waiting


def test_share_moves_so_that_two_whole_gpus_are_free() -> None:
    share, gang = GpuPod(1000, 500, 1), GpuPod(4000, 1000, 2)
    columns = columns_of([NODE, NODE])
    cluster = Arrivals(columns, np.full(2, MEMORY, dtype=np.int64), policy([share, gang]))
    placed = cluster.place(share, 1)
    assert placed is not None
    other = 1 - placed.node
    cluster.nodes.gpu_milli_left[other, 0] = 500  # what another owner holds there
    running = [Running(share, 1, placed)]
    repacker = Repacker(cluster.nodes, cluster.memory_mib_left, policy([share, gang]), running)
    (room,) = repacker.plan([Waiting(gang, 1)], 1)
    assert (room.placed.node, room.placed.gpus) == (placed.node, (0, 1))
    assert [(move.source.node, move.target.node, move.target.gpus) for move in room.moves] == [
        (placed.node, other, (0,))
    ]
    assert cluster.nodes.gpu_milli_left.tolist()[placed.node] == [0, 0]


def test_no_move_is_allowed_then_only_free_room_is_used() -> None:
    repacker, waiting = filled([GpuPod(1000, 700, 1)] * 4 + [GpuPod(1000, 1000, 1)] * 2, 2)
    assert len(waiting) == 2
    assert repacker.plan(waiting, 0) == []


@given(st.lists(PODS, min_size=1, max_size=25), st.integers(1, 4), st.integers(0, 10))
def test_plan_keeps_all_pods_within_limits_of_moves_and_capacity(pods: list[GpuPod], nodes: int, most: int) -> None:
    repacker, waiting = filled(pods, nodes)
    before = len(repacker.running)
    plan = repacker.plan(waiting, most)
    assert sum(len(room.moves) for room in plan) <= most
    assert len({room.waiting for room in plan}) == len(plan)
    assert len(repacker.running) == before + len(plan)
    cpu = np.full(nodes, NODE.milli_cpu_left)
    memory = np.full(nodes, MEMORY)
    gpus = np.full((nodes, 2), 1000)
    for each in repacker.running:  # recomputed from the pods alone
        cpu[each.placed.node] -= each.pod.milli_cpu
        memory[each.placed.node] -= each.memory_mib
        gpus[each.placed.node, list(each.placed.gpus)] -= each.pod.gpu_milli
        assert len(each.placed.gpus) == each.pod.num_gpu
    assert min(cpu.min(), memory.min(), gpus.min()) >= 0
    assert (cpu == repacker.nodes.milli_cpu_left).all()
    assert (memory == repacker.memory_mib_left).all()
    assert (gpus == repacker.nodes.gpu_milli_left).all()
