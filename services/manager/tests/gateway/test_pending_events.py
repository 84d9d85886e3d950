"""Kubernetes events that users see when a write waits, and those that a new leader derives again."""

from datetime import UTC, datetime, timedelta

import structlog
from koord_manager.domain.cluster.view import ManagerView
from koord_manager.domain.gateway.eviction import Evicted, Waits
from koord_manager.domain.gateway.pending_writes import EVICTION, PendingWrites
from koord_manager.shell.gateway.outages import OutageLog
from koordcore.events.descheduling.drain import (
    DrainAborted,
    DrainGroupChanged,
    DrainGroupStarted,
    DrainPodsChanged,
    DrainStarted,
    DrainWaiting,
)
from koordcore.events.envelope import AggregateRef, BasedOn, Draft, Event, name_token
from koordcore.events.objects.custom import CustomObjectObserved, custom_ref
from koordcore.events.objects.gateway import PodBound, PodEvicted, PodEvictionRequested
from koordcore.events.objects.mirror import PodSpecAdded
from koordcore.events.scheduling.placement_explanation import PlacementExplanation
from koordcore.events.scheduling.pod import PodPlaced
from koordcore.protocol.objects import ObjectMeta, Pod
from koordcore.state.aggregates import PodState
from msgspec import structs
from structlog.testing import CapturingLogger
from support.histories import stored

EVICTED = AggregateRef("eviction", "u")
REQUEST = PodEvictionRequested(namespace="d", name="web", initiator="descheduler", reason="LowNodeLoad")
BUDGET = custom_ref("poddisruptionbudgets", "d", "web")


def view_of(*facts: tuple[AggregateRef, Event]) -> ManagerView:
    view = ManagerView()
    for seq, (ref, event) in enumerate(facts, start=1):
        view.fold(stored(seq, Draft(ref, event, 0)))
    return view


def bound_pod() -> ManagerView:
    spec, pod = AggregateRef("podspec", "u"), AggregateRef("pod", "u")
    why = PlacementExplanation(nodes_considered=1, nodes_feasible=1, policy_version="t", based_on=BasedOn())
    placed = PodPlaced(namespace="d", name="web", node="n", requests={}, attempt=1, queued_at="", explanation=why)
    return view_of(
        (spec, PodSpecAdded(object=Pod(metadata=ObjectMeta(name="web", namespace="d", uid="u")))),
        (pod, placed),
        (spec, PodBound(node="n", placement=2)),
    )


def test_a_new_leader_derives_the_events_of_recent_bindings_again() -> None:
    view, pending = bound_pod(), PendingWrites()
    placed_at = datetime.fromisoformat(view.state.of_kind(PodState)["u"].placed_at)

    pending.seed(view, placed_at + timedelta(seconds=90))
    assert [(each.reason, each.involved.name, each.recalled) for each in pending.events] == [("Scheduled", "web", True)]
    pending.seed(view, placed_at + timedelta(minutes=5))
    assert list(pending.events) == []


def test_an_eviction_that_a_budget_refuses_is_told_once_and_retried_when_a_budget_changes() -> None:
    view, pending = view_of((EVICTED, REQUEST)), PendingWrites()
    pending.note(view, [(EVICTED, REQUEST)])
    assert pending.queue.take(EVICTION) == ["u"]
    pending.events.clear()

    pending.hold("u", REQUEST, "the budget web allows no disruption")
    pending.hold("u", REQUEST, "the budget web allows no disruption")
    changed = CustomObjectObserved(object={"metadata": {"name": "web", "namespace": "d"}})
    pending.note(view, [(BUDGET, changed)])

    assert [(each.reason, each.message) for each in pending.events] == [
        ("EvictionBlocked", "the budget web allows no disruption")
    ]
    assert pending.queue.take(EVICTION) == ["u"]
    pending.note(view, [(EVICTED, PodEvicted()), (BUDGET, changed)])
    assert pending.queue.take(EVICTION) == []


def test_an_outage_is_logged_once_per_cause_and_step() -> None:
    lines, now = CapturingLogger(), 0.0
    outages = OutageLog(structlog.wrap_logger(lines, processors=[]), lambda: now)
    for second in range(8):
        now = float(second)
        for resource in ("pods", "nodes", "services"):
            outages.note("unreachable", resource, "refused")
    outages.note("refused", "pods", "403")

    logged = [(call.args, call.kwargs) for call in lines.calls]
    assert len(logged) == 5, "at 0, 1, 3 and 7 seconds, and the other cause"


def test_a_pod_that_the_descheduler_evicts_says_from_where_and_why_whatever_the_method() -> None:
    by_job = structs.replace(REQUEST, node="n", method="delete", reason="Descheduled", message="hot", job="j")
    direct = structs.replace(by_job, method="evict", job="")
    pending = PendingWrites()
    for request in (by_job, direct):
        pending.note(view_of((EVICTED, request)), [(EVICTED, request)])
        assert not pending.events, "the pod is not evicted yet"
    for request in (by_job, direct):
        pending.answered("u", request, Evicted(gone=True))
        pending.answered("u", request, Evicted())
        pending.answered("u", request, Waits("TooManyRequests", "no"))
    assert [(each.involved.kind, each.reason, each.type, each.action, each.message) for each in pending.events] == [
        ("Pod", "Descheduled", "Normal", "Migrating", 'Pod evicted from node "n" by the reason "hot"'),
        ("PodMigrationJob", "Evicting", "Warning", "Migrating", 'Failed evict Pod "d/web" caused by no'),
        ("Pod", "Descheduled", "Normal", "Evicting", "pod evicted by hot"),
    ]
    assert {each.component for each in pending.events} == {"koord-descheduler"}


def test_phases_and_bad_conditions_of_drains_become_events_once() -> None:
    drain, group = AggregateRef("drain", name_token("d-1")), AggregateRef("draingroup", name_token("g-1"))
    facts: list[tuple[AggregateRef, Event]] = [
        (drain, DrainWaiting(object_uid="u-d", node="n", message="the drain d-0 works on the node")),
        (drain, DrainStarted(object_uid="u-d", node="n", conditions=["UnmigratablePodExists"])),
        (drain, DrainPodsChanged(conditions=["OnceAvailable", "UnmigratablePodExists"])),
        (drain, DrainPodsChanged(conditions=["OnceAvailable"])),
        (drain, DrainPodsChanged(conditions=["OnceAvailable", "UnmigratablePodExists"])),
        (group, DrainGroupStarted(object_uid="u-g", nodes=["n"])),
        (group, DrainGroupChanged(object_uid="u-g", phase="Planning", running=1)),
        (group, DrainGroupChanged(object_uid="u-g", phase="Failed", message="no drain succeeded")),
        (drain, DrainAborted(reason="the time is over")),
    ]
    view, pending = ManagerView(), PendingWrites()
    pending.seed(view, datetime.now(UTC))
    for seq, (ref, event) in enumerate(facts, start=1):
        view.fold(stored(seq, Draft(ref, event, 0)))
        pending.note(view, [(ref, event)])
    became = "the condition UnmigratablePodExists became true"
    drained, grouped = ("DrainNode", "d-1", "u-d"), ("DrainNodeGroup", "g-1", "u-g")
    said = [((each.involved.kind, each.involved.name, each.involved.uid), *each[1:4]) for each in pending.events]
    assert said == [
        (drained, "Pending", "the drain d-0 works on the node", "Normal"),
        (drained, "UnmigratablePodExists", became, "Warning"),
        (drained, "Running", "the phase is Running", "Normal"),
        (drained, "UnmigratablePodExists", became, "Warning"),
        (grouped, "Planning", "the phase is Planning", "Normal"),
        (grouped, "Failed", "no drain succeeded", "Normal"),
        (drained, "Aborted", "the time is over", "Normal"),
    ]
    pending.seed(view, datetime.now(UTC))
    pending.note(view, [facts[-1]])
    assert not pending.events, "an earlier leader has said it"
