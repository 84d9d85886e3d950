"""Kubernetes events that users see when a write waits, and those that a new leader derives again."""

import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from types import FrameType

import structlog
from koord_manager.domain.cluster.view import ManagerView
from koord_manager.domain.gateway.eviction import Evicted, Waits
from koord_manager.domain.gateway.pending_writes import EVICTION, STATUS, PendingWrites
from koord_manager.shell.gateway.listwatch import OutageLog
from koordcore.events.drain import (
    DrainAborted,
    DrainGroupChanged,
    DrainGroupStarted,
    DrainPodsChanged,
    DrainStarted,
    DrainWaiting,
)
from koordcore.events.envelope import AggregateRef, BasedOn, Draft, Event, name_token, namespaced_token
from koordcore.events.gateway import PodBound, PodEvicted, PodEvictionRequested
from koordcore.events.objects import (
    ConfigRejected,
    CustomObjectDeleted,
    CustomObjectObserved,
    PodSpecAdded,
    custom_ref,
)
from koordcore.events.pod import PlacementExplanation, PodPlaced
from koordcore.events.quota import QuotaProfileRendered
from koordcore.protocol.objects import ObjectMeta, Pod
from koordcore.state.aggregates import PodState
from msgspec import structs
from structlog.testing import CapturingLogger
from support.histories.recording import stored

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


def test_a_new_leader_tells_again_what_is_wrong_with_a_config_map() -> None:
    ref = AggregateRef("config", namespaced_token("koordinator-system", "slo-controller-config"))
    reasons = {"resource-threshold-config": "is no JSON"}
    bad = ConfigRejected(namespace="koordinator-system", name="slo-controller-config", data={}, reasons=reasons)
    pending = PendingWrites()

    pending.seed(view_of((ref, bad)), datetime.now(UTC))

    told = [(each.reason, each.involved.name, each.message, each.recalled) for each in pending.events]
    assert told == [("SLOCfgUnmarshalFailed", "slo-controller-config", "is no JSON", True)]


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


def calls_of(action: Callable[[], object]) -> int:
    """Number of functions, those of Python's own types included, that an action calls."""
    calls = 0

    def count(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        action()
    finally:
        sys.setprofile(None)
    return calls


def test_the_end_of_an_eviction_costs_the_same_however_many_namespaces_hold_evictions() -> None:
    view, costs = view_of((EVICTED, REQUEST)), list[int]()
    for namespaces in (1, 200):
        pending = PendingWrites()
        for number in range(namespaces):
            pending.hold(f"u-{number}", structs.replace(REQUEST, namespace=f"d-{number}"), "no")
        pending.hold("u", REQUEST, "no")
        costs.append(calls_of(lambda pending=pending: pending.note(view, [(EVICTED, PodEvicted())])))
    assert costs[0] == costs[1]


def test_a_root_quota_leads_to_the_existing_profiles_that_rendered_it_last() -> None:
    profile, quota = custom_ref("elasticquotaprofiles", "d", "p"), custom_ref("elasticquotas", "d", "root")
    other, ref = custom_ref("elasticquotas", "d", "other"), AggregateRef("quotaprofile", "d=p")
    observed = CustomObjectObserved(object={"metadata": {"name": "x", "namespace": "d"}})
    rendered = QuotaProfileRendered(quota_namespace="d", quota_name="root", labels={}, min={}, max={})
    moved = structs.replace(rendered, quota_name="other")
    gone = CustomObjectDeleted(kind="ElasticQuotaProfile", namespace="d", name="p")
    facts: list[tuple[AggregateRef, Event]] = [(profile, observed), (ref, rendered), (ref, moved), (profile, gone)]

    def led_to(pending: PendingWrites, view: ManagerView, changed: AggregateRef) -> bool:
        pending.queue.take(STATUS)
        pending.note(view, [(changed, observed)])
        return "quotaprofile/d=p" in pending.queue.take(STATUS)

    view, pending = ManagerView(), PendingWrites()
    for seq, (fact, of_root, of_other) in enumerate(
        zip(facts, (False, True, False, False), (False, False, True, False), strict=True), start=1
    ):
        view.fold(stored(seq, Draft(*fact, 0)))
        pending.note(view, [fact])
        begun_now = PendingWrites()
        begun_now.seed(view, datetime.now(UTC))
        for each in (pending, begun_now):
            assert (led_to(each, view, quota), led_to(each, view, other)) == (of_root, of_other), fact


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
