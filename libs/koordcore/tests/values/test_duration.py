"""Go durations and Go integer texts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from koordcore.values.duration import format_duration, parse_duration, parse_seconds
from koordcore.values.integers import parse_decimal, parse_literal
from koordcore.values.invalid import InvalidInput

SECOND = 10**9


@pytest.mark.parametrize(
    ("text", "nanos"),
    [
        ("0", 0),
        ("-0", 0),
        ("+5s", 5 * SECOND),
        ("1h5m", 3900 * SECOND),
        ("1.5m", 90 * SECOND),
        ("-1s", -SECOND),
        (".5s", SECOND // 2),
        ("1.s", SECOND),
        ("1us1µs1μs", 3000),
        ("0.1ns", 0),
        ("5m5m", 600 * SECOND),
        ("-2562047h47m16.854775808s", -(2**63)),
    ],
)
def test_duration_length(text: str, nanos: int) -> None:
    assert parse_duration(text) == nanos


@pytest.mark.parametrize(
    "text",
    [
        "",
        "+",
        "-",
        "600",
        "1",
        "1.5",
        "s",
        ".s",
        "1 s",
        " 1s",
        "1S",
        "1d",
        "1h 5m",
        "--1s",
        "1h5",
        "00",
        "2562047h47m16.854775808s",
        "9" * 5000 + "s",
    ],
)
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(InvalidInput):
        parse_duration(text)


@pytest.mark.parametrize(
    ("nanos", "text"),
    [
        (0, "0s"),
        (300 * SECOND, "5m0s"),
        (86400 * SECOND, "24h0m0s"),
        (1_500_000, "1.5ms"),
        (1_500, "1.5µs"),
        (999, "999ns"),
        (-61 * SECOND, "-1m1s"),
        (1_500_000_000, "1.5s"),
        (3600 * SECOND + 1, "1h0m0.000000001s"),
    ],
)
def test_duration_text(nanos: int, text: str) -> None:
    assert format_duration(nanos) == text


@given(st.integers(-(2**63), 2**63 - 1))
def test_duration_parse_after_format_is_identity(nanos: int) -> None:
    assert parse_duration(format_duration(nanos)) == nanos


def test_seconds() -> None:
    assert parse_seconds("1m30s") == 90


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", 0),
        ("-0x10", -16),
        ("010", 8),
        ("0_1_0", 8),
        ("0b11", 3),
        ("0o7", 7),
        ("0X_1F", 31),
        ("1_000", 1000),
        ("00", 0),
        ("+5", 5),
        ("2147483647", 2**31 - 1),
        ("-2147483648", -(2**31)),
        ("-0x80000000", -(2**31)),
    ],
)
def test_integer_literal(text: str, number: int) -> None:
    assert parse_literal(text) == number


@pytest.mark.parametrize(
    "text",
    [
        "",
        "+",
        "0x",
        "09",
        "1__0",
        "1_",
        "_1",
        "0b2",
        "0o8",
        " 1",
        "1 ",
        "1.0",
        "1e3",
        "2147483648",
        "-2147483649",
        "0x80000000",
        "١",
        "9" * 5000,
    ],
)
def test_what_is_no_integer_literal(text: str) -> None:
    with pytest.raises(InvalidInput):
        parse_literal(text)


@given(st.integers(-(2**31), 2**31 - 1))
def test_decimal_and_literal_read_what_python_writes(number: int) -> None:
    assert parse_decimal(str(number)) == number
    for text in (str(number), hex(number), bin(number), oct(number), f"{number:_}"):
        assert parse_literal(text) == number


def test_decimal_takes_leading_zeros_and_plus_but_no_prefix() -> None:
    assert (parse_decimal("+007"), parse_decimal("-5")) == (7, -5)
    for text in ("0x10", "1_0", "", "+", "2147483648", " 5"):
        with pytest.raises(InvalidInput):
            parse_decimal(text)
