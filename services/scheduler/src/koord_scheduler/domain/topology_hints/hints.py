"""Values that hint providers exchange.

A set of NUMA zones is an integer: bit z is set if it contains zone z. Such sets compare as the specification compares
masks.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

Zones: TypeAlias = int
"""A set of NUMA zones: bit z stands for zone z."""


class Hint(NamedTuple):
    """One set of NUMA zones from which a resource of a pod can be allocated.

    Attributes:
        zones: The zones, one bit per zone; None: any zones.
        preferred: Whether no smaller set of zones satisfies the resource.
        score: 0..100; decides between sets of equal size.
    """

    zones: Zones | None
    preferred: bool
    score: int = 0


Hints: TypeAlias = Mapping[str, Sequence[Hint] | None]
"""Resource -> its hints. None: the zones do not matter to it. An empty sequence: no zones satisfy it."""

NO_HINTS: Hints = {}
"""The zones do not matter to the pod."""


def zones_of(ids: Iterable[int]) -> Zones:
    """Return the set of these zone ids as an integer with one bit per zone."""
    mask = 0
    for zone in ids:
        mask |= 1 << zone
    return mask


def ids_of(zones: Zones) -> list[int]:
    """Return the zone ids of a set, ascending."""
    return [zone for zone in range(zones.bit_length()) if zones >> zone & 1]


def is_narrower(one: Zones, other: Zones) -> bool:
    """Return whether `one` has fewer zones than `other`, or equally many and the smaller bit mask."""
    return (one.bit_count(), one) < (other.bit_count(), other)
