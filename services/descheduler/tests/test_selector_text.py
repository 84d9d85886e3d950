"""Label selectors written as one line of text."""

import pytest
from koord_descheduler.domain.config.arguments import parse_selector_text
from koordcore.values.invalid import InvalidInput


@pytest.mark.parametrize(
    ("text", "labels", "matches"),
    [
        ("", {}, True),
        ("a=b", {"a": "b"}, True),
        ("a==b", {"a": "c"}, False),
        ("a!=b", {}, True),
        ("a = b , c in (d, e)", {"a": "b", "c": "e"}, True),
        ("c notin (d,e)", {"c": "d"}, False),
        ("a,!b", {"a": ""}, True),
        ("! b", {"b": "1"}, False),
        ("a=", {"a": ""}, True),
        ("x.io/in in (in)", {"x.io/in": "in"}, True),
    ],
)
def test_selector(text: str, labels: dict[str, str], matches: bool) -> None:
    assert parse_selector_text(text).matches(labels) is matches


@pytest.mark.parametrize("text", ["a=b,", ",", "a b", "a in b", "a in (b", "=b", "a=b=c", "-a=b", "a in ()x", "a>1"])
def test_text_that_is_no_selector_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="selector"):
        parse_selector_text(text)
