"""Exceptions of users' plugins: whose they are, and what is said of them.

An attempt that a plugin breaks off fails, like one that it refuses, and the scheduler goes on with the next pod.
"""

from collections.abc import Mapping
from traceback import format_exception, walk_tb
from typing import NamedTuple


class PluginFault(NamedTuple):
    """A plugin has raised in an attempt. trace: where, as Python writes it"""

    plugin: str
    pod: str
    error: str
    trace: str

    @property
    def message(self) -> str:
        """The sentence for the pod's user."""
        return f"plugin {self.plugin} failed: {self.error}"


def package_of(plugin: object) -> str:
    """The top package that a plugin's class is from."""
    return type(plugin).__module__.partition(".")[0]


def fault_of(error: BaseException, plugins: Mapping[str, str], pod: str) -> PluginFault | None:
    """The fault of the first plugin through which an exception came; None: it came through none.

    Args:
        plugins: Package -> name of the plugin.
    """
    for frame, _ in walk_tb(error.__traceback__):
        module = frame.f_globals.get("__name__", "")
        plugin = plugins.get(str(module).partition(".")[0])
        if plugin is not None:
            return PluginFault(plugin, pod, f"{type(error).__name__}: {error}", "".join(format_exception(error)))
    return None
