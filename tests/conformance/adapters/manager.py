"""Vectors of the manager: batch resources of a node."""

from __future__ import annotations

import json
from datetime import datetime

from conformance.registry import Json, adapter
from koord_manager.domain.overcommit import compute_batch
from koord_manager.domain.publish import degradation, node_capacity
from koordcore.events.observation import HostApplicationUsage, NodeUsageReported, PodUsage, Usage
from koordcore.protocol.config.parse import parse_section
from koordcore.protocol.config.strategy import resolve_section
from koordcore.protocol.config.tables import SECTIONS, SectionName
from koordcore.protocol.config.typed import ColocationStrategy, colocation_strategy
from koordcore.protocol.objects import node_from_json, pod_from_json
from koordcore.values.resources import parse_amounts


def _object(holder: Json, name: str) -> dict[str, Json]:
    """The object called `name`; absent and null are the empty one."""
    found: dict[str, Json] = (holder[name] if holder and name in holder else None) or {}
    return found


def _items(holder: dict[str, Json], name: str) -> list[dict[str, Json]]:
    found: list[dict[str, Json]] = holder.get(name) or []
    return found


def _strategy(written: Json) -> ColocationStrategy:
    table = SECTIONS[SectionName.COLOCATION]
    return colocation_strategy(resolve_section(table, parse_section(table, json.dumps(written))).cluster)


def _usage(metric: Json) -> Usage:
    amounts = parse_amounts(_object(metric, "resources"))
    return Usage(amounts.get("cpu", 0), amounts.get("memory", 0))


def _report(metric: Json) -> NodeUsageReported | None:
    status = _object(metric, "status")
    if not status.get("updateTime"):
        return None
    node = status.get("nodeMetric")
    return NodeUsageReported(
        updated_at=status["updateTime"],
        report_interval_seconds=60,
        aggregate_duration_seconds=300,
        node_usage=_usage(node.get("nodeUsage")) if node else None,
        system_usage=_usage(node.get("systemUsage")) if node else None,
        pods=[
            PodUsage(
                uid="",
                namespace=pod["namespace"],
                name=pod["name"],
                priority_class=pod.get("priority", ""),
                qos=pod.get("qos", ""),
                usage=_usage(pod.get("podUsage")),
            )
            for pod in _items(status, "podsMetric")
        ],
        host_applications=[
            HostApplicationUsage(
                name=item["name"],
                priority_class=item.get("priority", ""),
                qos=item.get("qos", ""),
                usage=_usage(item.get("usage")),
            )
            for item in _items(status, "hostApplicationMetric")
        ],
    )


@adapter("manager.batch_resource")
def batch_resource(given: dict[str, Json]) -> dict[str, Json]:
    strategy = _strategy(_object(given, "strategy"))
    report = _report(given.get("node_metric"))
    if report is None or degradation(report, strategy, datetime.fromisoformat(given["now"])) is not None:
        return {"degraded": True}
    node = node_from_json(given["node"])
    pods = [(str(number), pod_from_json(pod)) for number, pod in enumerate(_items(given, "pods"))]
    capacity = node_capacity(node)
    assert capacity is not None
    batch = compute_batch(node, capacity, pods, report, strategy)
    return {"degraded": False, "batch_cpu_milli": batch.cpu_milli, "batch_memory_bytes": batch.memory_bytes}
