"""Vectors of the scheduler: load-aware scheduling, how many nodes are examined, which node a preemptor takes."""

from __future__ import annotations

from typing import TypeVar

from conformance.registry import Json, adapter
from koord_scheduler.domain.config.args.load_aware import LoadAwareSchedulingArgs
from koord_scheduler.domain.config.wire import read
from koord_scheduler.domain.evaluate.sampling import feasible_nodes_to_find
from koord_scheduler.domain.loadaware.assigned import AssignedPod, assigned_pod
from koord_scheduler.domain.loadaware.estimate import estimate_node, estimate_pod
from koord_scheduler.domain.loadaware.metric import DEFAULT_REPORT_INTERVAL_SECONDS, NodeMetric, PodUsage
from koord_scheduler.domain.loadaware.rules import filter_node, node_facts, pod_load, score_node
from koord_scheduler.domain.preempt.pick import Candidate, VictimCost, pick_candidate
from koordcore.protocol.objects import node_from_json, pod_from_json, without_nulls
from koordcore.protocol.resource_names import rename_pod
from koordcore.values.resources import parse_amounts

NOW = 0.0
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


def _assigned(given: dict[str, Json], args: LoadAwareSchedulingArgs) -> list[AssignedPod]:
    listed: list[dict[str, Json]] = given.get("assigned_pods") or []
    return [
        assigned_pod(
            rename_pod(pod_from_json(item["pod"])),
            args,
            assigned_at=_moment(item.get("scheduled_at_s"), NOW),
            initialized_at=_moment(item.get("initialized_at_s"), None),
        )
        for item in listed
    ]


@adapter("scheduler.loadaware_estimate", whole=("estimated",))
def loadaware_estimate(given: dict[str, Json]) -> dict[str, Json]:
    """Estimator (scheduler-core spec, 7.2)."""
    if "node" in given:
        return {"node_allocatable": estimate_node(node_from_json(given["node"]))}
    return {"estimated": estimate_pod(rename_pod(pod_from_json(given["pod"])), _args(given))}


@adapter("scheduler.loadaware_filter", exact_text=("reason",))
def loadaware_filter(given: dict[str, Json]) -> dict[str, Json]:
    """Filter (scheduler-core spec, 7.4)."""
    args = _args(given)
    pod = pod_load(rename_pod(pod_from_json(given["pod"])), args)
    node = node_facts(node_from_json(given["node"]))
    reason = filter_node(pod, node, _metric(given.get("node_metric")), _assigned(given, args), args, NOW)
    return {"fit": reason is None, "reason": reason or ""}


@adapter("scheduler.loadaware_score")
def loadaware_score(given: dict[str, Json]) -> dict[str, Json]:
    """Score (scheduler-core spec, 7.5)."""
    args = _args(given)
    pod = pod_load(rename_pod(pod_from_json(given["pod"])), args)
    node = node_facts(node_from_json(given["node"]))
    return {"score": score_node(pod, node, _metric(given.get("node_metric")), _assigned(given, args), args, NOW)}


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
