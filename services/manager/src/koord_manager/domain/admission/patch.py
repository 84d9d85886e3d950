"""What admission changed, as RFC 6902.

An object of an API server is large and admission changes a few places of it: entries that differ are found here, lists
of which items came or went are left to the library's comparison (which takes 50 us an operation).

source    manager spec, 7.1
"""

from collections.abc import Iterator
from typing import Any, cast

from jsonpatch import JsonPatch  # type: ignore[import-untyped]
from jsonpointer import JsonPointer  # type: ignore[import-untyped]
from koordcore.values.invalid import InvalidInput

from koord_manager.domain.admission.request import JsonObject

Operation = dict[str, Any]
Path = tuple[str | int, ...]


def json_patch(before: JsonObject, after: JsonObject) -> list[Operation]:
    """The operations that turn one object into the other; none when they are equal.

    raises    InvalidInput for objects nested deeper than can be compared
    """
    if before is after:
        return []
    try:
        return list(_of_objects(before, after, ()))
    except RecursionError as error:
        raise InvalidInput("an object that is not nested too deeply", "deeper") from error


def _of_objects(before: JsonObject, after: JsonObject, path: Path) -> Iterator[Operation]:
    for name, value in before.items():
        if name not in after:
            yield {"op": "remove", "path": _pointer((*path, name))}
        elif value != after[name]:
            yield from _of_values(value, after[name], (*path, name))
    for name, value in after.items():
        if name not in before:
            yield {"op": "add", "path": _pointer((*path, name)), "value": value}


def _of_values(before: Any, after: Any, path: Path) -> Iterator[Operation]:
    if isinstance(before, dict) and isinstance(after, dict):
        yield from _of_objects(cast("JsonObject", before), cast("JsonObject", after), path)
    elif isinstance(before, list) and isinstance(after, list):
        yield from _of_lists(cast("list[Any]", before), cast("list[Any]", after), path)
    else:
        yield {"op": "replace", "path": _pointer(path), "value": after}


def _of_lists(before: list[Any], after: list[Any], path: Path) -> Iterator[Operation]:
    if len(before) == len(after):
        for index, (one, other) in enumerate(zip(before, after, strict=True)):
            if one != other:
                yield from _of_values(one, other, (*path, index))
        return
    prefix = _pointer(path)
    operations: list[Operation] = JsonPatch.from_diff({"": before}, {"": after}).patch
    for operation in operations:
        for field in ("path", "from"):
            if field in operation:
                operation[field] = prefix + operation[field].removeprefix("/")
        yield operation


def _pointer(path: Path) -> str:
    return JsonPointer.from_parts([str(step) for step in path]).path
