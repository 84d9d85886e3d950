"""What every plugin has: a name, and a declaration of its extension points."""

from typing import Any, Protocol, cast

from koordcore.values.invalid import InvalidInput

from koord_scheduler.domain.framework.extension_point import ExtensionPoint


class Plugin(Protocol):
    """A plugin.

    A plugin never looks at the clock, at the queue or at another plugin. What it knows it has from the events that the
    fold hands it; the moment at which it is asked is an argument.
    """

    @property
    def name(self) -> str:
        """Name in configuration, explanations and metrics."""
        ...

    @property
    def extension_points(self) -> tuple[ExtensionPoint[Any], ...]:
        """The extension points that it implements; `checked` compares it with their protocols when it is made."""
        ...


def checked(plugin: Any) -> Plugin:
    """Return the plugin if it has everything that its extension points ask for.

    Raises:
        InvalidInput: It declares no extension points, or lacks a method or attribute of one of them.
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
