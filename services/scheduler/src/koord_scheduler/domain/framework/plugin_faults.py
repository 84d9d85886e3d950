"""Exceptions that installed plugins raise: which plugin raised one, and in the attempt of which pod.

If a plugin raises in an attempt, the attempt fails and the scheduler continues with the next pod.
"""

from collections.abc import Mapping
from traceback import format_exception, walk_tb
from typing import NamedTuple


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
    """Return the exception as the fault of an installed plugin; None if no plugin is in its traceback.

    If the traceback contains several plugins, the one that the scheduler called is named.

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
