"""JSON patches: applied to what was submitted they give what admission made of it."""

from typing import Any

import jsonpatch
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from koord_manager.domain.admission.json_patch import WITHHELD, json_patch, without_secrets
from support.depth import examples

Json = dict[str, Any]
names = st.sampled_from(["a", "b", "a/b", "c~d", "", "spec", "-", "0"])
values = st.recursive(
    st.none() | st.booleans() | st.integers(2, 4) | st.text(max_size=2),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=4),
    max_leaves=12,
)
objects = st.dictionaries(names, values, max_size=4)


@settings(max_examples=examples(150))
@given(objects, objects)
def test_the_patch_of_two_objects_turns_one_into_the_other(before: Json, after: Json) -> None:
    patched = jsonpatch.apply_patch(before, json_patch(before, after))

    assert patched == after


@given(objects)
def test_equal_objects_have_no_patch(document: Json) -> None:
    assert json_patch(document, document) == []
    assert json_patch(document, dict(document)) == []


def test_a_long_list_of_another_length_is_replaced_as_a_whole() -> None:
    before = {"spec": {"tolerations": [{"key": f"key{number}"} for number in range(8_000)]}}
    after = {"spec": {"tolerations": [{"key": f"{number}key"} for number in range(7_999)]}}

    (operation,) = json_patch(before, after)

    assert operation == {"op": "replace", "path": "/spec/tolerations", "value": after["spec"]["tolerations"]}


SECRET = "hunter2"


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("/spec/containers/0/env/1", {"name": "TOKEN", "value": SECRET}),
        ("/spec/containers/0/env/1/value", SECRET),
        ("/spec/initContainers", [{"name": "a", "args": ["--password", SECRET]}]),
        ("/spec", {"template": {"spec": {"containers": [{"command": ["sh", "-c", SECRET]}]}}}),
        ("/spec/containers/0/livenessProbe", {"httpGet": {"httpHeaders": [{"name": "Auth", "value": SECRET}]}}),
        ("/spec/volumes", [{"name": "v", "csi": {"driver": "d", "volumeAttributes": {"password": SECRET}}}]),
        ("/spec/volumes/1", {"name": "v", "flexVolume": {"driver": "d", "options": {"password": SECRET}}}),
        ("/spec/template/spec/volumes/0/csi/volumeAttributes/password", SECRET),
        ("/spec", {"volumes": [{"name": "v", "csi": {"volumeAttributes": {"password": SECRET}}}]}),
        ("/metadata/annotations/kubectl.kubernetes.io~1last-applied-configuration", SECRET),
        ("/metadata/annotations", {"kubectl.kubernetes.io/last-applied-configuration": SECRET}),
    ],
)
def test_a_patch_is_told_without_secrets(path: str, value: Any) -> None:
    operation = {"op": "add", "path": path, "value": value}

    (told,) = without_secrets([operation])

    assert SECRET not in repr(told)
    assert WITHHELD in repr(told)
    assert (told["op"], told["path"]) == ("add", path)
    assert SECRET in repr(operation)


def test_what_holds_no_secret_is_told_as_it_is() -> None:
    patch: list[Json] = [
        {"op": "add", "path": "/metadata/labels/env", "value": "prod"},
        {"op": "remove", "path": "/spec/containers/0/env/1"},
        {"op": "replace", "path": "/spec/containers/0/resources", "value": {"requests": {"cpu": None}}},
    ]

    assert without_secrets(patch) == patch


def test_a_value_too_deep_to_look_through_is_withheld() -> None:
    value: Any = SECRET
    for _ in range(5_000):
        value = [value]

    assert without_secrets([{"op": "add", "path": "/spec", "value": value}])[0]["value"] == WITHHELD
