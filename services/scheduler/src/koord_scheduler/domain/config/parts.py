"""What can be read of a profile, whether or not all of it can: a mistyped number must not hide a misspelled plugin.

What cannot be read is left out here without a word: reading the whole document tells of it. Next: `effective`.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple, cast

from koord_scheduler.domain.framework.points import Point


class NamedPlugin(NamedTuple):
    """A place below `plugins` where a plugin is named. point None: multiPoint."""

    path: str
    point: Point | None
    name: str
    is_enabled: bool


class NamedArguments(NamedTuple):
    """An entry of `pluginConfig`, at `path`. args None: they are no object."""

    path: str
    name: str
    args: Mapping[str, object] | None


def written_profiles(document: Mapping[str, object]) -> list[Mapping[str, object]]:
    """The profiles in their order; {} for one that is no object. At least one: without any, that of the defaults."""
    return [_object(profile) for profile in _list(document.get("profiles"))] or [{}]


def named_plugins(profile: Mapping[str, object]) -> Iterator[NamedPlugin]:
    """Return every plugin that is enabled or disabled, in the order of the points."""
    plugins = _object(profile.get("plugins"))
    for point in (None, *Point):
        place = str(point or "multiPoint")
        for part in ("enabled", "disabled"):
            for index, entry in enumerate(_list(_object(plugins.get(place)).get(part))):
                name = _object(entry).get("name")
                if isinstance(name, str) and name:
                    yield NamedPlugin(f"{place}.{part}[{index}].name", point, name, part == "enabled")


def named_arguments(profile: Mapping[str, object]) -> Iterator[NamedArguments]:
    """Return every entry of `pluginConfig` that names its plugin."""
    for index, entry in enumerate(_list(profile.get("pluginConfig"))):
        name, args = _object(entry).get("name"), _object(entry).get("args", {})
        if isinstance(name, str) and name:
            given = cast("dict[str, object]", args) if isinstance(args, dict) else None
            yield NamedArguments(f"pluginConfig[{index}]", name, given)


def _object(value: object) -> Mapping[str, object]:
    return cast("dict[str, object]", value) if isinstance(value, dict) else {}


def _list(value: object) -> list[object]:
    return cast("list[object]", value) if isinstance(value, list) else []
