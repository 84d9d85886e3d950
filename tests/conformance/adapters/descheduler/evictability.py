"""Vectors of the descheduler: base filter, DefaultEvictor, limits per workload, budgets of a round."""

from __future__ import annotations

from conformance.adapters.descheduler.running import cluster_of, filter_of, limits_of
from conformance.registry import Json, adapter
from koord_descheduler.domain.framework.eviction import EvictionLimiter, EvictionPath, Result
from koord_descheduler.domain.jobs.arguments import workload_limit
from koord_descheduler.domain.view.cluster import ClusterView
from koord_descheduler.domain.view.pods import PodView
from koordcore.values.invalid import InvalidInput
from support.descheduler.views import pod_view_from_json

_RESULTS = {
    Result.NODE_LIMIT: "refused:node",
    Result.NAMESPACE_LIMIT: "refused:namespace",
    Result.TOTAL_LIMIT: "refused:total",
}


@adapter("descheduler.evictable", exact_text=("reasons",), sets=("reasons",))
def evictable(given: dict[str, Json]) -> dict[str, Json]:
    """Which pods evictors accept, at any time and just before the eviction (descheduler spec, 6.1, 6.3)."""
    pod = pod_view_from_json(given["pod"])
    cluster = cluster_of(given, given.get("pods") or (given["pod"],))
    try:
        plugin = filter_of(given["evictor"], cluster)
    except InvalidInput:
        return {"invalid_args": True}
    refusals = plugin.refusals(pod, cluster)
    late = plugin.pre_eviction_refusals(pod, cluster)
    return {"evictable": not refusals, "reasons": [*refusals, *late], "pre_eviction": not refusals and not late}


@adapter("descheduler.max_unavailable")
def max_unavailable(given: dict[str, Json]) -> dict[str, Json]:
    """How many pods of a workload may be in migration or unavailable (descheduler spec, 6.2)."""
    return {"max": workload_limit(given["replicas"], given.get("value"))}


class _Evictor:
    """An evict plugin whose calls fail when the step says so."""

    name = "evictor of the vector"
    fails = False

    def evict(self, pod: PodView, reason: str, plugin: str, cluster: ClusterView) -> bool:
        return not self.fails


@adapter("descheduler.eviction_limiter", exact_text=("results",), whole=("evicted_per_node", "evicted_per_namespace"))
def eviction_limiter(given: dict[str, Json]) -> dict[str, Json]:
    """Budgets of a round (descheduler spec, 5.2)."""
    limiter, evictor = EvictionLimiter(limits_of(given)), _Evictor()
    path = EvictionPath(
        profile="",
        cluster=ClusterView(now=0.0, nodes=(), pods=()),
        filters=(),
        evict_plugin=evictor,
        limiter=limiter,
        is_dry_run=bool(given.get("dry_run")),
    )
    results: list[str] = []
    for index, step in enumerate(given["steps"]):
        if step["do"] == "reset":
            limiter.reset()
            continue
        evictor.fails = bool(step.get("evictor_fails"))
        meta = {"name": f"p{index}", "uid": f"u{index}", "namespace": step.get("namespace", "default")}
        pod = pod_view_from_json({"metadata": meta, "spec": {"nodeName": step.get("node") or ""}})
        path.evict(pod, "", "", {})
        result = path.attempts[-1].result
        results.append(_RESULTS.get(result, str(result)))
    return {
        "results": results,
        "evicted_total": limiter.total,
        "evicted_per_node": dict(limiter.by_node),
        "evicted_per_namespace": dict(limiter.by_namespace),
    }
