"""Control characters in texts of users are shown, not carried out."""

import json

import pytest
from koordcore.values.shortened import shortened
from koordcore.values.visible import visible, visible_json, visible_line


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("web-1", "web-1"),
        ("naïve 日本\n\tthe next line", "naïve 日本\n\tthe next line"),
        ("\x1b[2J", "\\x1b[2J"),
        ("a\rb\x08c\x00\x7f", "a\\x0db\\x08c\\x00\\x7f"),
        ("\x9b2J", "\\x9b2J"),
        ("\u202egpj.exe\u2066", "\\u202egpj.exe\\u2066"),
        ("\ud800", "\\ud800"),
    ],
)
def test_control_characters_become_visible(text: str, shown: str) -> None:
    assert visible(text) == shown


def test_a_line_stays_one_line() -> None:
    assert visible_line("a\nb\tc\x1b") == "a\\nb\\tc\\x1b"


def test_a_json_document_means_the_same() -> None:
    value = {"\x9b": ["\u202e\x7f\x1b", "日本"]}
    document = visible_json(json.dumps(value, ensure_ascii=False))
    assert json.loads(document) == value
    assert not set(document) & set("\x9b\u202e\x7f\x1b")
    assert "日本" in document


def test_a_long_text_is_cut_with_its_length_and_hash() -> None:
    assert shortened("x" * 253) == "x" * 253
    assert shortened("x" * 254).startswith("x" * 253 + "... (254 letters, sha256 ")
    assert shortened("x" * 254) != shortened("x" * 253 + "y")
    assert shortened("\ud800") == "?"
