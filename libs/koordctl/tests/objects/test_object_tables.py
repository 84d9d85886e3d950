"""The tables of `koord get`: every kind has columns, one unit for each resource."""

from typing import Any

import pytest
from koordcore.protocol import keys
from koordcore.protocol.crd import accepted_kinds
from koordcore.protocol.drains import DRAIN_NODE
from koordctl.gang import declared_by
from koordctl.objects.columns import COLUMNS, object_table

NAMES = ["namespace", "name"]


def table(kind: str, **item: Any) -> tuple[list[str], list[object]]:
    columns, [row] = object_table(kind, [{"metadata": {"name": "o", "namespace": "d"}, **item}], wide=False)
    return columns, row


@pytest.mark.parametrize("kind", sorted({found.kind for found in accepted_kinds()} - {"Service", "DaemonSet"}))
def test_every_custom_kind_has_columns_besides_its_name(kind: str) -> None:
    columns, row = table(kind)
    assert set(columns) - {*NAMES}
    assert len(set(columns)) == len(columns) == len(row)


def test_columns_of_a_definition_are_used_and_ours_only_where_it_has_none() -> None:
    declared = {found.kind for found in accepted_kinds() if any(column.type != "date" for column in found.columns)}
    assert not declared & set(COLUMNS)
    assert table("Reservation", status={"phase": "Available"})[0] == ["name", "phase", "node", "ttl", "expires"]
    assert table("Recommendation")[0] == [*NAMES, "type", "kind", "target-name"]


def test_quota_shows_its_parent_and_its_amounts_in_cores_and_gibibytes() -> None:
    metadata = {"name": "a", "namespace": "d", "labels": {keys.QUOTA_PARENT: "root"}}
    columns, row = table("ElasticQuota", metadata=metadata, spec={"min": {"cpu": "1500m", "memory": "8192Mi"}})
    shown = dict(zip(columns, row, strict=True))
    assert (shown["parent"], shown["cpu-min"], shown["memory-min"]) == ("root", "1.5", "8.0Gi")
    assert (shown["cpu-max"], shown["cpu-used"]) == (None, None)


def test_pod_shows_the_class_that_it_counts_as() -> None:
    def shown(**pod: Any) -> object:
        return dict(zip(*table("Pod", **pod), strict=True))["qos"]

    amounts = {"cpu": "1", "memory": "1Gi"}
    alike = {"containers": [{"name": "c", "resources": {"requests": amounts, "limits": amounts}}]}
    assert shown(spec={"containers": [{"name": "c"}]}) == "BE"
    assert shown(spec=alike) == shown(status={"qosClass": "Guaranteed"}) == "LSR"
    assert shown(spec=alike, metadata={"name": "o", "labels": {keys.QOS_CLASS: "LS"}}) == "LS"


def test_node_shows_batch_resources_in_the_units_of_its_own() -> None:
    amounts = {"cpu": "16", "memory": "64Gi", "kubernetes.io/batch-cpu": "1394", "kubernetes.io/batch-memory": "3Gi"}
    assert table("Node", status={"allocatable": amounts})[1] == ["o", "Ready", "16", "64.0Gi", "1.394", "3.0Gi"]
    assert table("Node", status={"allocatable": {"cpu": "16"}})[1] == ["o", "Ready", "16", None, None, None]
    silent = object_table("Node", [{"metadata": {"name": "o"}}], wide=False, silent={"o"})[1]
    assert silent[0][1] == "Ready,NoReport"


def test_a_node_that_a_drain_has_closed_says_so() -> None:
    taints = [{"key": "other", "effect": "NoSchedule"}, {"key": DRAIN_NODE, "effect": "NoSchedule", "value": "d"}]
    assert table("Node", spec={"taints": taints[:1]})[1][1] == "Ready"
    assert table("Node", spec={"taints": taints})[1][1] == "Ready,ClosedByDrain"
    assert table("Node", spec={"taints": taints, "unschedulable": True})[1][1] == "SchedulingDisabled,ClosedByDrain"


def test_lists_stand_on_one_line_and_what_is_counted_is_a_number() -> None:
    assert table("NodeResourceTopology", topologyPolicies=["None", "Restricted"])[1] == ["o", "None,Restricted"]
    assert table("ClusterNetworkTopology", spec={"networkTopologySpec": [{}, {}]})[1] == ["o", 2, 0]
    assert table("ConfigMap", data={"a": "", "b": ""})[1] == ["d", "o", 2]


def test_answers_are_yes_or_no_in_small_letters() -> None:
    columns, row = table("ScheduleExplanation", status={"schedulable": False})
    assert dict(zip(columns, row, strict=True))["schedulable"] == "false"


def test_gang_named_by_a_label_is_not_said_to_come_from_an_annotation() -> None:
    assert declared_by({keys.POD_GROUP_NAME: "g"}) == "labels of its pods"
    assert declared_by({}) == "annotations of its pods"
