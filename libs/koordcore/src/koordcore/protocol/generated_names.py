"""Names that an API server generates from `generateName`: the truncated prefix and five characters.

Source:
    Kubernetes, metadata.generateName (names of at most 63 letters; vowels and what looks like them left out)
"""

from typing import Final

_SUFFIX: Final = 5
_MOST: Final = 63 - _SUFFIX
_LETTERS: Final = frozenset("bcdfghjklmnpqrstvwxz2456789")


def generated_base(name: str) -> str:
    """Return the prefix (`generateName`) of a name that an API server generated; "" for any other name.

    A generated name ends with five random characters of a certain alphabet.
    """
    base, suffix = name[:-_SUFFIX], name[-_SUFFIX:]
    return base if _LETTERS.issuperset(suffix) else ""


def base_of_names(generate_name: str) -> str:
    """Return the prefix of the names that an API server makes from a `generateName`.

    It is `generate_name` itself, cut to 58 characters, because the whole name has at most 63.
    """
    return generate_name[:_MOST]
