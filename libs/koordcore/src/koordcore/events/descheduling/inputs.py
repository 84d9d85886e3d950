"""The numbers of a decision of the descheduler, by name."""

from typing import TypeAlias

import msgspec


class Number(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A number on which a decision rests, and the limit with which it was compared.

    Attributes:
        value: The number, such as a count, a usage in percent, or tokens that are left.
        limit: The limit, threshold or other bound; None if there is none, or if it is invalid.
    """

    value: int | float
    limit: int | float | None = None


Inputs: TypeAlias = dict[str, Number]
"""Code of a limit, or name of a measure -> its number."""
