"""Plans that make room for waiting GPU pods: few pods move, so that fragments become whole GPUs.

For one waiting pod, each node is a candidate. The pods on its GPUs with the fewest pods have to move. If its CPUs and
memory do not suffice then, pods without GPU move, too. The candidate with the most allocated GPU milli per move is
tried first. Each of its pods must fit on another node, which the policy chooses. If one of them does not fit, the next
candidate is tried. A plan is executed all or nothing: Reservations on the new nodes first, then the evictions.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from koordcore.fragmentation.arrivals import Placed
from koordcore.fragmentation.nodes import Bools, GpuColumns, Ints
from koordcore.fragmentation.pods import WHOLE_GPU, GpuPod
from koordcore.fragmentation.policies import NodeTags, Policy

_MOST_TRIED = 400  # Number of candidates that are tried for one kind of waiting pods


class Running(NamedTuple):
    pod: GpuPod  # Its requests of CPU and GPU
    memory_mib: int  # Its memory request in MiB
    placed: Placed  # Its node and GPUs
    rows: frozenset[int] | None = None  # Positions of the nodes that other rules allow, such as taints; None: all


class Waiting(NamedTuple):
    pod: GpuPod  # Its requests of CPU and GPU
    memory_mib: int  # Its memory request in MiB
    rows: frozenset[int] | None = None  # Positions of the nodes that other rules allow, such as taints; None: all


class RepackMove(NamedTuple):
    running: int  # Index of the pod among the running pods
    source: Placed  # Node and GPUs before the move
    target: Placed  # Node and GPUs after the move


class Room(NamedTuple):
    """Moves that make room for one waiting pod, and where that pod lands."""

    waiting: int  # Index among the waiting pods
    moves: tuple[RepackMove, ...]  # The moves, all of which are needed
    placed: Placed  # Node and GPUs of the waiting pod


class _Candidate(NamedTuple):
    node: int
    leaving: tuple[int, ...]


@dataclass(slots=True)
class Repacker:
    """Makes room for waiting pods, one after the other. Only one task may use it."""

    nodes: GpuColumns  # The nodes with their free amounts; they are changed
    memory_mib_left: Ints  # Free memory of each node in MiB, int64 (N,); it is changed
    # Chooses the new nodes of pods that move. It must not depend on the kinds of pods that run on nodes.
    policy: Policy
    running: list[Running]  # The pods that may move; a pod that moves gets its new place
    most_per_node: int | None = None  # Largest number of pods that leave one node for one waiting pod; None: no limit
    # Whether no moved pod may land on a node where the plan makes room. Then Reservations for the moved pods cannot
    # take the room before the old pods have left.
    is_apart: bool = False
    # Node -> indexes of the pods there that have not moved yet. A plan moves a pod at most once.
    _on_node: dict[int, set[int]] = field(init=False)
    _rooms: set[int] = field(default_factory=set[int], init=False)
    _targets: set[int] = field(default_factory=set[int], init=False)

    def __post_init__(self) -> None:
        self._on_node = {row: set() for row in range(len(self.nodes.model))}
        for index, each in enumerate(self.running):
            self._on_node[each.placed.node].add(index)

    def plan(self, waiting: Sequence[Waiting], most_moves: int) -> list[Room]:
        """Return moves that make room for waiting pods, one room for each pod that gets one. In each step, the room
        with the most GPU milli per move is chosen. Its moves and its waiting pod are booked on `nodes`,
        `memory_mib_left` and `running` before the next step. A room may need no moves. Pods without room are left out.
        Only pods that request whole GPUs are considered.
        """
        plan: list[Room] = []
        left = {
            index: each for index, each in enumerate(waiting) if each.pod.num_gpu and each.pod.gpu_milli == WHOLE_GPU
        }
        while most_moves >= 0 and left:
            found = self._next(left, most_moves)
            if found is None:
                return plan
            plan.append(found)
            most_moves -= len(found.moves)
            del left[found.waiting]
        return plan

    def _next(self, left: dict[int, Waiting], most_moves: int) -> Room | None:
        """Return the room with the most GPU milli per move, and make it. Pods without room are dropped from `left`."""
        kinds: dict[Waiting, int] = {}
        for index, each in left.items():
            kinds.setdefault(each, index)
        offers = [
            (len(candidate.leaving) / each.pod.total_milli, index, candidate)
            for each, index in kinds.items()
            for candidate in self._cheapest(each, most_moves)
        ]
        for _, index, candidate in sorted(offers, key=lambda offer: offer[:2]):
            room = self._tried(left[index], index, candidate)
            if room is not None:
                return room
        return None

    def _cheapest(self, waiting: Waiting, most_moves: int) -> Iterator[_Candidate]:
        """Yield the candidates with the fewest moves."""
        found: list[_Candidate] = []
        allowed = self.nodes.allowed(waiting.pod) & (self.nodes.gpu_count >= waiting.pod.num_gpu)
        most = most_moves if self.most_per_node is None else min(most_moves, self.most_per_node)
        for row in np.flatnonzero(allowed & self._mask(waiting.rows)):
            if self.is_apart and int(row) in self._targets:
                continue
            candidate = self._candidate(int(row), waiting)
            if candidate is not None and len(candidate.leaving) <= most:
                found.append(candidate)
        yield from sorted(found, key=lambda each: len(each.leaving))[:_MOST_TRIED]

    def _candidate(self, node: int, waiting: Waiting) -> _Candidate | None:
        """Return the pods that must leave a node to make room; None if too few GPUs, cpu or memory could be freed."""
        on_gpu: dict[int, set[int]] = {gpu: set() for gpu in range(int(self.nodes.gpu_count[node]))}
        for index in self._on_node[node]:
            for gpu in self.running[index].placed.gpus:
                on_gpu[gpu].add(index)
        on_gpu = {gpu: pods for gpu, pods in on_gpu.items() if self._is_freed(node, gpu, pods)}
        if len(on_gpu) < waiting.pod.num_gpu:
            return None
        leaving: set[int] = set()
        for _ in range(waiting.pod.num_gpu):
            gpu = min(on_gpu, key=lambda each: (len(on_gpu[each] - leaving), each))
            leaving |= on_gpu.pop(gpu)
        cpu = waiting.pod.milli_cpu - int(self.nodes.milli_cpu_left[node])
        memory = waiting.memory_mib - int(self.memory_mib_left[node])
        rest = sorted(
            (index for index in self._on_node[node] - leaving if not self.running[index].placed.gpus),
            key=lambda index: -self.running[index].pod.milli_cpu,
        )
        gone = list(leaving)
        while True:
            short_of_cpu = cpu > sum(self.running[index].pod.milli_cpu for index in gone)
            short_of_memory = memory > sum(self.running[index].memory_mib for index in gone)
            if not short_of_cpu and not short_of_memory:
                return _Candidate(node, tuple(sorted(gone)))
            if not rest:
                return None
            gone.append(rest.pop(0))

    def _is_freed(self, node: int, gpu: int, pods: set[int]) -> bool:
        """Return whether a GPU is idle once these pods have left it. Others may hold a part of it."""
        held = sum(self.running[index].pod.gpu_milli for index in pods)
        return int(self.nodes.gpu_milli_left[node, gpu]) + held == WHOLE_GPU

    def _tried(self, waiting: Waiting, index: int, candidate: _Candidate) -> Room | None:
        """Carry out the moves of a candidate; undo them if a pod finds no other node."""
        moves: list[RepackMove] = []
        order = sorted(candidate.leaving, key=lambda each: (-self.running[each].pod.total_milli, each))
        for each in order:
            self._book(self.running[each], self.running[each].placed, -1)
        for each in order:
            running = self.running[each]
            target = self._place(running, candidate.node)
            if target is None:
                for move in moves:
                    self._book(self.running[move.running], move.target, -1)
                for other in order:
                    self._book(self.running[other], self.running[other].placed, 1)
                return None
            self._book(running, target, 1)
            moves.append(RepackMove(each, running.placed, target))
        gpus = self.nodes.assigned(candidate.node, waiting.pod, -1)
        placed = Placed(candidate.node, gpus)
        self._book(Running(waiting.pod, waiting.memory_mib, placed), placed, 1)
        for move in moves:
            self._on_node[move.source.node].discard(move.running)
            self._targets.add(move.target.node)
            self.running[move.running] = self.running[move.running]._replace(placed=move.target)
        self.running.append(Running(waiting.pod, waiting.memory_mib, placed))
        self._rooms.add(candidate.node)
        return Room(index, tuple(moves), placed)

    def _mask(self, rows: frozenset[int] | None) -> Bools:
        """Return bool (N,): whether a node is one of `rows`; None: all nodes."""
        if rows is None:
            return np.ones(len(self.nodes.model), dtype=np.bool_)
        mask = np.zeros(len(self.nodes.model), dtype=np.bool_)
        mask[list(rows)] = True
        return mask

    def _place(self, running: Running, other_than: int) -> Placed | None:
        """Return the node and GPUs that the policy chooses for a pod on another node; None if it fits nowhere."""
        pod = running.pod
        feasible = self.nodes.fitting(pod) & self._mask(running.rows)
        feasible &= self.nodes.milli_cpu_left >= pod.milli_cpu
        feasible &= self.memory_mib_left >= running.memory_mib
        feasible[[other_than, *(self._rooms if self.is_apart else ())]] = False
        rows = np.flatnonzero(feasible)
        if not len(rows):
            return None
        nodes = self.nodes.of_rows(rows)
        none = np.zeros(len(rows), dtype=np.int64)
        scored = self.policy.scored(nodes, pod, NodeTags(none.astype(np.bool_), none))
        best = int(scored.scores.argmax())
        node = int(rows[best])
        return Placed(node, self.nodes.assigned(node, pod, int(scored.gpus[best])))

    def _book(self, running: Running, placed: Placed, sign: int) -> None:
        """Take (sign 1) or give back (sign -1) the amounts of a pod at a place."""
        node = placed.node
        self.nodes.gpu_milli_left[node, list(placed.gpus)] -= sign * running.pod.gpu_milli
        self.nodes.milli_cpu_left[node] -= sign * running.pod.milli_cpu
        self.memory_mib_left[node] -= sign * running.memory_mib
