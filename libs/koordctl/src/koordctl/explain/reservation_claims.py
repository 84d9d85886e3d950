"""The reason why a pending pod did not get a Reservation: the first rule that forbids it. Pure.

The rules are the scheduler's own: `koord_scheduler.domain.plugins.reservation`.
"""

from collections.abc import Mapping
from typing import Any, Final

from koord_scheduler.domain.plugins.reservation.matching import Match, match, terms_of, untolerated, wish_of
from koordcore.protocol.objects import pod_from_json
from koordcore.protocol.pod_resources import pod_requests
from koordcore.protocol.reservation_status import AVAILABLE
from koordcore.protocol.reservations import reservation_from_json
from koordcore.stories.reservations import ReservationView
from koordcore.values import codec
from koordcore.values.invalid import InvalidInput

from koordctl.explain.reservation_lines import Claim

_RULES: Final[Mapping[Match, str]] = {
    Match.IGNORED: "the pod ignores Reservations (label reservation-ignored)",
    Match.OWNER_UNMATCHED: "the owners of the Reservation do not include the pod",
    Match.NAME_UNMATCHED: "the pod names another Reservation in its affinity",
    Match.UNSCHEDULABLE: "the Reservation takes no new owners (unschedulable, or being deleted)",
    Match.AFFINITY_UNMATCHED: "labels of the Reservation or its node do not match the pod's affinity",
    Match.NOT_EXACT_MATCHED: "the pod demands exact amounts (exact-match-reservation), and they differ",
}


def claim_of(
    pod: Mapping[str, Any], message: str, document: Mapping[str, Any], view: ReservationView, node: Mapping[str, str]
) -> Claim | None:
    """Return the reason why a pending pod did not get a Reservation.

    Return None if the pod neither matches an owner rule of the Reservation nor names it.

    Args:
        pod: Object of the pod.
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
