"""The tables of `koord get`: every kind has columns, one unit for each resource."""

from datetime import UTC, datetime
from typing import Any

import pytest
from koordcore.protocol import keys
from koordcore.protocol.crd import accepted_kinds
from koordcore.protocol.drains import DRAIN_NODE
from koordctl.gang import declared_by
from koordctl.objects.columns import COLUMNS, Beside, object_table, running_pods

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
    assert table("Reservation", status={"phase": "Available"})[0] == ["name", "phase", "node", "ttl", "expires", "age"]
    assert table("Recommendation")[0] == [*NAMES, "type", "kind", "target-name", "lastupdatetime", "age"]


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
    assert table("Node", status={"allocatable": amounts})[1] == [
        "o", "Ready", "16", "64.0Gi", "1.394", "3.0Gi", None
    ]  # fmt: skip
    assert table("Node", status={"allocatable": {"cpu": "16"}})[1] == ["o", "Ready", "16", None, None, None, None]
    silent = object_table("Node", [{"metadata": {"name": "o"}}], wide=False, beside=Beside(silent={"o"}))[1]
    assert silent[0][1] == "Ready,NoReport"


def test_a_node_that_a_drain_has_closed_says_so() -> None:
    taints = [{"key": "other", "effect": "NoSchedule"}, {"key": DRAIN_NODE, "effect": "NoSchedule", "value": "d"}]
    assert table("Node", spec={"taints": taints[:1]})[1][1] == "Ready"
    assert table("Node", spec={"taints": taints})[1][1] == "Ready,ClosedByDrain"
    assert (
        table("Node", spec={"taints": taints, "unschedulable": True})[1][1] == "Ready,SchedulingDisabled,ClosedByDrain"
    )


def test_lists_stand_on_one_line_and_what_is_counted_is_a_number() -> None:
    assert table("NodeResourceTopology", topologyPolicies=["None", "Restricted"])[1] == ["o", "None,Restricted", None]
    assert table("ClusterNetworkTopology", spec={"networkTopologySpec": [{}, {}]})[1] == ["o", 2, 0, None]
    assert table("ConfigMap", data={"a": "", "b": ""})[1] == ["d", "o", 2, None]


def test_answers_are_yes_or_no_in_small_letters() -> None:
    columns, row = table("ScheduleExplanation", status={"schedulable": False})
    assert dict(zip(columns, row, strict=True))["schedulable"] == "false"


def test_gang_named_by_a_label_is_not_said_to_come_from_an_annotation() -> None:
    assert declared_by({keys.POD_GROUP_NAME: "g"}) == "labels of its pods"
    assert declared_by({}) == "annotations of its pods"


NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)


def pod(name: str, owner: str = "", phase: str = "Running", **meta: Any) -> dict[str, Any]:
    kind, _, owned_by = owner.partition("/")
    owners = [{"kind": kind, "name": owned_by, "controller": True}] if owner else []
    metadata = {"name": name, "namespace": "d", "uid": name, "ownerReferences": owners, **meta}
    return {"metadata": metadata, "spec": {"containers": [{"name": "c"}]}, "status": {"phase": phase}}


def test_a_workload_shows_how_many_of_its_pods_run() -> None:
    pods = [pod("a", "ReplicaSet/shop-1"), pod("b", "ReplicaSet/shop-1", "Pending"), pod("c", "Job/shop"), pod("d")]
    sets = [{"metadata": {**pod("shop-1", "Deployment/shop")["metadata"]}}]
    beside = Beside(now=NOW, ready=running_pods(pods, sets))
    item = {"metadata": {"name": "shop", "namespace": "d", "creationTimestamp": "2026-11-29T11:00:00Z"}}
    shown = object_table("Deployment", [{**item, "spec": {"replicas": 3}}], wide=False, beside=beside)
    assert shown == (["namespace", "name", "ready", "age"], [["d", "shop", "1/3", "60m"]])
    assert object_table("Job", [item], wide=False, beside=beside)[1] == [["d", "shop", "1/1", "60m"]]


def test_a_pending_pod_shows_why_it_has_no_node() -> None:
    message = "0/3 nodes are available: 2 Insufficient cpu, 1 node(s) had untolerated taint {a: b}. preemption: none"
    beside = Beside(now=NOW, reasons={"web": message})
    row = object_table("Pod", [pod("web", phase="Pending")], wide=False, beside=beside)[1][0]
    assert row[-1] == "2 Insufficient cpu, 1 node(s) had untolerated taint {a: b}"
    assert object_table("Pod", [pod("web", phase="Pending")], wide=True, beside=beside)[1][0][-1] == message
    assert object_table("Pod", [pod("other")], wide=False, beside=beside)[1][0][-1] is None


def test_labels_are_a_column_of_their_own() -> None:
    columns, [row] = object_table("Pod", [pod("a", labels={"b": "2", "a": "1"})], wide=False, labels=True)
    assert (columns[-1], row[-1]) == ("labels", "a=1,b=2")
