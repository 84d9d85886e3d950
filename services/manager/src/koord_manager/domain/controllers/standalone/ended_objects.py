"""Delete expired ScheduleExplanations and collected Reservations in a cluster without an API server.

The scheduler decides which Reservations are collected.

Source:
    scheduler-core spec, 13.3; scheduler-fine-grained spec, 3.3
"""

from typing import Final

from koordcore.events.envelope import AggregateRef, Draft, namespaced_from_token
from koordcore.events.objects import CustomObjectDeleted, custom_ref
from koordcore.protocol.reservations import PLURAL as RESERVATIONS
from koordcore.state.aggregates import CustomObjectState, ReservationState, ScheduleExplanationState

from koord_manager.domain.cluster.view import ManagerView

EXPLANATIONS: Final = "scheduleexplanations"


def expiry_drafts(view: ManagerView, id_: str) -> list[Draft]:
    """Return the fact that deletes an expired ScheduleExplanation (`<namespace>=<name>`); empty if it is not expired.

    A ScheduleExplanation that was created again with the name of an expired one stays.
    """
    stored = view.state.of_kind(CustomObjectState).get(f"{EXPLANATIONS}={id_}")
    state = view.state.of_kind(ScheduleExplanationState).get(id_)
    if stored is None or state is None or not state.status.expired:
        return []
    if stored.object["metadata"].get("uid", "") != state.status.uid:
        return []
    namespace, name = namespaced_from_token(id_)
    deleted = CustomObjectDeleted(kind="ScheduleExplanation", namespace=namespace, name=name)
    return [Draft(AggregateRef("customspec", f"{EXPLANATIONS}={id_}"), deleted, stored.seq)]


def collection_drafts(view: ManagerView, uid: str) -> list[Draft]:
    """Return the fact that deletes the object of a Reservation that the scheduler has marked as collected.

    Empty as well if its object is gone, or has another uid because it was created again.
    """
    state = view.state.of_kind(ReservationState).get(uid)
    if state is None or not state.is_collected:
        return []
    ref = custom_ref(RESERVATIONS, "", state.name)
    stored = view.state.of_kind(CustomObjectState).get(ref.id)
    if stored is None or stored.object["metadata"].get("uid", "") != uid:
        return []
    return [Draft(ref, CustomObjectDeleted(kind="Reservation", name=state.name), stored.seq)]
