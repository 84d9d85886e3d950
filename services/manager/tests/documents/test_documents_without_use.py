"""Documents that can never work say so when they are applied; what an API server clears is cleared with a warning."""

import json
from typing import Any

import pytest
from koord_manager.domain.admission.options import Options
from koord_manager.domain.documents.object_changes import decide_change
from koord_manager.domain.documents.warnings import document_warnings
from koordcore.events.objects import NodeSpecChanged
from koordcore.requests.objects import ChangeNode
from support.manager.applying import Cluster

Json = dict[str, Any]
TAINT = "node.kubernetes.io/unschedulable"


def profile(**spec: Any) -> Json:
    named = {"apiVersion": "config.koordinator.sh/v1alpha1", "kind": "ClusterColocationProfile"}
    return {**named, "metadata": {"name": "p"}, "spec": {"selector": {}, **spec}}


def job(**spec: Any) -> Json:
    named = {"apiVersion": "scheduling.koordinator.sh/v1alpha1", "kind": "PodMigrationJob", "metadata": {"name": "j"}}
    return {**named, "spec": {"podRef": {"namespace": "default", "name": "web"}, **spec}}


@pytest.mark.parametrize(
    ("document", "field"),
    [
        (profile(probability="half"), "spec.probability"),
        (profile(probability="150%"), "spec.probability"),
        (profile(probability=-5), "spec.probability"),
        (profile(patch=[1, 2]), "spec.patch"),
        (profile(patch={"spec": {"containers": None}}), "spec.patch.spec.containers"),
        (profile(patch={"spec": {"containers": "all"}}), "spec.patch.spec"),
        (
            profile(patch={"spec": {"containers": [{"name": "a", "resources": {"limits": {"cpu": "banana"}}}]}}),
            "spec.patch.spec.containers[0].resources.limits[cpu]",
        ),
        (profile(patch={"metadata": {"name": "other"}}), "spec.patch.metadata.name"),
        (profile(patch={"kind": "Node"}), "spec.patch.kind"),
        (profile(labels={"bad key!": "v"}), "spec.labels"),
        (profile(labels={"key": "bad value!"}), "spec.labels[key]"),
        (job(ttl="5 minutes"), "spec.ttl"),
        (job(mode="EvictThenMigrate"), "spec.mode"),
        ({**job(), "metadata": {"name": "j", "namespace": "team"}}, "metadata.namespace"),
        ({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n", "namespace": "x"}}, "metadata.namespace"),
    ],
)
def test_a_document_that_can_never_work_is_warned_about(document: Json, field: str) -> None:
    found = document_warnings(document)

    assert [warning.partition(": ")[0] for warning in found] == [field]


@pytest.mark.parametrize(
    "document",
    [
        profile(probability="30%", labels={"a/b": "c"}, patch={"metadata": {"labels": {"x": None}}}),
        profile(patch={"spec": {"containers": [{"name": "a", "resources": {"limits": {"cpu": "1"}}}]}}),
        job(ttl="5m", mode="EvictDirectly"),
        job(),
    ],
)
def test_a_document_that_works_gets_no_warning(document: Json) -> None:
    assert document_warnings(document) == ()


def test_the_namespace_of_a_cluster_scoped_object_is_removed() -> None:
    cluster = Cluster()
    for document in ({**job(), "metadata": {"name": "j", "namespace": "team"}}, node(namespace="x")):
        assert cluster.apply(json.dumps(document)) == "created"
        assert cluster.apply(json.dumps(document)) == "unchanged"
    assert "namespace" not in cluster.custom("podmigrationjobs", "j")["metadata"]
    found = cluster.view.node("n")
    assert found is not None
    assert found.metadata.namespace == ""


def test_a_profile_can_neither_rename_a_pod_nor_change_its_kind() -> None:
    for patch, field in (({"metadata": {"name": "other"}}, "metadata.name"), ({"kind": "Node"}, "kind")):
        cluster = Cluster()
        cluster.apply(json.dumps(profile(patch=patch)))
        spec = {"containers": [{"name": "main", "image": "nginx"}]}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "labels": {"a": "b"}}, "spec": spec}
        assert cluster.refusal(json.dumps(pod)).startswith(f"{field}: must be as before admission")


def node(*, closed: bool = False, **metadata: str) -> Json:
    capacity = {"capacity": {"cpu": 4, "memory": "8Gi", "pods": 10}}
    named = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n", **metadata}}
    return {**named, "spec": {"unschedulable": closed}, "status": capacity}


def taints(cluster: Cluster) -> list[tuple[str, str]]:
    found = cluster.view.node("n")
    assert found is not None
    return [(taint.key, taint.effect) for taint in found.spec.taints]


def test_a_cordoned_node_has_the_taint_of_kubernetes() -> None:
    cluster = Cluster()
    cluster.apply(json.dumps(node()))

    for closed in (True, False, True):
        change = ChangeNode(name="n", unschedulable=closed)
        changed = decide_change(cluster.view, change, new_uid="u", options=Options())
        assert isinstance(changed.drafts[0].event, NodeSpecChanged)
        cluster.fold(changed.drafts)
        assert taints(cluster) == ([(TAINT, "NoSchedule")] if closed else [])
        assert decide_change(cluster.view, change, new_uid="u", options=Options()).action == "unchanged"


def test_a_manifest_that_closes_a_node_gives_it_the_taint() -> None:
    cluster = Cluster()

    cluster.apply(json.dumps(node(closed=True)))
    assert taints(cluster) == [(TAINT, "NoSchedule")]
    assert cluster.apply(json.dumps(node(closed=True))) == "unchanged"
    cluster.apply(json.dumps(node()))
    assert taints(cluster) == []
