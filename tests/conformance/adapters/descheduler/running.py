"""Run one plugin of the descheduler on the objects of a case, and give its evictions as vectors name them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from conformance.registry import Json
from koord_descheduler.domain.framework.eviction import Attempt, EvictionLimiter, EvictionLimits, EvictionPath
from koord_descheduler.domain.framework.plugin import (
    BalancePlugin,
    DeschedulePlugin,
    FilterPlugin,
    Plugin,
    PluginRun,
    Proposal,
)
from koord_descheduler.domain.framework.registry import SharedState
from koord_descheduler.domain.jobs.plugin import BaseFilter
from koord_descheduler.domain.plugins.registry import BUILT_IN
from koord_descheduler.domain.view.cluster import ClusterView
from koord_descheduler.domain.view.nodes import NodeMetric
from koord_descheduler.domain.view.pods import PodView
from koordcore.protocol.objects import Namespace, PriorityClass, object_from_json
from koordcore.protocol.scheduling_objects import PodDisruptionBudget
from koordcore.protocol.storage import PersistentVolumeClaim
from koordcore.values.invalid import InvalidInput
from koordcore.values.resources import Amounts, parse_amounts
from support.descheduler.views import node_view_from_json, pod_view_from_json


def cluster_of(given: dict[str, Json], pods: Iterable[Json] | None = None) -> ClusterView:
    """Return the cluster of a case; `pods` replaces the pods of the case."""
    budgets: dict[str, list[PodDisruptionBudget]] = {}
    for raw in given.get("podDisruptionBudgets") or ():
        budget = object_from_json(raw, PodDisruptionBudget)
        budgets.setdefault(budget.metadata.namespace, []).append(budget)
    claims = [object_from_json(raw, PersistentVolumeClaim) for raw in given.get("persistentVolumeClaims") or ()]
    namespaces = [object_from_json(raw, Namespace) for raw in given.get("namespaces") or ()]
    classes = [object_from_json(raw, PriorityClass) for raw in given.get("priorityClasses") or ()]
    return ClusterView(
        now=datetime.fromisoformat(given["now"]).timestamp() if given.get("now") else 0.0,
        nodes=tuple(node_view_from_json(raw) for raw in given.get("nodes") or ()),
        pods=tuple(pod_view_from_json(raw) for raw in (given.get("pods") or () if pods is None else pods)),
        namespaces={each.metadata.name: each.metadata.labels for each in namespaces},
        claims={(each.metadata.namespace, each.metadata.name): each for each in claims},
        budgets=budgets,
        priority_classes={each.metadata.name: each.value for each in classes},
        metrics=dict(_metrics(given.get("nodeMetrics") or ())),
    )


def _metrics(objects: Iterable[Json]) -> Iterable[tuple[str, NodeMetric]]:
    """Yield node -> metric of the NodeMetric objects that have a measurement."""
    for raw in objects:
        status: Json = raw.get("status") or {}
        if status.get("nodeMetric"):
            updated = status.get("updateTime")
            pods: Json = status.get("podsMetric") or ()
            yield (
                raw["metadata"]["name"],
                NodeMetric(
                    updated=datetime.fromisoformat(updated).timestamp() if updated else None,
                    system=_used(status["nodeMetric"].get("systemUsage")),
                    pods={f"{pod['namespace']}/{pod['name']}": _used(pod.get("podUsage")) for pod in pods},
                ),
            )


def _used(usage: Json) -> Amounts:
    resources: Json = usage.get("resources") if usage else None
    return parse_amounts(resources or {})


class _BaseFilterPlugin:
    """The base filter of the MigrationController as a plugin: vectors leave workloads and jobs out."""

    name = "MigrationController"

    def __init__(self, base: BaseFilter) -> None:
        self._base = base

    def refusals(self, pod: PodView, cluster: ClusterView) -> tuple[str, ...]:
        return self._base.refusals(pod)

    def pre_eviction_refusals(self, pod: PodView, cluster: ClusterView) -> tuple[str, ...]:
        return self._base.pre_eviction_refusals(pod, cluster)


def filter_of(evictor: dict[str, Json] | None, cluster: ClusterView) -> FilterPlugin:
    """Return the filter plugin of a case; without one, the MigrationController with its defaults."""
    evictor = evictor or {"plugin": "MigrationController"}
    kind = BUILT_IN[evictor["plugin"]]
    args = kind.decode(evictor.get("args") or {})
    for problem in kind.check(args):
        raise problem
    if kind.name == "MigrationController":
        return _BaseFilterPlugin(BaseFilter(args, cluster.priority_classes))
    plugin = kind.make(args, SharedState(priority_classes=cluster.priority_classes))
    assert isinstance(plugin, FilterPlugin)
    return plugin


def limits_of(given: dict[str, Json]) -> EvictionLimits:
    """Return the budgets of a case."""
    limits: dict[str, Json] = given.get("limits") or {}
    return EvictionLimits(
        per_node=limits.get("maxNoOfPodsToEvictPerNode"),
        per_namespace=limits.get("maxNoOfPodsToEvictPerNamespace"),
        total=limits.get("maxNoOfPodsToEvictTotal"),
    )


class Accepting:
    """An evict plugin that accepts every eviction."""

    name = "evictor of the vector"

    def evict(self, pod: PodView, reason: str, plugin: str, cluster: ClusterView) -> bool:
        return True


@dataclass(frozen=True, slots=True)
class Played:
    """What a plugin decided on a case."""

    attempts: list[Attempt]
    proposals: list[Proposal]

    def answer(self) -> dict[str, Json]:
        """Return the common expectations of vectors."""
        pods = [attempt.pod for attempt in self.attempts if attempt.is_move]
        return {
            "evicted_count": len(pods),
            "evicted_per_node": dict(Counter(pod.node for pod in pods)),
            "evicted": sorted(pod.name for pod in pods),
            "order": [pod.name for pod in pods],
        }


def play(name: str, given: dict[str, Json], state: SharedState | None = None, *, in_order: bool = False) -> Json:
    """Run a plugin on a case; invalid arguments answer `{"invalid_args": true}`."""
    try:
        answer = played(name, given, state or SharedState()).answer()
    except InvalidInput:
        return {"invalid_args": True}
    return {**answer, "evicted": answer["order"]} if in_order else answer


def played(name: str, given: dict[str, Json], state: SharedState) -> Played:
    """Run a plugin on a case.

    Raises:
        InvalidInput: The arguments are invalid.
    """
    plugin, run, attempts = prepared(name, given, state)
    if isinstance(plugin, DeschedulePlugin):
        plugin.deschedule(run)
    else:
        assert isinstance(plugin, BalancePlugin)
        plugin.balance(run)
    return Played(attempts, run.proposals)


def prepared(name: str, given: dict[str, Json], state: SharedState) -> tuple[Plugin, PluginRun, list[Attempt]]:
    """Return a plugin with the arguments of a case, what it gets, and the list that will have its attempts.

    Raises:
        InvalidInput: The arguments are invalid.
    """
    cluster = cluster_of(given)
    kind = BUILT_IN[name]
    args = kind.decode(given.get("args") or {})
    for problem in kind.check(args):
        raise problem
    path = EvictionPath(
        profile="vector",
        cluster=cluster,
        filters=(filter_of(given.get("evictor"), cluster),),
        evict_plugin=Accepting(),
        limiter=EvictionLimiter(limits_of(given)),
        is_dry_run=bool(given.get("dry_run")),
    )
    run = PluginRun(
        profile="p",
        plugin=name,
        cluster=cluster,
        nodes=[node for node in cluster.nodes if node.is_ready],
        is_dry_run=path.is_dry_run,
        evictor=path,
        proposals=[],
    )
    return kind.make(args, state), run, path.attempts
