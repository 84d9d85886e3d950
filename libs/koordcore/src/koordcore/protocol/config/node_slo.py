"""The NodeSLO spec of one node: rendered by the manager, completed by the agent.

The manager sends threshold, burst and system strategies with their defaults, but only the written fields of the QoS
strategy. The agent completes all of them, because a NodeSLO may be missing or come from an older manager. It sets
disabled QoS features to "off".

Source: manager spec, 6; protocol spec, 6.2 steps 4 and 5, 6.5.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, cast

from koordcore.protocol.config.config_map import SloControllerConfig
from koordcore.protocol.config.fields import JsonObject, JsonValue, merge
from koordcore.protocol.config.node_strategies import QosStrategy
from koordcore.protocol.config.parse import parse_object
from koordcore.protocol.config.sections import SECTIONS, SectionName
from koordcore.protocol.config.strategy import Strategy
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
    """A NodeSLO spec as JSON, and the error in the annotations of the node; None without an error. With an error,
    `systemStrategy` in the spec is null.
    """

    spec: JsonObject
    fault: InvalidInput | None


def render_node_slo(
    config: SloControllerConfig,
    labels: Mapping[str, str],
    annotations: Mapping[str, str],
    extensions: Mapping[str, JsonValue],
) -> RenderedNodeSlo:
    """Return the NodeSLO spec that the manager sends to a node. `extensions`: Extension key -> JSON value that a plugin
    gives for this node.
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


# Values of a disabled feature. They replace everything that was written for it.
QOS_OFF: Final[dict[str, JsonObject]] = {
    "cpuQOS": {"enable": False, "groupIdentity": 0, "schedIdle": 0, "coreExpeller": False},
    "resctrlQOS": {"enable": False, "catRangeStartPercent": 0, "catRangeEndPercent": 100, "mbaPercent": 100},
    "memoryQOS": {
        "enable": False,
        "minLimitPercent": 0,
        "lowLimitPercent": 0,
        "throttlingPercent": 0,
        "wmarkRatio": 0,
        "wmarkScalePermill": 50,
        "wmarkMinAdj": 0,
        "priorityEnable": 0,
        "priority": 0,
        "oomKillGroup": 0,
    },
}

_RESET_CLASSES: Final = ("lsrClass", "lsClass", "beClass")


def _class(
    *, group_identity: int, core_expeller: bool, cat_end: int, wmark_ratio: int, wmark_scale: int, wmark_min_adj: int
) -> JsonObject:
    return {
        "cpuQOS": {**QOS_OFF["cpuQOS"], "groupIdentity": group_identity, "coreExpeller": core_expeller},
        "memoryQOS": {
            **QOS_OFF["memoryQOS"],
            "wmarkRatio": wmark_ratio,
            "wmarkScalePermill": wmark_scale,
            "wmarkMinAdj": wmark_min_adj,
        },
        "blkioQOS": {"enable": False},
        "resctrlQOS": {**QOS_OFF["resctrlQOS"], "catRangeEndPercent": cat_end},
        "networkQOS": {
            "enable": False,
            "ingressRequest": 0,
            "ingressLimit": 0,
            "egressRequest": 0,
            "egressLimit": 0,
        },
    }


# Recommended values per QoS class, with every feature disabled.
AGENT_QOS_DEFAULTS: Final[JsonObject] = {
    "policies": {"cpuPolicy": "groupIdentity", "netQOSPolicy": "tc"},
    "lsrClass": _class(
        group_identity=2, core_expeller=True, cat_end=100, wmark_ratio=95, wmark_scale=20, wmark_min_adj=-25
    ),
    "lsClass": _class(
        group_identity=2, core_expeller=True, cat_end=100, wmark_ratio=95, wmark_scale=20, wmark_min_adj=-25
    ),
    "beClass": _class(
        group_identity=-1, core_expeller=False, cat_end=30, wmark_ratio=95, wmark_scale=20, wmark_min_adj=50
    ),
    "systemClass": _class(
        group_identity=0, core_expeller=False, cat_end=100, wmark_ratio=0, wmark_scale=50, wmark_min_adj=0
    ),
    "cgroupRoot": {"blkioQOS": {"enable": False}},
}


def complete_strategy(name: SectionName, received: Strategy | None) -> Strategy:
    """Return the strategy of one section that the agent applies: as received, with all defaults added. `received`:
    Strategy in the NodeSLO; None if the NodeSLO lacks the section.

    Raises:
        InvalidInput: A field has the wrong type.
    """
    table = SECTIONS[name]
    given = parse_object(table.part, {} if received is None else received, "")
    if name is SectionName.RESOURCE_QOS:
        return _complete_qos(given)
    return merge(table.part, table.defaults, given)


def _complete_qos(received: Strategy) -> JsonObject:
    """Return the QoS strategy with the agent's defaults, and with "off" values for disabled features. Only cpuQOS,
    resctrlQOS and memoryQOS of lsrClass, lsClass and beClass are set to "off". systemClass, cgroupRoot, blkioQOS and
    networkQOS keep the written values.
    """
    result = merge(QosStrategy, AGENT_QOS_DEFAULTS, received)
    for name in _RESET_CLASSES:
        features = dict(cast("Mapping[str, JsonValue]", result[name]))
        for feature, off in QOS_OFF.items():
            if not cast("JsonObject", features[feature]).get("enable"):
                features[feature] = dict(off)
        result[name] = features
    return result


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
    """Return the extensions of a NodeSLO after every registered plugin has given its value for the node. `old`:
    Extensions of the existing NodeSLO. Keys without a plugin stay unchanged. `answers`: Extension key -> value of its
    plugin; None deletes the key.

    Source: protocol spec, 6.10.
    """
    merged = {**old, **answers}
    return {key: value for key, value in merged.items() if key not in answers or value is not None}
