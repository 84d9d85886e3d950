"""A simulated day: groups of pods whose load peaks at different hours, and a descheduler that evens the nodes out.

Requests are even, usage is not: a node with many pods of one group becomes hot at the peak of this group. On top of
that, each pod bursts now and then for a few minutes. Evicted pods come back at once on the node that the load-aware
scheduler would take: the one with the lowest usage that has room for their requests.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
from koord_descheduler.domain.framework.eviction import EvictionLimiter, EvictionLimits
from koord_descheduler.domain.framework.plugin import BalancePlugin, FilterPlugin
from koord_descheduler.domain.framework.registry import SharedState
from koord_descheduler.domain.framework.round import Profile, run_round
from koord_descheduler.domain.plugins.registry import BUILT_IN
from koord_descheduler.domain.view.cluster import ClusterView
from koord_descheduler.domain.view.nodes import NodeMetric, NodeView
from koord_descheduler.domain.view.pods import PodView
from support.descheduler.views import node_view_from_json, pod_view_from_json

MINUTES: Final = 1440
HIGH: Final = 65
LOW: Final = 50
CORES: Final = 32
GROUPS: Final = 4
ROUNDS_PER_MINUTE: Final = 2
REQUESTED: Final = 0.8
"""Share of a node that its pods request at midnight."""
_SIZES: Final = (400, 800, 1600, 3200)
_SIZE_WEIGHTS: Final = (8, 4, 2, 1)
_OWN_SHARE: Final = 0.7
"""Share of the pods of a node that belong to its main group."""
_BURST_PER_MINUTE: Final = 1 / 240
_BURST_MINUTES: Final = 2
_BURST_FACTOR: Final = 3.0
_MEMORY: Final = 1 << 30


@dataclass(slots=True)
class Outcome:
    """What a day was like.

    Attributes:
        hot_minutes: Sum over the nodes of the minutes with a usage above the high threshold.
        evictions: Number of evictions.
        homeless: Number of evicted pods that found no node.
    """

    hot_minutes: int = 0
    evictions: int = 0
    homeless: int = 0


@dataclass(slots=True)
class Day:
    """The cluster of a simulated day.

    Attributes:
        nodes: The nodes.
        pods: The pods as they were at midnight.
        place: int (P,) row of the node of each pod.
        group: int (P,) group of each pod.
        size: int (P,) milli-cores that each pod requests.
    """

    nodes: tuple[NodeView, ...]
    pods: list[PodView]
    place: np.ndarray[Any, np.dtype[np.int64]]
    group: np.ndarray[Any, np.dtype[np.int64]]
    size: np.ndarray[Any, np.dtype[np.int64]]
    rng: random.Random
    bursts: np.ndarray[Any, np.dtype[np.int64]] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    def usage(self, minute: int) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Return the milli-cores that each pod uses in a minute: int64 (P,). To be called once per minute."""
        hour = 2 * math.pi * (minute / MINUTES + self.group / GROUPS)
        base = self.size * (0.55 + 0.4 * np.sin(hour))
        starts = np.array([self.rng.random() for _ in self.pods]) < _BURST_PER_MINUTE
        self.bursts = np.where(starts, _BURST_MINUTES, np.maximum(self.bursts - 1, 0))
        return np.where(self.bursts > 0, base * _BURST_FACTOR, base).astype(np.int64)


def new_day(nodes: int, seed: int = 1) -> Day:
    """Return a cluster at midnight: as many pods on each node, of groups that are unevenly mixed."""
    rng = random.Random(seed)
    views = tuple(
        node_view_from_json(
            {
                "metadata": {"name": f"n{number:04}"},
                "status": {"allocatable": {"cpu": str(CORES), "memory": "128Gi", "pods": "110"}},
            }
        )
        for number in range(nodes)
    )
    pods, place, group, size = list[PodView](), list[int](), list[int](), list[int]()
    for row in range(nodes):
        left = int(REQUESTED * CORES * 1000)
        while left >= _SIZES[0]:
            milli = min(rng.choices(_SIZES, _SIZE_WEIGHTS)[0], left)
            own = row % GROUPS if rng.random() < _OWN_SHARE else rng.randrange(GROUPS)
            pods.append(_pod(f"p{len(pods):06}", f"n{row:04}", own, milli))
            place.append(row)
            group.append(own)
            size.append(milli)
            left -= milli
    count = len(pods)
    return Day(views, pods, np.array(place), np.array(group), np.array(size), rng, np.zeros(count, dtype=np.int64))


def _pod(name: str, node: str, group: int, milli: int) -> PodView:
    owner = {"kind": "ReplicaSet", "name": f"g{group}", "uid": f"g{group}", "controller": True, "apiVersion": "v1"}
    requests = {"cpu": f"{milli}m", "memory": str(_MEMORY)}
    return pod_view_from_json(
        {
            "metadata": {"name": name, "namespace": "day", "uid": name, "ownerReferences": [owner]},
            "spec": {"nodeName": node, "containers": [{"name": "main", "resources": {"requests": requests}}]},
            "status": {"phase": "Running"},
        }
    )


class _Nobody:
    """An evict plugin that accepts every pod: the simulation moves it."""

    name = "simulation"

    def evict(self, pod: PodView, reason: str, plugin: str, cluster: ClusterView) -> bool:
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """A balance plugin with its arguments."""

    plugin: str
    args: dict[str, Any]


LOAD: Final = Policy(
    plugin="LowNodeLoad", args={"lowThresholds": {"cpu": float(LOW)}, "highThresholds": {"cpu": float(HIGH)}}
)
UPSTREAM: Final = Policy(
    plugin="LowNodeUtilization",
    args={
        "thresholds": {"cpu": LOW},
        "targetThresholds": {"cpu": HIGH},
        "metricsUtilization": {"source": "KubernetesMetrics"},
    },
)


def run_day(day: Day, policy: Policy | None, *, minutes: int = MINUTES) -> Outcome:
    """Return what a day is like with a policy, or without any.

    Args:
        day: The cluster; it is changed.
        policy: The policy; None for none.
        minutes: Length of the day.
    """
    outcome = Outcome()
    profile = None
    if policy is not None:
        evictor, kind = BUILT_IN["DefaultEvictor"], BUILT_IN[policy.plugin]
        accepts = evictor.make(evictor.decode({}), SharedState())
        balances = kind.make(kind.decode(policy.args), SharedState())
        assert isinstance(balances, BalancePlugin)
        assert isinstance(accepts, FilterPlugin)
        profile = Profile(name="day", balance=(balances,), filters=(accepts,), evict=_Nobody())
    capacity = CORES * 1000
    for minute in range(minutes):
        usage = day.usage(minute)
        loads = np.bincount(day.place, weights=usage, minlength=len(day.nodes))
        outcome.hot_minutes += int((loads > HIGH / 100 * capacity).sum())
        if policy is None or profile is None:
            continue
        for number in range(ROUNDS_PER_MINUTE):
            cluster = _cluster(day, usage, 60.0 * (minute + number / ROUNDS_PER_MINUTE))
            result = run_round([profile], cluster, EvictionLimiter(EvictionLimits()))
            assert not result.faults, result.faults
            if result.attempts:
                _reschedule(day, [attempt.pod.uid for attempt in result.attempts], usage, loads, outcome)
    return outcome


def _cluster(day: Day, usage: np.ndarray[Any, Any], now: float) -> ClusterView:
    names = [node.name for node in day.nodes]
    measured: list[dict[str, dict[str, int]]] = [{} for _ in names]
    pods = list[PodView]()
    for pod, row, cpu in zip(day.pods, day.place.tolist(), usage.tolist(), strict=True):
        measured[row][pod.key] = {"cpu": cpu, "memory": _MEMORY // 2}
        pods.append(pod if pod.node == names[row] else replace(pod, node=names[row]))
    day.pods = pods
    metrics = {name: NodeMetric(updated=now, pods=each) for name, each in zip(names, measured, strict=True)}
    return ClusterView(now=now, nodes=day.nodes, pods=tuple(pods), metrics=metrics)


def _reschedule(
    day: Day, uids: Iterable[str], usage: np.ndarray[Any, Any], loads: np.ndarray[Any, Any], outcome: Outcome
) -> None:
    """Place evicted pods on the node with the lowest usage that has room for their requests."""
    rows = {pod.uid: row for row, pod in enumerate(day.pods)}
    requested = np.bincount(day.place, weights=day.size, minlength=len(day.nodes))
    for uid in uids:
        pod = rows[uid]
        source = int(day.place[pod])
        outcome.evictions += 1
        has_room = requested + day.size[pod] <= CORES * 1000
        has_room[source] = False
        if not has_room.any():
            outcome.homeless += 1
            continue
        target = int(np.where(has_room, loads, np.inf).argmin())
        requested[source] -= day.size[pod]
        requested[target] += day.size[pod]
        loads[source] -= usage[pod]
        loads[target] += usage[pod]
        day.place[pod] = target
