"""Lines about Reservations for a terminal: amounts, pods that use them, and pending pods that may not. Pure.

`claims` finds these pending pods and the reasons.
"""

from collections.abc import Iterator, Sequence

import msgspec
from koordcore.stories.reservations import ReservationView

from koordctl.objects.reservations import used_text
from koordctl.render.units import amounts_text, time_text


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """A pending pod that may want a Reservation, and the first rule that forbids it."""

    pod: str
    rule: str  # Reason why it did not get the Reservation
    message: str = ""  # Message of its last attempt; empty without one


class UsedAmounts(msgspec.Struct, frozen=True, kw_only=True):
    """A pod that uses a Reservation, with the parts of its requests that come from the Reservation and from the node.

    Amounts are resource -> milli-cores for cpu, and whole units for other resources.
    """

    pod: str
    from_reservation: dict[str, int]
    from_node: dict[str, int]


def reservation_lines(
    view: ReservationView, uses: Sequence[UsedAmounts], claims: Sequence[Claim], as_of: str = ""
) -> Iterator[str]:
    """Without the events of its life. Uses and claims are shown by name.

    Args:
        uses: Pods that use it, in any order.
        claims: Pending pods that do not use it, in any order.
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
