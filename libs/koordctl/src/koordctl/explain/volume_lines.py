"""Phrases about what an allocation gives a pod: amounts from a Reservation, and volumes for unbound claims. Pure."""

from collections.abc import Iterator, Mapping

from koordcore.values.allocation import Allocation

from koordctl.render.units import amounts_text


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


def split_amounts(allocation: Allocation, requests: Mapping[str, int]) -> tuple[dict[str, int], dict[str, int]]:
    """Return the parts of a pod's requests that come from its Reservation and from its node, without zeros.

    Args:
        allocation: Allocation of the pod, which names its Reservation and the amounts from it.
        requests: Resource -> amount that the pod requests.
    """
    used = allocation.reservation
    given = {} if used is None else {name: min(used.amounts.get(name, 0), amount) for name, amount in requests.items()}
    rest = {name: amount - given.get(name, 0) for name, amount in requests.items()}
    return {name: amount for name, amount in given.items() if amount}, {
        name: amount for name, amount in rest.items() if amount
    }


def use_line(allocation: Allocation, requests: Mapping[str, int]) -> str | None:
    """Return a line about the Reservation that a pod uses; None if no amounts from a Reservation are known.

    Args:
        allocation: Allocation of the pod, which names its Reservation and the amounts from it.
        requests: Resource -> amount that the pod requests.
    """
    if allocation.reservation is None or not allocation.reservation.amounts:
        return None
    given, rest = split_amounts(allocation, requests)
    said = f"{amounts_text(given)} from Reservation {allocation.reservation.name}"
    return f"{said}, {amounts_text(rest)} from the node" if rest else said
