"""Vectors of the scheduler: resource filter, resource scores, taints."""

from __future__ import annotations

import numpy as np
from conformance.registry import Json, adapter
from koord_scheduler.domain.cluster.equivalence_classes import PodClass, PodClasses
from koord_scheduler.domain.cluster.record import is_finished
from koord_scheduler.domain.columns.node_columns import IntArray, NodeColumns
from koord_scheduler.domain.columns.node_shape import node_shape
from koord_scheduler.domain.config.kubernetes_args import (
    FitScoringStrategy,
    NodeResourcesFitArgs,
    RequestedToCapacityRatio,
    UtilizationPoint,
    WeightedResource,
)
from koord_scheduler.domain.plugins.affinity.taint_toleration import TaintToleration
from koord_scheduler.domain.plugins.resources.fit import NodeResourcesFit
from koord_scheduler.domain.plugins.resources.scores import balanced_allocation
from koordcore.protocol.objects import node_from_json, pod_from_json
from koordcore.protocol.placement import first_untolerated
from koordcore.protocol.resource_names import CPU, MEMORY


def _columns(nodes: dict[str, Json]) -> NodeColumns:
    """Columns of nodes given as name -> {"allocatable", "taints", "pods"}."""
    columns = NodeColumns()
    pod_classes = PodClasses(columns)
    for name, given in nodes.items():
        raw = {
            "metadata": {"name": name},
            "spec": {"taints": given.get("taints", [])},
            "status": {"allocatable": given.get("allocatable", {})},
        }
        row, _ = columns.put(name, node_shape(node_from_json(raw)))
        for pod in map(pod_from_json, given.get("pods") or []):
            if not is_finished(pod):
                columns.take(row, pod_classes.of(pod).demand)
    return columns


def _template(columns: NodeColumns, pod: Json) -> PodClass:
    return PodClasses(columns).of(pod_from_json(pod))


def _rows(columns: NodeColumns) -> np.ndarray[tuple[int], np.dtype[np.intp]]:
    return np.arange(len(columns.names), dtype=np.intp)


@adapter("scheduler.fit_filter", exact_text=("reasons",))
def fit_filter(given: dict[str, Json]) -> dict[str, Json]:
    """NodeResourcesFit, filter (scheduler-core spec, 5.2)."""
    args: dict[str, Json] = given.get("args") or {}
    plugin = NodeResourcesFit(
        NodeResourcesFitArgs(
            ignored_resources=tuple(args.get("ignoredResources", [])),
            ignored_resource_groups=tuple(args.get("ignoredResourceGroups", [])),
        )
    )
    nodes = _columns({"node": given["node"]})
    pod = _template(nodes, given["pod"])
    codes = plugin.filter(pod, nodes, _rows(nodes))
    code = 0 if codes is None else int(codes[0])
    reasons = sorted(plugin.reasons(pod, nodes, code)) if code else []
    return {
        "fit": code == 0,
        "reasons": reasons,
        "unresolvable": code != 0 and bool(plugin.unresolvable(pod, nodes, _rows(nodes))[0]),
    }


@adapter("scheduler.fit_score")
def fit_score(given: dict[str, Json]) -> dict[str, Json]:
    """NodeResourcesFit and NodeResourcesBalancedAllocation, score (scheduler-core spec, 5.3)."""
    strategy = given["strategy"]
    listed: list[dict[str, Json]] = strategy.get("resources") or [{"name": CPU}, {"name": MEMORY}]
    resources = tuple(WeightedResource(name=item["name"], weight=item.get("weight") or 1) for item in listed)
    nodes = _columns({"node": given["node"]})
    pod = _template(nodes, given["pod"])
    if strategy["type"] == "BalancedAllocation":
        return _balanced(nodes, pod, [each.name for each in resources])
    points: list[dict[str, int]] = strategy.get("shape") or []
    shape = tuple(UtilizationPoint(utilization=point["utilization"], score=point["score"]) for point in points)
    scoring = FitScoringStrategy(
        type=strategy["type"],
        resources=resources,
        requested_to_capacity_ratio=RequestedToCapacityRatio(shape=shape) if shape else None,
    )
    scores = NodeResourcesFit(NodeResourcesFitArgs(scoring_strategy=scoring)).score(pod, nodes, _rows(nodes))
    return {"score": 0 if scores is None else int(scores[0])}


def _balanced(nodes: NodeColumns, pod: PodClass, resources: list[str]) -> dict[str, Json]:
    asked = [(name, pod.requests.get(name, 0)) for name in resources]
    if not any(amount for _, amount in asked):
        return {"skip": True}
    counted = [(nodes.column(name), amount) for name, amount in asked if amount or name in (CPU, MEMORY)]
    requested = _column([int(nodes.requested[column, 0]) + amount for column, amount in counted])
    capacity = _column([int(nodes.allocatable[column, 0]) for column, _ in counted])
    return {"score": int(balanced_allocation(requested, capacity)[0])}


def _column(values: list[int]) -> IntArray:
    return np.array(values, np.int64)[:, None]


@adapter("scheduler.taint_toleration")
def taint_toleration(given: dict[str, Json]) -> dict[str, Json]:
    """TaintToleration, filter and normalized score (scheduler-core spec, 5.4)."""
    plugin = TaintToleration()
    nodes = _columns({node["name"]: node for node in given["nodes"]})
    pod = _template(nodes, given["pod"])
    rows = _rows(nodes)
    codes = plugin.filter(pod, nodes, rows)
    feasible = rows if codes is None else rows[codes == 0]
    verdicts: dict[str, Json] = {}
    for row, name in enumerate(nodes.names):
        if row in feasible:
            verdicts[name] = {"fit": True}
            continue
        taints = nodes.shape_of(row).taints
        index = first_untolerated(taints, pod.tolerations)
        assert index is not None
        taint = taints[index]
        verdicts[name] = {"fit": False, "taint": f"{taint.key}={taint.value}:{taint.effect}"}
    raw = plugin.score(pod, nodes, feasible)
    counts = np.zeros(len(feasible), np.int64) if raw is None else raw
    low, high = (int(counts.min()), int(counts.max())) if len(counts) else (0, 0)
    scores = plugin.normalize(counts, low, high)
    return {
        "filter": verdicts,
        "scores": {nodes.names[row]: int(score) for row, score in zip(feasible, scores, strict=True)},
    }
