"""The shipped definitions: complete, equal to the copies for kubectl, of one shape with the configuration tables."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from koordcore.protocol.config.fields import Field, Kind, fields_of
from koordcore.protocol.config.node_strategies import (
    CpuBurstStrategy,
    HostApplications,
    QosStrategy,
    SystemStrategy,
    ThresholdStrategy,
)
from koordcore.protocol.crd import Schema, definition_texts, find_resource, resource_versions
from koordcore.protocol.crd.catalogue import UnsupportedSchema, build_schema

COPIES = Path(__file__).parents[4] / "schemas" / "crds"

# group, kind, plural, short name, scope, status subresource: the table of protocol spec, 9, and descheduler spec, 11.1
TABLE = [
    ("slo.koordinator.sh", "NodeMetric", "nodemetrics", None, "Cluster", True),
    ("slo.koordinator.sh", "NodeSLO", "nodeslos", None, "Cluster", True),
    ("config.koordinator.sh", "ClusterColocationProfile", "clustercolocationprofiles", None, "Cluster", True),
    ("scheduling.koordinator.sh", "Reservation", "reservations", None, "Cluster", True),
    ("scheduling.koordinator.sh", "Device", "devices", None, "Cluster", False),
    ("scheduling.koordinator.sh", "PodMigrationJob", "podmigrationjobs", "pmj", "Cluster", True),
    ("scheduling.koordinator.sh", "DrainNode", "drainnodes", "dn", "Cluster", True),
    ("scheduling.koordinator.sh", "DrainNodeGroup", "drainnodegroups", "dng", "Cluster", True),
    ("scheduling.koordinator.sh", "ClusterNetworkTopology", "clusternetworktopologies", None, "Cluster", True),
    ("scheduling.koordinator.sh", "ScheduleExplanation", "scheduleexplanations", "sched-exp", "Namespaced", True),
    ("scheduling.sigs.k8s.io", "PodGroup", "podgroups", None, "Namespaced", False),
    ("scheduling.sigs.k8s.io", "ElasticQuota", "elasticquotas", None, "Namespaced", False),
    ("quota.koordinator.sh", "ElasticQuotaProfile", "elasticquotaprofiles", "eqp", "Namespaced", False),
    ("analysis.koordinator.sh", "Recommendation", "recommendations", "recom", "Namespaced", True),
    ("topology.node.k8s.io", "NodeResourceTopology", "noderesourcetopologies", "node-res-topo", "Cluster", False),
]


@pytest.mark.parametrize(("group", "kind", "plural", "short", "scope", "has_status"), TABLE)
def test_definition_is_the_row_of_the_specification(
    group: str, kind: str, plural: str, short: str | None, scope: str, has_status: bool
) -> None:
    found = find_resource(f"{group}/v1alpha1", kind)
    assert found is not None
    assert (found.plural, found.scope, found.has_status) == (plural, scope, has_status)
    assert found.short_names == ((short,) if short else ())
    assert f"{group}_{plural}.yaml" in definition_texts()


def test_there_are_no_further_kinds() -> None:
    assert {version.kind for version in resource_versions()} == {kind for _, kind, *_ in TABLE}
    assert len(definition_texts()) == len(TABLE)


def test_topology_serves_the_old_version_and_stores_the_new_one() -> None:
    versions = {v.version: (v.served, v.stored) for v in resource_versions() if v.kind == "NodeResourceTopology"}
    assert versions == {"v1alpha1": (True, False), "v1alpha2": (True, True)}


@pytest.mark.parametrize("plural", ["podgroups", "elasticquotas", "noderesourcetopologies"])
def test_protected_groups_carry_the_approval(plural: str) -> None:
    text = next(text for name, text in definition_texts().items() if name.endswith(f"_{plural}.yaml"))
    assert "api-approved.kubernetes.io: https://github.com/kubernetes" in text


def test_printer_columns() -> None:
    columns = {
        kind: [(column.name, column.json_path) for column in version.columns]
        for version in resource_versions()
        if (kind := version.kind) in ("Reservation", "PodMigrationJob", "Recommendation")
    }
    assert columns["Reservation"] == [
        ("Phase", ".status.phase"),
        ("Age", ".metadata.creationTimestamp"),
        ("Node", ".status.nodeName"),
        ("TTL", ".spec.ttl"),
        ("Expires", ".spec.expires"),
    ]
    assert [name for name, _ in columns["PodMigrationJob"]] == (
        ["Phase", "Status", "Age", "Node", "Reservation", "PodNamespace", "Pod", "NewPod", "TTL"]
    )
    assert [name for name, _ in columns["Recommendation"]] == ["Age", "Type", "Kind", "Name", "LastUpdateTime"]


def test_copies_for_kubectl_have_not_drifted() -> None:
    copies = {path.name: path.read_text(encoding="utf-8") for path in COPIES.glob("*.yaml")}
    assert copies == definition_texts(), "run: python -m koordcore.protocol.crd schemas/crds"


def undescribed(schema: Schema, path: str) -> Iterator[str]:
    """Yield the paths of fields without a description. The API server describes metadata."""
    for name, child in schema.properties.items():
        place = f"{path}.{name}"
        if not child.description and name != "metadata":
            yield place
        yield from undescribed(child, place)
    for child in (schema.items, schema.additional):
        if child is not None:
            yield from undescribed(child, path)


def test_every_field_is_described_however_deep() -> None:
    places = [place for version in resource_versions() for place in undescribed(version.schema, version.kind)]

    assert places == []


def test_keyword_that_admission_would_not_enforce_is_refused() -> None:
    with pytest.raises(UnsupportedSchema, match="uniqueItems"):
        build_schema({"type": "object", "properties": {"a": {"type": "array", "uniqueItems": True}}}, "Kind")
    with pytest.raises(UnsupportedSchema, match="int-or-string"):
        build_schema({"anyOf": [{"type": "object"}]}, "Kind")


def assert_same_shape(field: Field, schema: Schema, path: str) -> None:
    match field.kind:
        case Kind.OBJECT:
            assert schema.type == "object", path
            fields = fields_of(field.part)
            assert list(schema.properties) == list(fields), path
            for name, inner in fields.items():
                child = schema.properties[name]
                assert_same_shape(inner, child, f"{path}.{name}")
                if inner.webhook is not None:
                    # what admission of the ConfigMap lets through must fit into the NodeSLO that is rendered from it
                    assert child.minimum is None or child.minimum <= (inner.webhook.minimum or 0), name
                    assert child.maximum is None or child.maximum >= (inner.webhook.maximum or 0), name
        case Kind.LIST:
            assert schema.type == "array", path
            assert schema.items is not None
            assert field.item is not None
            assert_same_shape(field.item, schema.items, f"{path}[]")
        case Kind.MAP:
            assert schema.additional is not None, path
            assert field.item is not None
            assert_same_shape(field.item, schema.additional, f"{path}.*")
        case Kind.BOOL:
            assert schema.type == "boolean", path
        case Kind.INT | Kind.INT32:
            assert (schema.type, schema.format) == ("integer", "int32" if field.kind is Kind.INT32 else "int64"), path
        case Kind.FLOAT:
            assert schema.type == "number", path
        case Kind.TEXT | Kind.DURATION:
            assert schema.type == "string", path
        case Kind.QUANTITY:
            assert schema.int_or_string, path
            assert schema.pattern is not None, path
        case Kind.RATE:
            assert schema.int_or_string, path
        case Kind.OPEN_MAP:
            assert schema.preserve_unknown, path


@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("resourceUsedThresholdWithBE", Field(kind=Kind.OBJECT, part=ThresholdStrategy)),
        ("resourceQOSStrategy", Field(kind=Kind.OBJECT, part=QosStrategy)),
        ("cpuBurstStrategy", Field(kind=Kind.OBJECT, part=CpuBurstStrategy)),
        ("systemStrategy", Field(kind=Kind.OBJECT, part=SystemStrategy)),
        ("hostApplications", fields_of(HostApplications)["applications"]),
        ("extensions", Field(kind=Kind.OPEN_MAP)),
    ],
)
def test_node_slo_has_the_shape_of_the_configuration(name: str, field: Field) -> None:
    found = find_resource("slo.koordinator.sh/v1alpha1", "NodeSLO")
    assert found is not None
    assert_same_shape(field, found.schema.properties["spec"].properties[name], name)
