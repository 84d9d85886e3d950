"""Simulate rounds without evictions, and ask the scheduler where every chosen pod would land.

The functions are generators: they yield a question and are sent the answer. So the same code runs in the service, in a
command and in a simulation. Measures compare the cluster before and after.
"""

from collections.abc import Collection, Container, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from koordcore.requests.fit import FitAnswer, FitRequest

from koord_descheduler.domain.framework.eviction import Attempt
from koord_descheduler.domain.framework.round import PluginFault
from koord_descheduler.domain.plugins.fragmentation_aware.plugin import imbalance
from koord_descheduler.domain.plugins.low_node_load.load import node_capacity
from koord_descheduler.domain.rounds.moves import COMPARED, Move, moved
from koord_descheduler.domain.rounds.player import RoundPlayer
from koord_descheduler.domain.rounds.proving import judge
from koord_descheduler.domain.view.cluster import ClusterView
from koord_descheduler.domain.view.nodes import NodeView
from koord_descheduler.domain.view.pods import PodView


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Shares of one resource over the nodes, in percent."""

    mean: float
    deviation: float  # Standard deviation
    highest: float  # Share of the node with the most


@dataclass(frozen=True, slots=True, kw_only=True)
class Measures:
    """The spread of usage and requests over the nodes of a cluster, and its fragmentation."""

    # Resource -> spread of measured usage / capacity over the nodes with a report; absent if there are none.
    used: Mapping[str, Spread]
    # Resource -> spread of requests / allocatable over all nodes that have the resource.
    requested: Mapping[str, Spread]
    # Mean over the nodes of the imbalance between their resources (FragmentationAware), in percent.
    fragmentation: float


def measures_of(cluster: ClusterView) -> Measures:
    nodes = cluster.nodes
    requests = {node.name: cluster.occupancy(node.name).requested for node in nodes}
    used = {name: _spread([_used_share(node, name, cluster) for node in nodes]) for name in COMPARED}
    requested = {
        name: _spread([_share(requests[node.name].get(name, 0), node.allocatable.get(name, 0)) for node in nodes])
        for name in COMPARED
    }
    uneven = [imbalance(requests[node.name], node, COMPARED) for node in nodes]
    return Measures(
        used={name: spread for name, spread in used.items() if spread is not None},
        requested={name: spread for name, spread in requested.items() if spread is not None},
        fragmentation=100 * float(np.mean(uneven)) if uneven else 0.0,
    )


def _used_share(node: NodeView, resource: str, cluster: ClusterView) -> float | None:
    metric = cluster.metrics.get(node.name)
    if metric is None:
        return None
    total = metric.system.get(resource, 0) + sum(usage.get(resource, 0) for usage in metric.pods.values())
    return _share(total, node_capacity(node).get(resource, 0))


def _share(part: int, whole: int) -> float | None:
    return 100 * part / whole if whole > 0 else None


def _spread(shares: list[float | None]) -> Spread | None:
    known = [share for share in shares if share is not None]
    if not known:
        return None
    return Spread(mean=float(np.mean(known)), deviation=float(np.std(known)), highest=max(known))


MOST_MOVES: Final = 10_000
"""Largest number of pods in one question to the scheduler."""

Asking = Generator[FitRequest, FitAnswer, "DryRun"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DryRun:
    rounds: int
    moves: Sequence[Move]  # Pods that would move, in the order of their evictions
    homeless: Sequence[PodView]  # Pods that a plugin chose but that would find no place. They are not evicted.
    # Pods that a plugin chose and that would find a place, but whose move would not make the cluster better. They are
    # not evicted, because their profile proves its moves (evicts only for a gain). The pods of a plan that would not
    # make room are here, too.
    useless: Sequence[PodView]
    before: Measures
    after: Measures
    faults: Sequence[PluginFault]
    questions: int  # Number of capacity questions to the scheduler


@dataclass(slots=True)
class _Chosen:
    """Pods that plugins chose so far: uid -> the attempt that moves it, and the pods that stay."""

    moving: dict[str, Attempt] = field(default_factory=dict[str, Attempt])
    targets: dict[str, str] = field(default_factory=dict[str, str])
    homeless: dict[str, PodView] = field(default_factory=dict[str, PodView])
    useless: dict[str, PodView] = field(default_factory=dict[str, PodView])
    questions: int = 0


def dry_run(
    player: RoundPlayer, cluster: ClusterView, *, rounds: int, interval: float, proving: Collection[str] = ()
) -> Asking:
    """Simulate rounds on a cluster; yield questions to the scheduler, and get its answers.

    A question asks where the pods that left would find a place. Each one has all pods that left so far, so that all
    moves together are one consistent plan. At most `MOST_MOVES` pods move. `player` decides by its arbitration and
    object limiters which pods leave. `proving`: names of the profiles that evict a pod only if it finds a place and the
    cluster gets better. `interval`: simulated seconds between two rounds.
    """
    chosen, faults, now = _Chosen(), list[PluginFault](), cluster
    for _ in range(rounds):
        outcome = player.play(now)
        faults += outcome.faults
        new = [
            attempt
            for attempt in outcome.attempts
            if attempt.is_move and attempt.pod.uid not in chosen.homeless and attempt.pod.uid not in chosen.useless
        ]
        before = frozenset(chosen.moving)
        for attempt in new[: max(0, MOST_MOVES - len(chosen.moving))]:
            chosen.moving.setdefault(attempt.pod.uid, attempt)
        if new:
            yield from _place(cluster, chosen, proving)
            created = [each for each in new if is_created(each, chosen.targets, proving)]
            leaving = player.leaving(created, chosen.targets, now)
            held = chosen.moving.keys() - before - leaving
            for uid in held:  # chosen again by a later round, if it may leave then
                del chosen.moving[uid]
            if held:
                yield from _place(cluster, chosen, proving)
        passed = now.now + interval - cluster.now
        now = moved(cluster, chosen.targets, passed)
    moves = [
        Move(
            pod=cluster.pod_by_uid[uid],
            target=chosen.targets[uid],
            plugin=attempt.plugin,
            reason=attempt.reason,
        )
        for uid, attempt in chosen.moving.items()
    ]
    return DryRun(
        rounds=rounds,
        moves=moves,
        homeless=list(chosen.homeless.values()),
        useless=list(chosen.useless.values()),
        before=measures_of(cluster),
        after=measures_of(now),
        faults=faults,
        questions=chosen.questions,
    )


def is_created(attempt: Attempt, targets: Container[str], proving: Collection[str]) -> bool:
    """Whether the service would carry out a successful attempt, after it has proved the moves of the profiles
    `proving`.

    `targets`: uids of the pods that find another node.
    """
    return attempt.pod.uid in targets or (attempt.plan is None and attempt.profile not in proving)


def _place(cluster: ClusterView, chosen: _Chosen, proving: Collection[str]) -> Generator[FitRequest, FitAnswer, None]:
    """Ask the scheduler where all moving pods land together, and remove the pods that should stay from `chosen`."""
    found = yield from judge(cluster, chosen.moving.values(), proving)
    chosen.questions += found.questions
    chosen.targets = found.targets
    chosen.homeless |= {pod.uid: pod for pod in found.homeless}
    chosen.useless |= {pod.uid: pod for pod in found.useless}
    for pod in (*found.homeless, *found.useless):
        del chosen.moving[pod.uid]
