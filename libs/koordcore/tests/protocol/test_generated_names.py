"""Which names an API server makes of a generateName."""

import pytest
from koordcore.protocol.objects import base_of_names, generated_base


@pytest.mark.parametrize(
    ("name", "base"),
    [
        ("web-7d4-x2k9p", "web-7d4-"),
        ("web-7d4-final", ""),
        ("web-7d4-x2k91", ""),
        ("x2k9p", ""),
        ("", ""),
        (f"{'a' * 58}x2k9p", "a" * 58),
    ],
)
def test_a_name_shows_what_it_was_made_of(name: str, base: str) -> None:
    assert generated_base(name) == base


def test_long_beginnings_are_cut() -> None:
    assert base_of_names("web-") == "web-"
    assert base_of_names("a" * 70) == "a" * 58
