"""Measures the calls to the plugins of a profile, for a few attempts.

Other attempts call the plugins directly, so they need no extra time. The table of extension points says which calls are
measured. Filters and scores work on columns over nodes and are not measured.

Source: scheduler-core spec, 15 (plugin_execution_duration_seconds, framework_extension_point_duration_seconds).
"""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from typing import Any, cast

from koord_scheduler.domain.engine.frameworks import Frameworks
from koord_scheduler.domain.framework.plugin import ExtensionPoint, Plugin
from koord_scheduler.domain.framework.stopwatch import Stopwatch


@contextmanager
def measured(frameworks: Frameworks, watch: Stopwatch) -> Generator[None]:
    """Measure the plugin calls of every profile inside this context, and add their durations to `watch`."""
    try:
        for framework in frameworks.all():
            framework.wrap(partial(_timed, watch, framework.profile.scheduler_name))
        frameworks.watch = watch
        yield
    finally:
        frameworks.watch = None
        for framework in frameworks.all():
            framework.wrap(None)


def _timed(watch: Stopwatch, profile: str, point: ExtensionPoint[Any], plugin: Plugin) -> Plugin:
    return cast("Plugin", _Timed(watch, profile, point, plugin))


class _Timed:
    """A plugin at one extension point with measured methods. All other attributes are those of the plugin."""

    def __init__(self, watch: Stopwatch, profile: str, point: ExtensionPoint[Any], plugin: Plugin) -> None:
        self._plugin = plugin
        for method, label in point.timed.items():
            setattr(self, method, self._measuring(watch, profile, label, getattr(plugin, method)))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._plugin, name)

    def _measuring(
        self, watch: Stopwatch, profile: str, label: str, call: Callable[..., object]
    ) -> Callable[..., object]:
        name = self._plugin.name

        def timed(*args: Any, **more: Any) -> object:
            began = watch.clock()
            answer = call(*args, **more)
            watch.since(began, profile, label, name, answer)
            return answer

        return timed
