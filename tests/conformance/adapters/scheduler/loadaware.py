"""Vectors of the scheduler: load-aware scheduling, how many nodes are examined, which node a preemptor takes."""

from __future__ import annotations

from typing import TypeVar

from conformance.registry import Json, adapter
from koord_scheduler.domain.config.koordinator_args import LoadAwareSchedulingArgs
from koord_scheduler.domain.engine.sampled import feasible_nodes_to_find
from koord_scheduler.domain.loop.preempt.dry_run import Candidate, VictimCost, pick_candidate
from koord_scheduler.domain.plugins.loadaware.assigned import AssignedPod, window_end
from koord_scheduler.domain.plugins.loadaware.columns import LoadColumns
from koord_scheduler.domain.plugins.loadaware.estimate import estimate_pod, raw_amounts
from koord_scheduler.domain.plugins.loadaware.metric import DEFAULT_REPORT_INTERVAL_SECONDS, NodeMetric, PodUsage
from koord_scheduler.domain.plugins.loadaware.rules import PodLoad, node_facts, pod_load
from koordcore.protocol.component_config import read
from koordcore.protocol.objects import node_from_json, pod_from_json, without_nulls
from koordcore.protocol.resource_names import rename_pod
from koordcore.values.resources import parse_amounts, parse_resources

NOW = 0.0
ROW = 0
Absent = TypeVar("Absent", float, None)


def _args(given: dict[str, Json]) -> LoadAwareSchedulingArgs:
    """Decoded and defaulted as at start-up; the cases also use numbers that start-up refuses."""
    return read(LoadAwareSchedulingArgs, without_nulls(given.get("args") or {}), "args", in_range=False)


def _moment(given: Json, absent: Absent) -> float | Absent:
    return absent if given is None else float(given)


def _metric(given: Json) -> NodeMetric | None:
    if given is None:
        return None
    usage: Json = given.get("node_usage")
    windows: list[dict[str, Json]] = given.get("aggregated") or []
    pods: list[dict[str, Json]] = given.get("pods") or []
    return NodeMetric(
        updated_at=_moment(given.get("update_time_s"), None),
        report_interval_seconds=_moment(given.get("report_interval_seconds"), float(DEFAULT_REPORT_INTERVAL_SECONDS)),
        node_usage=None if usage is None else parse_amounts(usage),
        system_usage=parse_amounts(given.get("system_usage") or {}),
        aggregated={
            (kind, float(window["duration_s"])): parse_amounts(amounts)
            for window in windows
            for kind, amounts in window["usage"].items()
        },
        pods={
            (pod.get("namespace", ""), pod["name"]): PodUsage(
                usage=parse_amounts(pod.get("usage") or {}), is_prod=pod.get("priority_class") == "koord-prod"
            )
            for pod in pods
        },
    )


def _assigned(item: dict[str, Json], number: int, args: LoadAwareSchedulingArgs) -> AssignedPod:
    pod = rename_pod(pod_from_json(item["pod"]))
    load = pod_load(pod, args)
    since = _moment(item.get("scheduled_at_s"), NOW)
    return AssignedPod(
        uid=f"{number}",
        namespace=pod.metadata.namespace,
        name=pod.metadata.name,
        is_prod=load.is_prod,
        estimate=load.estimate,
        assigned_at=since,
        window_end=window_end(pod, args, since, _moment(item.get("initialized_at_s"), None)),
    )


def _columns(given: dict[str, Json]) -> tuple[LoadColumns, PodLoad]:
    """The load of the only node, in row 0, and what the plugin reads of the pod."""
    args = _args(given)
    columns = LoadColumns(args)
    columns.advance(NOW)
    columns.on_node(ROW, node_facts(node_from_json(given["node"])))
    metric = _metric(given.get("node_metric"))
    if metric is not None:
        columns.on_metric(ROW, metric)
    listed: list[dict[str, Json]] = given.get("assigned_pods") or []
    for number, item in enumerate(listed):
        columns.on_pod(ROW, _assigned(item, number, args))
    return columns, pod_load(rename_pod(pod_from_json(given["pod"])), args)


@adapter("scheduler.loadaware_estimate", whole=("estimated",))
def loadaware_estimate(given: dict[str, Json]) -> dict[str, Json]:
    """Estimator (scheduler-core spec, 7.2)."""
    if "node" in given:
        node = node_from_json(given["node"])
        return {"node_allocatable": raw_amounts(parse_resources(node.status.allocatable), node.metadata.annotations)}
    return {"estimated": estimate_pod(rename_pod(pod_from_json(given["pod"])), _args(given))}


@adapter("scheduler.loadaware_filter", exact_text=("reason",))
def loadaware_filter(given: dict[str, Json]) -> dict[str, Json]:
    """Filter (scheduler-core spec, 7.4)."""
    columns, pod = _columns(given)
    codes = columns.filter_codes(pod)
    code = 0 if codes is None else codes.item(ROW)
    function = columns.row_filter(pod)
    assert code == (0 if function is None else function(ROW)), "arrays and the function of one row differ"
    return {"fit": code == 0, "reason": columns.reason(code) if code else ""}


@adapter("scheduler.loadaware_score")
def loadaware_score(given: dict[str, Json]) -> dict[str, Json]:
    """Score (scheduler-core spec, 7.5)."""
    columns, pod = _columns(given)
    score = columns.scores(pod).item(ROW)
    function = columns.row_score(pod)
    assert score == (0 if function is None else function(ROW)), "arrays and the function of one row differ"
    return {"score": score}


@adapter("scheduler.node_sampling")
def node_sampling(given: dict[str, Json]) -> dict[str, Json]:
    """How many feasible nodes end the search (scheduler-core spec, 1.1)."""
    percentage: int | None = given.get("percentage_of_nodes_to_score")
    return {"feasible_nodes_to_find": feasible_nodes_to_find(given["nodes"], percentage or 0)}


@adapter("scheduler.preempt_pick")
def preempt_pick(given: dict[str, Json]) -> dict[str, Json]:
    """Which candidate is taken (scheduler-core spec, 6)."""
    candidates = {
        node: Candidate(
            victims=[VictimCost(victim["priority"], float(victim["start_time_s"])) for victim in item["victims"]],
            pdb_violations=item.get("pdb_violations") or 0,
        )
        for node, item in given["candidates"].items()
    }
    return {"node": pick_candidate(candidates)}
