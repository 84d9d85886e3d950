"""Pending pods that may want a Reservation, from the projector."""

from typing import Any, Final

from koordcore.events.envelope import name_token
from koordcore.events.objects import custom_ref
from koordcore.protocol.reservations import PLURAL
from koordcore.stories.reservations import ReservationView

from koordctl.access.clients import projector
from koordctl.access.past import ask_as_of, moment_text
from koordctl.explain.reservation_claims import claim_of
from koordctl.explain.reservation_lines import Claim
from koordctl.render.output import field

_EXAMINED: Final = 200
"""Largest number of pending pods, newest first, that are examined."""


def pending_claims(view: ReservationView, as_of: str | None) -> list[Claim]:
    """Return the pending pods that a Reservation may be for, each with the reason why it does not use the Reservation.

    They are the pods that match an owner rule of the Reservation, and the pods that request it by name.

    Args:
        view: The Reservation.
        as_of: Position of the log, or RFC 3339 time; None for the present.
    """
    at = "" if as_of is None else moment_text(as_of)
    document = _state("customspec", custom_ref(PLURAL, "", view.name).id, at).get("object")
    if document is None:
        return []
    spec = _state("nodespec", name_token(view.node), at) if view.node else {}
    labels: dict[str, str] = field(spec, "object.metadata.labels", {})
    found: list[Claim] = []
    for pod in _ask("/api/pods", at, phase="pending", limit=_EXAMINED)["pods"]:
        written = _state("podspec", pod["uid"], at).get("object")
        claim = claim_of(written, pod["message"], document, view, labels) if written is not None else None
        if claim is not None:
            found.append(claim)
    return found


def _state(kind: str, id_: str, at: str) -> dict[str, Any]:
    """Return the state of an aggregate at the moment `at` as JSON; empty if it did not exist then."""
    return _ask(f"/api/objects/{kind}/{id_}", at)["state"] or {}


def _ask(path: str, at: str, **params: object) -> dict[str, Any]:
    answer: dict[str, Any] = ask_as_of(path, at, **params) if at else projector.get(path, params)
    return answer
