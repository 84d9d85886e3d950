"""The colocation profile controller: pods that wait get managed profiles, bounded and not over and over."""

import json
from pathlib import Path
from typing import Any

from koord_manager.domain.admission.context.profiles import read_profile
from koord_manager.domain.enabled import COLOCATION_PROFILE, CONTROLLERS, NODE_SLO, QUOTA_PROFILE, enabled_of
from koord_manager.domain.profile_controller import ControllerPolicy, ProfileUpdates
from koord_manager.shell.profile_controller import merge_patch
from support.manager.webhook_world import webhook_world
from support.until import until

Json = dict[str, Any]
PROFILE: Json = {
    "apiVersion": "config.koordinator.sh/v1alpha1",
    "kind": "ClusterColocationProfile",
    "metadata": {"name": "late", "labels": {"config.koordinator.sh/controller-managed": "true"}},
    "spec": {
        "selector": {"matchLabels": {"app": "web"}},
        "labels": {"seen": "true"},
        "schedulerName": "other",
        "annotations": {"a": "b"},
    },
}
POD: Json = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "web", "labels": {"app": "web"}},
    "spec": {"containers": [{"name": "main", "image": "nginx"}]},
}


async def test_a_waiting_pod_gets_a_profile_that_came_later_without_its_scheduler(tmp_path: Path) -> None:
    flags = ("--feature-gates=ColocationProfileController=true", "--colocation-profile-reconcile-interval=20ms")
    async with webhook_world(tmp_path, *flags) as world:
        unmanaged = {**PROFILE, "metadata": {"name": "unmanaged"}, "spec": {**PROFILE["spec"], "labels": {"no": "no"}}}
        await world.apply(POD, unmanaged, PROFILE)

        async def pod() -> Json:
            return (await world.plain.get("/v1/objects/pods/web")).json()

        async def changed() -> Json | None:
            found = await pod()
            return found if "seen" in found["metadata"]["labels"] else None

        after = await until(changed)
        assert after["metadata"]["labels"] == {"app": "web", "seen": "true"}
        assert after["metadata"]["annotations"] == {"a": "b"}
        assert after["spec"]["schedulerName"] == "koord-scheduler"


async def test_a_profile_that_makes_no_pod_of_a_pod_holds_up_no_other(tmp_path: Path) -> None:
    flags = ("--feature-gates=ColocationProfileController=true", "--colocation-profile-reconcile-interval=20ms")
    spec: Json = {"selector": {"matchLabels": {"app": "web"}}, "patch": {"spec": {"containers": "none"}}}
    broken = {**PROFILE, "metadata": {**PROFILE["metadata"], "name": "broken"}, "spec": spec}
    async with webhook_world(tmp_path, *flags) as world:
        await world.apply(POD, broken, PROFILE)

        async def is_changed() -> bool:
            return "seen" in (await world.plain.get("/v1/objects/pods/web")).json()["metadata"]["labels"]

        await until(is_changed)
        assert not world.shell.service.stopping


def test_a_version_of_a_profile_is_put_on_a_pod_once_until_it_is_due_again() -> None:
    rounds = ProfileUpdates(ControllerPolicy(force_update=300, qps=1, burst=2))
    profile, changed = read_profile(PROFILE), read_profile({**PROFILE, "spec": {"labels": {"x": "y"}}})

    assert rounds.is_due(profile, "u", 0)
    assert rounds.take(profile, "u", 0)
    assert not rounds.is_due(profile, "u", 299)
    assert rounds.is_due(changed, "u", 1)
    assert rounds.is_due(profile, "u", 300)


def test_the_bucket_leaves_the_rest_for_the_next_round() -> None:
    rounds = ProfileUpdates(ControllerPolicy(qps=1, burst=2))
    profile = read_profile(PROFILE)

    assert [rounds.take(profile, str(number), 0.0) for number in range(3)] == [True, True, False]
    assert rounds.take(profile, "3", 1.0)
    assert not rounds.take(profile, "4", 1.0)


def test_the_controller_is_one_of_those_that_the_flag_names() -> None:
    assert COLOCATION_PROFILE not in enabled_of(CONTROLLERS, ("*", "-colocationprofile"))
    assert COLOCATION_PROFILE in enabled_of(CONTROLLERS, CONTROLLERS)
    assert enabled_of(CONTROLLERS, ("profile", "nodeslo")) == {QUOTA_PROFILE, NODE_SLO}


def test_a_merge_patch_holds_what_changed_and_nulls_for_what_is_gone() -> None:
    before = {"a": {"b": 1, "c": [1]}, "d": 2, "e": 3}
    after = {"a": {"b": 1, "c": [1, 2]}, "e": 3, "f": {"g": 1}}

    assert merge_patch(before, after) == {"a": {"c": [1, 2]}, "d": None, "f": {"g": 1}}
    assert json.dumps(merge_patch(before, before)) == "{}"
