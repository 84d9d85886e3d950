"""`koord get reservations`: Reservations with the pods that use them, and their columns."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from koordcore.events.objects import plural_of
from koordcore.protocol.reservations import PLURAL
from koordcore.state.aggregates import CustomObjectState
from koordcore.state.cluster import ClusterState
from koordcore.state.reservations import reservation_of_log
from koordcore.stories.reservations import ReservationView, reservation_view
from koordcore.values import codec

from koordctl.access.past import pages_of
from koordctl.render.units import amount_text, duration_text, seconds_between

COLUMNS: Final = ("name", "phase", "node", "age", "expires in", "used / reserved", "owners", "for")
HELD_COLUMNS: Final = ("reservation", "phase", "node", "used / reserved", "owners")
_SHOWN_OWNERS: Final = 3
PAGE = 500


def reservation_rows(views: Sequence[ReservationView], now: str) -> list[tuple[object, ...]]:
    """One row with `COLUMNS` per Reservation. `now`: RFC 3339 time of the moment that is shown."""
    return [
        (
            view.name,
            view.phase,
            view.node or None,
            duration_text(seconds_between(view.created_at, now)) if view.created_at else None,
            _remaining(view, now),
            used_text(view.taken, view.reserved),
            _owners_text(view),
            "; ".join(view.for_pods),
        )
        for view in views
    ]


def held_rows(views: Sequence[ReservationView]) -> list[tuple[object, ...]]:
    """One row with `HELD_COLUMNS` for each Reservation of a replayed state."""
    return [
        (view.name, view.phase, view.node or None, used_text(view.taken, view.reserved), _owners_text(view))
        for view in views
    ]


def used_text(taken: Mapping[str, int], reserved: Mapping[str, int]) -> str | None:
    """Taken and reserved amounts, such as "cpu 1.5/4, memory 0/4.0Gi"; None if nothing is reserved."""
    parts = [
        f"{name} {amount_text(name, taken.get(name, 0))}/{amount_text(name, amount)}"
        for name, amount in sorted(reserved.items())
    ]
    return ", ".join(parts) or None


def _remaining(view: ReservationView, now: str) -> str | None:
    if not view.expires_at:
        return None
    return duration_text(seconds_between(now, view.expires_at))


def _owners_text(view: ReservationView) -> str | None:
    names = [f"{owner.namespace}/{owner.name}" for owner in view.owners]
    more = f" and {len(names) - _SHOWN_OWNERS} more" if len(names) > _SHOWN_OWNERS else ""
    return ", ".join(names[:_SHOWN_OWNERS]) + more or None


class Reservations(NamedTuple):
    views: list[ReservationView]  # The Reservations, by name
    at: str  # RFC 3339 time of the newest event at that moment
    position: int  # Position of that moment


def reservations_of(name: str | None, as_of: str | None) -> Reservations:
    """Return Reservations, ordered by name. If the projector does not accept the moment, end the command.

    Args:
        name: Only this Reservation; None for all.
        as_of: Position of the log, or RFC 3339 time; None for the present.
    """
    found: list[ReservationView] = []
    occurred_at, position = "", 0
    for page in pages_of("/api/reservations", as_of, limit=PAGE, name=name or ""):
        occurred_at, position = str(page["moment"]["occurred_at"]), int(page["moment"]["position"])
        found += codec.convert(page["reservations"], list[ReservationView])
    return Reservations(found, occurred_at, position)


def reservations_in(state: ClusterState) -> list[ReservationView]:
    """Those of a folded state, ordered by name."""
    objects = [stored.object for id_, stored in state.of_kind(CustomObjectState).items() if plural_of(id_) == PLURAL]
    views = [
        reservation_view(document, reservation_of_log(state, str(document["metadata"].get("uid", ""))))
        for document in objects
    ]
    return sorted(views, key=lambda view: view.name)
