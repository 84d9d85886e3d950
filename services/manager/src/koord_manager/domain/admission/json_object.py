"""Read and change decoded JSON objects whose parts may be missing or null.

Source:
    manager spec, 9.3 (missing maps are created)
"""

from typing import cast

from koordcore.values import codec
from koordcore.values.invalid import InvalidInput

from koord_manager.domain.admission.request import JsonObject


def copied(value: JsonObject) -> JsonObject:
    """Return a deep copy of an object.

    Raise InvalidInput for an object that is nested too deeply.
    """
    try:
        return codec.decode(codec.encode(value), JsonObject)
    except RecursionError as error:
        raise InvalidInput("an object that is not nested too deeply", "deeper") from error


def child(holder: JsonObject, name: str) -> JsonObject:
    """Return the object at a name, after creating it if it is missing or null.

    Raise InvalidInput if the value is not an object.
    """
    found = holder.get(name)
    if found is None:
        holder[name] = found = {}
    if not isinstance(found, dict):
        raise InvalidInput("an object", found, name)
    return cast("JsonObject", found)


def seen(holder: JsonObject | None, *names: str) -> JsonObject:
    """Return the object at a path of names, or an empty mapping if a part of the path is missing or null.

    Raises:
        InvalidInput: A step is not an object.
    """
    for depth, name in enumerate(names):
        found = holder.get(name) if holder else None
        if found is None:
            return {}
        if not isinstance(found, dict):
            raise InvalidInput("an object", found, ".".join(names[: depth + 1]))
        holder = cast("JsonObject", found)
    return holder or {}


def items(holder: JsonObject, name: str) -> list[JsonObject]:
    """Return the objects in a list, or an empty list if it is missing or null.

    Raises:
        InvalidInput: The value is not a list of objects.
    """
    found = holder.get(name)
    if found is None:
        return []
    if not isinstance(found, list):
        raise InvalidInput("a list of objects", found, name)
    listed = cast("list[object]", found)
    for index, item in enumerate(listed):
        if not isinstance(item, dict):
            raise InvalidInput("an object", item, f"{name}[{index}]")
    return cast("list[JsonObject]", listed)


def text(holder: JsonObject, name: str) -> str:
    """Return the text at a name, or "" if it is missing or null.

    Raise InvalidInput if the value is not a text.
    """
    found = holder.get(name)
    if found is None:
        return ""
    if not isinstance(found, str):
        raise InvalidInput("text", found, name)
    return found


def texts(holder: JsonObject, *names: str) -> dict[str, str]:
    """Return the labels, annotations or another map of texts at a path of names.

    Raise InvalidInput if a value is not a text.
    """
    found = seen(holder, *names)
    for key, value in found.items():
        if not isinstance(value, str):
            raise InvalidInput("text", value, f"{'.'.join(names)}[{key}]")
    return cast("dict[str, str]", found)
