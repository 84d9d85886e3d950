"""What every plugin has."""

from typing import Protocol


class Plugin(Protocol):
    """A plugin has a name."""

    @property
    def name(self) -> str:
        """Name in configuration, explanations and metrics."""
        ...
