"""What the manager decided for a node: overcommitted resources and the effective NodeSLO, each with its inputs.

Aggregate: `nodepolicy.<name>`. Writer: manager.

Source:
    event-bus spec, 2.1; manager spec, 5 and 6
"""

from typing import Any

import msgspec

from koordcore.events.envelope import BasedOn, Event
from koordcore.events.registry import CATALOGUE


class OvercommitTerms(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The terms of `batch = capacity - margin - max(system, reserved) - high_priority_used` for one resource.

    Milli-cores for cpu, bytes for memory. `result` is after the floor at 0 and the cap.

    Attributes:
        high_priority_used: With policy "maxUsageRequest": per pod the larger of usage and request.
        cap: Most that may be lent (`batch...ThresholdPercent`); None: no cap.
    """

    capacity: int
    margin: int
    system_used: int
    reserved: int
    high_priority_used: int
    high_priority_request: int
    result: int
    policy: str
    cap: int | None = None


class MidTerms(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The terms of the mid resources for one resource: milli-cores for cpu, bytes for memory.

    dynamic   min(max(min(prod_reclaimable, unused), 0) + unallocated_share, cap)
    static    min(static_share, cap)
    """

    mode: str
    capacity: int
    prod_reclaimable: int = 0
    unused: int = 0
    system_or_reserved: int = 0
    prod_request: int = 0
    unallocated_share: int = 0
    static_share: int = 0
    cap: int
    result: int


class ZoneOvercommit(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """What batch pods may request in one NUMA zone, normalized."""

    batch_cpu_milli: int = 0
    batch_memory_bytes: int = 0


@CATALOGUE.register(kind="nodepolicy")
class NodeOvercommitComputed(Event, frozen=True, kw_only=True, omit_defaults=True):
    """Batch and mid resources of the node were computed anew and changed enough to be published.

        batch = (capacity - margin - ... )  see terms
        published = batch * normalization - third parties

    Attributes:
        batch_cpu_milli: What batch pods may request in all; None: withdrawn.
        batch_memory_bytes: What batch pods may request in all; None: withdrawn.
        mid_cpu_milli: What mid pods may request in all; None: withdrawn.
        mid_memory_bytes: What mid pods may request in all; None: withdrawn.
        reason: Why it was published: "first", "changed", "refreshed", "disabled", "degraded: no metric", "degraded:
            metric expired".
        changed: Resources that made it so, with reason "changed".
        terms: Resource name -> terms; empty when withdrawn.
        mid_terms: Resource name -> terms; empty when withdrawn.
        normalization: Ratio that batch cpu was multiplied with, "" for none.
        origin: Resource -> amount before third parties, and what those hold of it.
        third_party: Resource -> amount before third parties, and what those hold of it.
        zones: NUMA zone -> what batch pods may request there; zero when withdrawn, empty without a topology.
        strategy: Fingerprint of the effective colocation strategy.
    """

    batch_cpu_milli: int | None = None
    batch_memory_bytes: int | None = None
    reason: str
    terms: dict[str, OvercommitTerms] = {}
    metric_updated_at: str = ""
    config_version: int = 0
    based_on: BasedOn
    mid_cpu_milli: int | None = None
    mid_memory_bytes: int | None = None
    mid_terms: dict[str, MidTerms] = {}
    changed: list[str] = []
    normalization: str = ""
    origin: dict[str, int] = {}
    third_party: dict[str, int] = {}
    zones: dict[str, ZoneOvercommit] = {}
    strategy: str = ""


@CATALOGUE.register(kind="nodepolicy")
class NodeRatiosComputed(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The ratios that stand on the node as annotations changed, or cannot be computed any more.

    Attributes:
        cpu_normalization: Text of the annotation; None: never written, or left as the node has it.
        amplification: Text of the annotation; None: removed.
        faults: "normalization" or "amplification" -> why it cannot be computed.
        cpu_model: Of the processor, as the agent reported it; "" when it has not.
        hyper_thread_enabled: Of the processor, as the agent reported it; "" when it has not.
        turbo_enabled: Of the processor, as the agent reported it; "" when it has not.
    """

    cpu_normalization: str | None = None
    amplification: str | None = None
    faults: dict[str, str] = {}
    cpu_model: str = ""
    hyper_thread_enabled: bool = False
    turbo_enabled: bool = False
    config_version: int = 0


@CATALOGUE.register(kind="nodepolicy")
class NodeDevicesComputed(Event, frozen=True, kw_only=True, omit_defaults=True):
    """Resources and labels that the node's devices give it changed.

    Attributes:
        resources: Name -> whole units; a device resource that is missing is removed from the node.
        labels: Copied to the node, never removed from it.
        device_version: Position of the Device object they were summed from.
    """

    resources: dict[str, int] = {}
    labels: dict[str, str] = {}
    device_version: int = 0


@CATALOGUE.register(kind="nodepolicy")
class NodeMetricPolicyRendered(Event, frozen=True, kw_only=True, omit_defaults=True):
    """How the node's agent has to measure changed.

    Attributes:
        spec: `metricCollectPolicy` of the NodeMetric, wire spelling (manager spec, 4.2).
    """

    spec: dict[str, Any]
    config_version: int = 0


@CATALOGUE.register(kind="nodepolicy")
class NodeSloRendered(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The effective NodeSLO of the node changed.

    Attributes:
        spec: NodeSLO spec as the agent receives it (protocol spec, 9.2), wire spelling.
        config_version: Sequence of the config event it was rendered from, 0 for defaults.
        matched: Section -> name (or number) of the node entry that answered; sections without one: cluster part.
        fault: What the node itself wrote wrongly; its systemStrategy is then null.
    """

    spec: dict[str, Any]
    config_version: int = 0
    matched: dict[str, str] = {}
    fault: str = ""
