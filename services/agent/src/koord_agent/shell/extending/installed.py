"""Load extensions of installed packages, and enable their strategies."""

from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points
from typing import Final

from koordcore.service.telemetry.logging import Logger
from koordcore.values.invalid import InvalidInput

from koord_agent.domain.extending.extension_points import Point
from koord_agent.domain.extending.extensions import Extensions
from koord_agent.domain.failure import failure

ENTRY_POINTS: Final = "koord_agent.extensions"
"""Entry point group of functions that take an `Extensions` and register extensions."""


def installed_extensions(logger: Logger, switches: tuple[str, ...] = ()) -> Extensions:
    """Load the extensions of all installed packages.

    A package that fails is logged, counted and left out.

    Args:
        logger: Receives errors.
        switches: Strategies to enable or disable: `<strategy>=true|false`.

    Raises:
        InvalidInput: Two packages use the same name, or a switch names an unknown strategy (unless a package failed).
    """
    extensions = Extensions()
    for entry in sorted(entry_points(group=ENTRY_POINTS), key=lambda entry: entry.name):
        more = Extensions()
        try:
            _registering(entry)(more)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - code of others must not keep a node unprotected
            extensions.failures[Point.PACKAGE, entry.name] += 1
            reason = failure(f"{Point.PACKAGE} {entry.name}", error)
            logger.error("extension_failed", point=str(Point.PACKAGE), name=entry.name, reason=reason)
            continue
        extensions.include(more)
    wanted = dict(_switch(text) for text in switches)
    if extensions.failures:
        missing = sorted(set(wanted) - set(extensions.strategies))
        for name in missing:
            logger.error("strategy_missing", strategy=name, reason="a package could not be loaded")
        wanted = {name: on for name, on in wanted.items() if name not in missing}
    extensions.switch(wanted)
    return extensions


def _registering(entry: EntryPoint) -> Callable[[Extensions], object]:
    register: object = entry.load()
    if not callable(register):
        raise InvalidInput("a function that takes Extensions", entry.value, f"entry point {entry.name}")
    return register


def _switch(text: str) -> tuple[str, bool]:
    name, equals, value = text.partition("=")
    if not equals or value not in ("true", "false"):
        raise InvalidInput("<strategy>=true or <strategy>=false", text, "qos-extension-plugins")
    return name, value == "true"
