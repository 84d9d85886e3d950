"""What the manager decided for a node: overcommitted resources and the effective NodeSLO, each with its inputs.

Aggregate: `nodepolicy.<name>`. Writer: manager.

source    event-bus spec, 2.1; manager spec, 5 and 6
"""

from typing import Any

import msgspec

from koordcore.events.envelope import BasedOn, Event
from koordcore.events.registry import CATALOGUE


class OvercommitTerms(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The terms of `batch = capacity - margin - max(system, reserved) - high_priority_used` for one resource.

    Milli-cores for cpu, bytes for memory. `result` is after the floor at 0 and the cap.
    """

    capacity: int
    margin: int
    system_used: int
    reserved: int
    high_priority_used: int
    high_priority_request: int
    result: int
    policy: str


@CATALOGUE.register(kind="nodepolicy")
class NodeOvercommitComputed(Event, frozen=True, kw_only=True, omit_defaults=True):
    """Batch resources of the node were computed anew and changed enough to be published.

    batch_cpu_milli, batch_memory_bytes   what low-priority pods may request in all; None: withdrawn
    reason      why it was published: "first", "changed", "refreshed", "disabled",
                "degraded: no metric", "degraded: metric expired"
    terms       resource name -> terms; empty when withdrawn
    """

    batch_cpu_milli: int | None = None
    batch_memory_bytes: int | None = None
    reason: str
    terms: dict[str, OvercommitTerms] = {}
    metric_updated_at: str = ""
    config_version: int = 0
    based_on: BasedOn


@CATALOGUE.register(kind="nodepolicy")
class NodeSloRendered(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The effective NodeSLO of the node changed.

    spec            NodeSLO spec as the agent receives it (protocol spec, 9.2), wire spelling
    config_version  sequence of the config event it was rendered from, 0 for defaults
    """

    spec: dict[str, Any]
    config_version: int = 0
