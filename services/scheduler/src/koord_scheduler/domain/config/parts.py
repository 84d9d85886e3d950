"""Reads the valid parts of a profile, so that a mistyped number does not hide a misspelled plugin.

Invalid parts are skipped silently here, because reading the whole document reports them. Next: `effective`.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple, cast

from koord_scheduler.domain.framework.points import Point


class NamedPlugin(NamedTuple):
    """One entry of an `enabled` or `disabled` list below `plugins`.

    Attributes:
        path: Path of the entry in the document.
        point: Extension point of the list; None for multiPoint.
        name: Name of the plugin.
        is_enabled: True in a list `enabled`, False in a list `disabled`.
    """

    path: str
    point: Point | None
    name: str
    is_enabled: bool


class NamedArguments(NamedTuple):
    """One entry of `pluginConfig`: a plugin name with its arguments.

    Attributes:
        path: Path of the entry in the document.
        name: Name of the plugin.
        args: The arguments; None if they are not a JSON object.
    """

    path: str
    name: str
    args: Mapping[str, object] | None


def written_profiles(document: Mapping[str, object]) -> list[Mapping[str, object]]:
    """Return the profiles of a document in their order, before validation.

    {} stands for a profile that is not a JSON object. A document without profiles has one empty profile.
    """
    return [_object(profile) for profile in _list(document.get("profiles"))] or [{}]


def named_plugins(profile: Mapping[str, object]) -> Iterator[NamedPlugin]:
    """Yield every entry of `enabled` and `disabled` lists of a profile, in the order of the extension points."""
    plugins = _object(profile.get("plugins"))
    for point in (None, *Point):
        place = str(point or "multiPoint")
        for part in ("enabled", "disabled"):
            for index, entry in enumerate(_list(_object(plugins.get(place)).get(part))):
                name = _object(entry).get("name")
                if isinstance(name, str) and name:
                    yield NamedPlugin(f"{place}.{part}[{index}].name", point, name, part == "enabled")


def named_arguments(profile: Mapping[str, object]) -> Iterator[NamedArguments]:
    """Yield every entry of the profile's `pluginConfig` that names its plugin."""
    for index, entry in enumerate(_list(profile.get("pluginConfig"))):
        name, args = _object(entry).get("name"), _object(entry).get("args", {})
        if isinstance(name, str) and name:
            given = cast("dict[str, object]", args) if isinstance(args, dict) else None
            yield NamedArguments(f"pluginConfig[{index}]", name, given)


def _object(value: object) -> Mapping[str, object]:
    return cast("dict[str, object]", value) if isinstance(value, dict) else {}


def _list(value: object) -> list[object]:
    return cast("list[object]", value) if isinstance(value, list) else []
