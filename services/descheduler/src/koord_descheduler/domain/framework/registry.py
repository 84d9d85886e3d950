"""The plugins that a configuration can name: their extension points, their arguments, and how they are made.

Installed packages add plugins through the entry point group `koord_descheduler.plugins`. `plugins.registry` lists the
built-in ones.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from typing import Any, Final, TypeVar

from koordcore.protocol.component_config import WireModel
from koordcore.values.invalid import InvalidInput

from koord_descheduler.domain.framework.plugin import Plugin, Point

ENTRY_POINTS: Final = "koord_descheduler.plugins"

T = TypeVar("T")


@dataclass(slots=True)
class SharedState:
    """State that plugins keep between rounds, one value per type, and values that are read when the service starts.

    The service restores the state from the log before the first round. All profiles share it.
    """

    # Name of a PriorityClass -> its value when the service started.
    priority_classes: Mapping[str, int] = field(default_factory=dict[str, int])
    interval: float = 0.0  # Seconds between two rounds; 0: there is only one
    _values: dict[type[Any], Any] = field(default_factory=dict[type[Any], Any])

    def of(self, kind: type[T]) -> T:
        """The shared value of a type. If there is none yet, it is created with `kind()`."""
        if kind not in self._values:
            self._values[kind] = kind()
        return self._values[kind]

    def put(self, value: object) -> None:
        self._values[type(value)] = value


# The arguments of a plugin are of its own type: Any is the honest type here.
Args = Any


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginKind:
    """A plugin that a configuration can name."""

    name: str
    points: frozenset[Point]
    # Whether its arguments are decoded strictly, and defaults are added if it is enabled without an entry.
    is_native: bool = False
    # Decoded JSON object -> arguments with defaults. It raises InvalidInput with the path of the field.
    decode: Callable[[Mapping[str, object]], Args]
    # Model of its arguments, to find unknown fields in those that are decoded leniently; None if there is none.
    arguments: type[WireModel] | None = None
    check: Callable[[Args], Iterable[InvalidInput]]  # Returns all invalid values of decoded arguments, with paths
    make: Callable[[Args, SharedState], Plugin]


Registry = Mapping[str, PluginKind]
"""Name -> plugin."""


def registry_of(kinds: Iterable[PluginKind]) -> Registry:
    """By name (descheduler spec, 2, extension).

    Raises:
        InvalidInput: Two plugins have one name.
    """
    found: dict[str, PluginKind] = {}
    for kind in kinds:
        if kind.name in found:
            raise InvalidInput("a plugin name that is used once", kind.name, "plugins")
        found[kind.name] = kind
    return found


def installed_kinds() -> list[PluginKind]:
    """The plugins of installed packages, from their entry points.

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
