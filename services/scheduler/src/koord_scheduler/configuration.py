"""The configuration of the scheduler as it is found: a file or the default profile, and the installed plugins."""

from __future__ import annotations

from importlib.metadata import entry_points
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, cast

from koordcore.values.invalid import InvalidInput

from koord_scheduler.domain.config.catalogue import Catalogue, KnownPlugin, with_installed
from koord_scheduler.domain.config.effective import EffectiveConfiguration, effective_configuration

if TYPE_CHECKING:
    # Not needed to read a configuration, and it brings the whole engine with its columns.
    from koord_scheduler.domain.plugins.registry import Maker

ENTRY_POINTS: Final = "koord_scheduler.plugins"
"""Group under which an installed package offers plugins."""


class OfferedPlugin(Protocol):
    """What an entry point of the group leads to: at least the description that makes a configuration accept it."""

    @property
    def known(self) -> KnownPlugin:
        """Name, points and arguments of the plugin."""
        ...


def installed_plugins() -> dict[str, OfferedPlugin]:
    """The plugins that installed packages offer, by name.

    raises    InvalidInput when an entry point leads to something else, or two offer the same name; what importing a
              package raises passes through
    """
    offered: dict[str, OfferedPlugin] = {}
    for entry in entry_points(group=ENTRY_POINTS):
        plugin: object = entry.load()
        if not isinstance(getattr(plugin, "known", None), KnownPlugin):
            path = f"entry point {entry.name} of {ENTRY_POINTS}"
            raise InvalidInput("an object with an attribute `known` of type KnownPlugin", entry.value, path)
        offer = cast("OfferedPlugin", plugin)
        if offer.known.name in offered:
            raise InvalidInput("offered by one package only", offer.known.name, f"group {ENTRY_POINTS}")
        offered[offer.known.name] = offer
    return offered


def known_plugins() -> Catalogue:
    """Every plugin that a configuration may name: built in or installed.

    raises    as `installed_plugins`; InvalidInput when an installed one takes a built-in name
    """
    installed = {name: plugin.known for name, plugin in installed_plugins().items()}
    try:
        return with_installed(installed)
    except ValueError as error:
        raise InvalidInput("a name that is not taken", sorted(installed), f"group {ENTRY_POINTS}") from error


def shipped_configuration() -> bytes:
    """The configuration that is used when none is given."""
    return files("koord_scheduler.domain.config").joinpath("default_profile.yaml").read_bytes()


def load_configuration(file: Path | None) -> EffectiveConfiguration:
    """What the scheduler does, by a file or, without one, by the shipped profile.

    raises    InvalidInput with every problem; OSError when the file cannot be read
    """
    text = shipped_configuration() if file is None else file.read_bytes()
    return effective_configuration(text, known_plugins())


def installed_makers() -> dict[str, Maker]:
    """How to make each installed plugin, by name: its attribute `make` (see `domain.profiles.Maker`).

    raises    InvalidInput when a plugin has none
    """
    makers: dict[str, Maker] = {}
    for name, plugin in installed_plugins().items():
        make = getattr(plugin, "make", None)
        if not callable(make):
            raise InvalidInput("an object with a method `make(cluster, profile)`", type(plugin).__name__, name)
        makers[name] = cast("Maker", make)
    return makers
