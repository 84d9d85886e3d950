"""Base types of configuration files: field names as in Kubernetes (camelCase) in the file, typed Python values inside.

A model is frozen. Like the strict decoding of Kubernetes, it refuses unknown fields. It can be written back with the
field names of the file. Python code creates models by attribute names; `read` accepts only the field names of the file.
All problems of a file are reported, each with field, rule and value.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Final, NamedTuple, TypeVar, cast

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
from pydantic.alias_generators import to_camel
from pydantic_core import ErrorDetails

from koordcore.protocol.objects import NodeAffinity, TopologySpreadConstraint, object_from_json
from koordcore.values import codec
from koordcore.values.duration import NANOS_PER_SECOND, format_duration, parse_duration
from koordcore.values.invalid import InvalidInput, joined
from koordcore.values.override import override
from koordcore.values.quantity import Quantity, quantity_from_json

_SPELLED: Final = {
    "milli_cpu": "milliCPU",
    "num_gpu": "numGPU",
    "default_cpu_bind_policy": "defaultCPUBindPolicy",
    "disable_device_numa_topology_alignment": "disableDeviceNUMATopologyAlignment",
    "enable_pcie_level_exclusive": "enablePCIeLevelExclusive",
    "evict_qps": "evictQPS",
    "default_job_ttl": "defaultJobTTL",
    "ignore_pods_without_pdb": "ignorePodsWithoutPDB",
    "pods_with_pvc": "PodsWithPVC",
    "reserved_cpus": "reservedCPUs",
}


def wire_name(attribute: str) -> str:
    """Return Kubernetes' name of an attribute: camelCase, with acronyms as Kubernetes spells them."""
    return _SPELLED.get(attribute) or (to_camel(attribute) if "_" in attribute else attribute)


class InvalidConfiguration(InvalidInput):
    """Raised for an invalid configuration. It has all `problems`, at least one; its text is one line per problem."""

    def __init__(self, problems: Sequence[InvalidInput]) -> None:
        self.problems = tuple(problems)
        first = self.problems[0]
        super().__init__(first.rule, first.value, first.path)

    def __reduce__(self) -> tuple[type[InvalidInput], tuple[Sequence[InvalidInput]]]:  # pyright: ignore[reportIncompatibleMethodOverride]  another constructor
        return type(self), (self.problems,)

    @override
    def sentence(self) -> str:
        return "\n".join(problem.sentence() for problem in self.problems)

    @override
    def at(self, path: str) -> InvalidInput:
        return InvalidConfiguration([problem.at(path) for problem in self.problems])


def refuse(problems: Iterable[InvalidInput]) -> None:
    """Raise InvalidConfiguration with all problems. No-op if there are none."""
    found = list(problems)
    if found:
        raise InvalidConfiguration(found)


def problems_of(error: ValidationError, path: str = "") -> list[InvalidInput]:
    """Convert the errors that pydantic found into problems with field, rule and value. `path`: path in the document of
    the validated value, put before the paths of the problems.
    """
    return [_problem(detail, path) for detail in error.errors(include_url=False)]


UNKNOWN_FIELD: Final = "a field that exists here"
"""Rule of the error about an unknown field."""
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TYPES = {
    "missing": "given",
    "int_type": "an integer",
    "int_from_float": "an integer",
    "int_parsing": "an integer",
    "bool_type": "true or false",
    "string_type": "text",
    "float_type": "a number",
    "list_type": "a list",
    "tuple_type": "a list",
    "dict_type": "an object",
    "mapping_type": "an object",
    "model_type": "an object",
    "model_attributes_type": "an object",
}


def _problem(detail: ErrorDetails, path: str) -> InvalidInput:
    steps = detail["loc"]
    if detail["type"] != "extra_forbidden":
        # the place of a default that is wrong bears the attribute's name
        steps = tuple(wire_name(step) if isinstance(step, str) and _PLAIN.fullmatch(step) else step for step in steps)
    place = joined(path, steps)
    context = detail.get("ctx") or {}
    cause = context.get("error")
    if isinstance(cause, InvalidInput):
        return cause.at(place) if place else cause
    match detail["type"]:
        case "extra_forbidden":
            return InvalidInput(UNKNOWN_FIELD, detail["loc"][-1], place)
        case "missing":
            return InvalidInput("given", None, place)
        case "literal_error":
            return InvalidInput(f"one of {context['expected']}", detail["input"], place)
        case kind:
            return InvalidInput(_TYPES.get(kind, detail["msg"]), detail["input"], place)


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
# Seconds, at least 0. In a document it is a Go duration as text; a bare number is refused as in Go.
Duration = Annotated[float, BeforeValidator(_seconds), PlainSerializer(_duration_text, return_type=str)]

# As `Duration`, but it may be negative. The range is checked later.
SignedDuration = Annotated[float, BeforeValidator(_signed_seconds), PlainSerializer(_duration_text, return_type=str)]

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


class Ignored(NamedTuple):
    """A setting of a configuration file that has no effect in this service."""

    path: str  # Path of the setting
    why: str  # Why it has no effect


def fields_without_effect(written: WireModel, reasons: Mapping[str, str]) -> Iterator[Ignored]:
    """Yield those of the fields without effect that a document sets. Fields that it does not set are not reported.
    `reasons`: path of a field without effect, such as `leaderElection.resourceLock` -> reason.
    """
    given = written.model_dump(by_alias=True, exclude_unset=True)
    for path, why in reasons.items():
        parent: object = given
        *steps, name = path.split(".")
        for step in steps:
            parent = cast("dict[str, object]", parent).get(step, {})
        if name in cast("dict[str, object]", parent):
            yield Ignored(path, why)
