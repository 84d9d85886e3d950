"""Describe what admission changed as an RFC 6902 patch.

Objects of an API server are large, and admission changes a few fields. So this module compares entry by entry. Only
short lists with added or removed items are compared by the library, which takes 50 us for an operation.

Source:
    manager spec, 7.1
"""

import re
from collections.abc import Sequence
from typing import Any, Final, cast

from jsonpatch import JsonPatch  # type: ignore[import-untyped]
from koordcore.values.invalid import InvalidInput

from koord_manager.domain.admission.recorded_object import LAST_APPLIED
from koord_manager.domain.admission.request import JsonObject

Operation = dict[str, Any]

WITHHELD: Final = "(withheld)"
_CONTAINERS: Final = frozenset({"containers", "initContainers", "ephemeralContainers"})
_OF_A_CONTAINER: Final = frozenset({"env", "envFrom", "command", "args", "lifecycle", "httpHeaders"})
"""Fields of a container, its probes and its hooks that may hold passwords."""
_VOLUMES: Final = "volumes"
_OF_A_VOLUME: Final = frozenset({"volumeAttributes", "options"})
"""Fields of a volume that are passed to its driver (`csi`, `flexVolume`)."""
_A_CONTAINER: Final = re.compile(rf"(?:^|/)(?:{'|'.join(_CONTAINERS)})(?:/|$)")
_A_VOLUME: Final = re.compile(rf"(?:^|/){_VOLUMES}(?:/|$)")
_SECRET: Final = re.compile(
    rf"{re.escape(LAST_APPLIED.replace('/', '~1'))}"
    rf"|(?:^|/)(?:{'|'.join(_CONTAINERS)})/(?:[^/]*/)*(?:{'|'.join(_OF_A_CONTAINER)})(?:/|$)"
    rf"|(?:^|/){_VOLUMES}/(?:[^/]*/)*(?:{'|'.join(_OF_A_VOLUME)})(?:/|$)"
)
"""Pointers to values that may hold a secret: the copy of the object, and fields of containers and volumes."""
_CONTAINER_PLACES: Final = tuple(f"{name}[" for name in sorted(_CONTAINERS))
_ABSENT: Final = object()
_MOST_COMPARED: Final = 100
"""Items of two lists of different lengths above which the whole list is replaced."""


def json_patch(before: JsonObject, after: JsonObject) -> list[Operation]:
    """Return the RFC 6902 operations that turn `before` into `after`, or an empty list if they are equal.

    Raises:
        InvalidInput: The objects are nested too deeply to compare.
    """
    if before is after:
        return []
    try:
        found: list[Operation] = []
        _of_objects(before, after, "", found)
        return found
    except RecursionError as error:
        raise InvalidInput("an object that is not nested too deeply", "deeper") from error


def without_secrets(patch: Sequence[Operation]) -> list[Operation]:
    """Return a patch in which values that may be secret are replaced by `WITHHELD`.

    These are environment, command, arguments, hooks and probe headers of containers, driver options of volumes, and
    kubectl's copy of the object. Values that are nested too deeply to search are withheld, too.
    """
    return [_without_secrets(operation) if "value" in operation else operation for operation in patch]


def may_hold_secret(place: str, name: str) -> bool:
    """Return whether a field of a pod may hold a secret.

    Args:
        place: Path of the object that contains the field, such as `spec.containers[0]`.
    """
    if name in _OF_A_CONTAINER and any(container in place for container in _CONTAINER_PLACES):
        return True
    return name in _OF_A_VOLUME and f"{_VOLUMES}[" in place


def _without_secrets(operation: Operation) -> Operation:
    pointer, value = operation["path"], operation["value"]
    if _SECRET.search(pointer) is not None:
        return operation | {"value": WITHHELD}
    if not isinstance(value, dict | list):
        return operation
    withheld = _OF_A_CONTAINER if _A_CONTAINER.search(pointer) is not None else frozenset[str]()
    if _A_VOLUME.search(pointer) is not None:
        withheld |= _OF_A_VOLUME
    try:
        return operation | {"value": _redacted(cast("JsonObject | list[Any]", value), withheld)}
    except RecursionError:
        return operation | {"value": WITHHELD}


def _redacted(value: Any, withheld: frozenset[str]) -> Any:
    """Return a value in which fields that may be secret are replaced by `WITHHELD`.

    Args:
        withheld: Names of the fields to replace.
    """
    if isinstance(value, dict):
        return {
            name: WITHHELD
            if name == LAST_APPLIED or name in withheld
            else _redacted(inner, withheld | _withheld_below(name))
            for name, inner in cast("JsonObject", value).items()
        }
    if isinstance(value, list):
        return [_redacted(inner, withheld) for inner in cast("list[Any]", value)]
    return value


def _withheld_below(name: str) -> frozenset[str]:
    if name in _CONTAINERS:
        return _OF_A_CONTAINER
    return _OF_A_VOLUME if name == _VOLUMES else frozenset()


def _of_objects(before: JsonObject, after: JsonObject, at: str, found: list[Operation]) -> None:
    for name, value in before.items():
        wanted: Any = after.get(name, _ABSENT)
        if wanted is _ABSENT:
            found.append({"op": "remove", "path": _below(at, name)})
        elif value is not wanted and value != wanted:
            _of_values(value, wanted, _below(at, name), found)
    for name, value in after.items():
        if name not in before:
            found.append({"op": "add", "path": _below(at, name), "value": value})


def _of_values(before: Any, after: Any, at: str, found: list[Operation]) -> None:
    if isinstance(before, dict) and isinstance(after, dict):
        _of_objects(cast("JsonObject", before), cast("JsonObject", after), at, found)
    elif isinstance(before, list) and isinstance(after, list):
        _of_lists(cast("list[Any]", before), cast("list[Any]", after), at, found)
    else:
        found.append({"op": "replace", "path": at, "value": after})


def _of_lists(before: list[Any], after: list[Any], at: str, found: list[Operation]) -> None:
    if len(before) == len(after):
        for index, (one, other) in enumerate(zip(before, after, strict=True)):
            if one is not other and one != other:
                _of_values(one, other, f"{at}/{index}", found)
        return
    if len(before) + len(after) > _MOST_COMPARED:
        found.append({"op": "replace", "path": at, "value": after})
        return
    operations: list[Operation] = JsonPatch.from_diff({"": before}, {"": after}).patch
    for operation in operations:
        for field in ("path", "from"):
            if field in operation:
                operation[field] = at + operation[field].removeprefix("/")
        found.append(operation)


def _below(at: str, name: str) -> str:
    """Return the RFC 6901 pointer of the entry `name` in the object at `at`; the library's function takes 20 us."""
    if "~" in name or "/" in name:
        name = name.replace("~", "~0").replace("/", "~1")
    return f"{at}/{name}"
