"""Loads the configuration (a file, or the shipped profile) and finds the plugins of installed packages."""

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
    """The object that an installed package must offer at an entry point of the group `koord_scheduler.plugins`. The
    property `known` suffices to name the plugin in a configuration. To run the plugin, the object also needs a method
    `make`.
    """

    @property
    def known(self) -> KnownPlugin: ...


def installed_plugins() -> dict[str, OfferedPlugin]:
    """By name. Raises InvalidInput: an entry point has no description `known`, or two entry points offer the same name;
    Exception: whatever the import of a package raises.
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
    """Built in or installed. Raises InvalidInput: an entry point is invalid, or two plugins have the same name."""
    installed = {name: plugin.known for name, plugin in installed_plugins().items()}
    try:
        return with_installed(installed)
    except ValueError as error:
        raise InvalidInput("a name that is not taken", sorted(installed), f"group {ENTRY_POINTS}") from error


def shipped_configuration() -> bytes:
    return files("koord_scheduler.domain.config").joinpath("default_profile.yaml").read_bytes()


def load_configuration(file: Path | None) -> EffectiveConfiguration:
    """`file` None: the default configuration of the package. Raises InvalidInput: the configuration is invalid; the
    message lists every problem; OSError: the file cannot be read.
    """
    text = shipped_configuration() if file is None else file.read_bytes()
    return effective_configuration(text, known_plugins())


def installed_makers() -> dict[str, Maker]:
    """Plugin name -> function that creates the plugin. Raises InvalidInput: a plugin has no method `make`."""
    makers: dict[str, Maker] = {}
    for name, plugin in installed_plugins().items():
        make = getattr(plugin, "make", None)
        if not callable(make):
            raise InvalidInput("an object with a method `make(cluster, profile)`", type(plugin).__name__, name)
        makers[name] = cast("Maker", make)
    return makers
