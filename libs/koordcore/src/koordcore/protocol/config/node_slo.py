"""The NodeSLO spec of one node: rendered by the manager, completed with defaults by the agent.

Source:
    manager spec, 6; protocol spec, 6.2 steps 4 and 5
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from koordcore.protocol.config.agent import complete_strategy
from koordcore.protocol.config.config_map import SloControllerConfig
from koordcore.protocol.config.kinds import JsonObject, JsonValue
from koordcore.protocol.config.sections import SectionName
from koordcore.values.invalid import InvalidInput

INTERFERENCE_EXTENSION: Final = "interference"
_FIELD_OF_SECTION: Final = {
    SectionName.RESOURCE_THRESHOLD: "resourceUsedThresholdWithBE",
    SectionName.RESOURCE_QOS: "resourceQOSStrategy",
    SectionName.CPU_BURST: "cpuBurstStrategy",
    SectionName.SYSTEM: "systemStrategy",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderedNodeSlo:
    """A NodeSLO spec as JSON, and the error in the annotations of the node; None without an error.

    With an error, `systemStrategy` in the spec is null.
    """

    spec: JsonObject
    fault: InvalidInput | None


def render_node_slo(
    config: SloControllerConfig,
    labels: Mapping[str, str],
    annotations: Mapping[str, str],
    extensions: Mapping[str, JsonValue],
) -> RenderedNodeSlo:
    """Return the NodeSLO spec that the manager sends to a node.

    Args:
        config: The configuration.
        labels: Labels of the node.
        annotations: Annotations of the node.
        extensions: Extension key -> JSON value that a plugin gives for this node.
    """
    spec: JsonObject = {}
    fault: InvalidInput | None = None
    for name, field in _FIELD_OF_SECTION.items():
        try:
            strategy = config.strategy_for(name, labels, annotations)
        except InvalidInput as error:
            strategy, fault = None, error
        spec[field] = None if strategy is None else dict(strategy)
    hosts = config.strategy_for(SectionName.HOST_APPLICATION, labels, annotations) or {}
    spec["hostApplications"] = hosts.get("applications", [])
    interference = config.strategy_for(SectionName.INTERFERENCE, labels, annotations)
    is_on = interference is not None and interference.get("enable") is True
    own: JsonObject = {INTERFERENCE_EXTENSION: dict(interference or {})} if is_on else {}
    spec["extensions"] = {**own, **extensions}
    return RenderedNodeSlo(spec=spec, fault=fault)


def complete_node_slo(spec: Mapping[str, JsonValue]) -> JsonObject:
    """Return the NodeSLO spec that an agent applies: defaults are added to the spec, also for missing or null sections.

    Raises:
        InvalidInput: A section or a field has a wrong type.
    """
    result = dict(spec)
    for name, field in _FIELD_OF_SECTION.items():
        received = spec.get(field)
        if received is not None and not isinstance(received, dict):
            raise InvalidInput("an object", received, field)
        try:
            result[field] = dict(complete_strategy(name, received))
        except InvalidInput as error:
            raise error.at(field) from error
    return result


def update_extensions(old: Mapping[str, JsonValue], answers: Mapping[str, JsonValue]) -> JsonObject:
    """Return the extensions of a NodeSLO after every registered plugin has given its value for the node.

    Args:
        old: Extensions of the existing NodeSLO. Keys without a plugin stay unchanged.
        answers: Extension key -> value of its plugin; None deletes the key.

    Source:
        protocol spec, 6.10
    """
    merged = {**old, **answers}
    return {key: value for key, value in merged.items() if key not in answers or value is not None}
