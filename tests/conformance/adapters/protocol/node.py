"""Vectors about one node: reservation and amplification."""

from __future__ import annotations

import json

from conformance.registry import Json, adapter
from koordcore.protocol import keys, lenient_json
from koordcore.protocol.amplification import (
    AmplificationStrategy,
    CpuBasicInfo,
    NormalizationStrategy,
    amplification_ratios,
    amplify,
    amplify_node_update,
    cpu_normalization_ratio,
    format_normalization_ratio,
    format_ratios,
)
from koordcore.protocol.annotations.node import (
    agent_reserved,
    kubelet_reserved,
    node_reservation,
    num_reserved_cpus,
    parse_node_reservation,
    reported_reserved_cpus,
    reserved_resources,
    trim_allocatable,
)
from koordcore.protocol.objects import Node, node_from_json
from koordcore.values.invalid import InvalidInput
from koordcore.values.resources import amount_of, format_resources, is_equal, parse_resources, quantity_of
from koordcore.values.topology import CpuPlace, CpuTopology


@adapter(
    "protocol.node_reservation",
    resource_lists=("reserved_resources", "kubelet_reserved", "agent_reserved", "allocatable"),
    exact_text=("reserved_cpus", "reported_reserved_cpus"),
)
def reservation(given: dict[str, Json]) -> dict[str, Json]:
    """A node -> everything that its reservation means (protocol spec, 7)."""
    node = node_from_json(given["node"])
    annotations = node.metadata.annotations
    capacity, allocatable = parse_resources(node.status.capacity), parse_resources(node.status.allocatable)
    found = node_reservation(annotations)
    trimmed = trim_allocatable(allocatable, found)
    answer: dict[str, Json] = {
        "annotation_error": False,
        "reserved_cpus": found.reserved_cpus,
        "num_reserved_cpus": num_reserved_cpus(found),
        "reserved_resources": format_resources(reserved_resources(found)),
        "kubelet_reserved": format_resources(kubelet_reserved(capacity, allocatable)),
        "agent_reserved": format_resources(agent_reserved(found, capacity, allocatable)),
        "allocatable": format_resources(trimmed),
        "trimmed": not is_equal(trimmed, allocatable),
    }
    try:
        parse_node_reservation(annotations)
    except InvalidInput:
        answer["annotation_error"] = True
    if given.get("cpu_topology") is not None:
        topology = CpuTopology(tuple(CpuPlace(**place) for place in given["cpu_topology"]))
        answer["reported_reserved_cpus"] = reported_reserved_cpus(found, topology)
    return answer


@adapter(
    "protocol.amplification",
    resource_lists=("resources", "allocatable", "raw_allocatable"),
    exact_text=("text", "annotation"),
)
def amplification(given: dict[str, Json]) -> dict[str, Json]:
    """Amplification of amounts, node updates and ratios (protocol spec, 8)."""
    match given["op"]:
        case "amplify":
            return {"value": amplify(given["origin"], given["ratio"])}
        case "amplify_list":
            ratios = {name: given["ratios"].get(name, 0) for name in given.get("names") or given["requests"]}
            amplified = {
                name: quantity_of(name, amplify(amount_of(name, quantity), ratios.get(name, 0)))
                for name, quantity in parse_resources(given["requests"]).items()
            }
            return {"resources": format_resources(amplified)}
        case "ratio_json":
            return {"text": format_ratios(given["ratios"])}
        case "node_update":
            node = node_from_json(given["node"])
            old = node_from_json(given["old_node"]) if given.get("old_node") else Node()
            update = amplify_node_update(node.metadata.annotations, node.status.allocatable, old.status.allocatable)
            raw = None if update.raw_allocatable is None else json.loads(update.raw_allocatable)
            return {"allocatable": format_resources(update.allocatable), "raw_allocatable": raw}
        case "cpu_normalization":
            info = given.get("basic_info")
            ratio = cpu_normalization_ratio(
                None if info is None else lenient_json.convert(info, CpuBasicInfo),
                lenient_json.convert(given.get("strategy"), NormalizationStrategy),
                given.get("enabled"),
            )
            return {"ratio": ratio, "annotation": format_normalization_ratio(ratio)}
        case "controller":
            strategy = lenient_json.convert(given.get("strategy"), AmplificationStrategy)
            text = given.get("cpu_normalization_ratio")
            ratios = amplification_ratios(strategy, {} if text is None else {keys.CPU_NORMALIZATION_RATIO: text})
            return {"annotation": format_ratios(ratios) if ratios else None}
        case other:
            raise ValueError(f"unknown op {other}")
