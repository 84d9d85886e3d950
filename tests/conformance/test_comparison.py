"""The judge itself: it must be able to say no."""

from __future__ import annotations

import pytest
from conformance.comparison import differences_of_case
from conformance.registry import Json, Rules

RULES = Rules(
    resource_lists=frozenset({"resources"}),
    exact_text=frozenset({"text"}),
    whole=frozenset({"strategy"}),
    sets=frozenset({"names"}),
    sublists=frozenset({"items"}),
    mentions=frozenset({"said"}),
)


@pytest.mark.parametrize(
    ("expect", "actual"),
    [
        ({"a": 1}, {"a": 1.0, "b": 2}),
        ({"a": None}, {}),
        ({"a": None}, {"a": []}),
        ({"a": ""}, {"a": None}),
        ({"a": "1k"}, {"a": "1000"}),
        ({"a": "1h"}, {"a": "60m0s"}),
        ({"resources": {"cpu": "1", "memory": "0"}}, {"resources": {"cpu": 1, "x": "0"}}),
        ({"names": ["b", "a"]}, {"names": ["a", "b"]}),
        ({"items": [{"a": 1}, {"a": 3}]}, {"items": [{"a": 1, "b": 0}, {"a": 2}, {"a": 3}]}),
        ({"said": ["x", "y"]}, {"said": "y, x"}),
        ({"strategy": {"a": 1}}, {"strategy": {"a": 1, "b": None}}),
        ({"error": True}, {"error": True, "refused": "x"}),
    ],
)
def test_agree(expect: Json, actual: Json) -> None:
    assert differences_of_case(expect, actual, RULES) == []


@pytest.mark.parametrize(
    ("expect", "actual"),
    [
        ({"a": 1}, {}),
        ({"a": 1}, {"a": True}),
        ({"items": [{"a": 3}, {"a": 1}]}, {"items": [{"a": 1}, {"a": 3}]}),
        ({"items": [{"a": 1}, {"a": 1}]}, {"items": [{"a": 1}]}),
        ({"said": ["x", "z"]}, {"said": "y, x"}),
        ({"a": False}, {}),
        ({"a": False}, {"a": 0}),
        ({"a": 0}, {"a": None}),
        ({"a": "1"}, {"a": 1}),
        ({"a": None}, {"a": 0}),
        ({"a": {}}, {"a": {"b": 1}}),
        ({"a": [1, 2]}, {"a": [2, 1]}),
        ({"a": [1]}, {"a": [1, 2]}),
        ({"text": "1k"}, {"text": "1000"}),
        ({"resources": {"cpu": "1"}}, {"resources": {"cpu": "1", "memory": "1"}}),
        ({"resources": {"cpu": "1"}}, {"resources": {}}),
        ({"strategy": {"a": 1}}, {"strategy": {"a": 1, "b": 0}}),
        ({"error": True}, {"a": 1}),
        ({"a": False}, {"error": True}),
        ({}, {"error": True}),
    ],
)
def test_disagree(expect: Json, actual: Json) -> None:
    assert differences_of_case(expect, actual, RULES)
