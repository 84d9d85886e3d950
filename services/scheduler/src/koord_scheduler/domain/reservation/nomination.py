"""Nomination: which of several Reservations of a node a pod gets.

The smallest order label comes first. Without such labels, it is the Reservation that the pod fills most.

Source: scheduler-fine-grained spec, 3.8.
"""

from collections.abc import Mapping, Sequence

from koord_scheduler.domain.reservation.fit import Held

MOST: int = 100


def reservation_score(requests: Mapping[str, int], allocatable: Mapping[str, int], allocated: Mapping[str, int]) -> int:
    """Return how full a Reservation will be with the pod, in percent 0..100: the mean over its resources.

    A resource of which more is requested than the Reservation holds counts 0.

    Args:
        requests: Resource -> amount that the pod requests, in milli-cores and whole units.
        allocatable: What the Reservation holds.
        allocated: What its owners request.
    """
    parts = [
        MOST * used // capacity if used <= capacity else 0
        for name, capacity in allocatable.items()
        if capacity > 0
        for used in (requests.get(name, 0) + allocated.get(name, 0),)
    ]
    return sum(parts) // len(parts) if parts else 0


def nominate(requests: Mapping[str, int], candidates: Sequence[Held], more: Mapping[str, int] | None = None) -> Held:
    """Return the one of several Reservations of a node that the pod will use.

    Reservations with an order label come first, the smallest order before all. If no Reservation has an order label,
    the highest score wins. A tie is decided by name.

    Args:
        requests: Resource -> amount that the pod requests.
        candidates: Reservations that the pod fits into; at least one.
        more: Name of a Reservation -> score of other plugins, which is added; None for no such scores.
    """
    ordered = [each for each in candidates if each.terms.order is not None]
    if ordered:
        return min(ordered, key=lambda each: (each.terms.order or 0, each.terms.name))
    scores = more or {}
    return min(
        candidates,
        key=lambda each: (
            -reservation_score(requests, each.allocatable, each.allocated) - scores.get(each.terms.name, 0),
            each.terms.name,
        ),
    )
