"""The lines of `koord explain` about the claims that a placement leaves to be bound."""

from collections.abc import Iterator

from koordcore.values.allocation import Allocation


def volume_lines(allocation: Allocation, node: str) -> Iterator[str]:
    """Yield for each unbound claim of a placed pod a phrase about its volume, such as `volume pv-1 for claim data`.

    Args:
        allocation: Allocation of the pod.
        node: Name of its node.
    """
    for each in allocation.volume_claims:
        if each.volume:
            yield f"volume {each.volume} for claim {each.claim}"
        else:
            yield f"a new volume on {node} for claim {each.claim}"
