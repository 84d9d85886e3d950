"""Types of the fields of slo-controller-config: each section is described by a table of fields with such types.

A section of slo-controller-config is one `Obj` of `Field`s (tables.py). Parsing, merging and admission use the same
table, so type, default and ranges of a field are defined once. Next modules: tables.py, parse.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

JsonValue: TypeAlias = "bool | int | float | str | list[JsonValue] | dict[str, JsonValue] | None"
JsonObject: TypeAlias = "dict[str, JsonValue]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """Range of numbers that a field of the configuration accepts. None: no bound. `str()` gives the rule for people."""

    minimum: float | None = None
    maximum: float | None = None
    exclusive_minimum: bool = False

    def allows(self, value: float) -> bool:
        """Return whether a number is in the range. Bounds are included, unless `exclusive_minimum` is set."""
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
"""Range of a kernel switch: 0 or 1."""


@dataclass(frozen=True, slots=True)
class Bool:
    """Type of a configuration field: a JSON boolean."""


@dataclass(frozen=True, slots=True)
class Int:
    """Type of a configuration field: a JSON integer of at most `bits` bits. 15.0 and 1e1 are not integers."""

    bits: int = 64


@dataclass(frozen=True, slots=True)
class Float:
    """Type of a configuration field: a JSON number."""


@dataclass(frozen=True, slots=True)
class Text:
    """Type of a configuration field: a JSON string. The empty string means "not set" (protocol spec, 6.2).

    Attributes:
        known: Texts that have a meaning. Other texts are accepted and have the effect of the default.
    """

    known: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DurationText:
    """Type of a configuration field: a Go duration as text. It is stored in Go's output form: `5m` becomes `5m0s`."""


@dataclass(frozen=True, slots=True)
class QuantityValue:
    """Type of a configuration field: a resource quantity as text or number, stored as canonical text."""


@dataclass(frozen=True, slots=True)
class PercentOrQuantity:
    """Type of a configuration field: a network rate.

    An integer is a percentage of the total, a text a quantity in bits/s.

    Parsing checks only the JSON type, as Koordinator does. Admission checks the value (protocol spec, 6.11 rule 4).
    """


@dataclass(frozen=True, slots=True)
class OpenMap:
    """Type of a configuration field: any JSON object.

    Merging works key by key: the value of a key replaces the whole old value, other keys stay.
    """


@dataclass(frozen=True, slots=True)
class MapOf:
    """Type of a configuration field: a map with values of one type.

    Merging works key by key: the value of a key replaces the whole old value, other keys stay.
    """

    value: Kind


@dataclass(frozen=True, slots=True)
class ListOf:
    """Type of a configuration field: a list with items of one type. Merging replaces the whole list."""

    item: Kind


@dataclass(frozen=True, slots=True)
class Bounds:
    """Rule about two fields of one configuration object: the value of `lower` must be less than that of `upper`.

    Attributes:
        lower_has_default: Whether the upper bound may be written alone, because the lower one has a default (protocol
            spec, 15 item 8 b). A lower bound alone is always refused.
    """

    upper: str
    lower: str
    lower_has_default: bool


@dataclass(frozen=True, slots=True)
class Obj:
    """Type of a configuration field: an object with known fields.

    Merging works field by field; unknown keys are ignored. `bounds` are rules about pairs of its fields.
    """

    fields: tuple[Field, ...]
    bounds: tuple[Bounds, ...] = ()

    def __post_init__(self) -> None:
        names = {field.name for field in self.fields}
        assert len(names) == len(self.fields)
        assert all({pair.upper, pair.lower} <= names for pair in self.bounds)

    def field(self, name: str) -> Field:
        """Return the field with this exact name.

        Raises:
            KeyError: The object has no such field.
        """
        for candidate in self.fields:
            if candidate.name == name:
                return candidate
        raise KeyError(name)


Kind: TypeAlias = (
    Bool | Int | Float | Text | DurationText | QuantityValue | PercentOrQuantity | OpenMap | MapOf | ListOf | Obj
)


@dataclass(frozen=True, slots=True)
class Field:
    """One field of slo-controller-config: its name, type, default and ranges.

    Attributes:
        default: Value if nobody set the field; None: unset, and the agent then does not change the feature.
        runtime: Range of values after merging. A value outside makes the section or the entry invalid. None: not
            checked.
        webhook: Range of written values. Admission refuses a value outside. None: not checked.
    """

    name: str
    kind: Kind
    default: JsonValue = None
    runtime: Range | None = None
    webhook: Range | None = None


def defaults_of(obj: Obj) -> JsonObject:
    """Return a JSON object with the default of every field; fields without a default are left out."""
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
    """Return a copy of `base` with the fields that `over` sets. Both are parsed values of the object type `kind`.

    Objects are merged field by field and maps key by key. Lists and scalars are replaced. An explicit false or 0
    replaces the value of `base`. Parsed values contain no nulls and no empty texts, so every field that is present is
    set.

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
