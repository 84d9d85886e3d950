"""ScaleDownBinPack: rank the pods of workloads so that their scale-down empties nodes.

Source:
    descheduler spec, 9.2
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from math import inf
from typing import Final

from koordcore.events.descheduling import Number
from koordcore.protocol import keys
from koordcore.protocol.annotations.pods import NEVER_EVICT
from koordcore.protocol.component_config import Text
from koordcore.values.invalid import InvalidInput
from pydantic import StrictFloat, StrictInt

from koord_descheduler.domain.config.arguments import check_choice, native_args
from koord_descheduler.domain.framework.plugin import PluginRun, Point, SetDeletionCost
from koord_descheduler.domain.framework.registry import PluginKind
from koord_descheduler.domain.plugins.scope import Scope, ScopeArgs, check_resources, check_scope
from koord_descheduler.domain.view.nodes import NodeView
from koord_descheduler.domain.view.pods import PodView

NAME: Final = "ScaleDownBinPack"
REASON: Final = "scale-down binpack"


class Strategy(StrEnum):
    """Use of the ranks: as deletion costs of the pods (CalculateOnly), or to evict the first pods (EvictDirectly)."""

    CALCULATE_ONLY = "CalculateOnly"
    EVICT_DIRECTLY = "EvictDirectly"


class ScaleDownBinPackArgs(ScopeArgs):
    strategy: Text = Strategy.CALCULATE_ONLY  # Whether the ranks become deletion costs, or the first pods are evicted
    max_pods_to_evict: StrictInt = 0  # Largest number of evictions in a round, with `EvictDirectly`
    resources: tuple[Text, ...] = ("cpu", "memory")
    resource_weights: Mapping[Text, StrictFloat] = {}  # Resource -> weight; 1 if absent


def decode(raw: Mapping[str, object]) -> ScaleDownBinPackArgs:
    """Return the arguments with the weights of all resources.

    Raises:
        InvalidConfiguration: Fields are unknown or have wrong types.
    """
    args = native_args(raw, ScaleDownBinPackArgs)
    weights = {**dict.fromkeys(args.resources, 1.0), **args.resource_weights}
    return args.model_copy(update={"resource_weights": weights})


def check(args: ScaleDownBinPackArgs) -> Iterator[InvalidInput]:
    yield from check_scope(args)
    yield from check_resources(args.resources)
    yield from check_choice(args.strategy, Strategy, "strategy")
    if args.strategy == Strategy.EVICT_DIRECTLY and args.max_pods_to_evict <= 0:
        yield InvalidInput("above 0 with strategy EvictDirectly", args.max_pods_to_evict, "maxPodsToEvict")
    for name, weight in args.resource_weights.items():
        if not 0 < weight < inf:
            yield InvalidInput("a finite number above 0", weight, f"resourceWeights.{name}")


@dataclass(frozen=True, slots=True)
class Ranking:
    eligible: list[PodView] = field(default_factory=list[PodView])  # Pods that may leave; the position is the rank
    # Pods that are selected but may not leave, on nodes with eligible pods.
    skipped: list[PodView] = field(default_factory=list[PodView])


class ScaleDownBinPack:
    """Ranks pods for the scale-down of workloads: pods on nodes with the least load from other pods leave first."""

    name = NAME

    def __init__(self, args: ScaleDownBinPackArgs) -> None:
        self._args = args
        self._scope = Scope(args)
        self._weights = {name: args.resource_weights.get(name, 1.0) for name in args.resources}

    def balance(self, run: PluginRun) -> None:
        """Propose the ranks as deletion costs, or evict the first pods, as the strategy says.

        The cost of a pod that may leave is its rank; the others get the largest cost. A cost that a pod has already is
        not proposed. No-op in a dry run of the configuration.
        """
        if run.is_dry_run:
            return
        ranking = self.ranking(run)
        if self._args.strategy == Strategy.EVICT_DIRECTLY:
            evicted = 0
            for rank, pod in enumerate(ranking.eligible):
                if evicted == self._args.max_pods_to_evict:
                    break
                evicted += run.evict(pod, REASON, {"rank": Number(value=rank)})
            return
        costs = [*enumerate(ranking.eligible), *((NEVER_EVICT, pod) for pod in ranking.skipped)]
        for cost, pod in costs:
            if pod.annotations.get(keys.POD_DELETION_COST) != str(cost):
                run.propose(SetDeletionCost(pod.uid, cost, run.profile, NAME))

    def ranking(self, run: PluginRun) -> Ranking:
        """The order in which pods should leave (descheduler spec, 9.2 (1) to (3))."""
        ranking = Ranking()
        if self._args.paused:
            return ranking
        nodes: list[tuple[float, int, str, list[PodView]]] = []
        for node in self._scope.nodes(run):
            eligible, skipped, others = list[PodView](), list[PodView](), list[PodView]()
            for pod in run.cluster.unfinished_on(node.name):
                if not self._scope.pods.is_selected(pod):
                    others.append(pod)
                elif self._scope.pods.admits(pod) and not run.evictor.refusals(pod):  # ranked, not asked for
                    eligible.append(pod)
                else:
                    skipped.append(pod)
            if eligible:
                ranking.skipped.extend(skipped)
                leaving_share, staying_share = self._share(eligible, node), self._share([*skipped, *others], node)
                score = staying_share / leaving_share if leaving_share else inf if staying_share else 0.0
                eligible.sort(key=lambda pod: (-self._share([pod], node), -pod.created, pod.namespace, pod.name))
                nodes.append((score, len(eligible), node.name, eligible))
        for _, _, _, eligible in sorted(nodes, key=lambda each: each[:3]):
            ranking.eligible.extend(eligible)
        return ranking

    def _share(self, pods: Iterable[PodView], node: NodeView) -> float:
        """Weighted sum of requests / allocatable; resources that the node lacks are left out."""
        requested = dict.fromkeys(self._weights, 0)
        for pod in pods:
            for name in requested:
                requested[name] += pod.requests.get(name, 0)
        return sum(
            weight * requested[name] / allocatable
            for name, weight in self._weights.items()
            if (allocatable := node.allocatable.get(name, 0))
        )


KIND: Final = PluginKind(
    name=NAME,
    points=frozenset({Point.BALANCE}),
    is_native=True,
    decode=decode,
    check=check,
    make=lambda args, _: ScaleDownBinPack(args),
)
