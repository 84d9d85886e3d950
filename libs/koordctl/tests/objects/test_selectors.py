"""Selectors beside those of Kubernetes: cases of TestSelectorParse and TestSelectorMatches of apimachinery."""

from typing import Any

import pytest
from koordcore.values.invalid import InvalidInput
from koordctl.objects.selectors import in_order, matches, natural_key, parse_fields, parse_labels


@pytest.mark.parametrize(
    ("selector", "labels", "is_selected"),
    [
        ("", {"x": "y"}, True),
        ("x=y", {"x": "y"}, True),
        ("x==y", {"x": "y"}, True),
        ("x=y,z=w", {"x": "y", "z": "w"}, True),
        ("x!=y,z!=w", {"x": "z", "z": "a"}, True),
        ("x!=y", {}, True),
        ("notin=in", {"notin": "in"}, True),
        ("x", {"x": "z"}, True),
        ("!x", {"y": "z"}, True),
        ("!x", {"x": "z"}, False),
        ("x>1", {"x": "2"}, True),
        ("x<1", {"x": "0"}, True),
        ("x>1", {"x": "0"}, False),
        ("x>1", {"x": "abc"}, False),
        ("x=z", {}, False),
        ("x=y", {"x": "z"}, False),
        ("x=y,z=w", {"x": "w", "z": "w"}, False),
        ("x!=y,z!=w", {"x": "z", "z": "w"}, False),
        ("x", {"y": "z"}, False),
        ("foo=bar", {"foo": "bar", "baz": "blah"}, True),
        ("foo=bar,baz=blah", {"foo": "bar"}, False),
        ("x in (foo,,baz),y,z notin ()", {"x": "", "y": "1"}, True),
        ("x in (foo,,baz),y,z notin ()", {"x": "bar", "y": "1"}, False),
        ("z notin ()", {"z": ""}, False),
        ("x in (a, b)", {"x": "b"}, True),
        ("x notin (a,b)", {"x": "a"}, False),
        ("x notin (a,b)", {}, True),
        ("x=,z= ", {"x": "", "z": ""}, True),
        (" x = a , y != b ", {"x": "a"}, True),
        ("koordinator.sh/qosClass=BE", {"koordinator.sh/qosClass": "BE"}, True),
    ],
)
def test_a_label_selector_selects_as_kubernetes_does(selector: str, labels: dict[str, str], is_selected: bool) -> None:
    assert matches({"metadata": {"labels": labels}}, parse_labels(selector), []) is is_selected


@pytest.mark.parametrize(
    "selector",
    ["x=a||y=b", "x==a==b", "!x=a", "x<a", "x in a", "x in (a", "x in (a b)", "x,", ",x", "x=a,,y", "x y", "-x=a",
     "x=(a)", "a/b/c=d", "x=" + "a" * 64, "x=-a", "=a", "!"],
)  # fmt: skip
def test_what_kubernetes_refuses_is_no_label_selector(selector: str) -> None:
    with pytest.raises(InvalidInput, match="--selector"):
        parse_labels(selector)


POD: dict[str, Any] = {
    "metadata": {"name": "web", "namespace": "shop"},
    "spec": {"nodeName": "n1", "schedulerName": "koord-scheduler"},
    "status": {"phase": "Running"},
}


@pytest.mark.parametrize(
    ("selector", "is_selected"),
    [
        ("", True),
        ("metadata.name=web", True),
        ("metadata.name==web,status.phase!=Running", False),
        ("status.phase!=Pending,spec.nodeName=n1", True),
        ("spec.hostNetwork=false", True),
        ("status.nominatedNodeName=", True),
        ("spec.schedulerName=default-scheduler", False),
    ],
)
def test_a_field_selector_selects_by_the_fields_of_its_kind(selector: str, is_selected: bool) -> None:
    assert matches(POD, [], parse_fields(selector, "Pod")) is is_selected


def test_a_pod_without_a_phase_is_pending_and_a_node_without_a_mark_is_open() -> None:
    assert matches({"metadata": {}}, [], parse_fields("status.phase=Pending", "Pod"))
    assert matches({"metadata": {}}, [], parse_fields("spec.unschedulable=false", "Node"))


@pytest.mark.parametrize("selector", ["spec.x=1", "status.phase", "=a"])
def test_a_field_that_cannot_be_selected_by_is_refused(selector: str) -> None:
    with pytest.raises(InvalidInput, match="--field-selector"):
        parse_fields(selector, "Pod")
    with pytest.raises(InvalidInput, match="a field of Node"):
        parse_fields("status.phase=x", "Node")


def test_objects_are_in_the_order_of_amounts_numbers_and_texts() -> None:
    def named(name: str, **spec: Any) -> dict[str, Any]:
        return {"metadata": {"name": name}, "spec": spec}

    def names(path: str, *items: dict[str, Any]) -> list[str]:
        return [item["metadata"]["name"] for item in in_order(items, path)]

    assert names(".spec.cpu", named("a", cpu="2"), named("b", cpu="500m"), named("c")) == ["c", "b", "a"]
    assert names("{.spec.memory}", named("a", memory="1Gi"), named("b", memory="900Mi")) == ["b", "a"]
    assert names("spec.priority", named("a", priority=10), named("b", priority=9)) == ["b", "a"]
    assert names("metadata.name", named("b"), named("a")) == ["a", "b"]
    with pytest.raises(InvalidInput, match="--sort-by"):
        in_order([named("a")], ".spec.x")
    with pytest.raises(InvalidInput, match="--sort-by"):
        in_order([named("a")], "{.spec")


def test_names_with_numbers_are_in_the_order_of_their_numbers() -> None:
    names = ["s-10", "s-2", "s-1", "s-1-b", "s-1-10", "s-1-9"]
    found = in_order([{"metadata": {"name": name}} for name in names], ".metadata.name")
    assert [item["metadata"]["name"] for item in found] == ["s-1", "s-1-9", "s-1-10", "s-1-b", "s-2", "s-10"]


@pytest.mark.parametrize(
    ("less", "greater"),
    [
        ("0", "00"), ("00", "1"), ("a", "b"), ("a", "ab"), ("ab", "b"), ("", "a"), ("a0", "a1"), ("a1", "a01"),
        ("a01", "a2"), ("a2", "a10"), ("a1b", "a1c"), ("a1b1x", "a01b1"), ("12", "ab"), ("1", "a"), ("a1", "aa"),
        ("9" * 5000, "1" + "0" * 5000), ("a-9-z", "a-10-a"), ("a9", "a\u0661"), ("B", "a"),
    ],
)  # fmt: skip
def test_texts_are_ordered_as_kubectl_does(less: str, greater: str) -> None:
    assert natural_key(less) < natural_key(greater)
    assert not natural_key(greater) < natural_key(less)
