"""Reservations with the pods that use them, from the projector or from a replayed state."""

from typing import Any, NamedTuple

from koordcore.events.objects import plural_of
from koordcore.protocol.reservations import PLURAL
from koordcore.state.aggregates import CustomObjectState
from koordcore.state.cluster import ClusterState
from koordcore.state.reservations import reservation_of_log
from koordcore.stories.reservations import ReservationView, reservation_view
from koordcore.values import codec

from koordctl.access.clients import projector
from koordctl.access.past import ask_as_of, moment_text

PAGE = 500


class Reservations(NamedTuple):
    """Reservations at one moment.

    Attributes:
        views: The Reservations, by name.
        at: RFC 3339 time of the newest event at that moment.
        position: Position of that moment.
    """

    views: list[ReservationView]
    at: str
    position: int


def reservations_of(name: str | None, as_of: str | None) -> Reservations:
    """Return Reservations, ordered by name.

    If the projector does not accept the moment, end the command.

    Args:
        name: Only this Reservation; None for all.
        as_of: Position of the log, or RFC 3339 time; None for the present.
    """
    found: list[ReservationView] = []
    after: str | None = ""
    at, occurred_at, position = "" if as_of is None else moment_text(as_of), "", 0
    while after is not None:
        asked: dict[str, object] = {"after": after, "limit": PAGE, "name": name or ""}
        page: dict[str, Any]
        page = ask_as_of("/api/reservations", at, **asked) if at else projector.get("/api/reservations", asked)
        # A time is resolved once: every page shows the same position.
        occurred_at, position = str(page["moment"]["occurred_at"]), int(page["moment"]["position"])
        at = str(position) if at else ""
        found += codec.convert(page["reservations"], list[ReservationView])
        after = page["after"]
    return Reservations(found, occurred_at, position)


def reservations_in(state: ClusterState) -> list[ReservationView]:
    """Return the Reservations of a folded state, ordered by name."""
    objects = [stored.object for id_, stored in state.of_kind(CustomObjectState).items() if plural_of(id_) == PLURAL]
    views = [
        reservation_view(document, reservation_of_log(state, str(document["metadata"].get("uid", ""))))
        for document in objects
    ]
    return sorted(views, key=lambda view: view.name)
