"""The extensions that installed packages offer, and which of their strategies are switched on."""

from importlib.metadata import entry_points
from typing import Final

from koordcore.values.invalid import InvalidInput

from koord_agent.domain.extensions import Extensions

ENTRY_POINTS: Final = "koord_agent.extensions"
"""Group under which a package offers a function that takes an `Extensions` and registers what it has."""


def installed_extensions(switches: tuple[str, ...] = ()) -> Extensions:
    """Everything that installed packages register.

    switches   `<strategy>=true|false`
    raises     InvalidInput for a name that is taken, a strategy that nobody has, an entry point that is no function;
               what importing a package raises passes through
    """
    extensions = Extensions()
    for entry in sorted(entry_points(group=ENTRY_POINTS), key=lambda entry: entry.name):
        register: object = entry.load()
        if not callable(register):
            raise InvalidInput("a function that takes Extensions", entry.value, f"entry point {entry.name}")
        register(extensions)
    extensions.switch(dict(_switch(text) for text in switches))
    return extensions


def _switch(text: str) -> tuple[str, bool]:
    name, equals, value = text.partition("=")
    if not equals or value not in ("true", "false"):
        raise InvalidInput("<strategy>=true or <strategy>=false", text, "qos-extension-plugins")
    return name, value == "true"
