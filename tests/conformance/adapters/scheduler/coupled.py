"""Vectors of the scheduler's plugins that look at pods elsewhere: topology spread, inter-pod affinity."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from conformance.registry import Json, adapter
from koord_scheduler.domain.cluster.equivalence_classes import PodClasses, Subject
from koord_scheduler.domain.cluster.population import Population
from koord_scheduler.domain.cluster.record import is_finished
from koord_scheduler.domain.cluster.selectors import OwnerSelectors
from koord_scheduler.domain.columns.node_columns import NodeColumns, Rows, row_list
from koord_scheduler.domain.columns.node_shape import node_shape
from koord_scheduler.domain.config.kubernetes_args import InterPodAffinityArgs, PodTopologySpreadArgs
from koord_scheduler.domain.framework.cross_node_points import CrossNodeFilter, CrossNodeScore
from koord_scheduler.domain.plugins.affinity.inter_pod_affinity import (
    AFFINITY,
    ANTI_AFFINITY,
    EXISTING_ANTI_AFFINITY,
    InterPodAffinity,
)
from koord_scheduler.domain.plugins.affinity.pod_topology_spread import (
    MISSING_LABEL,
    SKEW,
    PodTopologySpread,
)
from koordcore.protocol.objects import Pod, TopologySpreadConstraint, node_from_json, pod_from_json
from koordcore.values import codec


class _World(NamedTuple):
    nodes: NodeColumns
    population: Population
    subject: Subject

    def rows(self, names: list[str] | None = None) -> Rows:
        chosen = self.nodes.names if names is None else names
        return np.array([self.nodes.row(name) for name in chosen], np.intp)


def _pod(given: dict[str, Json]) -> Pod:
    """A pod in full, or in short: {"name", "namespace", "labels", "node", "terminating"}."""
    if "metadata" in given or "spec" in given:
        return pod_from_json(given)
    metadata = {key: given[key] for key in ("name", "namespace", "labels") if key in given}
    if given.get("terminating"):
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return pod_from_json({"metadata": metadata, "spec": {"nodeName": given.get("node", "")}})


def _world(given: dict[str, Json]) -> _World:
    nodes = NodeColumns()
    for node in given["nodes"]:
        raw = {
            "metadata": {"name": node["name"], "labels": node.get("labels", {})},
            "spec": {"taints": node.get("taints", []), "unschedulable": node.get("unschedulable", False)},
        }
        nodes.put(node["name"], node_shape(node_from_json(raw)))
    population, pod_classes = Population(nodes), PodClasses(nodes)
    namespaces: dict[str, dict[str, str]] = given.get("namespaces") or {}
    for name, labels in namespaces.items():
        population.put_namespace(name, labels)
    running: list[Json] = given.get("pods") or []
    for raw in running:
        pod = _pod(raw)
        row = nodes.row(pod.spec.node_name)
        if row is not None and not is_finished(pod):
            population.arrive(row, pod_classes.read(pod).subject.kind)
    return _World(nodes, population, pod_classes.read(_pod(given["pod"])).subject)


def _answer(
    world: _World,
    words: dict[int, str],
    judge: CrossNodeFilter | None,
    score: CrossNodeScore | None,
    given: dict[str, Json],
) -> dict[str, Json]:
    rows = world.rows()
    codes = None if judge is None else judge.filter(rows)
    found = [0] * len(rows) if codes is None else row_list(codes)
    answer: dict[str, Json] = {
        "filter": {world.nodes.names[row]: words[code] for row, code in zip(row_list(rows), found, strict=True)}
    }
    passing = [world.nodes.names[row] for row, code in zip(row_list(rows), found, strict=True) if code == 0]
    chosen: list[str] | None = given.get("feasible_nodes")
    names = chosen or passing
    scores = None if score is None else score.scores(world.rows(names))
    if scores is not None:
        answer["scores"] = dict(zip(names, row_list(scores), strict=True))
    return answer


@adapter("scheduler.topology_spread")
def topology_spread(given: dict[str, Json]) -> dict[str, Json]:
    """PodTopologySpread, filter and score (scheduler-core spec, 5.6)."""
    world = _world(given)
    args: dict[str, Json] = given.get("args") or {}
    defaults = [codec.convert(each, TopologySpreadConstraint) for each in args.get("defaultConstraints", [])]
    plugin = PodTopologySpread(
        world.nodes,
        world.population,
        OwnerSelectors(),
        PodTopologySpreadArgs(
            default_constraints=tuple(defaults), defaulting_type=args.get("defaultingType", "System")
        ),
    )
    words = {0: "ok", MISSING_LABEL: "missing-label", SKEW: "skew"}
    return _answer(world, words, plugin.filter_for(world.subject), plugin.score_for(world.subject), given)


@adapter("scheduler.interpod_affinity")
def interpod_affinity(given: dict[str, Json]) -> dict[str, Json]:
    """InterPodAffinity, filter and score (scheduler-core spec, 5.7)."""
    world = _world(given)
    args: dict[str, Json] = given.get("args") or {}
    plugin = InterPodAffinity(
        world.nodes,
        world.population,
        InterPodAffinityArgs(
            hard_pod_affinity_weight=args.get("hardPodAffinityWeight", 1),
            ignore_preferred_terms_of_existing_pods=args.get("ignorePreferredTermsOfExistingPods", False),
        ),
    )
    words = {
        0: "ok",
        AFFINITY: "affinity",
        ANTI_AFFINITY: "anti-affinity",
        EXISTING_ANTI_AFFINITY: "existing-anti-affinity",
    }
    return _answer(world, words, plugin.filter_for(world.subject), plugin.score_for(world.subject), given)
