"""Merges the changes of a profile with the default plugins: which plugins run at each extension point, in which order.

Invalid parts of a profile are skipped silently, because reading the whole document reports them: so a mistyped number
does not hide a misspelled plugin. Next: `effective`.

Source: scheduler-core spec, 4, rules 1 to 5
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import NamedTuple, cast

from koordcore.values.invalid import InvalidInput

from koord_scheduler.domain.config.catalogue import COSCHEDULING, DEFAULT_PRE_BIND, PRIORITY_SORT, Catalogue
from koord_scheduler.domain.config.document import ALL, EnabledPlugin, Plugins, PluginSet
from koord_scheduler.domain.framework.plugin import Point


class NamedPlugin(NamedTuple):
    """One entry of an `enabled` or `disabled` list below `plugins`."""

    path: str  # Path of the entry in the document
    point: Point | None  # Extension point of the list; None for multiPoint
    name: str
    is_enabled: bool  # True in a list `enabled`, False in a list `disabled`


class NamedArguments(NamedTuple):
    """One entry of `pluginConfig`: a plugin name with its arguments."""

    path: str  # Path of the entry in the document
    name: str
    args: Mapping[str, object] | None  # The arguments; None if they are not a JSON object


def written_profiles(document: Mapping[str, object]) -> list[Mapping[str, object]]:
    """Return the profiles of a document in their order, before validation. {} stands for a profile that is not a JSON
    object. A document without profiles has one empty profile.
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


@dataclass(frozen=True, slots=True)
class Merged:
    """The plugins of one profile after its changes are merged with the defaults."""

    order: Mapping[Point, tuple[str, ...]]  # Extension point -> names of its plugins in order
    weights: Mapping[str, int]  # Scoring plugin -> weight


def merge_plugins(written: Plugins, catalogue: Catalogue) -> tuple[Merged, list[InvalidInput]]:
    """The multiPoint set is the default set with the profile's changes. The order at an extension point is: plugins
    that both the point and multiPoint name, in the point's order; then the other plugins of multiPoint; then the other
    plugins of the point. Returns (the plugins that run, without unknown names; the problems, with paths below
    `plugins`).
    """
    multi = [plugin for plugin in _multi_point(written.multi_point, catalogue) if plugin.name in catalogue]
    order: dict[Point, tuple[str, ...]] = {}
    for point in Point:
        names = [plugin.name for plugin in written.at(point).enabled if plugin.name in catalogue]
        order[point] = tuple(_at_point(point, names, written.at(point), multi, catalogue))
    order[Point.QUEUE_SORT] = tuple(dict.fromkeys(_sorter(name) for name in order[Point.QUEUE_SORT]))
    pre_bind = written.pre_bind
    if DEFAULT_PRE_BIND not in order[Point.PRE_BIND] and not _disables(pre_bind, DEFAULT_PRE_BIND):
        order[Point.PRE_BIND] += (DEFAULT_PRE_BIND,)
    return Merged(order, _weights(order[Point.SCORE], written.score.enabled, multi)), list(_incomplete(order))


def misplaced(named: Iterable[NamedPlugin], catalogue: Catalogue) -> Iterator[InvalidInput]:
    """Yield a problem for each unknown plugin name, and for each plugin at an extension point that it does not have.
    The paths of the problems are below `plugins`.
    """
    for path, point, name, is_enabled in named:
        known = catalogue.get(name)
        if known is None:
            if is_enabled or name != ALL:
                yield no_such_plugin(name, path, catalogue)
        elif is_enabled and point is not None and point not in known.points:
            yield InvalidInput(f"a plugin that can be used at {point}", name, path)


def no_such_plugin(name: str, path: str, catalogue: Catalogue) -> InvalidInput:
    """Return the problem that a plugin name is unknown. It suggests the closest name of the catalogue."""
    meant = get_close_matches(name, catalogue, 1)
    hint = f" ({meant[0]}?)" if meant else ""
    return InvalidInput(f"the name of a plugin that exists or is installed{hint}", name, path)


def _multi_point(written: PluginSet, catalogue: Catalogue) -> list[EnabledPlugin]:
    """The default set without disabled plugins. A default that is enabled again keeps its place with the new weight."""
    own = {plugin.name: plugin for plugin in written.enabled}
    merged: list[EnabledPlugin] = []
    for known in catalogue.values():
        if known.default_weight is None or _disables(written, known.name):
            continue
        default = EnabledPlugin(name=known.name, weight=known.default_weight)
        merged.append(own.pop(known.name, default))
    return merged + list(own.values())


def _at_point(
    point: Point, own: Sequence[str], written: PluginSet, multi: Sequence[EnabledPlugin], catalogue: Catalogue
) -> Iterator[str]:
    if _disables(written, ALL):
        yield from own
        return
    spread = [
        plugin.name
        for plugin in multi
        if point in catalogue[plugin.name].points and not _disables(written, plugin.name)
    ]
    yield from (name for name in own if name in spread)
    yield from (name for name in spread if name not in own)
    yield from (name for name in own if name not in spread)


def _disables(written: PluginSet, name: str) -> bool:
    return any(plugin.name in (ALL, name) for plugin in written.disabled)


def _sorter(name: str) -> str:
    """Return the name of the queue's order. Before v1.6 Coscheduling had its own; now it is PrioritySort (spec, 2)."""
    return PRIORITY_SORT if name == COSCHEDULING else name


def _incomplete(order: Mapping[Point, Sequence[str]]) -> Iterator[InvalidInput]:
    sorters = order[Point.QUEUE_SORT]
    if len(sorters) != 1:
        yield InvalidInput("exactly one plugin that sorts the queue", list(sorters), str(Point.QUEUE_SORT))
    if not order[Point.BIND]:
        yield InvalidInput("at least one plugin that binds", [], str(Point.BIND))


def _weights(scoring: Sequence[str], own: Sequence[EnabledPlugin], multi: Sequence[EnabledPlugin]) -> dict[str, int]:
    """The weight of each scoring plugin: that of the point, otherwise that of multiPoint. 0 or none stands for 1."""
    given = {plugin.name: plugin.weight for plugin in multi} | {plugin.name: plugin.weight for plugin in own}
    return {name: given.get(name) or 1 for name in scoring}
