"""Vectors of the plain values: quantities."""

from __future__ import annotations

from conformance.registry import Json, adapter
from koordcore.values.quantity import parse_quantity, quantity_from_json_text


@adapter("protocol.quantity", exact_text=("canonical",))
def quantity(given: dict[str, Json]) -> dict[str, Json]:
    """Quantity text or JSON literal -> its integers and canonical text (protocol spec, 1.1)."""
    parsed = parse_quantity(given["text"]) if "text" in given else quantity_from_json_text(given["json_literal"])
    return {"value": parsed.value(), "milli_value": parsed.milli(), "canonical": parsed.canonical()}
