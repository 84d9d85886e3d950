"""Lines about Reservations for a terminal: amounts, pods that use them, and pending pods that may not. Pure.

`reservation_claims` finds these pending pods and the reasons.
"""

from collections.abc import Iterator, Mapping, Sequence

import msgspec
from koordcore.stories.reservations import ReservationView
from koordcore.values.allocation import Allocation

from koordctl.render.reservation_tables import used_text
from koordctl.render.units import amounts_text, time_text


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """A pending pod that may want a Reservation, and the first rule that forbids it.

    Attributes:
        pod: The pod as "namespace/name".
        rule: Reason why it did not get the Reservation.
        message: Message of its last attempt; empty without one.
    """

    pod: str
    rule: str
    message: str = ""


class UsedAmounts(msgspec.Struct, frozen=True, kw_only=True):
    """A pod that uses a Reservation, with the parts of its requests that come from the Reservation and from the node.

    Amounts are resource -> milli-cores for cpu, and whole units for other resources.
    """

    pod: str
    from_reservation: dict[str, int]
    from_node: dict[str, int]


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


def reservation_lines(
    view: ReservationView, uses: Sequence[UsedAmounts], claims: Sequence[Claim], as_of: str = ""
) -> Iterator[str]:
    """Yield the lines that show a Reservation, without the events of its life.

    Args:
        view: The Reservation.
        uses: Pods that use it, in any order.
        claims: Pending pods that do not use it, in any order. Both are shown by name.
        as_of: Text that names a past moment; empty for the present.
    """
    where = f" on {view.node}" if view.node else ""
    yield f"Reservation {view.name}{as_of}: {view.phase}{where}"
    how = "for one owner" if view.allocate_once else "reusable"
    end = f", expires {time_text(view.expires_at)}" if view.expires_at else ""
    yield f"  uid {view.uid}, policy {view.policy}, {how}{end}"
    yield f"  for {'; '.join(view.for_pods) or 'no pod'}"
    yield f"  used / reserved: {used_text(view.taken, view.reserved) or 'nothing'}"
    if view.message:
        yield f"  {view.message}"
    if view.problem:
        yield f"  the object cannot be read: {view.problem}"
    for use in sorted(uses, key=lambda use: use.pod):
        rest = f", {amounts_text(use.from_node)} from the node" if use.from_node else ""
        yield f"  used by {use.pod}: {amounts_text(use.from_reservation) or 'nothing'} from the Reservation{rest}"
    for claim in sorted(claims, key=lambda claim: claim.pod):
        yield f"  not used by {claim.pod}: {claim.rule}{f' ({claim.message})' if claim.message else ''}"
