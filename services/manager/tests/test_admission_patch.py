"""JSON patches: applied to what was submitted they give what admission made of it."""

from typing import Any

import jsonpatch
from hypothesis import given, settings
from hypothesis import strategies as st
from koord_manager.domain.admission.patch import json_patch

Json = dict[str, Any]
names = st.sampled_from(["a", "b", "a/b", "c~d", "", "spec", "-", "0"])
values = st.recursive(
    st.none() | st.booleans() | st.integers(2, 4) | st.text(max_size=2),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=4),
    max_leaves=12,
)
objects = st.dictionaries(names, values, max_size=4)


@settings(max_examples=150, deadline=None)
@given(objects, objects)
def test_the_patch_of_two_objects_turns_one_into_the_other(before: Json, after: Json) -> None:
    patched = jsonpatch.apply_patch(before, json_patch(before, after))

    assert patched == after


@given(objects)
def test_equal_objects_have_no_patch(document: Json) -> None:
    assert json_patch(document, document) == []
    assert json_patch(document, dict(document)) == []
