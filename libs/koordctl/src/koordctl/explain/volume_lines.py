"""The lines of `koord explain` about the claims that a placement leaves to be bound."""

from collections.abc import Iterator

from koordcore.values.allocation import Allocation


def volume_lines(allocation: Allocation, node: str) -> Iterator[str]:
    """Yield what was chosen for each unbound claim of a placed pod.

    Args:
        allocation: What the pod got.
        node: Name of its node.
    """
    for each in allocation.volume_claims:
        if each.volume:
            yield f"claim {each.claim} gets volume {each.volume}"
        else:
            yield f"a volume is made for claim {each.claim} on {node}"
