"""One measured figure beside its target."""

from enum import StrEnum

import msgspec


class RowsWithoutResult(Exception):
    """Some rows of a measurement could not be measured, and why; the others were."""


class Better(StrEnum):
    """Which direction is good."""

    HIGHER = "higher"
    LOWER = "lower"


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """A figure.

    target      what it should reach; None: stated for information
    reference   what somebody else's project asks of itself for the same work; None: nobody does
    note        further figures of the same run
    """

    name: str
    value: float
    unit: str
    target: float | None = None
    better: Better = Better.HIGHER
    reference: float | None = None
    note: str = ""

    @property
    def is_reached(self) -> bool | None:
        """Whether the target is reached; None without one."""
        if self.target is None:
            return None
        return self.value >= self.target if self.better is Better.HIGHER else self.value <= self.target
