"""YAML means what it means to kubectl, and a key that occurs twice is named."""

import json
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from koordcore.protocol.manifests import read_documents
from koordcore.values.invalid import InvalidInput
from koordcore.values.yaml_text import YamlError, dump_yaml, load_yaml


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("0000:47:00.0", "0000:47:00.0"),
        ("12:30", "12:30"),
        ("2001:10:20:30", "2001:10:20:30"),
        ("190:20:30.15", "190:20:30.15"),
        ("=", "="),
        ("2026-01-01", "2026-01-01"),
        ("2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z"),
        ("12_3", 123),
        ("+12", 12),
        ("010", 8),
        ("08", 8),
        ("0o17", 15),
        ("0b101", 5),
        ("0x1F", 31),
        ("-0x1F", -31),
        ("0x", "0x"),
        ("0b2", "0b2"),
        ("1e3", 1000),
        ("1.5e+3", 1500),
        ("1.0", 1),
        ("1.", 1),
        ("1.5", 1.5),
        (".5", 0.5),
        ("+.5", 0.5),
        ("-1.5e-3", -0.0015),
        ("1e400", "1e400"),
        ("18446744073709551615", 18446744073709551615),
        ("18446744073709551616", 18446744073709551616),
        ("0xffffffffffffffffff", "0xffffffffffffffffff"),
        ("_1", "_1"),
        ("1_", 1),
        ("1.2.3", "1.2.3"),
        ("1e", "1e"),
        ("y", True),
        ("N", False),
        ("yes", True),
        ("Off", False),
        ("yEs", "yEs"),
        ("~", None),
        ("", None),
        ("NULL", None),
        ("nULL", "nULL"),
        ("'1'", "1"),
        ('"yes"', "yes"),
        ("!!str 1", "1"),
        ("!!int '7'", 7),
        ("!!float 7", 7),
        ("!!bool y", True),
        ("!!timestamp soon", "soon"),
        ("<<", "<<"),
    ],
)
def test_a_scalar_is_read_as_go_reads_it(written: str, value: object) -> None:
    found = load_yaml(f"a: {written}\n")["a"]

    assert (type(found), found) == (type(value), value)


@pytest.mark.parametrize("written", ["!!int x", "!!float x", "!!int ''", "!!bool maybe", "!!null {}"])
def test_a_tag_that_does_not_fit_is_an_error(written: str) -> None:
    with pytest.raises((InvalidInput, YamlError)):
        read_documents(f"a: {written}\n".encode())


def test_keys_of_other_types_become_text() -> None:
    assert read_documents(b"1: a\non: b\n") == [{"1": "a", "true": "b"}]
    for key in ("2.5", "~", "[a]", "!!binary aGk="):
        with pytest.raises(InvalidInput):
            read_documents(f"? {key}\n: a\n".encode())


def test_the_manifest_of_a_device_is_read() -> None:
    (document,) = read_documents(b"topology: {busID: 0000:47:00.0, socketID: -1}\nargs: [=]\n")

    assert document == {"topology": {"busID": "0000:47:00.0", "socketID": -1}, "args": ["="]}


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("a: 1\na: 2\n", "a"),
        ("a: 1\n'a': 2\n", "a"),
        ("spec:\n  items:\n  - {name: a}\n  - {name: b, limits: {cpu: 1, cpu: 2}}\n", "spec.items[1].limits.cpu"),
        ("a:\n- - {x: 1}\n  - {x/y: 1, x/y: 2}\n", "a[0][1][x/y]"),
        ("---\nx: 1\n---\nb: {x: &n {}, x: *n}\n", "b.x"),
        ("? [1]\n: {a: 1, a: 2}\n", "[?].a"),
        ('{"a": 1, "a": 2}', "a"),
        ('[{"a": ":"}, {"b": {"c": [0, {"d": 1, "e:": 2, "d": {}}]}}]', "[1].b.c[1].d"),
        (r'{"a": 1, "\u0061": 2}', "a"),
    ],
)  # fmt: skip
def test_a_key_that_occurs_twice_is_refused_with_its_field(text: str, path: str) -> None:
    with pytest.raises(InvalidInput, match="a key that occurs once in its object") as caught:
        read_documents(text.encode())
    assert caught.value.path == path


def test_keys_of_merged_mappings_give_way() -> None:
    text = "base: &b {x: 1, y1: 2}\nother: &o {z: 3}\nown: {<<: *b, <<: *o, x: 4}\nagain: {<<: [*b, *o]}\n"

    (document,) = read_documents(text.encode())
    assert document == {
        "base": {"x": 1, "y1": 2}, "other": {"z": 3}, "own": {"x": 4, "y1": 2, "z": 3},
        "again": {"x": 1, "y1": 2, "z": 3},
    }  # fmt: skip


SCALAR = st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 64) - 1) | st.floats(allow_nan=False, width=32)
WORD = st.text(alphabet="0123456789abefoxyYN_.:+-=~<", max_size=8)
JSON = st.recursive(
    SCALAR | WORD, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORD, inner, max_size=3), max_leaves=10
)


@given(JSON.filter(lambda value: not isinstance(value, float)))
def test_what_is_written_is_read_again(value: Any) -> None:
    text = dump_yaml(value)

    assert load_yaml(text) == value
    assert yaml.safe_load(text) == value


@given(st.dictionaries(WORD, SCALAR, max_size=4))
def test_json_is_read_alike_by_both_decoders(value: dict[str, Any]) -> None:
    finite = {key: item for key, item in value.items() if not isinstance(item, float) or abs(item) < 1e300}
    text = json.dumps(finite).encode()

    assert read_documents(text) == read_documents(b"# as YAML\n" + text) == [finite]
