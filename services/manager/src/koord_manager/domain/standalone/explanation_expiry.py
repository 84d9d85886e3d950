"""Delete expired ScheduleExplanations in a cluster without an API server.

Source:
    scheduler-core spec, 13.3
"""

from typing import Final

from koordcore.events.envelope import AggregateRef, Draft, namespaced_from_token
from koordcore.events.objects import CustomObjectDeleted
from koordcore.state.aggregates import CustomObjectState, ScheduleExplanationState

from koord_manager.domain.cluster.view import ManagerView

PLURAL: Final = "scheduleexplanations"


def expiry_drafts(view: ManagerView, id_: str) -> list[Draft]:
    """Return the fact that deletes an expired ScheduleExplanation, or an empty list if it is not expired.

    A ScheduleExplanation that was created again with the name of an expired one stays.

    Args:
        view: The folded state of the cluster.
        id_: Id of its aggregate, `<namespace>=<name>`.
    """
    stored = view.state.of_kind(CustomObjectState).get(f"{PLURAL}={id_}")
    state = view.state.of_kind(ScheduleExplanationState).get(id_)
    if stored is None or state is None or not state.status.expired:
        return []
    if stored.object["metadata"].get("uid", "") != state.status.uid:
        return []
    namespace, name = namespaced_from_token(id_)
    deleted = CustomObjectDeleted(kind="ScheduleExplanation", namespace=namespace, name=name)
    return [Draft(AggregateRef("customspec", f"{PLURAL}={id_}"), deleted, stored.seq)]
