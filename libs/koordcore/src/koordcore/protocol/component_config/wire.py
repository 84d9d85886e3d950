"""Base types of configuration files: field names as in Kubernetes (camelCase) in the file, typed Python values inside.

A model is frozen. Like the strict decoding of Kubernetes, it refuses unknown fields. It can be written back with the
field names of the file. Python code creates models by attribute names; `read` accepts only the field names of the file.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Final, TypeVar, cast

import msgspec
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    PlainSerializer,
    StrictBool,
    StrictInt,
    StrictStr,
    ValidationError,
    ValidationInfo,
)

from koordcore.protocol.component_config.problems import InvalidConfiguration, problems_of
from koordcore.protocol.component_config.spelling import wire_name
from koordcore.protocol.objects import NodeAffinity, TopologySpreadConstraint, object_from_json
from koordcore.values import codec
from koordcore.values.duration import NANOS_PER_SECOND, format_duration, parse_duration
from koordcore.values.invalid import InvalidInput
from koordcore.values.quantity import Quantity, quantity_from_json

_ANY_NUMBER: Final = "any number"
INT32_MAX: Final = (1 << 31) - 1
INT64_MAX: Final = (1 << 63) - 1


class WireModel(BaseModel):
    """Base class of every part of a configuration document: immutable, and strict about unknown fields."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=wire_name,
        validate_by_name=True,
        validate_by_alias=True,
        validate_default=True,
        arbitrary_types_allowed=True,
    )

    def as_json(self) -> dict[str, object]:
        """Return all fields as JSON values with Kubernetes' names, defaults included. None is left out."""
        return cast("dict[str, object]", self.model_dump(mode="json", by_alias=True, exclude_none=True))


M = TypeVar("M", bound=WireModel)


def read(kind: type[M], raw: object, path: str, *, in_range: bool = True, only_known: bool = True) -> M:
    """Validate decoded JSON as a part of a configuration file, and return it as a model.

    Args:
        kind: Type of the model.
        raw: The decoded JSON. It must not contain null.
        path: Path that is put before the paths of problems.
        in_range: If False, numbers may be outside of the allowed range; only types are checked and defaults filled in.
        only_known: If False, unknown fields are ignored at every level.

    Raises:
        InvalidConfiguration: The value has problems.
    """
    try:
        return kind.model_validate(
            _written(raw),
            by_alias=True,
            by_name=False,
            context=None if in_range else _ANY_NUMBER,
            extra="forbid" if only_known else "ignore",
        )
    except ValidationError as error:
        raise InvalidConfiguration(problems_of(error, path)) from error


class _WrittenFloat(float):
    """A number with a fraction from a document; a float in seconds of the model itself is of the type float."""


def _written(raw: object) -> object:
    """Return decoded JSON in which numbers with a fraction are marked as such of a document."""
    if isinstance(raw, dict):
        return {name: _written(value) for name, value in cast("dict[str, object]", raw).items()}
    if isinstance(raw, list):
        return [_written(value) for value in cast("list[object]", raw)]
    return _WrittenFloat(raw) if isinstance(raw, float) else raw


def _of_types(rule: str, *kinds: type) -> BeforeValidator:
    """Return a validator of values of several types. Unlike a union of types it gives one problem, at the field."""

    def check(value: object) -> object:
        if isinstance(value, bool) or not isinstance(value, kinds):
            raise InvalidInput(rule, value)
        return value

    return BeforeValidator(check)


def within(low: int, high: int) -> AfterValidator:
    """Return a validator of integers from `low` to `high`, both included."""

    def check(value: int, info: ValidationInfo) -> int:
        if low <= value <= high or info.context == _ANY_NUMBER:
            return value
        if high in (INT32_MAX, INT64_MAX):
            raise InvalidInput(f"an integer of at least {low}", value)
        raise InvalidInput(f"an integer within {low}..{high}", value)

    return AfterValidator(check)


def _signed_seconds(value: object) -> float:
    if isinstance(value, str):
        return parse_duration(value) / NANOS_PER_SECOND
    if not isinstance(value, float) or isinstance(value, _WrittenFloat):
        raise InvalidInput("a duration as text, such as 30s or 1h5m", value)
    return value


def _seconds(value: object) -> float:
    seconds = _signed_seconds(value)
    if seconds < 0:
        raise InvalidInput("a duration of at least 0s", _duration_text(seconds))
    return seconds


def _duration_text(seconds: float) -> str:
    return format_duration(round(seconds * NANOS_PER_SECOND))


def _quantity(value: object) -> Quantity:
    quantity = value if isinstance(value, Quantity) else quantity_from_json(value)
    if quantity.nano < 0:
        raise InvalidInput("a quantity of at least 0", quantity.canonical())
    return quantity


def _node_affinity(value: object) -> object:
    return value if isinstance(value, NodeAffinity) else _converted(value, NodeAffinity)


def _spread_constraint(value: object) -> object:
    return value if isinstance(value, TopologySpreadConstraint) else _converted(value, TopologySpreadConstraint)


def _converted(value: object, kind: type[Any]) -> object:
    try:
        return object_from_json(value, kind)
    except codec.DecodeError as error:
        raise InvalidInput(f"a {kind.__name__} ({error})", value) from error


Bool = StrictBool
Text = StrictStr
Number = Annotated[int | float, _of_types("a number", int, float)]
NumberOrText = Annotated[int | float | str, _of_types("a number, also as text", int, float, str)]
IntegerOrText = Annotated[int | str, _of_types("an integer, or text", int, str)]
Int32 = Annotated[StrictInt, within(-INT32_MAX - 1, INT32_MAX)]
NotNegative = Annotated[StrictInt, within(0, INT64_MAX)]
Positive = Annotated[StrictInt, within(1, INT64_MAX)]
Percent = Annotated[StrictInt, within(0, 100)]
Weight = Annotated[StrictInt, within(1, 100)]
TenthScore = Annotated[StrictInt, within(0, 10)]
Duration = Annotated[float, BeforeValidator(_seconds), PlainSerializer(_duration_text, return_type=str)]
"""Seconds, at least 0. In a document it is a Go duration as text; a bare number is refused as in Go."""

SignedDuration = Annotated[float, BeforeValidator(_signed_seconds), PlainSerializer(_duration_text, return_type=str)]
"""As `Duration`, but it may be negative. The range is checked later."""

Amount = Annotated[
    Quantity, BeforeValidator(_quantity), PlainSerializer(lambda quantity: quantity.canonical(), return_type=str)
]
Percents = Mapping[Text, Percent]
Weights = Mapping[Text, Weight]
Resources = Mapping[Text, Amount]
AddedNodeAffinity = Annotated[
    NodeAffinity, BeforeValidator(_node_affinity), PlainSerializer(msgspec.to_builtins, return_type=object)
]
DefaultConstraint = Annotated[
    TopologySpreadConstraint,
    BeforeValidator(_spread_constraint),
    PlainSerializer(msgspec.to_builtins, return_type=object),
]
