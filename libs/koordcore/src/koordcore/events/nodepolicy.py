"""Decisions of the manager for a node: overcommitted resources and the effective NodeSLO, with their inputs.

Aggregate: `nodepolicy.<name>`. Writer: manager.

Facts about the health of nodes, and warnings about the configuration.

Aggregates: `nodepolicy.<node>` (its health), `controller.slo-adjust` (the cluster's guard), `config.<ns=name>`.
Writer: manager.

Source:
    event-bus spec, 2.1; manager spec, 5 and 6; manager spec, 16, 17.2, 18
"""

from typing import Any

import msgspec

from koordcore.events.envelope import AggregateRef, BasedOn, Event
from koordcore.events.registry import CATALOGUE


class OvercommitTerms(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The terms of the batch amount of one resource of a node, in milli-cores for cpu and bytes for memory.

        policy "request"       result = capacity - margin - reserved - high_priority_request
        the other policies     result = capacity - margin - max(system_used, reserved) - high_priority_used

    Attributes:
        capacity: Allocatable amount of the node.
        margin: Amount that the strategy keeps free.
        system_used: Usage outside of pods.
        reserved: Amount that the node reserves for the system.
        high_priority_used: Usage of the pods that are neither batch nor free. With policy "maxUsageRequest": the sum
            over these pods of the larger of usage and request.
        high_priority_request: Sum of the requests of these pods.
        result: Result of the formula, at least 0 and at most `cap`.
        policy: Calculation policy: "usage", "request" or "maxUsageRequest".
        cap: Largest amount that may be offered (`batchCPUThresholdPercent`, `batchMemoryThresholdPercent`); None: no
            cap.
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
    """The terms of the mid amount of one resource of a node, in milli-cores for cpu and bytes for memory.

    dynamic   min(max(min(prod_reclaimable, unused), 0) + unallocated_share, cap)
    static    min(static_share, cap)

    Attributes:
        mode: "dynamic" or "static".
        capacity: Allocatable amount of the node.
        prod_reclaimable: Part of the requests of prod pods that the agent's prediction expects them not to use.
        unused: Capacity minus the usage of the node.
        system_or_reserved: Larger of the usage outside of pods and the node's reservation.
        prod_request: Sum of the requests of all pods except mid pods.
        unallocated_share: `midUnallocatedPercent` of `capacity - system_or_reserved - prod_request`, at least 0.
        static_share: Configured percentage of the capacity.
        cap: Largest amount that may be offered.
        result: Result of the formula.
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
    """Batch resources of one NUMA zone, after CPU normalization."""

    batch_cpu_milli: int = 0
    batch_memory_bytes: int = 0


@CATALOGUE.register(kind="nodepolicy")
class NodeOvercommitComputed(Event, frozen=True, kw_only=True, omit_defaults=True):
    """Batch and mid resources of the node were computed, and the manager publishes them.

        published batch = computed batch * normalization - third_party, at least 0

    Attributes:
        batch_cpu_milli: Batch cpu of the node in milli-cores; None: withdrawn.
        batch_memory_bytes: Batch memory of the node in bytes; None: withdrawn.
        reason: Reason of the publication: "first", "changed", "refreshed", "disabled", "degraded: no metric",
            "degraded: metric expired".
        terms: Resource name -> how its batch amount was computed; empty if withdrawn.
        metric_updated_at: RFC 3339 time of the usage report that was used; "" for none.
        config_version: Sequence of the configuration event that was used; 0 for defaults.
        based_on: Last fact and observation that were folded.
        mid_cpu_milli: Mid cpu of the node in milli-cores; None: withdrawn.
        mid_memory_bytes: Mid memory of the node in bytes; None: withdrawn.
        mid_terms: Resource name -> how its mid amount was computed; empty if withdrawn.
        changed: If the reason is "changed", names of the resources whose change exceeded the threshold.
        normalization: Ratio by which batch cpu was multiplied, as text; "" for none.
        origin: Resource -> batch amount before `third_party` was subtracted.
        third_party: Resource -> batch amount that other schedulers hold, from the node's annotation.
        zones: NUMA zone -> its batch resources. They are 0 if withdrawn; empty if the topology is unknown.
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
    """The ratios that the manager writes to the node's annotations changed, or they can no longer be computed.

    Attributes:
        cpu_normalization: Text of the annotation `cpu-normalization-ratio`; None: the manager does not write it.
        amplification: Text of the annotation `resource-amplification-ratio`; None: the manager removes it.
        faults: "normalization" or "amplification" -> reason why the ratio cannot be computed.
        cpu_model: Processor model that the agent reported; "" if not reported.
        hyper_thread_enabled: Whether hyper-threading is on, as the agent reported it.
        turbo_enabled: Whether turbo is on, as the agent reported it.
        config_version: Sequence of the configuration event that was used; 0 for defaults.
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
    """The resources and labels that the manager writes to the node because of its devices changed.

    Attributes:
        resources: Device resource name -> whole units. A device resource that is absent here is removed from the node.
        labels: Labels to set on the node. The manager never removes them.
        device_version: Sequence of the event with the Device object that was used.
    """

    resources: dict[str, int] = {}
    labels: dict[str, str] = {}
    device_version: int = 0


@CATALOGUE.register(kind="nodepolicy")
class NodeMetricPolicyRendered(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The manager rendered a new metric collection policy for the node's agent.

    Attributes:
        spec: Field `metricCollectPolicy` of the NodeMetric as JSON (manager spec, 4.2).
        config_version: Sequence of the configuration event that was used; 0 for defaults.
    """

    spec: dict[str, Any]
    config_version: int = 0


@CATALOGUE.register(kind="nodepolicy")
class NodeSloRendered(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The manager rendered a new effective NodeSLO for the node.

    Attributes:
        spec: NodeSLO spec for the agent (protocol spec, 9.2) as JSON.
        config_version: Sequence of the configuration event that was used; 0 for defaults.
        matched: Section of the configuration -> name or number of its entry that selects this node. If a section is
            absent, its cluster-wide part applied.
        fault: Error in the node's own annotations; "" for none. After an error `systemStrategy` in `spec` is null.
    """

    spec: dict[str, Any]
    config_version: int = 0
    matched: dict[str, str] = {}
    fault: str = ""


SLO_ADJUST = AggregateRef("controller", "slo-adjust")
"""The aggregate of the cluster-wide guard."""


@CATALOGUE.register(kind="nodepolicy")
class NodeHealthAssessed(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The health of a node, its weight for scoring or its lowered thresholds changed.

    Attributes:
        level: Current level: "Healthy", "Warning", "Critical".
        previous_level: Level before the change; "" if there was none.
        abnormality: Smoothed abnormality: 0 is healthy, 1 is worst.
        weight: Weight in percent that the node's own health gives.
        reported_weight: Weight that the scheduler uses: `weight` after the limit for the whole cluster.
        offsets: "cpu", "memory" -> percentage points by which the thresholds are lowered; 0 or negative.
        healthy_rounds: Number of consecutive evaluations in which the node was healthy.
        signals: Signal -> measured value.
        reasons: Signals that lowered the health, worst first. "stale" comes before all others.
        stale: Whether the node's usage report is too old.
        effective: Name of a threshold in the configuration -> percent in force. There are four.
        annotation: New text of the node's annotation `slo-health`; "" if the annotation needs no change.
        cause: Reason of the change: "level", "weight", "offsets", "smoothing", "guard" (the limit for the whole
            cluster) or "off" (health is no longer adjusted, or it was that of an earlier node of the name).
        config_version: Sequence of the configuration event that was used; 0 for defaults.
    """

    level: str
    previous_level: str = ""
    abnormality: float
    weight: int
    reported_weight: int
    offsets: dict[str, int] = {}
    healthy_rounds: int = 0
    signals: dict[str, float] = {}
    reasons: list[str] = []
    stale: bool = False
    effective: dict[str, int] = {}
    annotation: str = ""
    cause: str
    config_version: int = 0


@CATALOGUE.register(kind="controller")
class MassAbnormalityChanged(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The number of abnormal nodes rose above the limit of nodes whose weight may be lowered, or fell below it.

    Attributes:
        active: Whether the number is above the limit now (`MassAbnormalNodes`).
        abnormal: Number of abnormal nodes.
        cap: Largest number of nodes whose weight may be lowered.
        nodes: Number of all nodes.
        examples: Names of the most abnormal nodes, at most ten.
    """

    active: bool
    abnormal: int
    cap: int
    nodes: int
    examples: list[str] = []


@CATALOGUE.register(kind="config")
class ConfigWarned(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The warnings about the configuration in force changed. A warning does not make the configuration invalid.

    Attributes:
        namespace: Namespace of the ConfigMap.
        name: Name of the ConfigMap.
        warnings: Field -> one sentence. Empty: there are no warnings any more.
        config_version: Sequence of the configuration event that the warnings are about.
    """

    namespace: str
    name: str
    warnings: dict[str, str] = {}
    config_version: int = 0
