"""Vectors of the SLO controller: strategies, NodeSLO, dynamic adjustment, root quotas."""

from __future__ import annotations

import json

from conformance.registry import Json, adapter
from koord_manager.domain.controllers.configuration import slo_adjust_policy
from koord_manager.domain.controllers.quota_profiles import render, with_root_quota
from koord_manager.domain.controllers.slo_adjust.assessment import (
    HealthState,
    Level,
    NodeWeight,
    Offsets,
    Thresholds,
    assess,
    effective_thresholds,
    guard_weights,
)
from koordcore.protocol.config.config_map import NodeStrategies, read_config_map
from koordcore.protocol.config.node_slo import render_node_slo
from koordcore.protocol.config.sections import SectionName
from koordcore.protocol.config.strategy import read_section
from koordcore.protocol.objects import node_from_json
from koordcore.state.aggregates import CustomObjectState

LEVELS = (
    "cpuReclaimThresholdPercent",
    "memoryReclaimThresholdPercent",
    "cpuSuppressThresholdPercent",
    "memoryEvictThresholdPercent",
)


def _labels_and_annotations(node: Json) -> tuple[dict[str, str], dict[str, str]]:
    metadata = node_from_json(node).metadata
    return metadata.labels, metadata.annotations


@adapter("manager.colocation_strategy", whole=("strategy",))
def colocation_strategy(given: dict[str, Json]) -> dict[str, Json]:
    labels, annotations = _labels_and_annotations(given["node"])
    text = given["config"]
    reading = read_config_map(None, {} if text is None else {SectionName.COLOCATION.key: text})
    if reading.rejections:
        return {"config_error": True}
    policies = NodeStrategies(reading.config)
    node = policies.colocation(labels, annotations)
    return {
        "config_error": False,
        "strategy": reading.config.strategy_for(SectionName.COLOCATION, labels, annotations),
        "enabled": node is not None and bool(node.enable) and policies.cluster_colocation_enabled,
    }


@adapter(
    "manager.nodeslo_render",
    whole=(
        "spec",
        "resourceUsedThresholdWithBE",
        "resourceQOSStrategy",
        "cpuBurstStrategy",
        "systemStrategy",
        "lsrClass",
        "lsClass",
        "beClass",
        "systemClass",
        "cgroupRoot",
    ),
    sets=("parse_errors",),
)
def nodeslo_render(given: dict[str, Json]) -> dict[str, Json]:
    labels, annotations = _labels_and_annotations(given["node"])
    reading = read_config_map(None, given["config_map"])
    return {
        "spec": render_node_slo(reading.config, labels, annotations, {}).spec,
        "parse_errors": [rejection.section.key for rejection in reading.rejections],
    }


@adapter("manager.slo_adjust")
def slo_adjust(given: dict[str, Json]) -> dict[str, Json]:
    overrides = json.dumps(given.get("config_overrides") or {})
    policy = slo_adjust_policy(read_section(SectionName.SLO_ADJUST, overrides).cluster)
    before: dict[str, Json] | None = given["previous_state"]
    previous = None
    if before is not None:
        offsets = Offsets(before["offsets"]["cpu"], before["offsets"]["memory"])
        previous = HealthState(before["abnormality"], Level(before["level"]), offsets, before["healthy_rounds"])
    signals: dict[str, Json] = given.get("signals") or {}
    known = {name: value for name, value in signals.items() if value is not None}
    found = assess(policy, previous, known, stale=bool(given.get("stale")))
    state = found.state
    effective = effective_thresholds(policy, state.offsets, Thresholds(*(given["base"][name] for name in LEVELS)))
    return {
        "state": {
            "abnormality": state.abnormality,
            "level": str(state.level),
            "offsets": state.offsets._asdict(),
            "healthy_rounds": state.healthy_rounds,
        },
        "weight": found.weight,
        "effective": dict(zip(LEVELS, effective, strict=True)),
    }


@adapter("manager.slo_weights", whole=("weights",))
def slo_weights(given: dict[str, Json]) -> dict[str, Json]:
    nodes = [NodeWeight(node["name"], node["abnormality"], node["weight"]) for node in given["nodes"]]
    guarded = guard_weights(given["maxAbnormalRatio"], nodes)
    return {"weights": guarded.weights, "mass_abnormal": guarded.is_mass_abnormal}


@adapter(
    "manager.quota_profile",
    resource_lists=("min", "max", "total_resource", "unschedulable_resource"),
    whole=("labels",),
    exact_text=("labels",),
)
def quota_profile(given: dict[str, Json]) -> dict[str, Json]:
    quota = render(CustomObjectState(seq=1, object=given["profile"]), [node_from_json(node) for node in given["nodes"]])
    written = with_root_quota(given.get("existing_quota") or {}, quota)
    return {
        "name": quota.quota_name,
        "namespace": quota.quota_namespace,
        "labels": written["metadata"]["labels"],
        "min": quota.min,
        "max": quota.max,
        "total_resource": quota.total,
        "unschedulable_resource": quota.unschedulable,
    }
