"""A recorded workload on full nodes, before and after a plan that moves few pods.

Source: gpu-fragmentation spec, 5.2.
"""

import random
from typing import NamedTuple

import numpy as np
from koordcore.fragmentation.arrivals import Arrivals
from koordcore.fragmentation.nodes import columns_of
from koordcore.fragmentation.pods import WHOLE_GPU
from koordcore.fragmentation.policies import PolicyName
from koordcore.fragmentation.repack import Repacker, Running, Waiting

from koordctl.simulate.gpu_run import GpuTrace, Load, arriving, policy_for


class Repacked(NamedTuple):
    """The effect of a repacking plan."""

    capacity: float  # GPUs of the cluster
    before: float  # Allocated GPUs before the plan
    after: float  # Allocated GPUs after it
    moves: int  # Number of pods that move
    placed: int  # Number of waiting pods that get a node
    waiting: int  # Number of pods with whole GPUs that found no node


def repack(trace: GpuTrace, name: PolicyName, seed: int, load: Load, most_moves: int) -> Repacked:
    """Place a workload pod by pod, then make room for waiting pods with whole GPUs, and return what that achieves.

    Args:
        name: Policy that places the pods. Pods that move are placed by FGD.
        seed: Seed of the order of pods and nodes.
    """
    draw = random.Random(seed)  # noqa: S311 - a simulation
    pods = arriving(trace, load.ratio, draw)
    order = list(range(len(trace.nodes)))
    draw.shuffle(order)
    nodes = columns_of(trace.nodes[row] for row in order)
    memory = np.array([trace.memory_mib[row] for row in order], dtype=np.int64)
    cluster = Arrivals(nodes, memory, policy_for(trace, name, load))
    running, waiting = list[Running](), list[Waiting]()
    for each in pods:
        placed = cluster.place(each.pod, each.memory_mib)
        if placed is None:
            waiting.append(Waiting(each.pod, each.memory_mib))
        else:
            running.append(Running(each.pod, each.memory_mib, placed))
    before = sum(each.pod.total_milli for each in running)
    repacker = Repacker(cluster.nodes, cluster.memory_mib_left, policy_for(trace, PolicyName.FGD, load), running)
    plan = repacker.plan(waiting, most_moves)
    gained = sum(waiting[room.waiting].pod.total_milli for room in plan)
    return Repacked(
        capacity=trace.capacity / WHOLE_GPU,
        before=before / WHOLE_GPU,
        after=(before + gained) / WHOLE_GPU,
        moves=sum(len(room.moves) for room in plan),
        placed=len(plan),
        waiting=sum(each.pod.gpu_milli == WHOLE_GPU for each in waiting),
    )
