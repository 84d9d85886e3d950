"""The types of which the tables of configuration sections are made.

A section of slo-controller-config is one `Obj` of `Field`s (tables.py). Parsing, merging and admission walk that table,
so a field's type, default and ranges are said once. Read tables.py next, then parse.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

JsonValue: TypeAlias = "bool | int | float | str | list[JsonValue] | dict[str, JsonValue] | None"
JsonObject: TypeAlias = "dict[str, JsonValue]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """The numbers that a field accepts; None: no bound. `str()` is the rule for people."""

    minimum: float | None = None
    maximum: float | None = None
    exclusive_minimum: bool = False

    def allows(self, value: float) -> bool:
        """Return whether the value is inside; both ends are included unless the minimum is exclusive."""
        if self.minimum is not None and (value < self.minimum or (self.exclusive_minimum and value == self.minimum)):
            return False
        return self.maximum is None or value <= self.maximum

    def __str__(self) -> str:
        if self.minimum is not None and self.maximum is not None and not self.exclusive_minimum:
            return f"{self.minimum:g}..{self.maximum:g}"
        low = "" if self.minimum is None else f"{'>' if self.exclusive_minimum else '>='} {self.minimum:g}"
        high = "" if self.maximum is None else f"<= {self.maximum:g}"
        return " and ".join(part for part in (low, high) if part)


PERCENT = Range(minimum=0, maximum=100)
NOT_NEGATIVE = Range(minimum=0)
POSITIVE = Range(minimum=0, exclusive_minimum=True)
AT_LEAST_ONE = Range(minimum=1)
SWITCH = Range(minimum=0, maximum=1)
"""0 or 1: a kernel switch."""


@dataclass(frozen=True, slots=True)
class Bool:
    """JSON true or false."""


@dataclass(frozen=True, slots=True)
class Int:
    """JSON integer literal; 15.0 and 1e1 are not integers (protocol spec, 1.2). bits bounds the magnitude."""

    bits: int = 64


@dataclass(frozen=True, slots=True)
class Float:
    """JSON number."""


@dataclass(frozen=True, slots=True)
class Text:
    """JSON text; the empty text means "not set" (protocol spec, 6.2).

    Attributes:
        known: Values with a meaning; other text is accepted and acts as the fallback of the field.
    """

    known: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DurationText:
    """A duration in Go form, kept in output form (`5m` becomes `5m0s`)."""


@dataclass(frozen=True, slots=True)
class QuantityValue:
    """A resource quantity as text or number, kept as canonical text."""


@dataclass(frozen=True, slots=True)
class PercentOrQuantity:
    """An integer is a percentage of the total, a text is a quantity in bits/s.

    Parsing checks only the JSON type, as the decoder of the reference does. Admission checks the value (protocol spec,
    6.11 rule 4).
    """


@dataclass(frozen=True, slots=True)
class OpenMap:
    """An object with any content, merged by key, each value replaced as a whole."""


@dataclass(frozen=True, slots=True)
class MapOf:
    """A plain map: merged by key, the value of a key replaced as a whole (protocol spec, 6.2)."""

    value: Kind


@dataclass(frozen=True, slots=True)
class ListOf:
    """A list: replaced as a whole by a merge."""

    item: Kind


@dataclass(frozen=True, slots=True)
class Bounds:
    """Two fields of one object where `lower` must be less than `upper`.

    Attributes:
        lower_has_default: The upper may be written alone, because the reader has a value for the lower (protocol spec,
            15 item 8 b); a lower alone is always refused.
    """

    upper: str
    lower: str
    lower_has_default: bool


@dataclass(frozen=True, slots=True)
class Obj:
    """An object of known fields, merged field by field; unknown keys are ignored."""

    fields: tuple[Field, ...]
    bounds: tuple[Bounds, ...] = ()

    def __post_init__(self) -> None:
        names = {field.name for field in self.fields}
        assert len(names) == len(self.fields)
        assert all({pair.upper, pair.lower} <= names for pair in self.bounds)

    def field(self, name: str) -> Field:
        """Return the field with this exact name; KeyError when the table has none."""
        for candidate in self.fields:
            if candidate.name == name:
                return candidate
        raise KeyError(name)


Kind: TypeAlias = (
    Bool | Int | Float | Text | DurationText | QuantityValue | PercentOrQuantity | OpenMap | MapOf | ListOf | Obj
)


@dataclass(frozen=True, slots=True)
class Field:
    """One row of a table of the protocol spec, section 6.

    Attributes:
        default: The value when nobody set the field; None = unset (the reader then leaves the feature alone).
        runtime: A merged value outside makes the section (or the entry) invalid.
        webhook: A written value outside is refused by admission; None = not checked.
    """

    name: str
    kind: Kind
    default: JsonValue = None
    runtime: Range | None = None
    webhook: Range | None = None


def defaults_of(obj: Obj) -> JsonObject:
    """Return the object of all defaults of a table, without the fields that are unset by default."""
    result: JsonObject = {}
    for field in obj.fields:
        if field.default is not None:
            result[field.name] = field.default
        elif isinstance(field.kind, Obj):
            nested = defaults_of(field.kind)
            if nested:
                result[field.name] = nested
    return result


def merge(kind: Obj, base: Mapping[str, JsonValue], over: Mapping[str, JsonValue]) -> JsonObject:
    """Return `base` with the fields that `over` sets; both are parsed values of the same table.

    Objects merge field by field, plain maps by key (a key's value is replaced as a whole), lists and scalars replace.
    Parsed values hold no nulls and no empty texts, so what is present is set; explicit false and 0 override.

    Source:
        protocol spec, 6.2; manager spec, 3.2
    """
    result = dict(base)
    for name, value in over.items():
        field_kind = kind.field(name).kind
        old = result.get(name)
        if isinstance(old, dict) and isinstance(value, dict):
            if isinstance(field_kind, Obj):
                value = merge(field_kind, old, value)
            elif isinstance(field_kind, MapOf | OpenMap):
                value = {**old, **value}
        result[name] = value
    return result
