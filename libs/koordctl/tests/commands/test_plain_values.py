"""Values of options are those that typer would make, and its sentences say what is wrong."""

from enum import StrEnum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from koordctl.plain_values import NOT_PLAIN, plain_value
from typer._adapters import build_adapter
from typer.models import OptionInfo

pytestmark = pytest.mark.slow


class Form(StrEnum):
    TABLE = "table"
    JSON = "json"


TYPES: list[Any] = [str, int, float, Form, list[str], list[int], list[Form]]
VALUES = (
    st.text("0123456789.-+e_ ²", max_size=18)
    | st.sampled_from([*Form, "table", "TABLE", "nan", "inf", True])
    | st.integers()
    | st.floats()
    | st.lists(st.sampled_from(["1", "a", "table"])).map(tuple)
)


@given(st.sampled_from(TYPES), VALUES, st.none() | st.integers(-3, 3), st.none() | st.integers(3, 9))
def test_a_value_is_the_one_that_typer_makes_or_left_to_it(
    kind: Any, value: object, low: int | None, high: int | None
) -> None:
    found = plain_value(kind, value, low, high)
    if found is not NOT_PLAIN:
        made = build_adapter(kind, OptionInfo(min=low, max=high)).validate_python(value)
        assert (found, type(found)) == (made, type(made))


@pytest.mark.parametrize(
    ("kind", "value", "wanted"),
    [(str, "a", "a"), (int, "40", 40), (float, "1.5", 1.5), (Form, "json", Form.JSON), (list[str], ("a",), ["a"])],
)
def test_the_usual_values_are_plain(kind: Any, value: object, wanted: object) -> None:
    assert plain_value(kind, value, None, None) == wanted


@pytest.mark.parametrize(
    ("kind", "value"), [(int, "a"), (int, "1.5"), (int, "0"), (float, "101"), (Form, "yaml"), (dict, {})]
)
def test_what_is_wrong_is_left_to_typer(kind: Any, value: object) -> None:
    assert plain_value(kind, value, 1, 100) is NOT_PLAIN
