"""Why the devices of a node do not suit a pod."""

from typing import NamedTuple


class Refusal(NamedTuple):
    """A node's devices do not suit a pod.

    Attributes:
        reason: For the user.
        is_resolvable: Whether pods that leave the node may change it.
    """

    reason: str
    is_resolvable: bool


def insufficient(type_: str, *, is_resolvable: bool = True) -> Refusal:
    """Return the refusal of a node that has too few devices of a type."""
    return Refusal(f"Insufficient {type_} devices", is_resolvable)
