"""An applied Node keeps what its host and its user say, and takes nothing of what is decided about it as its own."""

import json
from typing import Any

import msgspec
import pytest
from koord_manager.domain.cluster.view import ManagerView
from koord_manager.domain.documents.apply import decide_apply
from koordcore.events.envelope import AggregateRef, BasedOn, Draft
from koordcore.events.nodepolicy import NodeDevicesComputed, NodeOvercommitComputed, NodeRatiosComputed
from koordcore.events.objects import NodeSpecChanged
from koordcore.protocol import keys
from koordcore.protocol.manifests import shape_manifest
from koordcore.protocol.objects import Node
from koordcore.state.aggregates import policy_annotations, policy_resources
from support.histories.recording import stored

Json = dict[str, Any]
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
NOW = "2026-01-01T00:00:00Z"
HOST: Json = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "n1", "labels": {"kubernetes.io/hostname": "n1", "koordstream.io/host": "real"}},
    "spec": {"taints": [{"key": "koordstream.io/measured-only", "value": "true", "effect": "NoSchedule"}]},
    "status": {"capacity": {"cpu": "8", "memory": "16Gi"}, "allocatable": {"cpu": "8", "memory": "16Gi"}},
}


class Cluster:
    """A view that folds what it decides."""

    def __init__(self) -> None:
        self.view = ManagerView()
        assert self.apply(HOST) == "created"

    def apply(self, document: Json) -> str:
        applied = decide_apply(self.view, shape_manifest(json.loads(json.dumps(document))), new_uid="u", now=NOW)
        for draft in applied.drafts:
            self.fold(draft)
        return applied.action

    def fold(self, draft: Draft) -> None:
        self.view.fold(stored(self.view.state.position + 1, draft))

    @property
    def node(self) -> Node:
        node = self.view.node("n1")
        assert node is not None
        return node

    def decide(self, *, batch_cpu_milli: int | None = 4000) -> None:
        for event in (
            NodeOvercommitComputed(
                batch_cpu_milli=batch_cpu_milli, batch_memory_bytes=1 << 30, reason="changed", based_on=BasedOn()
            ),
            NodeRatiosComputed(cpu_normalization="1.20", amplification='{"cpu":1.20}'),
            NodeDevicesComputed(
                resources={"koordinator.sh/gpu-core": 100}, labels={"node.koordinator.sh/gpu-model": "A"}
            ),
        ):
            ref = AggregateRef("nodepolicy", "n1")
            self.fold(Draft(ref, event, self.view.state.last_seq(ref)))

    def shown(self) -> Json:
        """The node as `koord get -o yaml` shows it."""
        document: Json = {"apiVersion": "v1", "kind": "Node", **msgspec.to_builtins(self.node)}
        policy = self.view.policy("n1")
        assert policy is not None
        for field in ("capacity", "allocatable"):
            document["status"][field] |= {name: str(amount) for name, amount in policy_resources(policy).items()}
        document["metadata"]["labels"] |= policy.device_labels
        document["metadata"].setdefault("annotations", {}).update(policy_annotations(policy))
        return document


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def named(**metadata: Any) -> Json:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", **metadata}}


def test_a_node_that_is_applied_as_it_is_shown_is_unchanged_and_what_is_decided_about_it_is_not_its_own(
    cluster: Cluster,
) -> None:
    cluster.decide()
    shown = cluster.shown()
    assert shown["status"]["allocatable"]["kubernetes.io/batch-cpu"] == "4000"
    assert keys.RESOURCE_AMPLIFICATION_RATIO in shown["metadata"]["annotations"]

    assert cluster.apply(shown) == "unchanged"
    shown["metadata"]["labels"]["team"] = "a"
    assert cluster.apply(shown) == "configured"
    assert cluster.node.status.allocatable == HOST["status"]["allocatable"]
    assert cluster.node.status.capacity == HOST["status"]["capacity"]
    assert cluster.node.metadata.labels == {**HOST["metadata"]["labels"], "team": "a"}
    assert set(cluster.node.metadata.annotations) == {LAST_APPLIED}


def test_amounts_that_are_withdrawn_meanwhile_are_not_stored_either(cluster: Cluster) -> None:
    cluster.decide()
    shown = cluster.shown()
    cluster.decide(batch_cpu_milli=None)
    shown["metadata"]["labels"]["team"] = "a"

    assert cluster.apply(shown) == "configured"
    assert cluster.node.status.allocatable == HOST["status"]["allocatable"]


def test_what_a_host_registered_itself_with_stays_when_a_document_does_not_name_it(cluster: Cluster) -> None:
    assert cluster.apply(named(labels={"pool": "batch"})) == "configured"
    assert cluster.node.metadata.labels == {**HOST["metadata"]["labels"], "pool": "batch"}
    assert [taint.key for taint in cluster.node.spec.taints] == ["koordstream.io/measured-only"]
    assert cluster.node.status.allocatable == HOST["status"]["allocatable"]
    assert cluster.apply(named(labels={"pool": "batch"})) == "unchanged"


def test_what_a_document_no_longer_names_goes_and_what_others_wrote_stays(cluster: Cluster) -> None:
    taint = {"key": "dedicated", "value": "batch", "effect": "NoSchedule"}
    cluster.apply(
        named(labels={"pool": "batch", "zone": "a"}, annotations={"note": "x"}) | {"spec": {"taints": [taint]}}
    )
    assert [found.key for found in cluster.node.spec.taints] == ["dedicated"]
    cluster.apply(HOST)
    by_others = msgspec.convert(msgspec.to_builtins(cluster.node), Node)
    by_others.metadata.labels["by"] = "others"
    ref = AggregateRef("nodespec", "n1")
    cluster.fold(Draft(ref, NodeSpecChanged(object=by_others), cluster.view.state.last_seq(ref)))

    assert cluster.apply(named(labels={"pool": "mid", "zone": "a"}) | {"spec": {"unschedulable": True}}) == "configured"
    assert cluster.apply(named(labels={"zone": "a"})) == "configured"
    assert cluster.node.metadata.labels == {**HOST["metadata"]["labels"], "zone": "a", "by": "others"}
    assert cluster.node.metadata.annotations.keys() == {LAST_APPLIED}
    assert not cluster.node.spec.unschedulable
    assert [found.key for found in cluster.node.spec.taints] == ["koordstream.io/measured-only"]
    assert cluster.apply(named()) == "configured"
    assert cluster.node.metadata.labels == {**HOST["metadata"]["labels"], "by": "others"}
    assert cluster.node.metadata.annotations == {}


def test_a_host_that_registers_again_changes_nothing(cluster: Cluster) -> None:
    cluster.decide()

    assert cluster.apply(HOST) == "unchanged"
    assert cluster.node.metadata.annotations == {}


def test_a_taint_or_label_of_the_host_is_changed_by_a_document_that_names_it(cluster: Cluster) -> None:
    cluster.apply(named(labels={"koordstream.io/host": "simulated"}) | {"spec": {"taints": []}})

    assert cluster.node.metadata.labels["koordstream.io/host"] == "simulated"
    assert cluster.node.spec.taints == []
