"""Decisions of the manager for a node: overcommitted resources and the effective NodeSLO, with their inputs.

Aggregate: `nodepolicy.<name>`. Writer: manager.

Source:
    event-bus spec, 2.1; manager spec, 5 and 6
"""

from typing import Any

import msgspec

from koordcore.events.envelope import BasedOn, Event
from koordcore.events.registry import CATALOGUE


class OvercommitTerms(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Terms of `batch = capacity - margin - max(system, reserved) - high_priority_used` for one resource.

    Amounts are milli-cores for cpu and bytes for memory. `result` is at least 0 and at most the cap.

    Attributes:
        high_priority_used: Usage of high-priority pods. With policy "maxUsageRequest", per pod the larger of usage and
            request.
        cap: Largest amount that may be offered (`batch...ThresholdPercent`); None: no cap.
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
    """Terms of the mid resources for one resource: milli-cores for cpu, bytes for memory.

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
    """Batch resources of one NUMA zone, normalized."""

    batch_cpu_milli: int = 0
    batch_memory_bytes: int = 0


@CATALOGUE.register(kind="nodepolicy")
class NodeOvercommitComputed(Event, frozen=True, kw_only=True, omit_defaults=True):
    """Batch and mid resources of the node were computed, and changed enough to be published.

        batch = (capacity - margin - ... )  see terms
        published = batch * normalization - third parties

    Attributes:
        batch_cpu_milli: Batch cpu of the node in milli-cores; None: withdrawn.
        batch_memory_bytes: Batch memory of the node in bytes; None: withdrawn.
        mid_cpu_milli: Mid cpu of the node in milli-cores; None: withdrawn.
        mid_memory_bytes: Mid memory of the node in bytes; None: withdrawn.
        reason: Reason of the publication: "first", "changed", "refreshed", "disabled", "degraded: no metric",
            "degraded: metric expired".
        changed: Resources whose change caused the publication, if the reason is "changed".
        terms: Resource name -> terms of the batch resources; empty if withdrawn.
        mid_terms: Resource name -> terms of the mid resources; empty if withdrawn.
        normalization: Ratio by which batch cpu was multiplied; "" for none.
        origin: Resource -> amount before the amounts of third parties were subtracted.
        third_party: Resource -> amount that third parties use.
        zones: NUMA zone -> batch resources; zero if withdrawn, empty without a topology.
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
    """The ratios in the node's annotations changed, or can no longer be computed.

    Attributes:
        cpu_normalization: Text of the annotation; None: not written by the manager.
        amplification: Text of the annotation; None: removed.
        faults: "normalization" or "amplification" -> reason why it cannot be computed.
        cpu_model: Processor model that the agent reported; "" if not reported.
        hyper_thread_enabled: Whether hyper-threading is on, as the agent reported it.
        turbo_enabled: Whether turbo is on, as the agent reported it.
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
    """The resources and labels that the node's devices provide changed.

    Attributes:
        resources: Name -> whole units. A device resource that is absent here is removed from the node.
        labels: Labels to set on the node. They are never removed.
        device_version: Sequence of the Device object that was summed up.
    """

    resources: dict[str, int] = {}
    labels: dict[str, str] = {}
    device_version: int = 0


@CATALOGUE.register(kind="nodepolicy")
class NodeMetricPolicyRendered(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The metric collection policy of the node's agent changed.

    Attributes:
        spec: `metricCollectPolicy` of the NodeMetric as JSON (manager spec, 4.2).
    """

    spec: dict[str, Any]
    config_version: int = 0


@CATALOGUE.register(kind="nodepolicy")
class NodeSloRendered(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The effective NodeSLO of the node changed.

    Attributes:
        spec: NodeSLO spec for the agent (protocol spec, 9.2) as JSON.
        config_version: Sequence of the configuration event that it was rendered from; 0 for defaults.
        matched: Section -> name or number of the node entry that applied. Absent sections used the cluster part.
        fault: Error in the node's own annotations. systemStrategy is then null.
    """

    spec: dict[str, Any]
    config_version: int = 0
    matched: dict[str, str] = {}
    fault: str = ""
