"""The proof that a move makes the cluster better, from the scheduler's own placements.

A pod that gets no other node is not moved. If its profile proves moves, the pod must also serve the goal of the plugin
that chose it:

| plugin | the cluster is better if |
|---|---|
| LowNodeLoad | the hotter one of the two nodes gets cooler, by measured usage |
| LowNodeUtilization | the same, by measured usage or by requests |
| FragmentationAware | the imbalances of the two nodes together shrink |
| HighNodeUtilization | the requests of the two nodes are less evenly spread |
| any other | the pod gets a place |

A plan is proved as a whole, whatever the profile says: all its pods and all waiting pods must get a node, without a
preemption. Otherwise all its pods stay.
"""

from collections.abc import Callable, Collection, Generator, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from koordcore.requests.fit import FitAnswer, FitRequest
from koordcore.values.resources import Amounts

from koord_descheduler.domain.framework.eviction import Attempt
from koord_descheduler.domain.framework.plugin import MovePlan
from koord_descheduler.domain.plugins.fragmentation_aware import plugin as fragmentation_aware
from koord_descheduler.domain.plugins.fragmentation_aware.plugin import imbalance
from koord_descheduler.domain.plugins.low_node_load import plugin as low_node_load
from koord_descheduler.domain.plugins.low_node_load.load import node_capacity
from koord_descheduler.domain.plugins.upstream import high_node_utilization, low_node_utilization
from koord_descheduler.domain.rounds.moves import COMPARED, landings, question
from koord_descheduler.domain.view.cluster import ClusterView
from koord_descheduler.domain.view.nodes import NodeView
from koord_descheduler.domain.view.pods import PodView

Judging = Generator[FitRequest, FitAnswer, "Judged"]


@dataclass(slots=True, kw_only=True)
class Judged:
    """The result of proving moves: the nodes on which pods land if all of them leave, and the pods that should stay."""

    # Uid of a pod that moves -> the node on which it lands.
    targets: dict[str, str] = field(default_factory=dict[str, str])
    homeless: list[PodView] = field(default_factory=list[PodView])  # Pods that would find no place
    # Pods that would find a place, but the cluster would not get better, or their plan would not succeed.
    useless: list[PodView] = field(default_factory=list[PodView])
    questions: int = 0


def judge(cluster: ClusterView, attempts: Iterable[Attempt], proving: Collection[str]) -> Judging:
    """Ask the scheduler where the pods of some attempts land. Remove the pods that should stay, and ask again.

    Another question is needed because the room of a pod that stays may have been given to another one. The result is a
    consistent plan. `attempts`: one per pod, in the order of their evictions. `proving`: names of the profiles that
    prove.
    """
    left, found = {attempt.pod.uid: attempt for attempt in attempts}, Judged()
    while left:
        pods = [attempt.pod for attempt in left.values()]
        plans = {attempt.plan.id: attempt.plan for attempt in left.values() if attempt.plan is not None}
        waiting = [pod for plan in plans.values() for pod in plan.members]
        avoided = {pod.uid: plan.nodes for plan in plans.values() for pod in plan.pods}
        found.questions += 1
        answer = yield question(pods, avoided, waiting)
        found.targets, members = landings(pods, answer), landings(waiting, answer)
        homeless = [pod for pod in pods if pod.uid not in found.targets]
        useless = _spoiled(plans.values(), {pod.uid for pod in homeless}, members)
        if not homeless and not useless:
            useless = list(_useless(cluster, left.values(), found.targets, proving))
        if not homeless and not useless:
            return found
        found.homeless += homeless
        found.useless += useless
        for pod in (*homeless, *useless):
            del left[pod.uid]
    found.targets = {}
    return found


def _spoiled(plans: Iterable[MovePlan], homeless: Collection[str], members: Mapping[str, str]) -> list[PodView]:
    """The pods that would find a place, but whose plan would not make room for all waiting pods (`members`, by uid)."""
    return [
        pod
        for plan in plans
        if any(pod.uid in homeless for pod in plan.pods) or any(pod.uid not in members for pod in plan.members)
        for pod in plan.pods
        if pod.uid not in homeless
    ]


def _useless(
    cluster: ClusterView, attempts: Iterable[Attempt], targets: Mapping[str, str], proving: Collection[str]
) -> Iterable[PodView]:
    """The pods whose moves do not make the cluster better, after the moves before them."""
    cluster = cluster.caught_up
    nodes: dict[str, _Node] = {}

    def node(name: str) -> _Node | None:
        view = cluster.node_by_name.get(name)
        if name not in nodes and view is not None:
            nodes[name] = _node(view, cluster)
        return nodes.get(name)

    for attempt in attempts:
        pod = attempt.pod
        source, target = node(pod.node), node(targets[pod.uid])
        is_better = _RULES.get(attempt.plugin)
        if source is None or target is None:
            continue
        metric = cluster.metrics.get(pod.node)
        used = {} if metric is None else metric.pods.get(pod.key, {})
        after = source.changed(pod.requests, used, -1), target.changed(pod.requests, used, 1)
        is_to_prove = attempt.plan is None and attempt.profile in proving
        if is_to_prove and is_better is not None and not is_better((source, target), after):
            yield pod
            continue
        nodes[source.view.name], nodes[target.view.name] = after


@dataclass(frozen=True, slots=True, kw_only=True)
class _Node:
    """A node with what its pods request, and with its measured usage; None if the node has no report."""

    view: NodeView
    requested: Amounts
    used: Amounts | None

    def changed(self, requests: Amounts, used: Amounts, sign: int) -> "_Node":
        return _Node(
            view=self.view,
            requested=_sum(self.requested, requests, sign),
            used=None if self.used is None else _sum(self.used, used, sign),
        )

    @property
    def hottest(self) -> float | None:
        """The largest share of its capacity that is used; None if the node has no report."""
        return None if self.used is None else max(_shares(self.used, node_capacity(self.view)), default=0.0)

    @property
    def fullest(self) -> float:
        """The largest share of its allocatable resources that is requested."""
        return max(_shares(self.requested, self.view.allocatable), default=0.0)


def _node(view: NodeView, cluster: ClusterView) -> _Node:
    metric = cluster.metrics.get(view.name)
    used = None
    if metric is not None:
        used = dict(metric.system)
        for amounts in metric.pods.values():
            used = _sum(used, amounts, 1)
    return _Node(view=view, requested=cluster.occupancy(view.name).requested, used=used)


def _sum(amounts: Amounts, change: Amounts, sign: int) -> Amounts:
    return {name: amounts.get(name, 0) + sign * change.get(name, 0) for name in COMPARED}


def _shares(amounts: Amounts, whole: Amounts) -> list[float]:
    return [amounts.get(name, 0) / whole[name] for name in COMPARED if whole.get(name, 0) > 0]


_Pair = tuple[_Node, _Node]


def _is_cooler(before: _Pair, after: _Pair) -> bool:
    old, new = _hottest(before), _hottest(after)
    return old is not None and new is not None and new < old


def _hottest(pair: _Pair) -> float | None:
    """None if a node has no report, so that nothing can be proved."""
    first, second = pair[0].hottest, pair[1].hottest
    return None if first is None or second is None else max(first, second)


def _is_spread(before: _Pair, after: _Pair) -> bool:
    return _is_cooler(before, after) or max(node.fullest for node in after) < max(node.fullest for node in before)


def _is_packed(before: _Pair, after: _Pair) -> bool:
    return sum(node.fullest**2 for node in after) > sum(node.fullest**2 for node in before)


def _is_less_fragmented(before: _Pair, after: _Pair) -> bool:
    return _imbalance(after) < _imbalance(before)


def _imbalance(pair: _Pair) -> float:
    return sum(imbalance(node.requested, node.view, COMPARED) for node in pair)


_RULES: Final[Mapping[str, Callable[[_Pair, _Pair], bool]]] = {
    low_node_load.NAME: _is_cooler,
    low_node_utilization.NAME: _is_spread,
    high_node_utilization.NAME: _is_packed,
    fragmentation_aware.NAME: _is_less_fragmented,
}
