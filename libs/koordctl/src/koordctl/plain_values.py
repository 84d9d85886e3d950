"""Values of options and arguments that are plain: texts, numbers in their range, members of an enumeration.

typer converts every value with pydantic, whose import takes longer than most commands run. Here, a value that is
obviously right is converted at once. Any other value is left to typer, also to say what is wrong.
"""

import math
from enum import Enum
from typing import Any, Final, NamedTuple, cast, get_args, get_origin

from typer.core import TyperArgument, TyperOption

_DIGITS: Final = 15
"""Numbers with more digits are left to typer."""


class _Missing(Enum):
    NOT_PLAIN = 1


NOT_PLAIN: Final = _Missing.NOT_PLAIN


def plain_value(annotation: Any, value: object, low: float | None, high: float | None) -> Any:
    """The converted value, or `NOT_PLAIN` if typer must decide.

    Args:
        annotation: Type of the parameter.
        low: Least number; None for any. `high` likewise.
    """
    if annotation is str:
        return value if isinstance(value, str) else NOT_PLAIN
    if annotation in (int, float):
        number = _number(annotation, value)
        if number is None or (low is not None and number < low) or (high is not None and number > high):
            return NOT_PLAIN
        return number
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return next((member for member in annotation if value is member or value == member.value), NOT_PLAIN)
    if get_origin(annotation) is list and isinstance(value, list | tuple):
        (of,) = get_args(annotation)
        found = [plain_value(of, each, low, high) for each in cast("list[object]", value)]
        return NOT_PLAIN if NOT_PLAIN in found else found
    return NOT_PLAIN


def _number(kind: type[int] | type[float], value: object) -> int | float | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, str):
        whole, _, part = value.partition(".")
        is_plain = whole.isascii() and whole.isdigit() and len(value) <= _DIGITS
        if not is_plain or (part and not (part.isascii() and part.isdigit())) or ("." in value and kind is int):
            return None
        return kind(value)
    if isinstance(value, int) or (kind is float and isinstance(value, float) and math.isfinite(value)):
        return kind(value)
    return None


class _Reader(NamedTuple):
    """What typer asks for the value of a parameter, in the place of its own object."""

    descriptor: Any  # typer's description of the parameter's type

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        if value is None:
            return () if param.multiple or param.nargs == -1 else None
        info = self.descriptor.parameter_info
        if info.parser is None and not info.clamp and info.case_sensitive:
            found = plain_value(self.descriptor.annotation, value, info.min, info.max)
            if found is not NOT_PLAIN:
                return found
        from typer._coercion import build_runtime_param

        return build_runtime_param(self.descriptor).coerce(value, param=param, ctx=ctx)


def read_plainly() -> None:
    """Let all parameters of this process read plain values without pydantic."""

    def reader(param: Any) -> Any:
        return _Reader(param.type_descriptor)

    for kind in (TyperArgument, TyperOption):
        kind.get_runtime_param = reader  # pyright: ignore[reportAttributeAccessIssue]  # typer offers no other place
