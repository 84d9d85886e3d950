"""Names of drains as label values: what Kubernetes accepts, and what tells two names apart."""

import re

from hypothesis import given
from hypothesis import strategies as st
from koordcore.protocol.drains import label_value
from koordcore.protocol.selectors import check_label_value

NAMES = st.from_regex(re.compile(r"[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?"), fullmatch=True)


@given(name=NAMES)
def test_a_name_becomes_a_valid_label_value_and_stays_itself_where_it_is_one(name: str) -> None:
    value = label_value(name)
    check_label_value(value)
    assert (value == name) == (len(name) <= 63)


def test_long_names_with_the_same_beginning_have_different_values() -> None:
    assert len({label_value(f"{'n' * 62}{end}") for end in ("a", "b", "ba", "bb")}) == 4
