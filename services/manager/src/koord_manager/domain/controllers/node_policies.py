"""Render the policies of nodes as facts, if they differ from the published ones.

The policies are the NodeSLO, the agent's settings of measurement, the ratios (cpu normalization and amplification),
device resources, and overcommitted resources. All are facts of `nodepolicy.<node>`.

Source:
    manager spec, 4.2, 5, 6
"""

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

from koordcore.events.envelope import AggregateRef, BasedOn, Draft, Event
from koordcore.events.nodepolicy import (
    NodeDevicesComputed,
    NodeMetricPolicyRendered,
    NodeOvercommitComputed,
    NodeRatiosComputed,
    NodeSloRendered,
)
from koordcore.events.observation import NodeUsageReported
from koordcore.protocol import keys
from koordcore.protocol.amplification import REWRITE_ABOVE, parse_normalization_text
from koordcore.protocol.config.config_map import SloControllerConfig
from koordcore.protocol.config.kinds import JsonObject
from koordcore.protocol.config.node_slo import render_node_slo
from koordcore.protocol.config.sections import SectionName
from koordcore.protocol.config.strategy import Strategy
from koordcore.protocol.objects import Node
from koordcore.protocol.resource_names import RDMA
from koordcore.state.aggregates import NodePolicyState

from koord_manager.domain.cluster.nodes import GPU_RESOURCES, is_told
from koord_manager.domain.cluster.view import ManagerView
from koord_manager.domain.controller_names import AMPLIFICATION, GPU, NORMALIZATION
from koord_manager.domain.controller_names import RDMA as RDMA_RESOURCE
from koord_manager.domain.controllers.configuration import NodePolicies
from koord_manager.domain.controllers.node_resources.decide import NodeLook, Overcommit, decide_overcommit
from koord_manager.domain.controllers.node_resources.devices import device_resources
from koord_manager.domain.controllers.node_resources.ratios import Ratio, amplification_text, normalization_text
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


def slo_drafts(policies: NodePolicies, view: ManagerView, nodes: Iterable[str]) -> list[Draft]:
    """Return the fact `NodeSloRendered` for each of the nodes whose NodeSLO differs from the published one.

    Args:
        policies: The configuration in force.
        view: The folded state of the cluster.
        nodes: Tokens of the nodes to compare.

    Source:
        manager spec, 6
    """
    return _drafts(view, nodes, lambda node, _, published: slo_event(policies, node, published))


def slo_event(policies: NodePolicies, node: Node, published: NodePolicyState | None) -> NodeSloRendered | None:
    """Return the event with the NodeSLO of a node, or None if it equals the published one.

    Args:
        policies: The configuration in force.
        node: The node.
        published: Last published policies of the node, or None if nothing was published.
    """
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
    """Return the NodeSLO with thresholds lowered by the health of the node.

    Source:
        manager spec, 16.2 (6), 16.4
    """
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

    A section whose cluster strategy applies is not included.

    Source:
        manager spec, 17.3
    """
    found: dict[str, str] = {}
    for name in _MATCHED:
        section = config.section(name)
        entry = section.entry_for(node.metadata.labels) if section else None
        if section is not None and entry is not None:
            found[name.key] = entry.name or f"[{section.entries.index(entry)}]"
    return found


def measuring_drafts(policies: NodePolicies, view: ManagerView, nodes: Iterable[str]) -> list[Draft]:
    """Return the fact `NodeMetricPolicyRendered` for each of the nodes whose measuring policy has changed.

    The measuring policy tells the agent how often to measure and report.

    Source:
        manager spec, 4.2
    """
    return _drafts(view, nodes, lambda node, _, published: measuring_event(policies, node, published))


def measuring_event(
    policies: NodePolicies, node: Node, published: NodePolicyState | None
) -> NodeMetricPolicyRendered | None:
    """Return the event with the measuring policy of a node's agent, or None if it equals the published one.

    If the colocation section is invalid, a published policy stays, and None is returned.
    """
    published_policy = published.metric_policy if published is not None else None
    strategy = policies.measuring(node, measures_already=published_policy is not None)
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


def ratio_drafts(policies: NodePolicies, view: ManagerView, nodes: Iterable[str]) -> list[Draft]:
    """Return the fact `NodeRatiosComputed` for each of the nodes whose normalization or amplification has changed.

    Amplification reads the published normalization, so a new one takes effect in the next cycle.

    Source:
        manager spec, 5.6, 5.7, 5.9
    """
    return _drafts(view, nodes, lambda _, token, published: ratio_event(policies, view, token, published))


def ratio_event(
    policies: NodePolicies, view: ManagerView, token: str, published: NodePolicyState | None
) -> NodeRatiosComputed | None:
    """Return the event with the normalization and amplification of a node, or None if it equals the published one.

    Args:
        policies: The configuration in force.
        view: The folded state of the cluster.
        token: Name of an existing node, as a part of NATS subjects (`.` is `_`).
        published: Last published policies of the node, or None if nothing was published.
    """
    node = view.node(token)
    assert node is not None
    labels, annotations = node.metadata.labels, node.metadata.annotations
    old = published or NodePolicyState(seq=0)
    topology = view.topology(token)
    info = topology.cpu_basic_info() if topology else None
    faults: dict[str, str] = {}
    new_text: str | None = None
    if (
        NORMALIZATION in policies.plugins and policies.colocation(token, node).enable
    ):  # left as it is while the node lends nothing
        normalization = normalization_text(
            policies.config.strategy_for(SectionName.CPU_NORMALIZATION, labels, annotations), labels, info
        )
        new_text = normalization.text
        if normalization.fault:
            faults["normalization"] = normalization.fault
    in_force = normalization_in_force(old, annotations)
    standing = {**annotations, keys.CPU_NORMALIZATION_RATIO: in_force} if in_force is not None else annotations
    had = old.amplification if old.ratios_computed else annotations.get(keys.RESOURCE_AMPLIFICATION_RATIO)
    amplification = (
        amplification_text(
            policies.config.strategy_for(SectionName.RESOURCE_AMPLIFICATION, labels, annotations), standing
        )
        if AMPLIFICATION in policies.plugins
        else Ratio(had)
    )
    if amplification.fault:
        faults["amplification"] = amplification.fault
    moved = new_text is not None and _ratio_moved(old.cpu_normalization, new_text)
    if not moved and amplification.text == had and faults == old.ratio_faults:
        return None
    return NodeRatiosComputed(
        cpu_normalization=new_text if moved else None,
        amplification=amplification.text,
        faults=faults,
        cpu_model=info.cpu_model if info else "",
        hyper_thread_enabled=info.hyper_thread_enabled if info else False,
        turbo_enabled=info.turbo_enabled if info else False,
        config_version=policies.version,
    )


def normalization_in_force(published: NodePolicyState | None, annotations: dict[str, str]) -> str | None:
    """Return the text of the node's cpu normalization ratio, or None if it has none.

    A ratio that the manager computed takes precedence over the annotation of the node.

    Source:
        manager spec, 5.5 (2)
    """
    if published is not None and published.cpu_normalization is not None:
        return published.cpu_normalization
    return annotations.get(keys.CPU_NORMALIZATION_RATIO)


def _ratio_moved(old: str | None, new: str) -> bool:
    """Return whether a ratio has to be published: the old one is absent, invalid, or differs by more than 0.01.

    Source: manager spec, 5.6.
    """
    before, after = parse_normalization_text(old) if old else None, parse_normalization_text(new)
    return before is None or after is None or abs(after - before) > REWRITE_ABOVE


def device_drafts(policies: NodePolicies, view: ManagerView, nodes: Iterable[str]) -> list[Draft]:
    """Return the fact `NodeDevicesComputed` for each of the nodes whose device resources have changed.

    Source:
        manager spec, 5.10, 5.11; 18 (11)
    """
    return _drafts(view, nodes, lambda _, token, published: device_event(policies, view, token, published))


def device_event(
    policies: NodePolicies, view: ManagerView, token: str, published: NodePolicyState | None
) -> NodeDevicesComputed | None:
    """Return the event with the device resources and device labels of a node, or None if they equal the published ones.

    Resources of plugins that do not run stay as published. Without a Device object, the published resources of plugins
    that run are withdrawn. Nothing stays of what was published about an earlier node of the name.

    Args:
        policies: The configuration in force.
        view: The folded state of the cluster.
        token: Name of the node, as a part of NATS subjects (`.` is `_`).
        published: Last published policies of the node, or None if nothing was published.
    """
    device = view.device(token)
    if device is None and (published is None or not published.devices):
        return None
    given = device_resources(device, sync_shared_gpus=policies.sync_shared_gpus)
    nothing = NodePolicyState(seq=0)
    last = published or nothing
    old = last if is_told(view.state, token, published, NodeDevicesComputed) else nothing
    resources = _enabled_devices(policies.plugins, given.resources, old.devices)
    if any(name in GPU_RESOURCES for name in resources):  # what healthy GPUs do not name is left as it is
        resources = {name: old.devices[name] for name in GPU_RESOURCES if name in old.devices} | resources
    labels = old.device_labels | (given.labels if GPU in policies.plugins else {})
    if (resources, labels) == (old.devices, old.device_labels) == (last.devices, last.device_labels):
        return None
    return NodeDevicesComputed(resources=resources, labels=labels, device_version=view.device_version(token))


def _enabled_devices(plugins: frozenset[str], new: dict[str, int], old: dict[str, int]) -> dict[str, int]:
    """Return the new resources of plugins that run, and the present resources of plugins that do not."""
    return {
        name: amount
        for source, runs_for in ((new, True), (old, False))
        for name, amount in source.items()
        if ((RDMA_RESOURCE if name == RDMA else GPU) in plugins) is runs_for
    }


def overcommit_of(
    policies: NodePolicies, view: ManagerView, token: str, now: datetime
) -> tuple[Overcommit, Draft | None]:
    """Return the overcommitted resources of an existing node, and the fact that publishes them, or None if none is due.

    Source:
        manager spec, 5.1
    """
    look = look_at(policies, view, token, view.policy(token), view.reports.get(token))
    based_on = BasedOn(ev=view.state.position, obs=view.obs_position)
    found = decide_overcommit(look, now, config_version=policies.version, based_on=based_on)
    return found, _draft(view, token, found.event) if found.event else None


def look_at(
    policies: NodePolicies,
    view: ManagerView,
    token: str,
    published: NodePolicyState | None,
    report: NodeUsageReported | None,
) -> NodeLook:
    """Return the inputs from which the overcommitted resources of an existing node are computed.

    Args:
        policies: The configuration in force.
        view: The folded state of the cluster.
        token: Name of the node, as a part of NATS subjects (`.` is `_`).
        published: Last published policies of the node, or None if nothing was published.
        report: The newest usage report, or None if none was received.
    """
    node = view.node(token)
    assert node is not None
    return NodeLook(
        node=node,
        pods=view.pods_with_facts(token),
        report=report,
        topology=view.topology(token),
        strategy=policies.colocation(token, node, published.health if published else None),
        normalization=normalization_in_force(published, node.metadata.annotations),
        published=published,
        plugins=policies.plugins,
        is_told=is_told(view.state, token, published, NodeOvercommitComputed),
    )


Decide = Callable[[Node, str, NodePolicyState | None], Event | None]


def _drafts(view: ManagerView, nodes: Iterable[str], decide: Decide) -> list[Draft]:
    drafts: list[Draft] = []
    for token in nodes:
        node = view.node(token)
        event = decide(node, token, view.policy(token)) if node is not None else None
        if event is not None:
            drafts.append(_draft(view, token, event))
    return drafts


def _draft(view: ManagerView, token: str, event: Event) -> Draft:
    ref = AggregateRef("nodepolicy", token)
    return Draft(ref, event, view.state.last_seq(ref))
