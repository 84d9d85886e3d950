"""Without an API server the manager deletes ScheduleExplanations whose time is over."""

from typing import Any

from koord_manager.domain.cluster.view import ManagerView
from koord_manager.domain.controllers.standalone.ended_objects import expiry_drafts
from koordcore.events.envelope import AggregateRef, Draft, Event
from koordcore.events.objects import CustomObjectDeleted, CustomObjectObserved, custom_ref
from koordcore.events.schedule_explanation import ScheduleExplanationComputed
from support.histories.recording import stored

OBJECT = custom_ref("scheduleexplanations", "default", "why")
ID = "default=why"
STATUS = AggregateRef("scheduleexplanation", ID)


def view_of(uid: str, *said: ScheduleExplanationComputed) -> ManagerView:
    metadata: dict[str, Any] = {"namespace": "default", "name": "why", "uid": uid}
    facts: list[tuple[AggregateRef, Event]] = [(OBJECT, CustomObjectObserved(object={"metadata": metadata}))]
    view = ManagerView()
    for seq, (ref, event) in enumerate([*facts, *((STATUS, each) for each in said)], start=1):
        view.fold(stored(seq, Draft(ref, event, view.state.last_seq(ref))))
    return view


def status(*, expired: bool) -> ScheduleExplanationComputed:
    return ScheduleExplanationComputed(
        namespace="default", name="why", uid="u1", last_update_time="2026-01-01T00:00:00.000000Z", expired=expired
    )


def test_an_expired_object_is_deleted() -> None:
    [draft] = expiry_drafts(view_of("u1", status(expired=False), status(expired=True)), ID)
    assert (draft.ref, draft.expected_last) == (OBJECT, 1)
    assert draft.event == CustomObjectDeleted(kind="ScheduleExplanation", namespace="default", name="why")


def test_others_stay() -> None:
    assert expiry_drafts(view_of("u1"), ID) == []
    assert expiry_drafts(view_of("u1", status(expired=False)), ID) == []
    assert expiry_drafts(view_of("u2", status(expired=True)), ID) == []
