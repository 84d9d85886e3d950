"""Vectors of the custom resources."""

from __future__ import annotations

from conformance.registry import Json, adapter
from koordcore.protocol.crd import Accepted, admit


@adapter("protocol.crd_object", exact_text=("ttl", "phase"), whole=("object", "spec", "metadata", "networkQOS"))
def crd_object(given: dict[str, Json]) -> dict[str, Json]:
    """Object -> its stored form, or the field of the first violation (protocol spec, 9)."""
    verdict = admit(given["object"])
    if isinstance(verdict, Accepted):
        return {"accepted": True, "object": verdict.object}
    return {"accepted": False, "field": verdict.field, "rule": verdict.rule, "value": verdict.value}
