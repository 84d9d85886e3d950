"""Vectors of the plain values: quantities and CPU lists."""

from __future__ import annotations

import json

from conformance.registry import Json, adapter
from koordcore.values.cpuset import format_cpuset, is_same_cpuset, parse_cpuset
from koordcore.values.quantity import Quantity, parse_quantity, quantity_from_json


@adapter("protocol.quantity", exact_text=("canonical",))
def quantity(given: dict[str, Json]) -> dict[str, Json]:
    """Quantity text or JSON literal -> its integers and canonical text (protocol spec, 1.1)."""
    parsed = parse_quantity(given["text"]) if "text" in given else _quantity_of_literal(given["json_literal"])
    return {"value": parsed.value(), "milli_value": parsed.milli(), "canonical": parsed.canonical()}


def _quantity_of_literal(text: str) -> Quantity:
    """A bare number is read from its own digits, so that `1e3` keeps its form."""
    return parse_quantity(text) if text[:1] in "-0123456789" else quantity_from_json(json.loads(text))


@adapter("protocol.cpuset", exact_text=("text",))
def cpuset(given: dict[str, Json]) -> dict[str, Json]:
    """CPU list texts and ids -> canonical text or a verdict (protocol spec, 7.1)."""
    match given["op"]:
        case "parse":
            cpus = parse_cpuset(given["text"])
            return {"cpus": sorted(cpus), "size": len(cpus), "text": format_cpuset(cpus)}
        case "format":
            return {"text": format_cpuset(given["cpus"])}
        case "union":
            cpus = parse_cpuset(given["a"]) | parse_cpuset(given["b"])
        case "intersection":
            cpus = parse_cpuset(given["a"]) & parse_cpuset(given["b"])
        case "difference":
            cpus = parse_cpuset(given["a"]) - parse_cpuset(given["b"])
        case "is_subset":
            return {"result": parse_cpuset(given["a"]) <= parse_cpuset(given["b"])}
        case "equals":
            return {"result": is_same_cpuset(given["a"], given["b"])}
        case other:
            raise ValueError(f"unknown op {other}")
    return {"cpus": sorted(cpus), "size": len(cpus), "text": format_cpuset(cpus)}
