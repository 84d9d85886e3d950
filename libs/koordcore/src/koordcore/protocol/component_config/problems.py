"""Collect all problems of a configuration file, each with field, rule and value, instead of only the first one."""

import re
from collections.abc import Iterable, Sequence

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from koordcore.protocol.component_config.spelling import wire_name
from koordcore.values.invalid import InvalidInput


class InvalidConfiguration(InvalidInput):
    """Raised for an invalid configuration. It has all `problems`, at least one; its text is one line per problem."""

    def __init__(self, problems: Sequence[InvalidInput]) -> None:
        self.problems = tuple(problems)
        first = self.problems[0]
        super().__init__(first.rule, first.value, first.path)

    def __reduce__(self) -> tuple[type[InvalidInput], tuple[Sequence[InvalidInput]]]:  # pyright: ignore[reportIncompatibleMethodOverride]  another constructor
        return type(self), (self.problems,)

    def sentence(self) -> str:
        """Return all problems as text, one line per problem."""
        return "\n".join(problem.sentence() for problem in self.problems)

    def at(self, path: str) -> InvalidInput:
        """Return a copy in which `path` precedes the path of each problem."""
        return InvalidConfiguration([problem.at(path) for problem in self.problems])


def refuse(problems: Iterable[InvalidInput]) -> None:
    """Raise InvalidConfiguration with all problems. No-op if there are none."""
    found = list(problems)
    if found:
        raise InvalidConfiguration(found)


def problems_of(error: ValidationError, path: str = "") -> list[InvalidInput]:
    """Convert the errors that pydantic found into problems with field, rule and value.

    Args:
        error: The exception of pydantic.
        path: Path in the document of the validated value, put before the paths of the problems.
    """
    return [_problem(detail, path) for detail in error.errors(include_url=False)]


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
            return InvalidInput("a field that exists here", detail["loc"][-1], place)
        case "missing":
            return InvalidInput("given", None, place)
        case "literal_error":
            return InvalidInput(f"one of {context['expected']}", detail["input"], place)
        case kind:
            return InvalidInput(_TYPES.get(kind, detail["msg"]), detail["input"], place)


def joined(path: str, steps: tuple[str | int, ...]) -> str:
    """Return a field path such as `profiles[0].pluginConfig[1].args.resourceWeights[nvidia.com/gpu]`.

    Args:
        path: The first part of the path; "" for none.
        steps: Names of fields and indexes of lists below it.
    """
    for step in steps:
        if isinstance(step, int):
            path += f"[{step}]"
        elif _PLAIN.fullmatch(step):
            path += f".{step}" if path else step
        else:
            path += f"[{step}]"
    return path
