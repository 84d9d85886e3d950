"""The columns of `koord get reservations`. Pure."""

from collections.abc import Mapping, Sequence
from typing import Final

from koordcore.stories.reservations import ReservationView

from koordctl.render.units import amount_text, duration_text, seconds_between

COLUMNS: Final = ("name", "phase", "node", "age", "expires in", "used / reserved", "owners", "for")
HELD_COLUMNS: Final = ("reservation", "phase", "node", "used / reserved", "owners")
_SHOWN_OWNERS: Final = 3


def reservation_rows(views: Sequence[ReservationView], now: str) -> list[tuple[object, ...]]:
    """Return one row for each Reservation.

    Args:
        views: The Reservations.
        now: RFC 3339 time of the moment that is shown.
    """
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
    """Return one row for each Reservation of a replayed state, with `HELD_COLUMNS`."""
    return [
        (view.name, view.phase, view.node or None, used_text(view.taken, view.reserved), _owners_text(view))
        for view in views
    ]


def used_text(taken: Mapping[str, int], reserved: Mapping[str, int]) -> str | None:
    """Return taken and reserved amounts as text, such as "cpu 1.5/4, memory 0/4.0Gi"; None if nothing is reserved."""
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
