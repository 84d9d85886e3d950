"""Small moves on decoded JSON objects: copies, children that may be missing or null, text maps.

source    manager spec, 9.3 (missing maps are created)
"""

from typing import cast

from koordcore.values import codec
from koordcore.values.invalid import InvalidInput

from koord_manager.domain.admission.request import JsonObject


def copied(value: JsonObject) -> JsonObject:
    """A deep copy. Raises InvalidInput for an object nested deeper than the codec goes."""
    try:
        return codec.decode(codec.encode(value), JsonObject)
    except RecursionError as error:
        raise InvalidInput("an object that is not nested too deeply", "deeper") from error


def child(holder: JsonObject, name: str) -> JsonObject:
    """The object called `name`, made when it is missing or null. Raises InvalidInput when it is something else."""
    found = holder.get(name)
    if found is None:
        holder[name] = found = {}
    if not isinstance(found, dict):
        raise InvalidInput("an object", found, name)
    return cast("JsonObject", found)


def seen(holder: JsonObject | None, *names: str) -> JsonObject:
    """The object at a path of names, the empty one when a step is missing or null.

    raises    InvalidInput when a step is no object
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
    """The objects of the list called `name`, none when it is missing or null.

    raises    InvalidInput when it is no list of objects
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
    """The text called `name`, "" when it is missing or null. Raises InvalidInput when it is something else."""
    found = holder.get(name)
    if found is None:
        return ""
    if not isinstance(found, str):
        raise InvalidInput("text", found, name)
    return found


def texts(holder: JsonObject, *names: str) -> dict[str, str]:
    """The map of texts at a path (labels, annotations). Raises InvalidInput when a value is no text."""
    found = seen(holder, *names)
    for key, value in found.items():
        if not isinstance(value, str):
            raise InvalidInput("text", value, f"{'.'.join(names)}[{key}]")
    return cast("dict[str, str]", found)
