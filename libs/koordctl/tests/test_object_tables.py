"""The tables of `koord get`: every kind has columns, one unit for each resource."""

from typing import Any

import pytest
from koordcore.protocol import keys
from koordcore.protocol.crd import accepted_kinds
from koordctl.commands.gang import declared_by
from koordctl.object_tables import COLUMNS, object_table

NAMES = ["namespace", "name"]


def table(kind: str, **item: Any) -> tuple[list[str], list[object]]:
    columns, [row] = object_table(kind, [{"metadata": {"name": "o", "namespace": "d"}, **item}], wide=False)
    return columns, row


@pytest.mark.parametrize("kind", sorted({found.kind for found in accepted_kinds()} - {"Service", "DaemonSet"}))
def test_every_custom_kind_has_columns_besides_its_name(kind: str) -> None:
    columns, row = table(kind)
    assert set(columns) - {*NAMES}
    assert len(set(columns)) == len(columns) == len(row)


def test_columns_of_a_definition_are_used_where_we_have_none() -> None:
    assert "Reservation" not in COLUMNS
    assert table("Reservation", status={"phase": "Available"})[0] == ["name", "phase", "node", "ttl", "expires"]


def test_quota_shows_its_parent_and_its_amounts_in_cores_and_gibibytes() -> None:
    metadata = {"name": "a", "namespace": "d", "labels": {keys.QUOTA_PARENT: "root"}}
    columns, row = table("ElasticQuota", metadata=metadata, spec={"min": {"cpu": "1500m", "memory": "8Gi"}})
    assert columns == [*NAMES, "parent", "min", "max", "used"]
    assert row == ["d", "a", "root", "cpu 1.5, memory 8.0Gi", None, None]


def test_node_shows_batch_resources_in_the_units_of_its_own() -> None:
    amounts = {"cpu": "16", "memory": "64Gi", "kubernetes.io/batch-cpu": "1394", "kubernetes.io/batch-memory": "3Gi"}
    assert table("Node", status={"allocatable": amounts})[1] == ["o", "Ready", "16", "64.0Gi", "1.394", "3.0Gi"]
    assert table("Node", status={"allocatable": {"cpu": "16"}})[1] == ["o", "Ready", "16", None, None, None]


def test_selectors_and_lists_stand_on_one_line() -> None:
    _, row = table(
        "ClusterColocationProfile", spec={"selector": {"matchLabels": {"b": "2", "a": "x"}}, "qosClass": "BE"}
    )
    assert row == ["o", "a=x,b=2", "BE", None, None]
    assert table("Device", spec={"devices": [{}, {}]})[1] == ["o", 2]


def test_gang_named_by_a_label_is_not_said_to_come_from_an_annotation() -> None:
    assert declared_by({keys.POD_GROUP_NAME: "g"}) == "labels of its pods"
    assert declared_by({}) == "annotations of its pods"
