"""Names that an API server makes of a `generateName`: as much of it as leaves room, and five letters.

Source:
    Kubernetes, metadata.generateName (names of at most 63 letters; vowels and what looks like them left out)
"""

from typing import Final

_SUFFIX: Final = 5
_MOST: Final = 63 - _SUFFIX
_LETTERS: Final = frozenset("bcdfghjklmnpqrstvwxz2456789")


def generated_base(name: str) -> str:
    """Return what a name begins with that an API server may have made; "" when it cannot have made it."""
    base, suffix = name[:-_SUFFIX], name[-_SUFFIX:]
    return base if _LETTERS.issuperset(suffix) else ""


def base_of_names(generate_name: str) -> str:
    """Return what the names begin with that are made of a `generateName`."""
    return generate_name[:_MOST]
