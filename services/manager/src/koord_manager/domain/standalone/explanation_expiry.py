"""ScheduleExplanations whose time is over, where no API server has the objects. source    scheduler-core spec, 13.3"""

from typing import Final

from koordcore.events.envelope import AggregateRef, Draft, namespaced_from_token
from koordcore.events.objects.custom import CustomObjectDeleted
from koordcore.state.aggregates import ScheduleExplanationState

from koord_manager.domain.cluster.view import ManagerView

PLURAL: Final = "scheduleexplanations"


def expiry_drafts(view: ManagerView) -> list[Draft]:
    """The deletions that are due; another object of an expired one's name stays."""
    drafts: list[Draft] = []
    statuses = view.state.of_kind(ScheduleExplanationState)
    for id_, stored in view.customs(PLURAL):
        state = statuses.get(id_)
        uid = stored.object["metadata"].get("uid", "") if stored.object is not None else ""
        if state is not None and state.status.expired and state.status.uid == uid:
            namespace, name = namespaced_from_token(id_)
            deleted = CustomObjectDeleted(kind="ScheduleExplanation", namespace=namespace, name=name)
            drafts.append(Draft(AggregateRef("customspec", f"{PLURAL}={id_}"), deleted, stored.seq))
    return drafts
