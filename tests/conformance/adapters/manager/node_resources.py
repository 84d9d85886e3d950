"""Vectors of the manager: what a node lends to batch and mid pods, its ratios, and when that is written."""

from __future__ import annotations

import json
from datetime import datetime
from typing import NamedTuple

from conformance.registry import Json, adapter
from koord_manager.domain.cluster.amounts import (
    Amount,
    PodUse,
    amount_of_usage,
    high_priority_pods,
    node_capacity,
    pod_facts,
)
from koord_manager.domain.controllers.node_resources.batch import compute_batch, publish_batch
from koord_manager.domain.controllers.node_resources.decide import degradation, sync_need
from koord_manager.domain.controllers.node_resources.mid import compute_mid
from koord_manager.domain.controllers.node_resources.ratios import amplification_text, normalization_text
from koord_manager.domain.controllers.node_resources.zones import compute_zones
from koordcore.events.observation import HostApplicationUsage, NodeUsageReported, PodUsage, Usage
from koordcore.protocol.config.config_map import read_config_map
from koordcore.protocol.config.fields import typed
from koordcore.protocol.config.parse import parse_section
from koordcore.protocol.config.sections import SECTIONS, ColocationStrategy, SectionName
from koordcore.protocol.config.strategy import Strategy, resolve_section
from koordcore.protocol.hardware.node_topology import topology_from
from koordcore.protocol.objects import Node, node_from_json, pod_from_json
from koordcore.values.resources import parse_amounts, parse_resources


def _object(holder: Json, name: str) -> dict[str, Json]:
    """The object called `name`; absent and null are the empty one."""
    found: dict[str, Json] = (holder[name] if holder and name in holder else None) or {}
    return found


def _items(holder: dict[str, Json], name: str) -> list[dict[str, Json]]:
    found: list[dict[str, Json]] = holder.get(name) or []
    return found


def _strategy(written: Json) -> ColocationStrategy:
    table = SECTIONS[SectionName.COLOCATION]
    return typed(ColocationStrategy, resolve_section(table, parse_section(table, json.dumps(written))).cluster)


def _usage(metric: Json) -> Usage:
    amounts = parse_amounts(_object(metric, "resources"))
    return Usage(amounts.get("cpu", 0), amounts.get("memory", 0))


def _report(metric: Json) -> NodeUsageReported | None:
    status = _object(metric, "status")
    if not status.get("updateTime"):
        return None
    node = status.get("nodeMetric")
    reclaimable = _object(_object(status, "prodReclaimableMetric"), "resource")
    return NodeUsageReported(
        updated_at=status["updateTime"],
        report_interval_seconds=60,
        aggregate_duration_seconds=300,
        node_usage=_usage(node.get("nodeUsage")) if node is not None else None,
        system_usage=_usage(node.get("systemUsage")) if node is not None else None,
        pods=[
            PodUsage(
                uid="",
                namespace=pod.get("namespace", ""),
                name=pod.get("name", ""),
                priority_class=pod.get("priority", ""),
                qos=pod.get("qos", ""),
                usage=_usage(pod.get("podUsage")),
            )
            for pod in _items(status, "podsMetric")
        ],
        prod_reclaimable=_usage(reclaimable) if reclaimable else None,
        host_applications=[
            HostApplicationUsage(
                name=item.get("name", ""),
                priority_class=item.get("priority", ""),
                qos=item.get("qos", ""),
                usage=_usage(item.get("usage")),
            )
            for item in _items(status, "hostApplicationMetric")
        ],
    )


class _Look(NamedTuple):
    """A case's node with a fresh report."""

    node: Node
    capacity: Amount
    pods: list[PodUse]
    report: NodeUsageReported
    strategy: ColocationStrategy


def _look(given: dict[str, Json]) -> _Look | None:
    """None: degraded."""
    strategy = _strategy(_object(given, "strategy"))
    report = _report(given.get("node_metric"))
    if report is None or degradation(report, strategy, datetime.fromisoformat(given["now"])) is not None:
        return None
    node = node_from_json(given["node"])
    pods = [(pod, pod_facts(pod)) for pod in map(pod_from_json, _items(given, "pods"))]
    return _Look(node, node_capacity(node) or Amount(), list(high_priority_pods(pods, report)), report, strategy)


@adapter("manager.batch_resource")
def batch_resource(given: dict[str, Json]) -> dict[str, Json]:
    look = _look(given)
    if look is None:
        return {"degraded": True}
    batch = compute_batch(look.node, look.capacity, look.pods, look.report, look.strategy)
    return {"degraded": False, "batch_cpu_milli": batch.cpu_milli, "batch_memory_bytes": batch.memory_bytes}


@adapter("manager.batch_resource_numa", whole=("zones",))
def batch_resource_numa(given: dict[str, Json]) -> dict[str, Json]:
    look = _look(given)
    topology = topology_from(given.get("node_resource_topology"))
    if look is None or topology is None:
        return {"degraded": look is None, "zones": None}
    zones = compute_zones(look.node, topology, look.pods, look.report, look.strategy)
    if zones is None:
        return {"zones": None}
    return {
        "zones": {
            name: {"batch_cpu_milli": zone.cpu_milli, "batch_memory_bytes": zone.memory_bytes}
            for name, zone in zones.items()
        }
    }


@adapter("manager.mid_resource")
def mid_resource(given: dict[str, Json]) -> dict[str, Json]:
    look = _look(given)
    if look is None:
        return {"degraded": True}
    metric = _object(_object(given["node_metric"], "status"), "nodeMetric")
    amounts = _object(_object(metric, "nodeUsage"), "resources")
    used = amount_of_usage(look.report.node_usage) if {"cpu", "memory"} <= amounts.keys() else None
    mid = compute_mid(look.node, look.capacity, look.pods, look.report, used, look.strategy)
    return {"degraded": False, "mid_cpu_milli": mid.cpu_milli, "mid_memory_bytes": mid.memory_bytes}


@adapter("manager.batch_publish", whole=("origin",))
def batch_publish(given: dict[str, Json]) -> dict[str, Json]:
    computed = given["computed"]
    published = publish_batch(
        None if computed is None else Amount(computed["batch_cpu_milli"], computed["batch_memory_bytes"]),
        given.get("cpu_normalization_ratio"),
        given.get("node_annotations") or {},
    )
    batch = published.batch
    return {
        "batch_cpu": batch.cpu if batch else None,
        "batch_memory": batch.memory if batch else None,
        "origin": {
            "kubernetes.io/batch-cpu": published.origin.cpu,
            "kubernetes.io/batch-memory": published.origin.memory,
        },
    }


@adapter("manager.need_sync", sets=("changed_resources",))
def need_sync(given: dict[str, Json]) -> dict[str, Json]:
    strategy = _strategy(given["strategy"])
    need = sync_need(
        {name: quantity.milli() for name, quantity in parse_resources(given["old_allocatable"]).items()},
        {name: quantity.milli() for name, quantity in parse_resources(given["new_allocatable"]).items()},
        diff_threshold=strategy.resource_diff_threshold,
        update_threshold_seconds=strategy.update_time_threshold_seconds,
        seconds_since_last=given["seconds_since_last_sync"],
    )
    return {
        "need_sync": need.expired or bool(need.changed),
        "changed_resources": list(need.changed),
        "expired": need.expired,
    }


def _strategy_of(name: SectionName, content: Json, labels: dict[str, str]) -> Strategy | None:
    """What a ConfigMap with this section says of a node; null: the key is absent."""
    data = {} if content is None else {name.key: content if isinstance(content, str) else json.dumps(content)}
    return read_config_map(None, data).config.strategy_for(name, labels, {})


@adapter("manager.cpu_normalization")
def cpu_normalization(given: dict[str, Json]) -> dict[str, Json]:
    labels: dict[str, str] = given.get("node_labels") or {}
    strategy = _strategy_of(SectionName.CPU_NORMALIZATION, given["config"], labels)
    written = given["cpu_basic_info"]
    info = None
    if written is not None:
        annotations = {"node.koordinator.sh/cpu-basic-info": json.dumps(written)}
        topology = topology_from({"metadata": {"annotations": annotations}})
        assert topology is not None
        info = topology.cpu_basic_info()
    return {"annotation": normalization_text(strategy, labels, info).text}


@adapter("manager.amplification_ratio", exact_text=("annotation",))
def amplification_ratio(given: dict[str, Json]) -> dict[str, Json]:
    labels: dict[str, str] = given.get("node_labels") or {}
    strategy = _strategy_of(SectionName.RESOURCE_AMPLIFICATION, given["config"], labels)
    ratio = amplification_text(strategy, given.get("node_annotations") or {})
    # `error` is a field of this kind's answer, not the outcome of the case
    return {"annotation": ratio.text, "error": bool(ratio.fault)}
