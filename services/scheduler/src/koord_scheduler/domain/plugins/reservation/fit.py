"""Whether a node has room for a pod that uses one of its Reservations. A pod uses one Reservation. If the Reservation
has too little, the pod takes the rest from the node's free amounts. With the allocate policy Restricted, it takes the
restricted resources from the Reservation alone.

Source: scheduler-fine-grained spec, 3.6.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from koordcore.protocol.resource_names import PODS

from koord_scheduler.domain.plugins.reservation.matching import Terms

RESTRICTED: Final = "Restricted"
PREFIX: Final = "Reservation(s) "
NO_RESERVATION: Final = "node(s) no reservation(s) to meet the requirements"
_NOTHING: Final[Mapping[str, int]] = {}


@dataclass(slots=True, kw_only=True)
class Held:
    """The resources that a Reservation holds on its node, and how much of them its owners use. Amounts are in
    milli-cores for CPU, in bytes or whole units otherwise.
    """

    terms: Terms  # Rules of the object about the use of the Reservation
    allocatable: Mapping[str, int]  # Resource -> amount that the Reservation holds
    # Sum of its owners' requests, for the resources that it holds.
    allocated: Mapping[str, int] = field(default_factory=dict[str, int])
    owners: int = 0  # Number of its owners
    # Amounts that owners give back if preemption evicts them on trial; the resource `pods` is their number.
    preemptible: Mapping[str, int] = field(default_factory=dict[str, int])

    def remained(self) -> dict[str, int]:
        """Return resource -> amount that further owners may use, never negative."""
        inner, allocated = self.terms.inner, self.allocated
        return {
            name: max(0, amount - allocated.get(name, 0) - inner.get(name, 0))
            for name, amount in self.allocatable.items()
        }

    def restricted_names(self) -> frozenset[str]:
        """Return the resources that owners may take only from the Reservation if its policy is Restricted. These are
        the resources in the annotation `scheduling.koordinator.sh/reservation-restricted-options`, or without it all
        resources that the Reservation holds.
        """
        names = frozenset(self.allocatable)
        return (names & self.terms.restricted) or names


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRoom:
    """The free amounts of a node. The unused amounts of Reservations, even of those that the pod may use, count as
    taken.
    """

    # Allocatable minus what pods and Reservations hold; amounts of a Reservation that an owner uses count once.
    free: Mapping[str, int]
    pods: int  # How many further pods the node takes if these Reservations do not count as pods


def lacking(room: NodeRoom, requests: Mapping[str, int], *more: Mapping[str, int]) -> list[str]:
    """Return the resources of which the node has too little for a pod; `pods` if the node takes no further pod.
    `requests`: resource -> amount that the pod requests; amounts of 0 are ignored. `more`: further mappings resource ->
    amount that the pod may use besides the free amounts of the node. All are added up, except `pods` of the first one,
    which is that of a Reservation.
    """
    short = [] if room.pods + sum(each.get(PODS, 0) for each in more[1:]) >= 1 else [PODS]
    for name, amount in requests.items():
        if amount > 0 and amount > room.free.get(name, 0) + sum(each.get(name, 0) for each in more):
            short.append(name)
    return short


def short_in_reservation(held: Held, requests: Mapping[str, int], *, tells_amounts: bool = False) -> list[str]:
    """Return phrases about the resources that a Reservation with policy Restricted lacks for a pod. Empty if it
    suffices. `requests`: resource -> amount that the pod requests. `tells_amounts`: whether the phrases contain the
    amounts.
    """
    reasons: list[str] = []
    allocatable, gone = held.allocatable, held.preemptible
    if PODS in allocatable:
        used = held.owners - gone.get(PODS, 0)
        if used + 1 > allocatable[PODS]:
            told = f", requested: 1, used: {used}, capacity: {allocatable[PODS]}" if tells_amounts else ""
            reasons.append(f"{PREFIX}Too many pods{told}")
    for name in sorted(held.restricted_names() - {PODS}):
        wanted = requests.get(name, 0)
        capacity = allocatable[name] - held.terms.inner.get(name, 0)
        used = max(0, held.allocated.get(name, 0) - gone.get(name, 0))
        if wanted > 0 and wanted > capacity - used:
            told = f", requested: {wanted}, used: {used}, capacity: {capacity}" if tells_amounts else ""
            reasons.append(f"{PREFIX}Insufficient {name}{told}")
    return reasons


def fits_with(
    room: NodeRoom, held: Held, requests: Mapping[str, int], preemptible: Mapping[str, int] = _NOTHING
) -> bool:
    """Return whether a pod fits on a node if it uses one of the node's Reservations, `held`. `requests`: resource ->
    amount that the pod requests. `preemptible`: resource -> amount that pods which are removed on trial return to the
    node.
    """
    if lacking(room, requests, held.remained(), preemptible, held.preemptible):
        return False
    return held.terms.policy != RESTRICTED or not short_in_reservation(held, requests)


def refusals(
    room: NodeRoom,
    matched: Sequence[Held],
    requests: Mapping[str, int],
    *,
    has_affinity: bool = False,
    only: str = "",
    preemptible: Mapping[str, int] = _NOTHING,
    ignored: Callable[[str], bool] = lambda _: False,
    skips_node: bool = False,
    more: Callable[[Held | None], Sequence[str]] = lambda _: (),
) -> list[str]:
    """Return why a pod fits on a node neither with one of its Reservations nor without them; empty if it fits. A pod
    that must use a Reservation is not tried without. Any other pod is tried only with Reservations that hold a resource
    which it requests.

    Args:
        matched: The Reservations on the node that the pod may use, in the order in which they are tried.
        requests: Resource -> amount that the pod requests.
        has_affinity: Whether the pod must use a Reservation.
        only: Name of the Reservation that the pod must use; "": any.
        preemptible: What pods that are removed on trial give back to the node.
        ignored: Takes a resource name, and returns whether the resource is not compared.
        skips_node: Whether the free amounts of the node are not compared if exactly one Reservation is matched.
        more: Takes the Reservation that the pod would use, or None; returns why other plugins refuse the pod then.
    """
    wanted = {name: amount for name, amount in requests.items() if amount > 0 and not ignored(name)}
    short_on_node: set[str] = set()
    of_reservations: list[str] = []
    for held in matched:
        if only and held.terms.name != only:
            continue
        if not has_affinity and not any(requests.get(name, 0) > 0 for name in held.allocatable):
            continue
        short: list[str] = []
        if not (skips_node and len(matched) == 1):
            short = lacking(room, wanted, held.remained(), preemptible, held.preemptible)
        reasons: list[str] = []
        if held.terms.policy == RESTRICTED:
            reasons = short_in_reservation(held, wanted, tells_amounts=bool(only))
        if not short and not reasons:
            reasons = list(more(held))
            if not reasons:
                return []
        short_on_node.update(short)
        of_reservations += reasons
    by_node = [f"Insufficient {name} by node" for name in sorted(short_on_node)]
    if has_affinity:
        return [*by_node, *of_reservations] or [NO_RESERVATION]
    if by_node:
        return by_node
    alone = lacking(room, wanted, _NOTHING, preemptible)
    return [f"Insufficient {name} by node" for name in sorted(alone)] or list(more(None))
