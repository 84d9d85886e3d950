"""The kinds of decisions about a node, and those about its NodeSLO and the measuring of its agent.

`node_resources` decides the ratios (cpu normalization and amplification), device resources and overcommitted resources.
All are facts of `nodepolicy.<node>`, published if they differ from the last ones.

Source:
    manager spec, 4.2, 5, 6
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from koordcore.events.envelope import Draft, Event
from koordcore.events.nodepolicy import (
    NodeDevicesComputed,
    NodeMetricPolicyRendered,
    NodeOvercommitComputed,
    NodeRatiosComputed,
    NodeSloRendered,
)
from koordcore.protocol.config.config_map import SloControllerConfig
from koordcore.protocol.config.fields import JsonObject
from koordcore.protocol.config.node_slo import render_node_slo
from koordcore.protocol.config.sections import SectionName
from koordcore.protocol.config.strategy import Strategy
from koordcore.protocol.objects import Node
from koordcore.state.aggregates import NodePolicyState

from koord_manager.domain.controller_names import DEVICES, NODE_METRIC, NODE_RESOURCE, NODE_SLO, OVERCOMMIT, RATIOS
from koord_manager.domain.controllers.configuration import NodeInputs, NodePolicies, policy_draft
from koord_manager.domain.controllers.node_resources.decide import overcommit_event
from koord_manager.domain.controllers.node_resources.devices import device_event
from koord_manager.domain.controllers.node_resources.ratios import ratio_event
from koord_manager.domain.controllers.slo_adjust.assessment import Thresholds, effective_thresholds
from koord_manager.domain.controllers.slo_adjust.controller import offsets_of

_MATCHED = (
    SectionName.COLOCATION,
    SectionName.RESOURCE_THRESHOLD,
    SectionName.RESOURCE_QOS,
    SectionName.CPU_BURST,
    SectionName.SYSTEM,
    SectionName.HOST_APPLICATION,
)


def slo_event(at: NodeInputs) -> NodeSloRendered | None:
    """Return the event with the NodeSLO of a node, or None if it equals the published one (manager spec, 6)."""
    policies, node, published = at.policies, at.node, at.published
    rendered = render_node_slo(policies.config, node.metadata.labels, node.metadata.annotations, {})
    spec = _with_health(policies, published, rendered.spec)
    if published is not None and published.slo == spec:
        return None
    return NodeSloRendered(
        spec=spec,
        config_version=policies.version,
        matched=matched_entries(policies.config, node),
        fault=rendered.fault.sentence() if rendered.fault else "",
    )


def _with_health(policies: NodePolicies, published: NodePolicyState | None, spec: JsonObject) -> JsonObject:
    """Return the NodeSLO with thresholds lowered by the health of the node (manager spec, 16.2 (6), 16.4)."""
    health = published.health if published else None
    threshold = spec["resourceUsedThresholdWithBE"]
    if not policies.slo_adjust.enable or health is None or not isinstance(threshold, dict):
        return spec
    cpu, memory = threshold["cpuSuppressThresholdPercent"], threshold["memoryEvictThresholdPercent"]
    if not any(health.offsets.values()) or not isinstance(cpu, int) or not isinstance(memory, int):
        return spec
    levels = effective_thresholds(policies.slo_adjust, offsets_of(health), Thresholds(0, 0, cpu, memory))
    adjusted: JsonObject = {
        **threshold,
        "cpuSuppressThresholdPercent": levels.cpu_suppress,
        "memoryEvictThresholdPercent": levels.memory_evict,
    }
    return {**spec, "resourceUsedThresholdWithBE": adjusted}


def matched_entries(config: SloControllerConfig, node: Node) -> dict[str, str]:
    """Return which node entry of slo-controller-config applies to a node: section -> name of the entry, or its index.

    A section whose cluster strategy applies is not included (manager spec, 17.3).
    """
    found: dict[str, str] = {}
    for name in _MATCHED:
        section = config.section(name)
        entry = section.entry_for(node.metadata.labels) if section else None
        if section is not None and entry is not None:
            found[name.key] = entry.name or f"[{section.entries.index(entry)}]"
    return found


def measuring_event(at: NodeInputs) -> NodeMetricPolicyRendered | None:
    """Return the event that tells a node's agent how often to measure and report, or None if it was told.

    If the colocation section is invalid, a published policy stays, and None is returned (manager spec, 4.2).
    """
    policies, published = at.policies, at.published
    published_policy = published.metric_policy if published is not None else None
    strategy = policies.measuring(at.node, measures_already=published_policy is not None)
    if strategy is None:
        return None
    spec = collect_policy(strategy)
    return NodeMetricPolicyRendered(spec=spec, config_version=policies.version) if published_policy != spec else None


def collect_policy(strategy: Strategy) -> dict[str, Any]:
    """Return `spec.metricCollectPolicy` of a NodeMetric object for a colocation strategy."""
    aggregate = strategy["metricAggregatePolicy"]
    durations: object = aggregate.get("durations") if isinstance(aggregate, dict) else None
    return {
        "aggregateDurationSeconds": strategy["metricAggregateDurationSeconds"],
        "reportIntervalSeconds": strategy["metricReportIntervalSeconds"],
        "nodeAggregatePolicy": {"durations": durations or []},
        "nodeMemoryCollectPolicy": strategy["metricMemoryCollectPolicy"],
    }


class NodeDecision(NamedTuple):
    """One kind of decision about a node, for the controllers and for a re-run."""

    event: type[Event]  # what is decided: a fact of `nodepolicy.<node>`
    enabled_as: str  # the controller of the flag `--controllers`
    queue: str
    decide: Callable[[NodeInputs], Event | None]  # None: what is published is up to date


RENDERED: Final = (
    NodeDecision(NodeSloRendered, NODE_SLO, NODE_SLO, slo_event),
    NodeDecision(NodeMetricPolicyRendered, NODE_METRIC, NODE_METRIC, measuring_event),
    NodeDecision(NodeRatiosComputed, NODE_RESOURCE, RATIOS, ratio_event),
    NodeDecision(NodeDevicesComputed, NODE_RESOURCE, DEVICES, device_event),
)
"""Decided from the node and the configuration, in this order."""
OVERCOMMITTED: Final = NodeDecision(NodeOvercommitComputed, NODE_RESOURCE, OVERCOMMIT, overcommit_event)
"""Decided from the usage report, too."""


def node_drafts(at: NodeInputs | None, event: Event | None) -> list[Draft]:
    """Return the fact about a node; empty if there is no event."""
    return [] if at is None or event is None else [policy_draft(at.view, at.token, event)]
