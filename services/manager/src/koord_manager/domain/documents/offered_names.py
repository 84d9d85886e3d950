"""The names that a shell offers for the beginning of one."""

from collections.abc import Set
from heapq import nsmallest
from typing import Final

MOST_NAMES: Final = 500


def offered_names(found: Set[str]) -> list[str]:
    """The names in order; of more than 500, the first 499 and the last.

    A shell completes a word with what all offers begin with. The first and the last name begin with the same as all
    names in between, so it completes no letter that is wrong for a name that is left out.
    """
    if len(found) <= MOST_NAMES:
        return sorted(found)
    return [*nsmallest(MOST_NAMES - 1, found), max(found)]
