"""Whose scale is asked for, when, and what an answer changes in the log."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from koord_manager.domain.cluster.view import ManagerView
from koord_manager.domain.gateway.scales import (
    PERIOD_SECONDS,
    REFUSED_SECONDS,
    SOONEST_SECONDS,
    TURN_SECONDS,
    Controller,
    ScaledResource,
    ScaleTurns,
    asked_controller,
    replicas_in,
    scale_draft,
    scale_path,
    scaled_resources,
)
from koordcore.events.objects import SCALES
from koordcore.protocol.objects import ObjectMeta, OwnerReference, Pod
from koordcore.values import codec
from support.manager.world import ManagerWorld

MAIN = Controller("shop", "db.example.org/v1", "Database", "main", "u-main")


def owned(**changed: Any) -> Pod:
    """Return a pod of `MAIN`, or of a controller with changed fields."""
    fields: dict[str, Any] = {**MAIN._asdict(), "controller": True, **changed}
    namespace = fields.pop("namespace")
    return Pod(metadata=ObjectMeta(name="p", namespace=namespace, owner_references=[OwnerReference(**fields)]))


def test_the_controller_of_a_pod_is_asked_for() -> None:
    assert asked_controller(owned()) == MAIN


@pytest.mark.parametrize(
    "changed",
    [
        {"api_version": "apps/v1", "kind": "ReplicaSet"},
        {"api_version": "apps/v1", "kind": "DaemonSet"},
        {"api_version": "batch/v1", "kind": "Job"},
        {"api_version": "v1", "kind": "Node"},
        {"api_version": "apps.kruise.io/v1beta1", "kind": "StatefulSet"},
        {"controller": False},
        {"name": "../../../../../api/v1/namespaces/shop/secrets/key"},
        {"name": ".."},
        {"uid": "u main"},
        {"api_version": "db.example.org/v1/namespaces/x"},
        {"api_version": "../v1"},
        {"api_version": ""},
    ],
    ids=str,
)
def test_mirrored_kinds_and_names_that_no_object_has_are_not_asked_for(changed: dict[str, Any]) -> None:
    assert asked_controller(owned(**changed)) is None


def test_kinds_with_a_scale_are_found_among_the_resources() -> None:
    listed = {
        "kind": "APIResourceList",
        "resources": [
            {"name": "databases", "kind": "Database", "namespaced": True, "verbs": ["get"]},
            {"name": "databases/scale", "kind": "Scale", "namespaced": True, "group": "autoscaling"},
            {"name": "fleets", "kind": "Fleet", "namespaced": False},
            {"name": "fleets/scale", "kind": "Scale", "namespaced": False},
            {"name": "backups", "kind": "Backup", "namespaced": True},
            {"name": "backups/status", "kind": "Backup", "namespaced": True},
        ],
    }
    found = scaled_resources(codec.encode(listed))

    assert found == {"Database": ScaledResource("databases", True), "Fleet": ScaledResource("fleets", False)}
    assert scale_path(MAIN, found["Database"]) == "/apis/db.example.org/v1/namespaces/shop/databases/main/scale"
    assert scale_path(MAIN, found["Fleet"]) == "/apis/db.example.org/v1/fleets/main/scale"


def test_a_scale_counts_only_for_the_object_with_the_uid() -> None:
    scale = {"kind": "Scale", "metadata": {"name": "main", "uid": "u-main"}, "spec": {"replicas": 3}}

    assert replicas_in(codec.encode(scale), "u-main") == 3
    assert replicas_in(codec.encode(scale), "u-old") is None
    assert replicas_in(codec.encode({**scale, "spec": {}}), "u-main") == 0
    with pytest.raises(codec.DecodeError):
        replicas_in(b'{"kind": "Status"}', "u-main")


def test_only_changes_become_facts() -> None:
    world = ManagerWorld()
    told: list[str] = []
    for replicas in (None, 3, 3, 5, None, None, 2):
        draft = scale_draft(world.view, MAIN, replicas)
        told += [type(event).__name__ for event in world.take([draft] if draft else [])]

    assert told == ["CustomObjectObserved"] * 2 + ["CustomObjectDeleted", "CustomObjectObserved"]
    (stored,) = (state.object or {} for _, state in world.view.customs(SCALES))
    assert stored["spec"] == {"replicas": 2}
    assert stored["metadata"]["ownerReferences"][0]["kind"] == "Database"


def test_a_new_leader_asks_for_all_and_finds_what_lost_its_pods_meanwhile() -> None:
    world = ManagerWorld()
    world.pod("p", codec.to_builtins(owned()))
    gone = MAIN._replace(name="gone", uid="u-gone")
    world.take([draft for each in (MAIN, gone) if (draft := scale_draft(world.view, each, 1))])
    turns = ScaleTurns()
    turns.seed(world.view, 10.0)

    found = {turns.take(10.0), turns.take(10.0)}

    assert {each.uid: each.kind for each in found if each} == {"u-main": "Database", "u-gone": ""}
    assert turns.take(10.0) is None


def test_a_pod_of_another_namespace_does_not_change_whose_scale_is_asked_for() -> None:
    turns = ScaleTurns()
    turns.note(owned(), 0.0)
    turns.note(owned(namespace="other", name="stranger"), 0.0)

    assert {turns.take(0.0), turns.take(0.0)} == {MAIN, MAIN._replace(namespace="other", name="stranger")}


def test_a_refusal_outlasts_changes_of_pods() -> None:
    turns = ScaleTurns()
    assert turns.note(owned(), 0.0)
    assert turns.take(0.0) == MAIN
    turns.postpone(MAIN, REFUSED_SECONDS)

    assert not turns.note(owned(), SOONEST_SECONDS)
    assert turns.take(REFUSED_SECONDS - 1) is None
    assert turns.take(REFUSED_SECONDS) == MAIN


def test_a_new_controller_is_asked_for_at_once_beside_ten_thousand_others() -> None:
    turns, now = ScaleTurns(), 0.0
    for number in range(10_000):
        turns.note(owned(uid=f"u-{number}"), 0.0)
    for _ in range(20_000):
        turns.take(now)
        now += TURN_SECONDS
    turns.note(owned(uid="u-new"), now)

    assert [turns.take(now + TURN_SECONDS * number) for number in range(2)].count(MAIN._replace(uid="u-new")) == 1


def test_a_controller_without_pods_has_no_more_turns_until_it_has_one() -> None:
    turns = ScaleTurns()
    turns.note(owned(), 0.0)
    turns.take(0.0)
    turns.drop(MAIN)
    assert turns.take(PERIOD_SECONDS) is None
    assert turns.note(owned(), PERIOD_SECONDS)
    assert turns.take(PERIOD_SECONDS) == MAIN


@given(st.lists(st.tuples(st.sampled_from("abc"), st.floats(0.0, 30.0), st.booleans()), max_size=60))
def test_each_controller_is_asked_for_in_time_and_not_too_often(steps: list[tuple[str, float, bool]]) -> None:
    turns, now = ScaleTurns(), 0.0
    asked: dict[str, float] = {}
    for uid, passed, changes in steps:
        now += passed
        if changes:
            turns.note(owned(uid=uid), now)
        while (controller := turns.take(now)) is not None:
            assert now - asked.get(controller.uid, -SOONEST_SECONDS) >= SOONEST_SECONDS
            asked[controller.uid] = now
        assert all(now - last < PERIOD_SECONDS for last in asked.values())
        assert turns.next_due is None or turns.next_due > now
        if changes:
            assert now - asked[uid] < SOONEST_SECONDS or asked[uid] == now


def test_an_empty_view_has_nothing_to_ask_for() -> None:
    turns = ScaleTurns()
    turns.seed(ManagerView(), 0.0)
    assert turns.next_due is None
