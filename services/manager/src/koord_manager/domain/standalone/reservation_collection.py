"""Delete Reservations that ended long ago, in a cluster without an API server.

The scheduler decides which Reservations are collected.

Source:
    scheduler-fine-grained spec, 3.3
"""

from koordcore.events.envelope import Draft
from koordcore.events.objects import CustomObjectDeleted, custom_ref
from koordcore.protocol.reservations import PLURAL
from koordcore.state.aggregates import CustomObjectState, ReservationState

from koord_manager.domain.cluster.view import ManagerView


def collection_drafts(view: ManagerView, uid: str) -> list[Draft]:
    """Return the fact that deletes the object of a Reservation that the scheduler has marked as collected.

    Empty if it is not marked, if its object is gone, or if the object with its name has another uid because it was
    created again.

    Args:
        view: The folded state of the cluster.
        uid: Uid of the Reservation.
    """
    state = view.state.of_kind(ReservationState).get(uid)
    if state is None or not state.is_collected:
        return []
    ref = custom_ref(PLURAL, "", state.name)
    stored = view.state.of_kind(CustomObjectState).get(ref.id)
    if stored is None or stored.object["metadata"].get("uid", "") != uid:
        return []
    return [Draft(ref, CustomObjectDeleted(kind="Reservation", name=state.name), stored.seq)]
