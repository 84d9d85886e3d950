"""Whatever a user writes is answered with a value: configuration, admission and custom resources never raise."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st
from koordcore.protocol.config.admission import NodeLabels, config_faults, validate_config_map, validate_node_labels
from koordcore.protocol.config.config_map import NodeStrategies, read_config_map
from koordcore.protocol.config.fields import Part, fields_of
from koordcore.protocol.config.node_slo import render_node_slo
from koordcore.protocol.config.sections import SECTIONS, SectionName
from koordcore.protocol.crd import Accepted, Json, admit, resource_versions
from support.depth import examples


def field_names(part: type[Part]) -> set[str]:
    found = set(fields_of(part))
    for field in fields_of(part).values():
        found |= field_names((field.item or field).part)
    return found


KEYS = sorted(
    {name for table in SECTIONS.values() for name in field_names(table.part)}
    | {"clusterStrategy", "nodeStrategies", "nodeConfigs", "nodeSelector", "matchLabels", "matchExpressions"}
    | {"key", "operator", "values", "name", "spec", "status", "owners", "template", "podRef", "devices", "a", "ENABLE"}
)
SCALARS: st.SearchStrategy[Json] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.integers(-30, 120),
    st.floats(allow_nan=False),
    st.sampled_from(["", "5m", "In", "Exists", "out", "10G", "50a", "static", "\ud800", "a b", "2024-01-01T00:00:00Z"]),
)
DOCUMENTS: st.SearchStrategy[Json] = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(KEYS), inner, max_size=5)),
    max_leaves=25,
)


def text_of(document: Json) -> str:
    return json.dumps(document)  # writes Infinity too, which must be refused


@given(data=st.dictionaries(st.sampled_from([name.key for name in SectionName]), DOCUMENTS.map(text_of), max_size=4))
@settings(max_examples=examples(250))
def test_any_config_map(data: dict[str, str]) -> None:
    reading = read_config_map(None, data)
    refused = {rejection.section.key for rejection in reading.rejections}
    assert refused <= data.keys()
    assert all(rejection.sentence() for rejection in reading.rejections)
    json.dumps(render_node_slo(reading.config, {"a": ""}, {}, {}).spec, ensure_ascii=False, allow_nan=False).encode()
    NodeStrategies(reading.config).colocation(
        {"a": ""}, {"node.koordinator.sh/colocation-strategy": min(data.values(), default="")}
    )
    verdict = validate_config_map(data, {}, [NodeLabels(name="n", labels={"a": ""})], check_names=True)
    assert verdict.allowed or (verdict.reason and verdict.field and verdict.rule)
    verdict.http_message().encode()
    validate_node_labels(data, NodeLabels(name="n", labels={"a": ""}))


@given(data=st.dictionaries(st.sampled_from([name.key for name in SectionName]), DOCUMENTS.map(text_of), max_size=4))
@example(data={"slo-adjust-config": '{"memoryEvictFloorPercent": -1}'})
@example(
    data={
        "system-config": '{"clusterStrategy": {"totalNetworkBandwidth": "10G"}}',
        "resource-qos-config": '{"clusterStrategy": {"lsClass": {"networkQOS": {"ingressRequest": "no quantity"}}}}',
    }
)
@settings(max_examples=examples(150))
def test_what_refuses_a_config_map_is_among_its_faults(data: dict[str, str]) -> None:
    told = {fault.path for fault in config_faults(data)}
    verdict = validate_config_map(data, {}, [], check_names=False)
    assert verdict.allowed or verdict.field in told
    assert told or not read_config_map(None, data).rejections


@given(resource=st.sampled_from(resource_versions()), spec=DOCUMENTS, status=DOCUMENTS)
@settings(max_examples=examples(250))
def test_any_custom_resource(resource: Any, spec: Json, status: Json) -> None:
    document: dict[str, Json] = {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "spec": spec,
        "status": status,
    }
    verdict = admit(document)
    if isinstance(verdict, Accepted):
        # what was stored is accepted again, unchanged
        assert admit(verdict.object) == verdict
    else:
        assert verdict.field
        assert verdict.sentence()


@given(document=DOCUMENTS)
@settings(max_examples=examples(100))
def test_any_document_is_judged(document: Json) -> None:
    admit(document)
