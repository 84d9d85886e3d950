"""Which pods the API server must not create without a manager, as CEL; tests/kubernetes evaluates it."""

from typing import Any

import pytest
from koord_manager.domain.admission.concerned import (
    CHANGED_POD,
    EVERY_POD,
    MOST_CHARACTERS,
    NEW_POD,
    NO_POD,
    Matched,
    changes_concern,
    matched_pods,
)
from koord_manager.domain.admission.context.profiles import ColocationProfile, read_profile
from koord_manager.domain.admission.options import Options
from koord_manager.domain.admission.webhooks import CONDITION, Address, configuration, reconciled
from koordcore.events.envelope import AggregateRef
from koordcore.events.objects import custom_ref

Json = dict[str, Any]
ADDRESS = Address(namespace="koordinator-system", service="koordinator-webhook-service")
APP = 'object.metadata.?labels[?"app"]'


def profile(name: str = "p", **spec: Any) -> ColocationProfile:
    return read_profile({"metadata": {"name": name}, "spec": spec})


def part_of(*profiles: ColocationProfile, spaces: dict[str, dict[str, str]] | None = None) -> str:
    """The expression for the pods that the profiles match."""
    found = matched_pods(Options(), profiles, spaces or {})
    assert found.changed == NO_POD
    return found.new


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ({"matchLabels": {"app": "web"}}, f'({APP}.hasValue() && {APP}.orValue("") in ["web"])'),
        (
            {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["b", "a"]}]},
            f'(!({APP}.hasValue() && {APP}.orValue("") in ["a", "b"]))',
        ),
        ({"matchExpressions": [{"key": "app", "operator": "Exists"}]}, f"({APP}.hasValue())"),
        ({"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}, f"(!{APP}.hasValue())"),
        ({}, "true"),
        (None, "true"),
    ],
)
def test_a_profile_is_expressed_by_its_pod_selector(selector: Json | None, expected: str) -> None:
    assert part_of(profile(selector=selector)) == f"({expected})"


def test_a_profile_is_restricted_to_the_namespaces_that_it_selects_now() -> None:
    spaces = {"a": {"team": "x"}, "b": {"team": "y"}, "c": {"team": "x"}}
    where = {"matchLabels": {"team": "x"}}
    one, other = (profile(name, namespaceSelector=where, selector={"matchLabels": {"app": name}}) for name in "pq")

    shown = part_of(one, other, spaces=spaces)

    assert shown.startswith('(request.namespace in ["a", "c"] && (')
    assert shown.count("request.namespace") == 1
    assert 'in ["p"]' in shown
    assert 'in ["q"]' in shown
    assert part_of(one, spaces={"b": {"team": "y"}}) == NO_POD


def test_an_expression_that_would_be_too_long_is_wider() -> None:
    """More pods wait then, and none passes a profile."""
    small, large = {"a": {"team": "y"}}, {f"n{number:09}": {"team": "x"} for number in range(9000)}
    web = {"matchLabels": {"app": "web"}}
    chosen = [
        profile(team, namespaceSelector={"matchLabels": {"team": team}}, selector={"matchLabels": {"app": team}})
        for team in "xy"
    ]

    shown = part_of(*chosen, profile(selector=web), spaces=small | large)

    assert shown.count("request.namespace") == 1
    assert 'request.namespace in ["a"]' in shown
    assert 'in ["x"]' in shown
    assert len(shown) < MOST_CHARACTERS
    many = [profile(f"p{number}", selector={"matchLabels": {"app": f"p{number}"}}) for number in range(2000)]
    assert part_of(*many) == EVERY_POD


def test_a_selector_that_is_not_valid_matches_nothing() -> None:
    bad = {"matchExpressions": [{"key": "app", "operator": "Like", "values": ["x"]}]}
    assert part_of(profile(selector=bad), profile(namespaceSelector=bad)) == NO_POD


@pytest.mark.parametrize("gate", ["MultiQuotaTree", "EnableQuotaAdmission", "EnablePodEnhancedValidator"])
def test_rules_about_every_pod_concern_every_pod(gate: str) -> None:
    options = Options(gates={gate: True})
    assert matched_pods(options, [], {}) == Matched(EVERY_POD, EVERY_POD)


def test_profiles_and_namespaces_change_the_expression() -> None:
    assert changes_concern(custom_ref("clustercolocationprofiles", "", "p"))
    assert changes_concern(AggregateRef("namespace", "a"))
    assert not changes_concern(custom_ref("podgroups", "a", "g"))
    assert not changes_concern(AggregateRef("podspec", "u"))


def conditions(document: Json) -> dict[str, tuple[str, list[str]]]:
    """Entry -> failure policy and expressions of its conditions, of entries with conditions."""
    return {
        entry["name"].partition(".")[0]: (
            entry["failurePolicy"],
            [each["expression"] for each in entry["matchConditions"]],
        )
        for entry in document["webhooks"]
        if "matchConditions" in entry
    }


def test_matched_pods_fail_closed_and_all_others_open() -> None:
    installed = configuration("mutate", "m", Options(), ADDRESS, b"")
    named = {"mpod-create": ("Fail", [NEW_POD]), "mpod-create-others": ("Ignore", [f"!({NEW_POD})"])}
    assert conditions(installed) == named

    leader = reconciled(installed, Options(), ADDRESS, b"CA", Matched("a"))
    assert leader is not None
    assert conditions(leader) == {
        "mpod-create": ("Fail", [NEW_POD]),
        "mpod-create-others": ("Ignore", [f"!({NEW_POD})", "!(a)"]),
        "mpod-create-matched": ("Fail", [f"!({NEW_POD})", "a"]),
    }
    assert {entry["clientConfig"].get("caBundle") for entry in leader["webhooks"]} == {"Q0E="}
    assert reconciled(leader, Options(), ADDRESS, b"CA") is None, "another replica changes nothing"
    assert reconciled(leader, Options(), ADDRESS, b"CA", Matched("a")) is None

    none = reconciled(leader, Options(), ADDRESS, b"CA", Matched())
    assert none is not None
    assert conditions(none) == named
    # the template has only what was installed
    again = reconciled(none, Options(), ADDRESS, b"CA", Matched("c"))
    assert again is not None
    assert again["metadata"]["annotations"] == leader["metadata"]["annotations"] == none["metadata"]["annotations"]


def test_rules_about_every_pod_also_hold_for_pods_that_change() -> None:
    installed = configuration("validate", "v", Options(), ADDRESS, b"")
    made = reconciled(installed, Options(), ADDRESS, b"CA", Matched(EVERY_POD, EVERY_POD))
    assert made is not None
    assert conditions(made) == {
        "vpod": ("Fail", [CHANGED_POD]),
        "vpod-others": ("Ignore", [f"!({CHANGED_POD})", "!(true)"]),
        "vpod-matched": ("Fail", [f"!({CHANGED_POD})", "true"]),
    }


def test_a_condition_of_the_user_stays_and_a_removed_entry_is_not_added() -> None:
    installed = configuration("mutate", "m", Options(), ADDRESS, b"")
    mine = {"name": "mine", "expression": "request.userInfo.username != 'me'"}
    installed["webhooks"][1]["matchConditions"].insert(0, mine)
    made = reconciled(installed, Options(), ADDRESS, b"CA", Matched("a"))
    assert made is not None
    assert conditions(made)["mpod-create-matched"][1] == [mine["expression"], f"!({NEW_POD})", "a"]

    del installed["webhooks"][1], installed["webhooks"][0]["matchConditions"]
    as_before = reconciled(installed, Options(), ADDRESS, b"CA", Matched("a"))
    assert as_before is not None
    assert conditions(as_before) == {}
    assert CONDITION not in str(as_before)
