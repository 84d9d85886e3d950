"""The status of PodMigrationJobs: shown from facts without an API server, and written to one with it."""

from typing import Any, cast

from koord_manager.domain.cluster.view import ManagerView
from koord_manager.domain.documents.merging import merged
from koord_manager.domain.gateway.pending_writes import STATUS, PendingWrites
from koord_manager.domain.gateway.published_status import with_published_status
from koord_manager.domain.gateway.requests import Request
from koord_manager.domain.gateway.status_writes import pending_objects
from koordcore.events.envelope import AggregateRef, Draft, Event
from koordcore.events.migration import (
    MigratedPod,
    MigrationAdvanced,
    MigrationArbitrated,
    MigrationCondition,
    MigrationEnded,
    MigrationHeld,
    MigrationNotice,
    MigrationProgress,
)
from koordcore.events.objects import CustomObjectObserved, custom_ref
from msgspec.structs import replace
from support.histories.recording import stored

Json = dict[str, Any]
JOBS = "podmigrationjobs"
REF = AggregateRef("migration", "u-j")
POD = MigratedPod(namespace="d", name="p", uid="u-p")
JOB: Json = {
    "apiVersion": "scheduling.koordinator.sh/v1alpha1",
    "kind": "PodMigrationJob",
    "metadata": {"name": "j", "uid": "u-j", "annotations": {"own": "kept"}},
    "spec": {"podRef": {"namespace": "d", "name": "p"}},
}
ARBITRATED = MigrationArbitrated(job="j", pod=POD, node="a")
ADVANCED = MigrationAdvanced(
    pod=POD,
    progress=MigrationProgress(
        phase="Running",
        status="ReservationScheduled",
        conditions=[
            MigrationCondition(type="ReservationCreated", is_true=True),
            MigrationCondition(type="ReservationScheduled", reason="Unschedulable", message="0/2 nodes"),
        ],
        reservation="u-j",
    ),
)


def view_of(document: Json, *events: Event) -> ManagerView:
    view = ManagerView()
    view.fold(stored(1, Draft(custom_ref(JOBS, "", "j"), CustomObjectObserved(object=document), 0)))
    for seq, event in enumerate(events, start=2):
        view.fold(stored(seq, Draft(REF, event, 0)))
    return view


def written(document: Json, requests: list[Request]) -> Json:
    """Return the object after merge patches, as an API server applies them."""
    for request in requests:
        document = merged(document, cast("Json", request.body))
    return document


def test_job_is_shown_with_its_facts_and_written_with_the_same() -> None:
    view = view_of(JOB, ARBITRATED, ADVANCED)
    shown = with_published_status(view.state, JOBS, JOB)
    assert shown["metadata"]["annotations"] == {"own": "kept", "descheduler.koordinator.sh/passed-arbitration": "true"}
    assert shown["spec"] == {
        "podRef": {"namespace": "d", "name": "p", "uid": "u-p"},
        "reservationOptions": {"reservationRef": {"name": "u-j"}},
    }
    assert [(each["type"], each["status"]) for each in shown["status"]["conditions"]] == [
        ("ReservationCreated", "True"),
        ("ReservationScheduled", "False"),
    ]
    requests = pending_objects(view, REF)
    assert [request.path.rpartition("/")[2] for request in requests] == ["j", "status"]
    after = written(JOB, requests)
    assert after == shown
    assert pending_objects(view_of(after, ARBITRATED, ADVANCED), REF) == []


def test_fields_that_the_facts_no_longer_have_are_removed() -> None:
    before = written(JOB, pending_objects(view_of(JOB, ARBITRATED, ADVANCED), REF))
    end = MigrationEnded(job="j", pod=POD, progress=MigrationProgress(phase="Failed", reason="Timeout"))
    after = written(before, pending_objects(view_of(before, ARBITRATED, ADVANCED, end), REF))
    assert after["status"] == {"phase": "Failed", "reason": "Timeout"}


def test_users_abort_is_not_overwritten_before_the_descheduler_has_seen_it() -> None:
    aborted = {**JOB, "status": {"phase": "Aborted"}}
    assert pending_objects(view_of(aborted, ARBITRATED, ADVANCED), REF) == []


def test_job_that_was_created_again_under_the_name_is_left_alone() -> None:
    other: Json = {**JOB, "metadata": {"name": "j", "uid": "u-other"}}
    view = view_of(other, ARBITRATED, ADVANCED)
    assert pending_objects(view, REF) == []
    assert with_published_status(view.state, JOBS, other) == other


def test_steps_become_kubernetes_events_about_the_job() -> None:
    end = MigrationEnded(job="j", pod=POD, progress=MigrationProgress(phase="Failed", reason="Timeout", message="late"))
    told = MigrationNotice(reason="Timeout", message="late", is_warning=True)
    unscheduled = MigrationNotice(reason="Unschedulable", message="0/2 nodes", is_warning=True)
    held = MigrationHeld(job="j", pod=POD, limits=["max_migrating_per_node"])
    full = replace(held, limits=["TooManyEvictions"])
    advanced = replace(ADVANCED, notices=[unscheduled])
    pending = PendingWrites()
    facts = [ARBITRATED, held, full, advanced, end, replace(end, notices=[told])]
    pending.note(view_of(JOB, ARBITRATED, ADVANCED), [(REF, each) for each in facts])
    assert [(each.involved.name, each.type, each.reason, each.message) for each in pending.events] == [
        ("j", "Warning", "Evicting", 'Failed evict Pod "d/p" caused by TooManyEvictions'),
        ("j", "Warning", "Unschedulable", "0/2 nodes"),
        ("j", "Warning", "Timeout", "late"),
        ("j", "Warning", "Timeout", "late"),
    ]
    assert {each.action for each in pending.events} == {"Migrating"}
    assert pending.queue.take(STATUS) == [f"migration/{REF.id}"]
