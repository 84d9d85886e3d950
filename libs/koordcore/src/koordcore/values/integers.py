"""Parse integers as Go does. Each rule of the protocol states whether it accepts `0x10`, `+5` or `007`."""

from __future__ import annotations

import re
from typing import Final

from koordcore.values.invalid import InvalidInput

_DECIMAL: Final = re.compile(r"[+-]?[0-9]+")
_PREFIXED: Final = re.compile(
    r"([+-]?)(?:0[xX]((?:_?[0-9a-fA-F])+)|0[bB]((?:_?[01])+)|0[oO]((?:_?[0-7])+)|0((?:_?[0-7])+)|(0|[1-9](?:_?[0-9])*))"
)
MAX_LENGTH: Final = 256  # Longest accepted text. It limits the work that a text can cause.

_BASES: Final = (16, 2, 8, 8, 10)


def parse_decimal(text: str, bits: int = 32) -> int:
    """Parse a signed decimal of at most `bits` bits: `5`, `+5`, `-5`, `007`.

    Raises:
        InvalidInput: The text is empty, has blanks, `_` or non-ASCII digits, or the number is out of range.
    """
    if len(text) > MAX_LENGTH or _DECIMAL.fullmatch(text) is None:
        raise InvalidInput(f"a decimal int{bits}", text)
    return _within(int(text), bits, text)


def parse_literal(text: str, bits: int = 32) -> int:
    """Parse an integer as Go writes it: decimal, `0x10`, `0b11`, `0o7`, `010` (octal), `_` between digits, with sign.
    `bits`: the number must fit a signed integer of this size.

    Raises:
        InvalidInput: The text has another form, or the number is out of range.

    Source: protocol spec, 2.2 (7).
    """
    match = _PREFIXED.fullmatch(text) if len(text) <= MAX_LENGTH else None
    if match is None:
        raise InvalidInput(f"an integer literal within int{bits}", text)
    sign, *groups = match.groups()
    for base, digits in zip(_BASES, groups, strict=True):
        if digits is not None:
            number = int(digits.replace("_", ""), base)
            return _within(-number if sign == "-" else number, bits, text)
    raise AssertionError(text)


def _within(number: int, bits: int, text: str) -> int:
    if -(1 << (bits - 1)) <= number < 1 << (bits - 1):
        return number
    raise InvalidInput(f"an integer within int{bits}", text)
