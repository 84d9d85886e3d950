"""Texts that are small and become large, or deep: refused before they are built, and never more than refused."""

import json
from typing import cast

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from koordcore.protocol import lenient_json
from koordcore.protocol.manifests import read_documents
from koordcore.values import text_limits, yaml_text
from koordcore.values.invalid import InvalidInput
from koordcore.values.text_limits import check_json
from koordcore.values.yaml_text import dump_yaml, load_yaml, load_yaml_documents

DEEP = "[" * 100_000 + "]" * 100_000


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        (DEEP.encode(), "nested at most 64 deep"),
        (b"# a comment\n" + DEEP.encode(), "nested at most 64 deep"),
        (b'{"a":' * 50_000 + b"1" + b"}" * 50_000, "nested at most 64 deep"),
        (b"x: " + DEEP.encode(), "nested at most 64 deep"),
        (b"- " * 500_000 + b"x", "nested at most 64 deep"),
        (b"? " * 500_000 + b"x", "nested at most 64 deep"),
        (b"".join(b" " * depth + b"a:\n" for depth in range(70)), "nested at most 64 deep"),
        (b"- a: b\n" * 100_000, "at most 200000 values of YAML"),
        (b"- a: b\n" * 2_000_000, "at most 4194304 bytes of YAML"),
        (b"--- 1\n" * 20_001, "at most 20000 documents"),
        (b"[" + b"{}," * 5_000_000 + b"{}]", "at most 500000 values"),
        (b"[" + b"{}," * 20_000 + b"{}]", "at most 20000 documents"),
        (b'{"kind":"List","items":[' + b"{}," * 20_000 + b"{}]}", "at most 20000 documents"),
        (b"a: &a [*a]", "does not contain itself"),
        (b"a: 0x" + b"f" * 1_000_000, "at most 1000 are allowed"),
        (b"a: " + b"1" * 5000, "at most 1000 are allowed"),
        (b'"' + b"\\\"" * 1_000_000, "YAML or JSON"),
        (b"{" + b'"\\' * 1_000_000, "YAML or JSON"),
    ],
)  # fmt: skip
def test_a_text_beyond_a_limit_is_refused_before_it_is_built(text: bytes, rule: str) -> None:
    with pytest.raises(InvalidInput, match=rule):
        read_documents(text)


def test_an_alias_counts_as_what_it_repeats() -> None:
    def chain(levels: int) -> bytes:
        return "\n".join(
            [f"a0: &a0 {[0] * 10}", *(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, levels))]
        ).encode()

    assert len(load_yaml(chain(4))["a3"]) == 10
    with pytest.raises(InvalidInput, match="at most 200000 values of YAML"):
        load_yaml(chain(6))
    with pytest.raises(InvalidInput, match="at most 200000 values of YAML"):
        load_yaml("a: &a {x: 1}\n" + "".join(f"b{n}: &b{n} {{<<: [*a{', *b'.join(['', *map(str, range(n))])}]}}\n" for n in range(30)))  # fmt: skip  # noqa: E501


def test_an_alias_is_as_deep_as_what_it_repeats() -> None:
    nested = "a: &a " + "[" * 40 + "]" * 40 + "\nb: "
    load_yaml(nested + "[" * 20 + "*a" + "]" * 20)
    with pytest.raises(InvalidInput, match="nested at most 64 deep"):
        load_yaml(nested + "[" * 30 + "*a" + "]" * 30)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.text(st.characters(codec="utf-8"), max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("ab[]{},\"\\", max_size=4), inner, max_size=4),
    max_leaves=40,
)  # fmt: skip


def _size(value: object) -> tuple[int, int]:
    """Number of values and depth."""
    if not isinstance(value, dict | list):
        return 1, 0
    inner = list(cast("dict[str, object]", value).values()) if isinstance(value, dict) else cast("list[object]", value)
    sizes = [_size(item) for item in inner]
    return 1 + sum(size for size, _ in sizes), 1 + max((depth for _, depth in sizes), default=0)


@given(JSON)
def test_brackets_in_texts_do_not_count_and_no_value_is_missed(value: object) -> None:
    values, depth = _size(value)
    text = json.dumps(value, ensure_ascii=False)
    for limit in (depth, depth - 1):
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(text_limits, "MAX_DEPTH", limit)
            if limit < depth:
                with pytest.raises(InvalidInput, match="nested"):
                    check_json(text)
            else:
                check_json(text)
    with pytest.raises(InvalidInput, match="values"):
        check_json(text, most_values=(values + 1) // 2 - 1)
    check_json(text, most_values=2 * values + 1)


@given(JSON)
def test_yaml_counts_as_json_does(value: object) -> None:
    text = dump_yaml(value)
    _, depth = _size(value)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(yaml_text, "MAX_DEPTH", depth)
        assert load_yaml(text) == yaml.safe_load(text) == value
        patched.setattr(yaml_text, "MAX_DEPTH", depth - 1)
        if depth:
            with pytest.raises(InvalidInput, match="nested"):
                load_yaml(text)


def test_annotations_have_the_same_limits() -> None:
    for text in (DEEP, '{"a":' * 1000 + "1" + "}" * 1000):
        with pytest.raises(InvalidInput, match="nested at most 64 deep"):
            lenient_json.parse_json(text)
        with pytest.raises(InvalidInput, match="nested at most 64 deep"):
            lenient_json.decode(text, dict[str, str])
    assert lenient_json.parse_json('{"a": "' + "[" * 1000 + '"}') == {"a": "[" * 1000}


def test_documents_of_a_text_are_read_one_by_one() -> None:
    assert load_yaml_documents("--- 1\n---\n--- 3\n") == [1, None, 3]
    assert load_yaml("") is None
