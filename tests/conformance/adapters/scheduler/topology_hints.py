"""Adapter for scheduler.numa_hint_merge."""

from collections.abc import Mapping
from typing import Any

from conformance.registry import adapter
from koord_scheduler.domain.framework.topology_hints import (
    Hint,
    Hints,
    TopologyPolicy,
    ZoneStatus,
    admitted,
    ids_of,
    zones_of,
)


@adapter("scheduler.numa_hint_merge", sets=("unsatisfied_resources",))
def numa_hint_merge(case: dict[str, Any]) -> dict[str, Any]:
    """Merge the hints of all providers."""
    exclusive: Mapping[int, ZoneStatus] | None = None
    if case.get("exclusive_policy") == "Required":
        statuses: dict[str, str] = case.get("numa_node_status") or {}
        exclusive = {int(zone): ZoneStatus(status) for zone, status in statuses.items()}
    providers = [_hints(provider) for provider in case.get("providers") or ()]
    found = admitted(TopologyPolicy(case["policy"]), zones_of(case["numa_nodes"]), providers, exclusive)
    if not found.is_admitted:
        return {"admit": False, "unsatisfied_resources": list(found.unsatisfied)}
    return {
        "admit": True,
        "affinity": None if found.zones is None else ids_of(found.zones),
        "preferred": found.preferred,
        "score": found.score,
    }


def _hints(provider: dict[str, Any] | None) -> Hints:
    return {
        resource: None
        if hints is None
        else [
            Hint(
                None if hint.get("nodes") is None else zones_of(hint["nodes"]),
                preferred=hint.get("preferred", False),
                score=hint.get("score", 0),
            )
            for hint in hints
        ]
        for resource, hints in (provider or {}).items()
    }
