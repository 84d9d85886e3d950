"""Reads the valid parts of a profile, so that a mistyped number does not hide a misspelled plugin.

Invalid parts are skipped silently here, because reading the whole document reports them. Next: `effective`.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple, cast

from koord_scheduler.domain.framework.points import Point


class NamedPlugin(NamedTuple):
    """A place below `plugins` that names a plugin.

    Attributes:
        path: Path of the place.
        point: Extension point; None for multiPoint.
        name: The name.
        is_enabled: True in a list `enabled`, False in a list `disabled`.
    """

    path: str
    point: Point | None
    name: str
    is_enabled: bool


class NamedArguments(NamedTuple):
    """An entry of `pluginConfig`.

    Attributes:
        path: Path of the entry.
        name: Name of the plugin.
        args: The arguments; None if they are not an object.
    """

    path: str
    name: str
    args: Mapping[str, object] | None


def written_profiles(document: Mapping[str, object]) -> list[Mapping[str, object]]:
    """Return the profiles in their order; {} for one that is not an object.

    Without any profile, return one empty profile.
    """
    return [_object(profile) for profile in _list(document.get("profiles"))] or [{}]


def named_plugins(profile: Mapping[str, object]) -> Iterator[NamedPlugin]:
    """Yield every plugin that is enabled or disabled, in the order of the extension points."""
    plugins = _object(profile.get("plugins"))
    for point in (None, *Point):
        place = str(point or "multiPoint")
        for part in ("enabled", "disabled"):
            for index, entry in enumerate(_list(_object(plugins.get(place)).get(part))):
                name = _object(entry).get("name")
                if isinstance(name, str) and name:
                    yield NamedPlugin(f"{place}.{part}[{index}].name", point, name, part == "enabled")


def named_arguments(profile: Mapping[str, object]) -> Iterator[NamedArguments]:
    """Yield every entry of `pluginConfig` that names its plugin."""
    for index, entry in enumerate(_list(profile.get("pluginConfig"))):
        name, args = _object(entry).get("name"), _object(entry).get("args", {})
        if isinstance(name, str) and name:
            given = cast("dict[str, object]", args) if isinstance(args, dict) else None
            yield NamedArguments(f"pluginConfig[{index}]", name, given)


def _object(value: object) -> Mapping[str, object]:
    return cast("dict[str, object]", value) if isinstance(value, dict) else {}


def _list(value: object) -> list[object]:
    return cast("list[object]", value) if isinstance(value, list) else []
