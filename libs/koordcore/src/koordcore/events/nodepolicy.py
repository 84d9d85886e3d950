"""Decisions of the manager for a node, with their inputs: overcommitted resources, the effective NodeSLO, its health.

Aggregates: `nodepolicy.<name>`, `controller.slo-adjust` (the cluster's guard), `config.<ns=name>` (warnings about the
configuration). Writer: manager.

Source: event-bus spec, 2.1; manager spec, 5, 6, 16, 17.2, 18.
"""

from typing import Any

import msgspec

from koordcore.events.envelope import AggregateRef, BasedOn, Event
from koordcore.events.registry import CATALOGUE


class OvercommitTerms(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The terms of the batch amount of one resource of a node, in milli-cores for cpu and bytes for memory.

    policy "request"       result = capacity - margin - reserved - high_priority_request
    the other policies     result = capacity - margin - max(system_used, reserved) - high_priority_used
    """

    capacity: int  # Allocatable amount of the node
    margin: int  # Amount that the strategy keeps free
    system_used: int  # Usage outside of pods
    reserved: int  # Amount that the node reserves for the system
    # Usage of the pods that are neither batch nor free. With policy "maxUsageRequest": the sum over these pods of the
    # larger of usage and request.
    high_priority_used: int
    high_priority_request: int  # Sum of the requests of these pods
    result: int  # Result of the formula, at least 0 and at most `cap`
    policy: str  # Calculation policy: "usage", "request" or "maxUsageRequest"
    # Largest amount that may be offered (`batchCPUThresholdPercent`, `batchMemoryThresholdPercent`); None: no cap.
    cap: int | None = None


class MidTerms(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The terms of the mid amount of one resource of a node, in milli-cores for cpu and bytes for memory.

    dynamic   min(max(min(prod_reclaimable, unused), 0) + unallocated_share, cap)
    static    min(static_share, cap)
    """

    mode: str  # "dynamic" or "static"
    capacity: int  # Allocatable amount of the node
    prod_reclaimable: int = 0  # Part of the requests of prod pods that the agent's prediction expects them not to use
    unused: int = 0  # Capacity minus the usage of the node
    system_or_reserved: int = 0  # Larger of the usage outside of pods and the node's reservation
    prod_request: int = 0  # Sum of the requests of all pods except mid pods
    unallocated_share: int = 0  # `midUnallocatedPercent` of `capacity - system_or_reserved - prod_request`, at least 0
    static_share: int = 0  # Configured percentage of the capacity
    cap: int  # Largest amount that may be offered
    result: int  # Result of the formula


class ZoneOvercommit(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Batch resources of one NUMA zone, after CPU normalization."""

    batch_cpu_milli: int = 0
    batch_memory_bytes: int = 0


@CATALOGUE.register(kind="nodepolicy")
class NodeOvercommitComputed(Event, frozen=True, kw_only=True, omit_defaults=True):
    """Batch and mid resources of the node were computed, and the manager publishes them.

    published batch = computed batch * normalization - third_party, at least 0
    """

    batch_cpu_milli: int | None = None  # Batch cpu of the node in milli-cores; None: withdrawn
    batch_memory_bytes: int | None = None  # Batch memory of the node in bytes; None: withdrawn
    # Reason of the publication: "first", "changed", "refreshed", "disabled", "degraded: no metric", "degraded: metric
    # expired".
    reason: str
    terms: dict[str, OvercommitTerms] = {}  # Resource name -> how its batch amount was computed; empty if withdrawn
    metric_updated_at: str = ""  # RFC 3339 time of the usage report that was used; "" for none
    config_version: int = 0  # Sequence of the configuration event that was used; 0 for defaults
    based_on: BasedOn  # Last fact and observation that were folded
    mid_cpu_milli: int | None = None  # Mid cpu of the node in milli-cores; None: withdrawn
    mid_memory_bytes: int | None = None  # Mid memory of the node in bytes; None: withdrawn
    mid_terms: dict[str, MidTerms] = {}  # Resource name -> how its mid amount was computed; empty if withdrawn
    changed: list[str] = []  # If the reason is "changed", names of the resources whose change exceeded the threshold
    normalization: str = ""  # Ratio by which batch cpu was multiplied, as text; "" for none
    origin: dict[str, int] = {}  # Resource -> batch amount before `third_party` was subtracted
    third_party: dict[str, int] = {}  # Resource -> batch amount that other schedulers hold, from the node's annotation
    # NUMA zone -> its batch resources. They are 0 if withdrawn; empty if the topology is unknown.
    zones: dict[str, ZoneOvercommit] = {}
    strategy: str = ""  # Fingerprint of the effective colocation strategy


@CATALOGUE.register(kind="nodepolicy")
class NodeRatiosComputed(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The ratios that the manager writes to the node's annotations changed, or they can no longer be computed."""

    # Text of the annotation `cpu-normalization-ratio`; None: the manager does not write it.
    cpu_normalization: str | None = None
    # Text of the annotation `resource-amplification-ratio`; None: the manager removes it.
    amplification: str | None = None
    faults: dict[str, str] = {}  # "normalization" or "amplification" -> reason why the ratio cannot be computed
    cpu_model: str = ""  # Processor model that the agent reported; "" if not reported
    hyper_thread_enabled: bool = False  # Whether hyper-threading is on, as the agent reported it
    turbo_enabled: bool = False  # Whether turbo is on, as the agent reported it
    config_version: int = 0  # Sequence of the configuration event that was used; 0 for defaults


@CATALOGUE.register(kind="nodepolicy")
class NodeDevicesComputed(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The resources and labels that the manager writes to the node because of its devices changed."""

    # Device resource name -> whole units. A device resource that is absent here is removed from the node.
    resources: dict[str, int] = {}
    labels: dict[str, str] = {}  # Labels to set on the node. The manager never removes them.
    device_version: int = 0  # Sequence of the event with the Device object that was used


@CATALOGUE.register(kind="nodepolicy")
class NodeMetricPolicyRendered(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The manager rendered a new metric collection policy for the node's agent."""

    spec: dict[str, Any]  # Field `metricCollectPolicy` of the NodeMetric as JSON (manager spec, 4.2)
    config_version: int = 0  # Sequence of the configuration event that was used; 0 for defaults


@CATALOGUE.register(kind="nodepolicy")
class NodeSloRendered(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The manager rendered a new effective NodeSLO for the node."""

    spec: dict[str, Any]  # NodeSLO spec for the agent (protocol spec, 9.2) as JSON
    config_version: int = 0  # Sequence of the configuration event that was used; 0 for defaults
    # Section of the configuration -> name or number of its entry that selects this node. If a section is absent, its
    # cluster-wide part applied.
    matched: dict[str, str] = {}
    # Error in the node's own annotations; "" for none. After an error `systemStrategy` in `spec` is null.
    fault: str = ""


SLO_ADJUST = AggregateRef("controller", "slo-adjust")  # The aggregate of the cluster-wide guard


@CATALOGUE.register(kind="nodepolicy")
class NodeHealthAssessed(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The health of a node, its weight for scoring or its lowered thresholds changed."""

    level: str  # Current level: "Healthy", "Warning", "Critical"
    previous_level: str = ""  # Level before the change; "" if there was none
    abnormality: float  # Smoothed abnormality: 0 is healthy, 1 is worst
    weight: int  # Weight in percent that the node's own health gives
    reported_weight: int  # Weight that the scheduler uses: `weight` after the limit for the whole cluster
    # "cpu", "memory" -> percentage points by which the thresholds are lowered; 0 or negative.
    offsets: dict[str, int] = {}
    healthy_rounds: int = 0  # Number of consecutive evaluations in which the node was healthy
    signals: dict[str, float] = {}  # Signal -> measured value
    reasons: list[str] = []  # Signals that lowered the health, worst first. "stale" comes before all others.
    stale: bool = False  # Whether the node's usage report is too old
    effective: dict[str, int] = {}  # Name of a threshold in the configuration -> percent in force. There are four.
    annotation: str = ""  # New text of the node's annotation `slo-health`; "" if the annotation needs no change
    # Reason of the change: "level", "weight", "offsets", "smoothing", "guard" (the limit for the whole cluster) or
    # "off" (health is no longer adjusted, or it was that of an earlier node of the name).
    cause: str
    config_version: int = 0  # Sequence of the configuration event that was used; 0 for defaults


@CATALOGUE.register(kind="controller")
class MassAbnormalityChanged(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The number of abnormal nodes rose above the limit of nodes whose weight may be lowered, or fell below it."""

    active: bool  # Whether the number is above the limit now (`MassAbnormalNodes`)
    abnormal: int  # Number of abnormal nodes
    cap: int  # Largest number of nodes whose weight may be lowered
    nodes: int  # Number of all nodes
    examples: list[str] = []  # Names of the most abnormal nodes, at most ten


@CATALOGUE.register(kind="config")
class ConfigWarned(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The warnings about the configuration in force changed. A warning does not make the configuration invalid."""

    namespace: str  # Namespace of the ConfigMap
    name: str  # Name of the ConfigMap
    warnings: dict[str, str] = {}  # Field -> one sentence. Empty: there are no warnings any more.
    config_version: int = 0  # Sequence of the configuration event that the warnings are about
