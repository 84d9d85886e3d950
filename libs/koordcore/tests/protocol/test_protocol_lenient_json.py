"""Lenient JSON and label selectors: what is forgiven and what is not."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from koordcore.protocol import lenient_json
from koordcore.protocol.objects import LabelSelector, LabelSelectorRequirement
from koordcore.protocol.selectors import compile_selector, is_matching
from koordcore.values.invalid import InvalidInput


class Inner(msgspec.Struct, rename="camel"):
    """A nested object."""

    mba_percent: int | None = None
    enable: bool = True


class Outer(msgspec.Struct, rename="camel"):
    """An object with every kind of field."""

    inner: Inner | None = None
    many: list[Inner] = []
    by_name: dict[str, Inner] = {}
    ratios: dict[str, float] = {}
    text: str = "default"


def test_keys_match_in_any_case_at_every_depth_but_map_keys_stay() -> None:
    text = '{"INNER":{"MBAPercent":1},"many":[{"MbaPercent":2}],"byName":{"Key":{"mbapercent":3}},"unknown":{"a":1}}'
    parsed = lenient_json.decode(text, Outer)
    assert parsed == Outer(
        inner=Inner(mba_percent=1), many=[Inner(mba_percent=2)], by_name={"Key": Inner(mba_percent=3)}
    )


def test_exact_spelling_wins_and_of_repeated_keys_the_last() -> None:
    assert lenient_json.decode('{"mbaPercent":1,"MBAPERCENT":2}', Inner).mba_percent == 1
    assert lenient_json.decode('{"MBAPERCENT":2,"mbaPercent":1}', Inner).mba_percent == 1
    assert lenient_json.decode('{"mbaPercent":1,"mbaPercent":2}', Inner).mba_percent == 2
    assert lenient_json.decode('{"MBAPERCENT":1,"mbapercent":2}', Inner).mba_percent == 2


def test_null_means_not_set() -> None:
    text = '{"inner":null,"many":null,"byName":{"a":null},"ratios":{"cpu":null,"memory":2},"text":null}'
    assert lenient_json.decode(text, Outer) == Outer(ratios={"memory": 2.0})
    assert lenient_json.decode("null", Outer) == Outer()


@pytest.mark.parametrize(
    "text",
    [
        '{"mbaPercent":15.0}',
        '{"mbaPercent":1.5}',
        '{"mbaPercent":"1"}',
        '{"mbaPercent":true}',
        '{"enable":1}',
        '{"enable":"true"}',
        '{"enable":true,}',
        '{"enable":true} //x',
        "[]",
        "1",
        '"x"',
        "",
        "{",
        "{'enable':true}",
        '{"mbaPercent":NaN}',
        "[" * 100_000,
    ],
)
def test_a_wrong_type_or_bad_json_makes_the_whole_value_invalid(text: str) -> None:
    with pytest.raises(InvalidInput):
        lenient_json.decode(text, Inner)


@given(st.dictionaries(st.text(max_size=4), st.integers()), st.lists(st.text(max_size=4)))
def test_folding_keeps_exact_keys_and_nothing_foreign(entry: dict[str, int], names: list[str]) -> None:
    folded = lenient_json.fold_keys(entry, names)
    assert folded.keys() <= set(names)
    by_lower = {name.lower(): name for name in names}
    for key, value in entry.items():
        if by_lower.get(key.lower()) == key:
            assert folded[key] == value


# --- selectors -----------------------------------------------------------------------------------------------------


def selector(*expressions: tuple[str, str, list[str]], **labels: str) -> LabelSelector:
    requirements = [LabelSelectorRequirement(key=k, operator=o, values=v) for k, o, v in expressions]
    return LabelSelector(match_labels=labels, match_expressions=requirements)


@pytest.mark.parametrize(
    ("chosen", "labels", "expected"),
    [
        (selector(), {}, True),
        (selector(a="1"), {"a": "1", "b": "2"}, True),
        (selector(a="1"), {"a": "2"}, False),
        (selector(a=""), {}, False),
        (selector(("a", "In", ["1", "2"])), {"a": "2"}, True),
        (selector(("a", "In", ["1"])), {}, False),
        (selector(("a", "NotIn", ["1"])), {}, True),
        (selector(("a", "NotIn", ["1"])), {"a": "1"}, False),
        (selector(("a", "Exists", [])), {"a": ""}, True),
        (selector(("a", "DoesNotExist", [])), {"a": ""}, False),
        (selector(("b", "Exists", []), a="1"), {"a": "1"}, False),
    ],
)
def test_selector(chosen: LabelSelector, labels: dict[str, str], expected: bool) -> None:
    assert is_matching(chosen, labels, missing=not expected) is expected


@pytest.mark.parametrize("missing", [True, False])
def test_missing_selector_means_what_the_caller_says(missing: bool) -> None:
    assert is_matching(None, {"a": "1"}, missing=missing) is missing


@pytest.mark.parametrize(
    "broken",
    [
        selector(("a", "in", ["1"])),
        selector(("a", "In", [])),
        selector(("a", "NotIn", [])),
        selector(("a", "Exists", ["1"])),
        selector(("a", "DoesNotExist", ["1"])),
        selector(("", "Exists", [])),
        selector(("a b", "Exists", [])),
        selector(a="x y"),
        selector(("/a", "Exists", [])),
        selector(("Ex.io/a", "Exists", [])),
        selector(("a", "Gt", ["1"])),
        selector(a="x" * 64),
    ],
)
def test_unparseable_selector_matches_nothing_and_says_why(broken: LabelSelector) -> None:
    assert not is_matching(broken, {"a": "1"}, missing=True)
    with pytest.raises(InvalidInput) as caught:
        compile_selector(broken)
    assert caught.value.path.startswith("match")
