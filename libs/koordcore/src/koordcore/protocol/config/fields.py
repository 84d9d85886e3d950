"""Fields of slo-controller-config, read from the structs of its sections: type, default and ranges of each one.

A section is one msgspec struct (sections.py). Parsing, merging, admission and warnings use the fields here, and
`typed` converts a strategy to the struct, so that a field is written once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Annotated, Any, ClassVar, Final, TypeAlias, TypeVar, cast

import msgspec
from msgspec import inspect

JsonValue: TypeAlias = "bool | int | float | str | list[JsonValue] | dict[str, JsonValue] | None"
JsonObject: TypeAlias = "dict[str, JsonValue]"

_ACRONYMS: Final = {name.lower(): name for name in ("CPU", "BE", "QOS", "BPS", "IOPS")}


def wire_name(attribute: str) -> str:
    """Return the JSON name of an attribute, for example `midCPUThresholdPercent`."""
    first, *rest = attribute.split("_")
    return first + "".join(_ACRONYMS.get(part, part.capitalize()) for part in rest)


@dataclass(frozen=True, slots=True)
class Bounds:
    """Rule about two fields of one object: the value of `lower` must be less than that of `upper`."""

    upper: str
    lower: str
    lower_has_default: bool
    # Whether `upper` may be written alone (protocol spec, 15 item 8 b). `lower` alone is always refused.


class Part(msgspec.Struct, frozen=True, kw_only=True, rename=wire_name):
    """An object of slo-controller-config with known fields. None: not set, and the agent does not change the feature.
    Objects are merged field by field, maps key by key. Lists and scalars are replaced. Unknown keys are ignored.
    """

    bounds: ClassVar[tuple[Bounds, ...]] = ()


P = TypeVar("P", bound=Part)


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """Range of numbers that a field accepts. None: no bound. `str()` gives the rule for people."""

    minimum: float | None = None
    maximum: float | None = None
    exclusive_minimum: bool = False

    def allows(self, value: float) -> bool:
        if self.minimum is not None and (value < self.minimum or (self.exclusive_minimum and value == self.minimum)):
            return False
        return self.maximum is None or value <= self.maximum

    def __str__(self) -> str:
        if self.minimum is not None and self.maximum is not None and not self.exclusive_minimum:
            return f"{self.minimum:g}..{self.maximum:g}"
        low = "" if self.minimum is None else f"{'>' if self.exclusive_minimum else '>='} {self.minimum:g}"
        high = "" if self.maximum is None else f"<= {self.maximum:g}"
        return " and ".join(part for part in (low, high) if part)


class Kind(StrEnum):
    BOOL = "true or false"
    INT = "an integer within int64"  # 15.0 and 1e1 are not integers
    INT32 = "an integer within int32"
    FLOAT = "a number"
    TEXT = "text"  # "" means not set (protocol spec, 6.2)
    DURATION = "a duration as text, such as 5m"  # stored in Go's output form: `5m` becomes `5m0s`
    QUANTITY = "a Kubernetes quantity"  # text or number, stored as canonical text
    RATE = "an integer (percent) or text (quantity)"  # of a network; only admission checks the text, as in Koordinator
    OPEN_MAP = "any object"
    MAP = "an object with values of one type"
    LIST = "a list"
    OBJECT = "an object"


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One field of a section, or an item of a list or map."""

    name: str = ""
    kind: Kind
    default: JsonValue = None
    runtime: Range | None = None  # of values after merging; one outside makes the section or the entry invalid
    webhook: Range | None = None  # of written values; admission refuses one outside
    known: tuple[str, ...] = ()  # texts with a meaning; others are accepted and count as the default
    item: Field | None = None  # of a list or map
    part: type[Part] = Part  # of an object


_KINDS: Final[dict[type[inspect.Type], Kind]] = {
    inspect.BoolType: Kind.BOOL,
    inspect.IntType: Kind.INT,
    inspect.FloatType: Kind.FLOAT,
    inspect.StrType: Kind.TEXT,
    inspect.EnumType: Kind.TEXT,
    inspect.UnionType: Kind.RATE,
    inspect.ListType: Kind.LIST,
    inspect.DictType: Kind.MAP,
    inspect.StructType: Kind.OBJECT,
}


def accepts(**attributes: object) -> msgspec.Meta:
    """Annotate the type of a struct's field with attributes of `Field`. These are not the constraints of msgspec: an
    override on a node is typed without being checked.
    """
    return msgspec.Meta(extra=attributes)


PERCENT: Final = Range(minimum=0, maximum=100)
NOT_NEGATIVE: Final = Range(minimum=0)
POSITIVE: Final = Range(minimum=0, exclusive_minimum=True)
AT_LEAST_ONE: Final = Range(minimum=1)
UNIT: Final = Range(minimum=0, maximum=1)
ABOVE_ZERO_TO_ONE: Final = Range(minimum=0, maximum=1, exclusive_minimum=True)

# checked in written values only
WrittenPercent = Annotated[int, accepts(webhook=PERCENT)]
WrittenAmount = Annotated[int, accepts(webhook=NOT_NEGATIVE)]
Switch = Annotated[int, accepts(webhook=UNIT)]  # of the kernel: 0 or 1
# checked in merged values, and in written ones
Amount = Annotated[int, accepts(runtime=NOT_NEGATIVE, webhook=NOT_NEGATIVE)]
Percent = Annotated[int, accepts(runtime=PERCENT, webhook=PERCENT)]
Period = Annotated[int, accepts(runtime=POSITIVE, webhook=AT_LEAST_ONE)]
Reserved = Annotated[int, accepts(runtime=NOT_NEGATIVE, webhook=PERCENT)]
# checked in merged values only
MergedPercent = Annotated[int, accepts(runtime=PERCENT)]
Count = Annotated[int, accepts(runtime=NOT_NEGATIVE)]
AtLeastOne = Annotated[int, accepts(runtime=AT_LEAST_ONE)]
Seconds = Annotated[int, accepts(runtime=POSITIVE)]
Positive = Annotated[float, accepts(runtime=POSITIVE)]
NotNegative = Annotated[float, accepts(runtime=NOT_NEGATIVE)]
Unit = Annotated[float, accepts(runtime=UNIT)]

Duration = Annotated[str, accepts(kind=Kind.DURATION)]
QuantityText = Annotated[str, accepts(kind=Kind.QUANTITY)]


@cache
def fields_of(part: type[Part]) -> Mapping[str, Field]:
    """Return the fields of an object by their JSON names, in the order of the struct."""
    shape = cast("inspect.StructType", inspect.type_info(part))
    defaults = cast("JsonObject", msgspec.to_builtins(part()))
    types = {field.encode_name: field.type for field in shape.fields}
    return {name: _field(kind, name, defaults[name]) for name, kind in types.items()}


def _field(shape: inspect.Type, name: str = "", default: JsonValue = None) -> Field:
    given: dict[str, Any] = {}
    while True:
        match shape:
            case inspect.Metadata():
                given |= cast("Any", shape).extra or {}
                shape = shape.type
            case inspect.UnionType(types=(inner, inspect.NoneType())):
                shape = inner
            case _:
                break
    kind = _KINDS[type(shape)]
    match shape:
        case inspect.ListType(item_type=item) | inspect.DictType(value_type=item):
            if isinstance(item, inspect.AnyType):
                kind = Kind.OPEN_MAP
            else:
                given["item"] = _field(item)
        case inspect.EnumType(cls=enum):
            given.setdefault("known", tuple(enum))
        case inspect.StructType(cls=part):
            given["part"] = part
        case _:
            pass
    given.setdefault("kind", kind)
    return Field(name=name, default=default, **given)


@cache
def defaults_of(part: type[Part]) -> JsonObject:
    """Return the JSON object with the default of every field that has one. It is shared: never change it in place."""
    return _without_unset(cast("JsonObject", msgspec.to_builtins(part())))


def _without_unset(values: JsonObject) -> JsonObject:
    kept = {name: _without_unset(value) if isinstance(value, dict) else value for name, value in values.items()}
    return {name: value for name, value in kept.items() if value is not None and value != {}}


def merge(part: type[Part], base: Mapping[str, JsonValue], over: Mapping[str, JsonValue]) -> JsonObject:
    """Return a copy of `base` with the fields that `over` sets. Both are parsed values of the object `part`. An
    explicit false or 0 replaces the value of `base`. Parsed values contain no nulls and no empty texts, so every field
    that is present is set.

    Source: protocol spec, 6.2; manager spec, 3.2.
    """
    fields, result = fields_of(part), dict(base)
    for name, value in over.items():
        field, old = fields[name], result.get(name)
        if isinstance(old, dict) and isinstance(value, dict):
            value = merge(field.part, old, value) if field.kind is Kind.OBJECT else {**old, **value}
        result[name] = value
    return result


def typed(part: type[P], strategy: Mapping[str, JsonValue]) -> P:
    """Return a strategy of parsed values as its struct. Fields that are unset or have unknown texts get defaults."""
    fields = fields_of(part)
    return msgspec.convert({n: v for n, v in strategy.items() if not (known := fields[n].known) or v in known}, part)
