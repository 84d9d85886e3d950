"""Changes of objects without an API server: what is changed, what stays, and what does nothing."""

import pytest
from koord_manager.domain.admission.options import Options
from koord_manager.domain.documents.admitting import AdmissionRefused
from koord_manager.domain.documents.merging import merged
from koord_manager.domain.documents.object_changes import Change, decide_change
from koordcore.protocol.manifests import InvalidManifest
from koordcore.protocol.objects import Taint
from koordcore.requests.objects import ChangeNode, PatchObject
from koordcore.state.aggregates import NodeSpecState
from support.manager.world import ManagerWorld

CORDONED = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
DRAINED = Taint(key="drain", effect="NoSchedule", value="d")


def change(world: ManagerWorld, wanted: Change) -> str:
    """Decides a change and folds it; what was done."""
    applied = decide_change(world.view, wanted, new_uid="r", options=Options())
    world.take(applied.drafts)
    return applied.action


def test_closing_a_node_keeps_its_labels_and_opening_it_removes_only_what_closed_it() -> None:
    world = ManagerWorld()
    world.plain_node("n", zone="a")
    before = world.view.state.of_kind(NodeSpecState)["n"].object
    closed = ChangeNode(name="n", labels={"plan": "d"}, taints=[DRAINED], unschedulable=True)
    assert [change(world, closed), change(world, closed)] == ["configured", "unchanged"]
    node = world.view.state.of_kind(NodeSpecState)["n"].object
    assert node is not None
    assert (node.metadata.labels, node.spec.taints, node.spec.unschedulable) == (
        {"zone": "a", "plan": "d"},
        [DRAINED, CORDONED],
        True,
    )
    opened = ChangeNode(name="n", labels={"plan": None}, removed_taints=[DRAINED], unschedulable=False)
    assert change(world, opened) == "configured"
    assert world.view.state.of_kind(NodeSpecState)["n"].object == before


def test_patch_of_a_pod_merges_annotations_and_names_its_uid() -> None:
    world = ManagerWorld()
    world.pod("u", {"metadata": {"name": "p", "annotations": {"kept": "1", "gone": "2"}}})
    patch = {"metadata": {"annotations": {"gone": None, "new": "3"}}}
    asked = PatchObject(kind="Pod", namespace="default", name="p", uid="u", patch=patch)
    other = PatchObject(kind="Pod", namespace="default", name="p", uid="other", patch=patch)
    assert [change(world, other), change(world, asked)] == ["not-found", "configured"]
    found = world.view.pod("default", "p")
    assert found is not None
    assert found[1].object.metadata.annotations == {"kept": "1", "new": "3"}


def test_patch_of_a_custom_resource_passes_its_schema() -> None:
    world = ManagerWorld()
    job = {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "PodMigrationJob",
        "metadata": {"name": "j", "uid": "u", "generation": 1},
        "spec": {"paused": True, "podRef": {"namespace": "default", "name": "p"}},
    }
    world.custom("podmigrationjobs", job)
    wanted = PatchObject(kind="PodMigrationJob", name="j", uid="u", patch={"spec": {"paused": False}})
    assert [change(world, wanted), change(world, wanted)] == ["configured", "unchanged"]
    stored = world.view.custom("podmigrationjobs", "", "j")
    assert stored is not None
    assert (stored.object["spec"]["paused"], stored.object["metadata"]["generation"]) == (False, 2)
    wrong = PatchObject(kind="PodMigrationJob", name="j", patch={"spec": {"paused": "maybe"}})
    with pytest.raises((AdmissionRefused, InvalidManifest), match="paused"):
        change(world, wrong)


def test_change_of_an_object_that_does_not_exist_is_not_found() -> None:
    world = ManagerWorld()
    unknown = PatchObject(kind="Nothing", name="x", patch={})
    assert [change(world, ChangeNode(name="n")), change(world, unknown)] == ["not-found", "not-found"]


def test_merge_patch_follows_the_examples_of_its_standard() -> None:
    target = {"a": {"b": 1, "c": 2}, "d": [1], "e": 3}
    assert merged(target, {"a": {"b": None, "x": {"y": None, "z": 1}}, "d": [2], "e": {"f": 1}}) == {
        "a": {"c": 2, "x": {"z": 1}},
        "d": [2],
        "e": {"f": 1},
    }
