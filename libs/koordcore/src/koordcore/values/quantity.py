"""Kubernetes resource quantities: exact decimals down to a nano, and the notation in which they were written.

A quantity is sent as text (`1500m`, `4Gi`, `1k`). In code, amounts are plain integers (milli-cores, bytes).
`parse_milli` and `parse_value` are the fast parsers. `Quantity` is used for values that are written back to objects.
Resource lists are in `resources`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache, total_ordering
from typing import Final

from koordcore.values.invalid import InvalidInput

NANO_PER_UNIT: Final = 10**9
NANO_PER_MILLI: Final = 10**6
MAX_EXPONENT: Final = 400  # Largest absolute exponent accepted in `1e400`. It limits the work that a text can cause.

MAX_LENGTH: Final = 256  # Longest accepted text. It limits the work that a text can cause.

_RULE: Final = "a Kubernetes quantity (digits with one of n u m k M G T P E Ki Mi Gi Ti Pi Ei or an exponent)"


class Notation(IntEnum):
    """Notation of a quantity as written: DECIMAL (suffix `k` or none), BINARY (suffix `Ki`) or EXPONENT (`1e3`). A
    quantity keeps its notation, so that it is written back in the same way.
    """

    DECIMAL = 0
    BINARY = 1
    EXPONENT = 2


_SYNTAX: Final = re.compile(
    r"(?P<sign>[+-]?)(?:(?P<whole>[0-9]+)(?:\.(?P<part>[0-9]*))?|\.(?P<only>[0-9]+))"
    r"(?:(?P<binary>[KMGTPE]i)|(?P<decimal>[numkMGTPE])|[eE](?P<exponent>[+-]?[0-9]+))?",
)
_DECIMAL_EXPONENT: Final = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_DECIMAL_SUFFIX: Final = {exponent: suffix for suffix, exponent in _DECIMAL_EXPONENT.items()}
_BINARY_SHIFT: Final = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_BINARY_SUFFIXES: Final = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")


def _divide_away_from_zero(number: int, divisor: int) -> int:
    return -(-number // divisor) if number >= 0 else number // divisor


@total_ordering
@dataclass(frozen=True, slots=True, eq=False)
class Quantity:
    """A Kubernetes quantity: an exact amount in nano-units, and the notation in which it is written. Comparison and
    hash use only the amount: `1Ki` equals `1024`.

    Source: protocol spec, 1.1.
    """

    nano: int  # The amount times 10**9; an exact integer
    # Notation for output. A sum or difference has that of the left operand, or of the right one if the left is zero.
    notation: Notation = Notation.DECIMAL

    def value(self) -> int:
        """Return the amount in whole units, rounded away from zero."""
        return _divide_away_from_zero(self.nano, NANO_PER_UNIT)

    def milli(self) -> int:
        """Return the amount in thousandths of a unit, rounded away from zero (`100500u` is 101)."""
        return _divide_away_from_zero(self.nano, NANO_PER_MILLI)

    def is_zero(self) -> bool:
        """Return whether the amount is zero."""
        return self.nano == 0

    def canonical(self) -> str:
        """Return the text in Kubernetes' canonical form. Decimal: the largest suffix that leaves an integer (1500m
        stays, 2000m is 2, 1000 is 1k). Binary: the largest binary suffix that leaves an integer; decimal form if
        |amount| < 1024 or fractional. Exponent: exponents that are multiples of 3. Zero is `0`.

        Source: protocol spec, 1.1.
        """
        nano = self.nano
        if nano == 0:
            return "0"
        if self.notation is Notation.BINARY:
            whole, rest = divmod(nano, NANO_PER_UNIT)
            if rest == 0 and abs(whole) >= 1024:
                step = 0
                while whole % 1024 == 0 and step < 6:
                    whole //= 1024
                    step += 1
                return f"{whole}{_BINARY_SUFFIXES[step]}"
        exponent = -9
        highest = MAX_EXPONENT * 2 if self.notation is Notation.EXPONENT else 18
        while nano % 1000 == 0 and exponent < highest:
            nano //= 1000
            exponent += 3
        if self.notation is Notation.EXPONENT:
            return f"{nano}e{exponent}" if exponent else str(nano)
        return f"{nano}{_DECIMAL_SUFFIX[exponent]}"

    __str__ = canonical

    def __eq__(self, other: object) -> bool:
        return self.nano == other.nano if isinstance(other, Quantity) else NotImplemented

    def __lt__(self, other: Quantity) -> bool:
        return self.nano < other.nano

    def __hash__(self) -> int:
        return hash(self.nano)

    def __bool__(self) -> bool:
        return self.nano != 0

    def __add__(self, other: Quantity) -> Quantity:
        return Quantity(self.nano + other.nano, self.notation if self.nano else other.notation)

    def __sub__(self, other: Quantity) -> Quantity:
        return Quantity(self.nano - other.nano, self.notation if self.nano else other.notation)

    def __neg__(self) -> Quantity:
        return Quantity(-self.nano, self.notation)

    def __mul__(self, factor: int) -> Quantity:
        return Quantity(self.nano * factor, self.notation)


ZERO: Final = Quantity(0)


def of_value(amount: int, notation: Notation = Notation.DECIMAL) -> Quantity:
    """Return the quantity of `amount` whole units."""
    return Quantity(amount * NANO_PER_UNIT, notation)


def of_milli(amount: int, notation: Notation = Notation.DECIMAL) -> Quantity:
    """Return the quantity of `amount` thousandths, for example milli-cores."""
    return Quantity(amount * NANO_PER_MILLI, notation)


def parse_quantity(text: str) -> Quantity:
    """Parse a Kubernetes quantity such as `1500m`, `4Gi`, `1.5` or `1e3`. Blanks and hexadecimal numbers are invalid,
    and case matters. `1.` and `.5` are valid. `1E` is exa, `1E3` an exponent. Amounts below a nano are rounded away
    from zero. Results are cached.

    Raises:
        InvalidInput: The text has another form or is empty.

    Source: protocol spec, 1.1.
    """
    return _parse(text)


@lru_cache(maxsize=8192)
def _parse(text: str) -> Quantity:
    match = _SYNTAX.fullmatch(text) if len(text) <= MAX_LENGTH else None
    if match is None:
        raise InvalidInput(_RULE, text)
    whole, part, only, binary, decimal, exponent_text = match.group(
        "whole", "part", "only", "binary", "decimal", "exponent"
    )
    fraction = only or part or ""
    digits = int((whole or "") + fraction)
    if match["sign"] == "-":
        digits = -digits
    scale = 9 - len(fraction)
    notation = Notation.DECIMAL
    if binary:
        digits <<= _BINARY_SHIFT[binary]
        notation = Notation.BINARY
    elif decimal:
        scale += _DECIMAL_EXPONENT[decimal]
    elif exponent_text:
        if len(exponent_text) > 6 or abs(int(exponent_text)) > MAX_EXPONENT:
            raise InvalidInput(f"a quantity with an exponent within +-{MAX_EXPONENT}", text)
        scale += int(exponent_text)
        notation = Notation.EXPONENT
    nano = digits * 10**scale if scale >= 0 else _divide_away_from_zero(digits, 10**-scale)
    return Quantity(nano, notation)


def quantity_from_json(value: object) -> Quantity:
    """Return the quantity of a decoded JSON value: text, number, or null (zero).

    Raises:
        InvalidInput: The value is a boolean, list or object, or a text that is not a quantity.

    Source: protocol spec, 1.1.
    """
    if isinstance(value, str):
        return _parse(value)
    if value is None:
        return ZERO
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidInput(_RULE, value)
    if isinstance(value, int):
        return of_value(value)
    # repr() is the shortest decimal that reads back as the same float: 0.1 stays a tenth
    return _parse(repr(value))


def canonical_from_json(value: object) -> str:
    """Return the canonical text of a quantity in a decoded JSON value (text, number or null). Texts are cached.

    Raises:
        InvalidInput: The value is a boolean, list or object, or a text that is not a quantity.
    """
    return _canonical_text(value) if isinstance(value, str) else quantity_from_json(value).canonical()


@lru_cache(maxsize=8192)
def _canonical_text(text: str) -> str:
    return _parse(text).canonical()


def canonical_milli(value: str | int | float) -> str:
    """Return a quantity in thousandths of a unit as canonical text, rounded away from zero: "1.5" -> "1500".

    Raises:
        InvalidInput: The value is a text that is not a quantity.
    """
    return _canonical_milli_text(value) if isinstance(value, str) else of_value(parse_milli(value)).canonical()


@lru_cache(maxsize=8192)
def _canonical_milli_text(text: str) -> str:
    return of_value(parse_milli(text)).canonical()


def parse_milli(value: str | int | float) -> int:
    """Parse a quantity into thousandths of a unit, rounded away from zero: "2" -> 2000, "1500m" -> 1500, 0.5 -> 500.

    Raises:
        InvalidInput: The text is not a quantity.
    """
    if isinstance(value, str):
        if value.isascii() and len(value) <= MAX_LENGTH:
            if value.isdigit():
                return int(value) * 1000
            if value[-1:] == "m" and value[:-1].isdigit():
                return int(value[:-1])
        return _parse(value).milli()
    return quantity_from_json(value).milli()


def parse_value(value: str | int | float) -> int:
    """Parse a quantity into whole units, rounded away from zero: "4Gi" -> 4294967296, "1k" -> 1000.

    Raises:
        InvalidInput: The text is not a quantity.
    """
    if isinstance(value, str):
        if value.isascii() and len(value) <= MAX_LENGTH:
            if value.isdigit():
                return int(value)
            if (shift := _BINARY_SHIFT.get(value[-2:])) is not None and value[:-2].isdigit():
                return int(value[:-2]) << shift
        return _parse(value).value()
    return quantity_from_json(value).value()
