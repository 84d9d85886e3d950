"""Read and change decoded JSON objects whose parts may be missing or null.

Source:
    manager spec, 9.3 (missing maps are created)
"""

from typing import cast

from koordcore.values import codec
from koordcore.values.invalid import InvalidInput

from koord_manager.domain.admission.request import JsonObject


def copied(value: JsonObject) -> JsonObject:
    """Return a deep copy of a JSON object.

    Raises:
        InvalidInput: The object is nested too deeply.
    """
    try:
        return codec.decode(codec.encode(value), JsonObject)
    except RecursionError as error:
        raise InvalidInput("an object that is not nested too deeply", "deeper") from error


def child(holder: JsonObject, name: str) -> JsonObject:
    """Return the object in the field `name` of `holder`.

    If the field is missing or null, create an empty object there first.

    Raises:
        InvalidInput: The value is not an object.
    """
    found = holder.get(name)
    if found is None:
        holder[name] = found = {}
    if not isinstance(found, dict):
        raise InvalidInput("an object", found, name)
    return cast("JsonObject", found)


def seen(holder: JsonObject | None, *names: str) -> JsonObject:
    """Return the object at a path of field names, or an empty mapping if a part of the path is missing or null.

    `holder` is not changed.

    Raises:
        InvalidInput: A value on the path is not an object.
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
    """Return the objects in the list field `name`, or an empty list if the field is missing or null.

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
    """Return the string in the field `name`, or "" if the field is missing or null.

    Raises:
        InvalidInput: The value is not a string.
    """
    found = holder.get(name)
    if found is None:
        return ""
    if not isinstance(found, str):
        raise InvalidInput("text", found, name)
    return found


def texts(holder: JsonObject, *names: str) -> dict[str, str]:
    """Return the map of strings at a path of field names, such as labels, or an empty map if it is missing or null.

    Raises:
        InvalidInput: A value of the map is not a string.
    """
    found = seen(holder, *names)
    for key, value in found.items():
        if not isinstance(value, str):
            raise InvalidInput("text", value, f"{'.'.join(names)}[{key}]")
    return cast("dict[str, str]", found)
