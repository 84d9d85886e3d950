"""The plugins that a configuration can name: their extension points, their arguments, and how they are made.

Installed packages add plugins through the entry point group `koord_descheduler.plugins`. `plugins.registry` lists the
built-in ones.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from typing import Any, Final, TypeVar

from koordcore.values.invalid import InvalidInput

from koord_descheduler.domain.framework.plugin import Plugin, Point

ENTRY_POINTS: Final = "koord_descheduler.plugins"

T = TypeVar("T")


@dataclass(slots=True)
class SharedState:
    """State that plugins keep between rounds, one value per type, and values that are read when the service starts.

    The service restores the state from the log before the first round. All profiles share it.

    Attributes:
        priority_classes: Name of a PriorityClass -> its value when the service started.
        interval: Seconds between two rounds; 0: there is only one.
    """

    priority_classes: Mapping[str, int] = field(default_factory=dict[str, int])
    interval: float = 0.0
    _values: dict[type[Any], Any] = field(default_factory=dict[type[Any], Any])

    def of(self, kind: type[T]) -> T:
        """Return the shared value of a type. If there is none yet, create it with `kind()`."""
        if kind not in self._values:
            self._values[kind] = kind()
        return self._values[kind]

    def put(self, value: object) -> None:
        """Store a value, in place of the shared value of the same type."""
        self._values[type(value)] = value


# The arguments of a plugin are of its own type: Any is the honest type here.
Args = Any


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginKind:
    """A plugin that a configuration can name.

    Attributes:
        name: Name of the plugin.
        points: Extension points that it serves.
        is_native: Whether its arguments are decoded strictly, and defaults are added if it is enabled without an entry.
        decode: Decoded JSON object -> arguments with defaults. It raises InvalidInput with the path of the field.
        check: Returns all invalid values of decoded arguments, with paths.
        make: Makes the plugin for one profile from its arguments.
    """

    name: str
    points: frozenset[Point]
    is_native: bool = False
    decode: Callable[[Mapping[str, object]], Args]
    check: Callable[[Args], Iterable[InvalidInput]]
    make: Callable[[Args, SharedState], Plugin]


Registry = Mapping[str, PluginKind]
"""Name -> plugin."""


def registry_of(kinds: Iterable[PluginKind]) -> Registry:
    """Return plugins by name.

    Raises:
        InvalidInput: Two plugins have one name.

    Source:
        descheduler spec, 2 (extension)
    """
    found: dict[str, PluginKind] = {}
    for kind in kinds:
        if kind.name in found:
            raise InvalidInput("a plugin name that is used once", kind.name, "plugins")
        found[kind.name] = kind
    return found


def installed_kinds() -> list[PluginKind]:
    """Return the plugins of installed packages, from their entry points.

    Raises:
        InvalidInput: An entry point is not a PluginKind.
    """
    kinds: list[PluginKind] = []
    for entry in entry_points(group=ENTRY_POINTS):
        kind = entry.load()
        if not isinstance(kind, PluginKind):
            raise InvalidInput("a PluginKind", entry.value, f"entry point {ENTRY_POINTS}[{entry.name}]")
        kinds.append(kind)
    return kinds
