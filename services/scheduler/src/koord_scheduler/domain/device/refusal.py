"""Why the devices of a node do not suit a pod."""

from typing import NamedTuple


class Refusal(NamedTuple):
    """Why a node cannot give devices to a pod.

    Attributes:
        reason: Phrase for the user.
        is_resolvable: Whether this may change if pods leave the node.
    """

    reason: str
    is_resolvable: bool


def insufficient(type_: str, *, is_resolvable: bool = True) -> Refusal:
    """Return the refusal of a node that has too few devices of a type."""
    return Refusal(f"Insufficient {type_} devices", is_resolvable)
