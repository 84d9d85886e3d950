"""Quantities: the grammar, the two integers, the canonical text, arithmetic, and the fast doors."""

from __future__ import annotations

import pickle
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from koordcore.values.invalid import InvalidInput
from koordcore.values.quantity import (
    NANO_PER_UNIT,
    ZERO,
    Notation,
    Quantity,
    canonical_from_json,
    canonical_milli,
    of_milli,
    of_value,
    parse_milli,
    parse_quantity,
    parse_value,
    quantity_from_json,
)

quantities = st.builds(Quantity, st.integers(-(10**40), 10**40), st.sampled_from(Notation))
texts = st.from_regex(
    r"[+-]?([0-9]{1,12}(\.[0-9]{0,12})?|\.[0-9]{1,12})([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]{1,2})?", fullmatch=True
)


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("1.", "1"),
        (".5", "500m"),
        ("+.5Ki", "512"),
        ("-0", "0"),
        ("0Ki", "0"),
        ("1E", "1E"),
        ("1E3", "1e3"),
        ("1e2", "100"),
        ("1e-1", "100e-3"),
        ("1.5e3", "1500"),
        ("12e5", "1200e3"),
        ("0.1Gi", "107374182400m"),
        ("1.5Ki", "1536"),
        ("-1024Ki", "-1Mi"),
        ("1023Ki", "1023Ki"),
        ("1023.5", "1023500m"),
        ("1000E", "1000E"),
        ("2048Ei", "2048Ei"),
        ("0.0000000001", "1n"),
        ("-0.0000000001", "-1n"),
        ("1e-12", "1e-9"),
        ("1000000", "1M"),
        ("1u", "1u"),
        ("1000u", "1m"),
    ],
)
def test_canonical_text(text: str, canonical: str) -> None:
    assert parse_quantity(text).canonical() == canonical


@pytest.mark.parametrize(
    "text",
    [
        "",
        ".",
        "+",
        "-",
        "1 ",
        " 1",
        "1\n",
        "1k ",
        "1kk",
        "1ki",
        "1K",
        "1mi",
        "1e",
        "1e+",
        "1e1.5",
        "1e3k",
        "1_000",
        "Ki",
        "1.2.3",
        "NaN",
        "inf",
        "١",
        "1²",
        "1e99999",
        "9" * 10_000,
    ],
)
def test_what_is_no_quantity_is_refused_by_every_door(text: str) -> None:
    for door in (parse_quantity, parse_milli, parse_value, quantity_from_json, canonical_from_json, canonical_milli):
        with pytest.raises(InvalidInput):
            door(text)


def test_json_numbers_keep_their_decimal_value() -> None:
    assert quantity_from_json(0.1).nano == 10**8
    assert quantity_from_json(3) == of_value(3)
    assert quantity_from_json(None) == ZERO
    assert (canonical_from_json(0.1), canonical_from_json(None), canonical_milli(0.5)) == ("100m", "0", "500")
    refused: list[object] = [True, [], {}, float("nan"), float("inf")]
    for wrong in refused:
        with pytest.raises(InvalidInput):
            quantity_from_json(wrong)


@given(quantities)
def test_parse_after_render_is_identity(quantity: Quantity) -> None:
    again = parse_quantity(quantity.canonical()) if len(quantity.canonical()) <= 256 else quantity
    assert again == quantity
    assert again.canonical() == quantity.canonical() or quantity.notation is not again.notation


@given(texts)
def test_integers_are_rounded_away_from_zero(text: str) -> None:
    quantity = parse_quantity(text)
    exact = Fraction(quantity.nano, NANO_PER_UNIT)
    for got, wanted in ((quantity.value(), exact), (quantity.milli(), exact * 1000)):
        assert abs(got) >= abs(wanted) > abs(got) - 1
        assert got * wanted >= 0


@given(texts)
def test_fast_doors_agree_with_the_exact_one(text: str) -> None:
    assert parse_milli(text) == parse_quantity(text).milli()
    assert parse_value(text) == parse_quantity(text).value()
    assert canonical_from_json(text) == parse_quantity(text).canonical()
    assert canonical_milli(text) == of_value(parse_quantity(text).milli()).canonical()


@given(quantities, quantities, st.integers(-5, 5))
def test_arithmetic_and_order_follow_the_exact_amount(a: Quantity, b: Quantity, factor: int) -> None:
    assert (a + b).nano == a.nano + b.nano
    assert (a - b) + b == a
    negated = -a
    assert -negated == a
    assert (a * factor).nano == a.nano * factor
    assert (a < b, a <= b, a == b) == (a.nano < b.nano, a.nano <= b.nano, a.nano == b.nano)
    assert max(a, b).nano == max(a.nano, b.nano)


def test_sum_keeps_the_notation_of_the_first_that_is_not_zero() -> None:
    assert (ZERO + parse_quantity("1Gi")).canonical() == "1Gi"
    assert (parse_quantity("1Gi") + parse_quantity("1024M")).canonical() == "2048576Ki"
    assert (parse_quantity("1G") + parse_quantity("1G")).canonical() == "2G"
    assert hash(parse_quantity("1Ki")) == hash(parse_quantity("1024"))
    assert of_milli(2500).canonical() == "2500m"


def test_an_error_names_rule_and_value_and_survives_pickling() -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_quantity("1C")
    error = caught.value.at("requests[cpu]").at("spec")
    assert str(error).startswith("spec.requests[cpu]: must be a Kubernetes quantity")
    assert "'1C'" in str(error)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
