"""Root quotas follow their profiles and nodes; what somebody else wrote on the quota stays."""

import copy
from typing import Any

from koord_manager.domain.controllers.quota_profiles import ElasticQuotaProfile, QuotaProfileController, tree_id_of
from koordcore.events.envelope import Draft
from koordcore.events.objects import CustomObjectDeleted, CustomObjectObserved, custom_ref
from koordcore.events.quota import QuotaProfileDropped, QuotaProfileRendered
from koordcore.protocol.objects import object_from_json
from koordcore.state import ClusterState
from koordcore.state.aggregates import QuotaProfileState
from support.manager.world import ManagerWorld
from support.reachable import container_sizes


def profile(**spec: Any) -> dict[str, Any]:
    selector = {"matchLabels": {"pool": "a"}}
    return {
        "apiVersion": "quota.koordinator.sh/v1alpha1",
        "kind": "ElasticQuotaProfile",
        "metadata": {"namespace": "default", "name": "pool"},
        "spec": {"quotaName": "root", "nodeSelector": selector} | spec,
    }


def drafts(world: ManagerWorld, controller: QuotaProfileController) -> list[Draft]:
    return [draft for id_ in controller.take(world.view, world.now) for draft in controller.decide(world.view, id_)]


def settle(world: ManagerWorld, controller: QuotaProfileController) -> list[Any]:
    """Rounds until nothing is left to say."""
    said: list[Any] = []
    for _ in range(5):
        world.pass_time(10)
        events = world.take(drafts(world, controller))
        if not events:
            return said
        said += events
    raise AssertionError(said)


def quota(world: ManagerWorld) -> dict[str, Any]:
    stored = world.view.custom("elasticquotas", "default", "root")
    assert stored is not None
    return stored.object


def written(document: dict[str, Any], labels: dict[str, str], annotations: dict[str, str]) -> dict[str, Any]:
    """Return an object on which somebody set labels and annotations."""
    metadata = document["metadata"]
    both = {
        "labels": {**metadata["labels"], **labels},
        "annotations": {**metadata["annotations"], **annotations},
    }
    return {**document, "metadata": {**metadata, **both}}


def test_a_profile_becomes_a_quota_that_follows_its_nodes() -> None:
    world, controller = ManagerWorld(), QuotaProfileController()
    world.plain_node("a", pool="a")
    world.plain_node("b", pool="b")
    world.custom("elasticquotaprofiles", profile())
    said = settle(world, controller)
    assert [type(event) for event in said] == [QuotaProfileRendered, CustomObjectObserved, CustomObjectObserved]
    assert quota(world)["spec"]["min"] == {"cpu": "10", "memory": "100Gi"}
    ((_, stored),) = world.view.customs("elasticquotaprofiles")
    tree_id = stored.object["metadata"]["labels"]["quota.scheduling.koordinator.sh/tree-id"]
    assert tree_id == quota(world)["metadata"]["labels"]["quota.scheduling.koordinator.sh/tree-id"], "kept"
    assert quota(world)["metadata"]["labels"]["quota.scheduling.koordinator.sh/is-root"] == "true"

    world.plain_node("c", pool="a")
    settle(world, controller)
    assert quota(world)["spec"]["min"]["cpu"] == "20"
    assert settle(world, controller) == []


def test_rounds_come_no_faster_than_every_ten_seconds() -> None:
    world, controller = ManagerWorld(), QuotaProfileController()
    world.plain_node("a", pool="a")
    assert drafts(world, controller) == []
    world.custom("elasticquotaprofiles", profile())
    world.pass_time(9)
    assert drafts(world, controller) == []
    world.pass_time(1)
    assert len(drafts(world, controller)) == 1


def test_profiles_that_came_and_went_leave_nothing_behind_in_the_controller() -> None:
    world, controller = ManagerWorld(), QuotaProfileController()
    world.plain_node("a", pool="a")

    def live_and_die(name: str) -> None:
        document = profile(quotaName=name)
        world.custom("elasticquotaprofiles", {**document, "metadata": {"namespace": "default", "name": name}})
        settle(world, controller)
        ref = custom_ref("elasticquotaprofiles", "default", name)
        world.fact(ref, CustomObjectDeleted(kind="ElasticQuotaProfile", namespace="default", name=name))
        settle(world, controller)

    live_and_die("first")
    before = container_sizes(controller)
    for number in range(5):
        live_and_die(f"p-{number}")
    assert container_sizes(controller) - before == {}


def test_the_state_of_a_deleted_profile_is_dropped_and_its_quota_stays() -> None:
    world, controller = ManagerWorld(), QuotaProfileController()
    world.plain_node("a", pool="a")
    world.custom("elasticquotaprofiles", profile())
    settle(world, controller)
    before = quota(world)
    delete_profile(world)
    restored = ClusterState.restore(b"".join(world.view.state.snapshot()))

    assert [type(event) for event in settle(world, controller)] == [QuotaProfileDropped]
    assert (world.view.state.of_kind(QuotaProfileState), quota(world)) == ({}, before)
    again = ManagerWorld()
    again.view.load(restored)
    assert [type(event) for event in settle(again, QuotaProfileController())] == [QuotaProfileDropped], "restarted"
    assert ClusterState.restore(b"".join(world.view.state.snapshot())).hash() == world.view.state.hash()


def test_a_profile_that_returns_is_rendered_again() -> None:
    world, controller = ManagerWorld(), QuotaProfileController()
    world.plain_node("a", pool="a")
    world.custom("elasticquotaprofiles", profile())
    settle(world, controller)
    delete_profile(world)
    settle(world, controller)
    world.custom("elasticquotaprofiles", profile())
    rendered = settle(world, controller)[0]
    assert (type(rendered), rendered.nodes) == (QuotaProfileRendered, 1)
    assert list(world.view.state.of_kind(QuotaProfileState)) == ["default=pool"]


def delete_profile(world: ManagerWorld) -> None:
    ref = custom_ref("elasticquotaprofiles", "default", "pool")
    world.fact(ref, CustomObjectDeleted(kind="ElasticQuotaProfile", namespace="default", name="pool"))


def test_what_the_log_refused_is_rendered_again() -> None:
    world, controller = ManagerWorld(), QuotaProfileController()
    world.plain_node("a", pool="a")
    world.custom("elasticquotaprofiles", profile())
    settle(world, controller)
    world.plain_node("b", pool="a")
    world.pass_time(10)
    assert drafts(world, controller), "and then the log does not take it"
    settle(world, controller)
    assert quota(world)["spec"]["min"]["cpu"] == "20"


def test_what_others_wrote_on_the_quota_stays_and_what_they_changed_of_ours_is_put_back() -> None:
    world, controller = ManagerWorld(), QuotaProfileController()
    world.plain_node("a", pool="a")
    world.custom("elasticquotaprofiles", profile())
    settle(world, controller)
    changed = quota(world)
    changed = {
        **changed,
        "metadata": {**changed["metadata"], "labels": {**changed["metadata"]["labels"], "team": "x"}},
        "spec": {**changed["spec"], "min": {"cpu": "1"}},
    }
    world.custom("elasticquotas", changed)
    settle(world, controller)
    assert quota(world)["spec"]["min"] == {"cpu": "10", "memory": "100Gi"}
    assert quota(world)["metadata"]["labels"]["team"] == "x"


def test_labels_and_annotations_of_others_stay_after_the_nodes_changed() -> None:
    world, controller = ManagerWorld(), QuotaProfileController()
    world.plain_node("a", pool="a")
    world.custom("elasticquotaprofiles", profile())
    settle(world, controller)
    runtime = "quota.scheduling.koordinator.sh/runtime"
    world.custom("elasticquotas", written(quota(world), {"team": "x", "stage": "test"}, {runtime: '{"cpu":"1"}'}))
    world.plain_node("b", pool="a")
    (rendered, _) = settle(world, controller)
    assert "team" not in rendered.labels
    assert runtime not in rendered.annotations

    current = copy.deepcopy(quota(world))
    del current["metadata"]["labels"]["stage"]
    world.custom("elasticquotas", written(current, {"team": "y"}, {runtime: '{"cpu":"2"}'}))
    assert settle(world, controller) == []
    metadata = quota(world)["metadata"]
    assert (metadata["labels"]["team"], metadata["annotations"][runtime]) == ("y", '{"cpu":"2"}')
    assert "stage" not in metadata["labels"]


def test_a_profile_that_says_nothing_readable_is_said_once_and_keeps_its_quota() -> None:
    world, controller = ManagerWorld(), QuotaProfileController()
    world.plain_node("a", pool="a")
    world.custom("elasticquotaprofiles", profile())
    settle(world, controller)
    before = quota(world)
    bad = {"matchExpressions": [{"key": "x", "operator": "Sometimes"}]}
    world.custom("elasticquotaprofiles", profile(nodeSelector=bad))
    (event,) = settle(world, controller)
    assert "Sometimes" in event.fault
    assert quota(world) == before


def test_where_somebody_else_keeps_the_objects_only_the_decision_is_said() -> None:
    world, controller = ManagerWorld(), QuotaProfileController(keeps_objects=False)
    world.plain_node("a", pool="a")
    world.custom("elasticquotaprofiles", profile())
    assert [type(event) for event in settle(world, controller)] == [QuotaProfileRendered]


def test_the_tree_id_is_fnv_of_the_profiles_name() -> None:
    given = object_from_json({"metadata": {"namespace": "kube-system", "name": "profile1"}}, ElasticQuotaProfile)
    assert tree_id_of(given) == "9816276314407088615"
