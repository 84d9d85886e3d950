"""The attributes of every plugin: a name and its extension points."""

from typing import Any, Protocol, cast

from koordcore.values.invalid import InvalidInput

from koord_scheduler.domain.framework.extension_point import ExtensionPoint


class Plugin(Protocol):
    """The common part of all plugins of the scheduler: a name and the list of extension points.

    A plugin does not read the clock, the queue or other plugins. Its state comes from events of the log that the
    scheduler passes to it. The present time is an argument.
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
    """Return the plugin after checking that it has all members that its extension points require.

    Raises:
        InvalidInput: The plugin declares no extension points, or a required method or attribute is missing.
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
    """Return whether the plugin implements the extension point."""
    return point in plugin.extension_points
