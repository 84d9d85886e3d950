"""Pending pods that may want a Reservation, and why each did not get it: the first rule that forbids it.

The rules are the scheduler's own: `koord_scheduler.domain.reservation`.
"""

from collections.abc import Mapping
from typing import Any, Final

from koord_scheduler.domain.plugins.reservation.matching import Match, match, terms_of, untolerated, wish_of
from koordcore.events.envelope import name_token
from koordcore.events.objects import custom_ref
from koordcore.protocol.objects import pod_from_json
from koordcore.protocol.pod_resources import pod_requests
from koordcore.protocol.reservation_status import AVAILABLE
from koordcore.protocol.reservations import PLURAL, reservation_from_json
from koordcore.stories.reservations import ReservationView
from koordcore.values import codec
from koordcore.values.invalid import InvalidInput

from koordctl.access.clients import projector
from koordctl.access.past import ask_as_of, moment_text
from koordctl.render.output import field
from koordctl.reservation.lines import Claim

_RULES: Final[Mapping[Match, str]] = {
    Match.IGNORED: "the pod ignores Reservations (label reservation-ignored)",
    Match.OWNER_UNMATCHED: "the owners of the Reservation do not include the pod",
    Match.NAME_UNMATCHED: "the pod names another Reservation in its affinity",
    Match.UNSCHEDULABLE: "the Reservation takes no new owners (unschedulable, or being deleted)",
    Match.AFFINITY_UNMATCHED: "labels of the Reservation or its node do not match the pod's affinity",
    Match.NOT_EXACT_MATCHED: "the pod demands exact amounts (exact-match-reservation), and they differ",
}
_EXAMINED: Final = 200
"""Largest number of pending pods, newest first, that are examined."""


def claim_of(
    pod: Mapping[str, Any], message: str, document: Mapping[str, Any], view: ReservationView, node: Mapping[str, str]
) -> Claim | None:
    """Return why a pending pod did not get a Reservation; None if it neither matches an owner rule nor names it.

    Args:
        pod: Its object.
        message: Message of its last attempt.
        document: Object of the Reservation.
        view: The Reservation at the same moment.
        node: Labels of its node.
    """
    typed = pod_from_json(pod)
    name = f"{typed.metadata.namespace}/{typed.metadata.name}"
    try:
        wish, terms = wish_of(typed), terms_of(reservation_from_json(document))
    except (InvalidInput, codec.DecodeError) as error:
        return Claim(pod=name, rule=str(error), message=message)
    is_owner = terms.owners is not None and terms.owners.match(typed)
    is_named = wish.affinity is not None and wish.affinity.name == view.name
    if not is_owner and not is_named:
        return None
    found = match(
        wish,
        terms,
        is_owner=is_owner,
        requests=pod_requests(typed),
        allocatable=view.reserved,
        node_labels=node,
    )
    if found is Match.TAINT_UNTOLERATED:
        taint = untolerated(wish, terms)
        text = "" if taint is None else f" {taint.key}={taint.value}:{taint.effect}"
        return Claim(pod=name, rule=f"the pod does not tolerate the taint{text}", message=message)
    if found is not Match.MATCHED:
        return Claim(pod=name, rule=_RULES.get(found, found.value), message=message)
    if view.phase != AVAILABLE:
        return Claim(pod=name, rule=f"the Reservation is {view.phase}", message=message)
    if terms.is_once and view.owners:
        return Claim(pod=name, rule="allocateOnce: another pod has taken the Reservation", message=message)
    return Claim(pod=name, rule="it matches, but the pod does not fit", message=message)


def pending_claims(view: ReservationView, as_of: str | None) -> list[Claim]:
    """Return the pending pods that match an owner rule of the Reservation, or request it by name.

    Args:
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
    """The state of an aggregate at the moment `at` as JSON; empty if it did not exist then."""
    return _ask(f"/api/objects/{kind}/{id_}", at)["state"] or {}


def _ask(path: str, at: str, **params: object) -> dict[str, Any]:
    answer: dict[str, Any] = ask_as_of(path, at, **params) if at else projector.get(path, params)
    return answer
