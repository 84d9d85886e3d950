"""Vectors of slo-controller-config: effective strategies and the admission verdict."""

from __future__ import annotations

import json

from conformance.registry import Json, adapter
from koordcore.protocol.config.admission import NodeLabels, validate_config_map
from koordcore.protocol.config.config_map import read_config_map
from koordcore.protocol.config.node_slo import complete_strategy
from koordcore.protocol.config.sections import SectionName
from koordcore.values.invalid import InvalidInput

QOS_OBJECTS = ("lsrClass", "lsClass", "beClass", "systemClass", "cgroupRoot", "policies")
FEATURES = ("cpuQOS", "memoryQOS", "blkioQOS", "resctrlQOS", "networkQOS", "ioCfg", "cgroupPath")
MAPS = ("schedFeatures", "ratioModel", "resourceAmplificationRatio", "metricAggregatePolicy", "extensions")


def text_of(document: Json) -> str:
    """A vector holds a section as text or as the object that the text denotes."""
    return document if isinstance(document, str) else json.dumps(document)


@adapter("protocol.config_merge", whole=("strategy", *QOS_OBJECTS, *FEATURES, *MAPS))
def config_merge(given: dict[str, Json]) -> dict[str, Json]:
    """One section plus a node -> the effective strategy (protocol spec, 6.2-6.9)."""
    section = SectionName(given["section"])
    metadata: dict[str, dict[str, str] | None] = given["node"]["metadata"]
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    reading = read_config_map(None, {section.key: text_of(given["config"])} if "config" in given else {})
    for rejection in reading.rejections:
        raise InvalidInput(rejection.rule, rejection.value, rejection.field)
    strategy = reading.config.strategy_for(section, labels, annotations)
    if given.get("stage") == "agent":
        strategy = complete_strategy(section, strategy)
    if section is SectionName.HOST_APPLICATION and strategy is not None:
        return {"strategy": strategy["applications"]}
    return {"strategy": strategy}


@adapter("protocol.config_validation")
def config_validation(given: dict[str, Json]) -> dict[str, Json]:
    """ConfigMap data -> admission verdict (protocol spec, 6.11)."""
    data = {key: text_of(value) for key, value in given["data"].items()}
    before: dict[str, Json] = given.get("old_data") or {}
    existing: list[dict[str, Json]] = given.get("nodes") or []
    old_data = {key: text_of(value) for key, value in before.items()}
    nodes = [NodeLabels(name=node["name"], labels=node.get("labels") or {}) for node in existing]
    verdict = validate_config_map(data, old_data, nodes, check_names=bool(given.get("name_check")))
    return {"allowed": verdict.allowed, "reason": verdict.reason, "message": verdict.message}
