"""What a plugin is: a name and its extension points, which the plugin lists of a profile enable.

If an installed plugin raises in an attempt, the attempt fails and the scheduler continues with the next pod.
"""

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from traceback import format_exception, walk_tb
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar, cast

from koordcore.values.invalid import InvalidInput


class Point(StrEnum):
    """Name of a plugin list in a profile of the configuration, such as `preFilter`. The members are in cycle order."""

    PRE_ENQUEUE = "preEnqueue"
    QUEUE_SORT = "queueSort"
    PRE_FILTER = "preFilter"
    FILTER = "filter"
    POST_FILTER = "postFilter"
    PRE_SCORE = "preScore"
    SCORE = "score"
    RESERVE = "reserve"
    PERMIT = "permit"
    PRE_BIND = "preBind"
    BIND = "bind"
    POST_BIND = "postBind"


P = TypeVar("P")

_OF_EVERY_PLUGIN: Final = frozenset({"name", "extension_points"})


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ExtensionPoint(Generic[P]):
    """One step at which plugins are called, such as Filter: its protocol, and how a configuration enables it."""

    name: str  # Name in documentation and error texts
    protocol: type[P]  # The methods and attributes that a plugin with this extension point must have
    # The plugin list of a profile, such as `preFilter`, that must name the plugin. None: the plugin is called at this
    # point whenever any list of the profile names it.
    enabled_at: Point | None = None
    is_single: bool = False  # Whether only the first plugin of a profile is called
    # Method -> value of the metrics' label `extension_point`. Durations of other methods are not measured.
    timed: Mapping[str, str] = field(default_factory=dict[str, str])
    asked: str  # When the scheduler calls the plugin, for the table in the documentation
    answers: str  # What the plugin may return, for the table in the documentation

    @property
    def members(self) -> tuple[str, ...]:
        """Return the sorted names of the members of `protocol`, without `name` and `extension_points`."""
        found: set[str] = set()
        for kind in self.protocol.__mro__:
            if kind.__dict__.get("_is_protocol"):
                found |= {*inspect.get_annotations(kind), *kind.__dict__}
        return tuple(sorted(name for name in found - _OF_EVERY_PLUGIN if not name.startswith("_")))

    def __repr__(self) -> str:
        return self.name


class Plugin(Protocol):
    """The common part of all plugins of the scheduler: a name and the list of extension points. A plugin does not read
    the clock, the queue or other plugins. Its state comes from events of the log that the scheduler passes to it. The
    present time is an argument.
    """

    @property
    def name(self) -> str:
        """Return the name in configuration, explanations and metrics."""
        ...

    @property
    def extension_points(self) -> tuple[ExtensionPoint[Any], ...]:
        """Return the extension points that the plugin implements. `checked` verifies that it has their methods."""
        ...


def checked(plugin: Any) -> Plugin:
    """Return the plugin after checking that it has all members that its extension points require. Raises InvalidInput:
    the plugin declares no extension points, or a required method or attribute is missing.
    """
    kind = type(plugin).__name__
    declared: Any = getattr(plugin, "extension_points", None)
    if not isinstance(declared, tuple) or not all(isinstance(each, ExtensionPoint) for each in cast("Any", declared)):
        raise InvalidInput("a tuple of extension points", str(cast("Any", declared)), f"{kind}.extension_points")
    for point in cast("tuple[ExtensionPoint[Any], ...]", declared):
        missing = [member for member in ("name", *point.members) if not hasattr(plugin, member)]
        if missing:
            raise InvalidInput(f"{', '.join(missing)}, which extension point {point} asks for", None, kind)
    return plugin


def declares(plugin: Plugin, point: ExtensionPoint[Any]) -> bool:
    return point in plugin.extension_points


class PluginFault(NamedTuple):
    """An exception that a plugin raised during an attempt to place a pod."""

    plugin: str
    pod: str  # The pod, as namespace/name
    error: str  # Type and text of the exception
    trace: str  # Traceback as Python formats it

    @property
    def message(self) -> str:
        """Return the reason that the pod's explanation shows: "plugin NAME failed: ERROR"."""
        return f"plugin {self.plugin} failed: {self.error}"


def package_of(plugin: object) -> str:
    """Return the top-level Python package in which the plugin's class is defined."""
    return type(plugin).__module__.partition(".")[0]


def fault_of(error: BaseException, plugins: Mapping[str, str], pod: str) -> PluginFault | None:
    """Return the exception as the fault of an installed plugin; None if no plugin is in its traceback. If the traceback
    contains several plugins, the one that the scheduler called is named.

    Args:
        error: The exception.
        plugins: Top-level Python package -> name of the plugin.
        pod: The pod of the attempt, as namespace/name.
    """
    for frame, _ in walk_tb(error.__traceback__):
        module = frame.f_globals.get("__name__", "")
        plugin = plugins.get(str(module).partition(".")[0])
        if plugin is not None:
            return PluginFault(plugin, pod, f"{type(error).__name__}: {error}", "".join(format_exception(error)))
    return None
