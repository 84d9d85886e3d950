"""Strategies of a NodeSLO as the agent applies them: completed with defaults, disabled QoS features set to "off".

The manager sends threshold, burst and system strategies with their defaults, but only the written fields of the QoS
strategy. The agent completes all of them, because a NodeSLO may be missing or come from an older manager.

Source:
    protocol spec, 6.2 step 5 and 6.5; manager spec, 6.4
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, cast

from koordcore.protocol.config.kinds import JsonObject, JsonValue, merge
from koordcore.protocol.config.parse import parse_object
from koordcore.protocol.config.sections import SECTIONS, SectionName
from koordcore.protocol.config.strategy import Strategy
from koordcore.protocol.config.tables import RESOURCE_QOS

_OFF: Final[dict[str, JsonObject]] = {
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
"""Values of a disabled feature. They replace everything that was written for it."""

_RESET_CLASSES: Final = ("lsrClass", "lsClass", "beClass")


def _class(
    *, group_identity: int, core_expeller: bool, cat_end: int, wmark_ratio: int, wmark_scale: int, wmark_min_adj: int
) -> JsonObject:
    return {
        "cpuQOS": {**_OFF["cpuQOS"], "groupIdentity": group_identity, "coreExpeller": core_expeller},
        "memoryQOS": {
            **_OFF["memoryQOS"],
            "wmarkRatio": wmark_ratio,
            "wmarkScalePermill": wmark_scale,
            "wmarkMinAdj": wmark_min_adj,
        },
        "blkioQOS": {"enable": False},
        "resctrlQOS": {**_OFF["resctrlQOS"], "catRangeEndPercent": cat_end},
        "networkQOS": {
            "enable": False,
            "ingressRequest": 0,
            "ingressLimit": 0,
            "egressRequest": 0,
            "egressLimit": 0,
        },
    }


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
"""Recommended values per QoS class, with every feature disabled."""


def complete_strategy(name: SectionName, received: Strategy | None) -> Strategy:
    """Return the strategy of one section that the agent applies: as received, with all defaults added.

    Args:
        name: Name of the section.
        received: Strategy in the NodeSLO; None if the NodeSLO lacks the section.

    Raises:
        InvalidInput: A field has the wrong type.
    """
    table = SECTIONS[name]
    given = parse_object(table.fields, {} if received is None else received, "")
    if name is SectionName.RESOURCE_QOS:
        return _complete_qos(given)
    return merge(table.fields, table.defaults, given)


def _complete_qos(received: Strategy) -> JsonObject:
    """Return the QoS strategy with the agent's defaults, and with "off" values for disabled features.

    Only cpuQOS, resctrlQOS and memoryQOS of lsrClass, lsClass and beClass are set to "off". systemClass, cgroupRoot,
    blkioQOS and networkQOS keep the written values.
    """
    result = merge(RESOURCE_QOS, AGENT_QOS_DEFAULTS, received)
    for name in _RESET_CLASSES:
        features = dict(cast("Mapping[str, JsonValue]", result[name]))
        for feature, off in _OFF.items():
            if not cast("JsonObject", features[feature]).get("enable"):
                features[feature] = dict(off)
        result[name] = features
    return result
