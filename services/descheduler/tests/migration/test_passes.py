"""What a pass over the jobs decides, without the service that carries it out."""

from datetime import UTC, datetime
from typing import Any

import pytest
from koord_descheduler.domain.config.document import API_VERSION, KIND, DeschedulerConfiguration
from koord_descheduler.domain.config.loading import load
from koord_descheduler.domain.framework.registry import SharedState
from koord_descheduler.domain.jobs import passes
from koord_descheduler.domain.jobs.controller import JobController, job_controller
from koord_descheduler.domain.jobs.effects import FIRST_SECONDS, judged
from koord_descheduler.domain.jobs.job import PASSED, Phase
from koord_descheduler.domain.jobs.passes import Agenda, Looks
from koord_descheduler.domain.jobs.viewing import all_jobs, counted_evictions, reservation_of_job
from koord_descheduler.domain.jobs.world import RETRY_SECONDS
from koord_descheduler.domain.plugins.registry import BUILT_IN
from koord_descheduler.domain.view.building import ViewBuilder
from koord_descheduler.domain.view.pods import PodView
from koordcore.events.envelope import AggregateRef, Event
from koordcore.events.envelope import Draft as Written
from koordcore.events.gateway import PodEvicted, PodEvictionFailed, PodEvictionRequested, PodEvictionWithdrawn
from koordcore.events.migration import (
    SOFT_EVICTION_REFUSED,
    TOO_MANY_EVICTIONS,
    MigratedPod,
    MigrationAdvanced,
    MigrationArbitrated,
    MigrationEnded,
    MigrationForgotten,
    MigrationHeld,
    MigrationProgress,
)
from koordcore.events.objects import (
    CustomObjectDeleted,
    CustomObjectObserved,
    NodeSpecAdded,
    PodSpecAdded,
    PodSpecDeleted,
    custom_ref,
)
from koordcore.protocol import keys
from koordcore.protocol.objects import node_from_json, pod_from_json
from koordcore.requests.objects import ChangeOutcome, ChangeResult, CreateObject, PatchObject
from koordcore.state.aggregates import EvictionState
from koordcore.state.migrations import MigrationState
from koordcore.values import codec
from koordcore.values.timestamps import rfc3339, unix_seconds
from support.histories.recording import stored

CREATED = "2026-05-04T10:00:00Z"
NOW = unix_seconds(CREATED) + 10
REPLICAS = 20
FAILED = MigrationProgress(phase="Failed")
DONE, REFUSED = (ChangeOutcome(result=each, message="no") for each in (ChangeResult.DONE, ChangeResult.REFUSED))


def configuration(**arguments: Any) -> DeschedulerConfiguration:
    args: dict[str, Any] = {
        "defaultJobMode": "EvictDirectly",
        "maxMigratingPerNode": 0,
        "objectLimiters": {},
        **arguments,
    }
    profile: dict[str, Any] = {"name": "p", "pluginConfig": [{"name": "MigrationController", "args": args | arguments}]}
    return load(codec.encode({"apiVersion": API_VERSION, "kind": KIND, "profiles": [profile]}), BUILT_IN)


class Cluster:
    """Pods of one workload on node "a", in the fold of a descheduler."""

    def __init__(self, **arguments: Any) -> None:
        self.builder = ViewBuilder()
        self.agenda = Agenda()
        self.controller: JobController = job_controller(configuration(**arguments), BUILT_IN, SharedState(), "me")
        for name in "ab":
            node = {"metadata": {"name": name}, "status": {"allocatable": {"cpu": "64"}}}
            self.tell(AggregateRef("nodespec", name), NodeSpecAdded(object=node_from_json(node)))
        owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "r", "controller": True}
        self.scale(REPLICAS)
        self._owner = owner
        for number in range(REPLICAS):
            self.pod(number)

    def pod(self, number: int, **metadata: Any) -> None:
        names = {"namespace": "d", "name": f"p{number}", "uid": f"u{number}", "ownerReferences": [self._owner]}
        status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        spec = {"nodeName": "a", "schedulerName": "koord-scheduler"}
        pod = pod_from_json({"metadata": {**names, **metadata}, "spec": spec, "status": status})
        self.tell(AggregateRef("podspec", f"u{number}"), PodSpecAdded(object=pod))

    def tell(self, ref: AggregateRef, event: Event) -> None:
        self.builder.apply(stored(self.builder.state.position + 1, Written(ref, event, 0)))

    def custom(self, plural: str, namespace: str, document: dict[str, Any]) -> None:
        ref = custom_ref(plural, namespace, document["metadata"]["name"])
        self.tell(ref, CustomObjectObserved(object=document))

    def job(
        self,
        name: str,
        pod: int,
        *,
        passed: bool = True,
        status: dict[str, Any] | None = None,
        created: float = unix_seconds(CREATED),
        **spec: Any,
    ) -> None:
        annotations = {keys.PASSED_ARBITRATION: PASSED} if passed else {}
        at = rfc3339(datetime.fromtimestamp(created, UTC))
        metadata = {"name": name, "uid": f"uid-{name}", "creationTimestamp": at, "annotations": annotations}
        reference = {"namespace": "d", "name": f"p{pod}", "uid": f"u{pod}"}
        document = {"kind": "PodMigrationJob", "metadata": metadata, "spec": {"podRef": reference, **spec}}
        if status:
            document["status"] = status
        self.custom("podmigrationjobs", "", document)

    def scale(self, replicas: int) -> None:
        workload = {"kind": "ReplicaSet", "metadata": {"namespace": "d", "name": "r", "uid": "r"}}
        self.custom("replicasets", "d", {**workload, "spec": {"replicas": replicas}})

    def is_limited(self, pod: PodView, now: float = NOW) -> bool:
        self.controller.limiter.rebuild(counted_evictions(self.builder, now))
        return self.controller.limiter.is_limited(pod, now)

    def looks(self, now: float = NOW) -> Looks:
        return passes.look_at_due(
            all_jobs(self.builder), self.builder, self.controller, self.agenda, now, without_claims=False
        )

    def overtaken(self) -> passes.Decided:
        return passes.overtaken(all_jobs(self.builder), self.builder, self.controller)

    def annotated(self, looks: Looks) -> None:
        """Fold the facts of a look at one job that sets the soft-eviction annotation of pod 0, and the annotation."""
        (asked,) = looks.plans
        (annotation,) = asked.changes
        assert isinstance(annotation, PatchObject)
        self.conclude(looks)
        self.pod(0, annotations=annotation.patch["metadata"]["annotations"])

    def store(self, steps: Any) -> list[Event]:
        """Fold facts, and return their events."""
        drafts = [draft for step in steps for draft in step]
        for draft in drafts:
            self.tell(draft.ref, draft.event)
        return [draft.event for draft in drafts]

    def conclude(self, looks: Looks, outcome: ChangeOutcome = DONE) -> list[Event]:
        """Fold the facts of looks whose changes all had one outcome, and return their events."""
        steps = [*looks.held]
        for each in looks.plans:
            step, _ = passes.concluded(each, [outcome] * len(each.changes), self.builder, lambda _: 0)
            steps.append(step)
        return self.store(steps)


def test_an_eviction_and_the_step_of_its_job_are_stored_together() -> None:
    cluster = Cluster()
    cluster.job("j", 0)
    looks = cluster.looks()
    (found,) = looks.plans
    step, called = passes.concluded(found, [], cluster.builder, lambda _: 7)
    assert [(type(each.event), each.expected_last) for each in step] == [
        (PodEvictionRequested, 7),
        (MigrationAdvanced, 0),
    ]
    assert (called, looks.held) == (None, [])


def test_of_two_jobs_of_a_pod_only_one_asks_for_its_eviction() -> None:
    cluster = Cluster()
    cluster.job("j", 0)
    cluster.job("k", 0)
    assert [each.before.name for each in cluster.looks().plans] == ["j"]


def test_a_job_without_a_token_of_the_rate_is_held_once() -> None:
    cluster = Cluster(evictQPS="1", evictBurst=1)
    cluster.job("j", 0)
    cluster.job("k", 1)
    looks = cluster.looks()
    assert [each.before.name for each in looks.plans] == ["j"]
    held = [event for event in cluster.store(looks.held) if isinstance(event, MigrationHeld)]
    assert [(each.job, each.limits) for each in held] == [("k", [TOO_MANY_EVICTIONS])]
    assert not cluster.looks().held


def test_a_look_takes_nothing_from_the_limits() -> None:
    cluster = Cluster(evictQPS="1", evictBurst=1)
    cluster.job("j", 0)
    assert len(cluster.looks().plans) == len(cluster.looks().plans) == 1
    assert cluster.controller.budget.take(NOW)
    assert not cluster.looks().plans


def test_a_workload_that_cannot_spare_a_pod_holds_its_job() -> None:
    cluster = Cluster(maxUnavailablePerWorkload=1, evictBurst=10)
    cluster.job("j", 0)
    cluster.job("k", 1)
    looks = cluster.looks()
    assert [each.before.name for each in looks.plans] == ["j"]
    (held,) = [event for event in cluster.store(looks.held) if isinstance(event, MigrationHeld)]
    assert (held.limits, held.inputs["max_unavailable_per_workload"].value) == (["max_unavailable_per_workload"], 1)


def test_a_refused_call_is_told_and_recorded_as_a_limit() -> None:
    cluster = Cluster(evictionPolicy="SoftEviction")
    cluster.job("j", 0)
    assert [type(each) for each in cluster.conclude(cluster.looks(), REFUSED)] == [MigrationAdvanced]  # it runs now
    (found,) = cluster.looks().plans
    step, called = passes.concluded(found, [REFUSED], cluster.builder, lambda _: 0)
    assert called is not None
    assert (called.namespace, called.node, called.is_done) == ("d", "a", False)
    assert [each.limits for each in cluster.store([step]) if isinstance(each, MigrationHeld)] == [
        [SOFT_EVICTION_REFUSED]
    ]


def test_an_eviction_takes_a_token_while_it_is_under_way_and_for_good_once_it_succeeded() -> None:
    limit = {"workload": {"duration": "1h", "maxMigrating": 1}}
    cluster = Cluster(objectLimiters=limit, evictBurst=10)
    cluster.job("j", 0)
    looks, pod = cluster.looks(), cluster.builder.pod_named("d", "p1")
    assert pod is not None
    assert not cluster.is_limited(pod)
    cluster.conclude(looks)
    assert cluster.is_limited(pod)
    cluster.tell(AggregateRef("eviction", "u0"), PodEvictionFailed(reason="TooManyRequests"))
    assert not cluster.is_limited(pod), "a budget refused the eviction"
    cluster.conclude(cluster.looks(NOW + RETRY_SECONDS))
    cluster.tell(AggregateRef("eviction", "u0"), PodEvicted())
    assert cluster.is_limited(pod), "the pod terminates"
    cluster.tell(AggregateRef("podspec", "u0"), PodSpecDeleted(namespace="d", name="p0"))
    (ended,) = cluster.conclude(cluster.looks(NOW + 2 * RETRY_SECONDS))
    assert isinstance(ended, MigrationEnded)
    gone_at = unix_seconds(cluster.builder.state.of_kind(MigrationState)["uid-j"].since["Eviction"])
    assert cluster.is_limited(pod, gone_at + 1800)
    assert not cluster.is_limited(pod, gone_at + 3700)


def test_a_workload_that_was_scaled_down_keeps_its_last_replica() -> None:
    cluster = Cluster()
    cluster.job("j", 0, passed=False)
    cluster.store(passes.arbitrated(all_jobs(cluster.builder), cluster.builder, cluster.controller, NOW).steps)
    cluster.scale(1)
    (held,) = [event for event in cluster.store(cluster.looks().held) if isinstance(event, MigrationHeld)]
    assert held.limits == ["expected_replicas"]
    cluster.scale(REPLICAS)
    (found,) = cluster.looks(NOW + RETRY_SECONDS).plans
    assert found.eviction is not None


@pytest.mark.parametrize("switch", [{"skipCheckExpectedReplicas": True}, {"skipEvictionGates": ["ExpectedReplicas"]}])
def test_the_check_of_the_replicas_can_be_switched_off(switch: dict[str, Any]) -> None:
    cluster = Cluster(**switch)
    cluster.job("j", 0)
    cluster.scale(1)
    assert not [each.limits for each in cluster.store(cluster.looks().held) if isinstance(each, MigrationHeld)]


def test_an_eviction_that_waits_is_withdrawn_when_its_workload_is_scaled_down() -> None:
    cluster = Cluster()
    cluster.job("j", 0)
    cluster.conclude(cluster.looks())
    assert not cluster.overtaken().steps
    cluster.scale(1)
    withdrawn, held = cluster.store(cluster.overtaken().steps)
    assert isinstance(withdrawn, PodEvictionWithdrawn)
    assert withdrawn.reason == "LimitReached"
    assert isinstance(held, MigrationHeld)
    assert not cluster.looks(NOW + RETRY_SECONDS).plans
    cluster.scale(REPLICAS)
    (again,) = cluster.looks(NOW + 2 * RETRY_SECONDS).plans
    assert again.eviction is not None


def test_two_jobs_never_work_on_one_pod() -> None:
    cluster = Cluster()
    cluster.job("younger", 0, passed=False, created=NOW)
    cluster.job("older", 0, passed=False)

    def arbitrated() -> list[Event]:
        jobs = all_jobs(cluster.builder)
        return cluster.store(passes.arbitrated(jobs, cluster.builder, cluster.controller, NOW).steps)

    passed, held = arbitrated()
    assert isinstance(passed, MigrationArbitrated)
    assert passed.job == "older"
    assert isinstance(held, MigrationHeld)
    assert (held.job, held.limits) == ("younger", ["migration_job_exists"])
    assert arbitrated() == []
    cluster.tell(AggregateRef("migration", "uid-older"), MigrationEnded(job="older", progress=FAILED))
    (later,) = arbitrated()
    assert isinstance(later, MigrationArbitrated)
    assert later.job == "younger"


def test_of_two_jobs_that_a_user_let_pass_one_works_on_the_pod() -> None:
    cluster = Cluster()
    cluster.job("a", 0, created=NOW)
    cluster.job("b", 0, ttl="1m")
    found = cluster.looks()
    assert [each.before.name for each in found.plans] == ["b"]
    (held,) = [each for each in cluster.store(found.held) if isinstance(each, MigrationHeld)]
    assert (held.job, held.limits) == ("a", ["migration_job_exists"])


def test_no_job_waits_for_a_paused_job_of_its_pod() -> None:
    cluster = Cluster()
    cluster.job("paused", 0, paused=True, created=NOW - 60)
    cluster.job("waiting", 0, passed=False)
    jobs = all_jobs(cluster.builder)
    (passed,) = cluster.store(passes.arbitrated(jobs, cluster.builder, cluster.controller, NOW).steps)
    assert isinstance(passed, MigrationArbitrated)
    assert passed.job == "waiting"
    looks = cluster.looks()
    assert looks.held == []
    assert [each.before.name for each in looks.plans if each.evicts] == ["waiting"]

    cluster.conclude(looks)
    cluster.job("paused", 0, created=NOW - 60)
    found = cluster.looks()
    assert [each.before.name for each in found.plans] == ["waiting"], "the job that goes on waits"
    (held,) = cluster.store(found.held)
    assert isinstance(held, MigrationHeld)
    assert (held.job, held.limits) == ("paused", ["migration_job_exists"])


def test_a_job_is_due_again_when_its_objects_change_or_its_time_has_come() -> None:
    cluster = Cluster()
    cluster.job("j", 0)
    state = cluster.builder.state

    def note(now: float) -> None:
        for each in (looks := cluster.looks(now)).plans:
            cluster.agenda.looked(each, state, now)
        cluster.conclude(looks)

    note(NOW)  # asks for the eviction
    note(NOW)  # sees that it is asked for, and waits
    (job,) = all_jobs(cluster.builder)
    assert not cluster.agenda.is_due(job, state, NOW)
    assert cluster.agenda.is_due(job, state, NOW + RETRY_SECONDS)
    cluster.agenda.not_stored(job.uid)
    assert cluster.agenda.is_due(job, state, NOW)


def test_a_job_waits_longer_after_each_refused_change() -> None:
    cluster = Cluster(defaultJobMode="ReservationFirst")
    cluster.job("j", 0)
    now, state = NOW, cluster.builder.state
    for pause in (FIRST_SECONDS, 2 * FIRST_SECONDS):
        looks = cluster.looks(now)
        (found,) = looks.plans
        cluster.agenda.looked(found, state, now)
        cluster.conclude(looks, REFUSED)
        cluster.agenda.changed(found, [REFUSED], state, now)
        (job,) = all_jobs(cluster.builder)
        assert not cluster.agenda.is_due(job, state, now + pause - 0.5)
        assert cluster.agenda.is_due(job, state, now + pause)
        now += pause
    cluster.agenda.keep_only(set())
    assert cluster.agenda == Agenda()


TEMPLATE = {"template": {"metadata": {"name": "prod-res"}}}


def test_a_job_does_not_take_the_reservation_of_somebody_else_that_its_template_names() -> None:
    cluster = Cluster(defaultJobMode="ReservationFirst")
    cluster.job("j", 0, reservationOptions=TEMPLATE)
    looks = cluster.looks()
    (found,) = looks.plans
    (refused,) = judged(found, [ChangeOutcome(result=ChangeResult.EXISTS)])
    cluster.conclude(looks, refused)
    assert refused.result is ChangeResult.REFUSED
    assert reservation_of_job(cluster.builder.state, "j") == "uid-j", "an abort deletes no other Reservation"
    (job,) = all_jobs(cluster.builder)
    assert (job.phase, job.reservation, job.reason) == (Phase.RUNNING, "", "FailedCreateReservation")

    cluster.custom("reservations", "", {"metadata": {"name": "prod-res", "uid": "r"}, "spec": {}})
    (ended,) = cluster.conclude(cluster.looks(NOW + RETRY_SECONDS))
    assert isinstance(ended, MigrationEnded)
    assert (ended.progress.reason, ended.progress.reservation) == ("FailedCreateReservation", "")
    assert "prod-res" in ended.progress.message


def test_a_job_goes_on_with_the_named_reservation_that_it_created_before_a_kill() -> None:
    cluster = Cluster(defaultJobMode="ReservationFirst")
    cluster.job("j", 0, reservationOptions=TEMPLATE)
    (found,) = cluster.looks().plans
    (creation,) = found.changes
    assert isinstance(creation, CreateObject)
    made = {**creation.document, "metadata": {**creation.document["metadata"], "uid": "r"}}
    cluster.custom("reservations", "", made)
    cluster.conclude(cluster.looks())
    (job,) = all_jobs(cluster.builder)
    assert (job.reservation, job.created_reservation) == ("prod-res", "prod-res")
    assert reservation_of_job(cluster.builder.state, "j") == "prod-res"


@pytest.mark.parametrize("template", [{}, {"template": {"metadata": {"name": "slot"}}}])
def test_a_job_that_cannot_work_leaves_the_reservation_that_its_user_named(template: dict[str, Any]) -> None:
    cluster = Cluster()
    cluster.job("j", 0, mode="Evict", reservationOptions={"reservationRef": {"name": "slot"}, **template})
    decided = passes.unworkable(all_jobs(cluster.builder), cluster.builder, "me")
    assert decided.deletions == []
    (ended,) = cluster.store(decided.steps)
    assert isinstance(ended, MigrationEnded)


def test_a_job_that_cannot_work_any_more_gives_back_the_reservation_that_was_created_for_it() -> None:
    cluster = Cluster()
    cluster.job("j", 0, mode="Evict", reservationOptions=TEMPLATE)
    progress = MigrationProgress(phase="Running", reservation="prod-res")
    pod = MigratedPod(namespace="d", name="p0", uid="u0")
    cluster.tell(AggregateRef("migration", "uid-j"), MigrationAdvanced(pod=pod, progress=progress))
    decided = passes.unworkable(all_jobs(cluster.builder), cluster.builder, "me")
    assert [(each.kind, each.name) for each in decided.deletions] == [("Reservation", "prod-res")]


def test_a_late_job_gives_back_the_reservation_that_its_user_named() -> None:
    cluster = Cluster()
    cluster.job("j", 0, passed=False, ttl="1s", reservationOptions={"reservationRef": {"name": "mine"}})
    cluster.job("k", 1, passed=False)
    decided = passes.arbitrated(all_jobs(cluster.builder), cluster.builder, cluster.controller, NOW)
    assert [(each.kind, each.name) for each in decided.deletions] == [("Reservation", "mine")]
    events = cluster.store(decided.steps)
    assert {type(each) for each in events} == {MigrationEnded, MigrationArbitrated}


def test_without_waiting_jobs_nothing_is_arbitrated() -> None:
    cluster = Cluster()
    cluster.job("j", 0)
    assert passes.arbitrated(all_jobs(cluster.builder), cluster.builder, cluster.controller, NOW) == passes.Decided()


def test_facts_of_a_deleted_job_are_kept_while_a_limit_counts_its_eviction() -> None:
    cluster = Cluster(objectLimiters={"workload": {"duration": "1h"}})
    cluster.job("j", 0)
    cluster.conclude(cluster.looks())
    cluster.tell(
        custom_ref("podmigrationjobs", "", "j"), CustomObjectDeleted(kind="PodMigrationJob", namespace="", name="j")
    )
    state, memory = cluster.builder.state, cluster.controller.limiter.memory_seconds
    at = unix_seconds(state.of_kind(MigrationState)["uid-j"].evicted_at)
    (ended,) = cluster.store(passes.forgotten(set(), state, memory, at).steps)
    assert isinstance(ended, MigrationEnded)
    assert (ended.progress.phase, ended.progress.message) == ("Aborted", "the PodMigrationJob was deleted")
    assert not passes.forgotten(set(), state, memory, at).steps
    assert not passes.forgotten({"uid-j"}, state, memory, at + memory).steps
    assert cluster.store(passes.forgotten(set(), state, memory, at + memory).steps) == [MigrationForgotten()]


def test_a_paused_job_does_not_ask_again_for_the_eviction_that_was_withdrawn() -> None:
    cluster = Cluster()
    cluster.job("j", 0)
    cluster.conclude(cluster.looks())
    cluster.tell(AggregateRef("eviction", "u0"), PodEvictionWithdrawn(reason="JobPaused"))
    cluster.job("j", 0, paused=True)
    assert [each.eviction for each in cluster.looks(NOW + RETRY_SECONDS).plans] == [None]
    cluster.job("j", 0)
    (again,) = cluster.looks(NOW + 2 * RETRY_SECONDS).plans
    assert again.eviction is not None


def test_a_job_that_fails_withdraws_its_eviction_in_the_same_step() -> None:
    cluster = Cluster()
    cluster.job("j", 0, ttl="1m")
    cluster.conclude(cluster.looks())
    late = cluster.conclude(cluster.looks(NOW + 60))
    assert [type(each) for each in late] == [MigrationEnded, PodEvictionWithdrawn]
    assert "u0" not in cluster.builder.state.of_kind(EvictionState)


@pytest.mark.parametrize("change", ["deleted", "paused", "aborted"])
def test_a_job_that_is_stopped_takes_back_its_soft_eviction(change: str) -> None:
    cluster = Cluster(evictionPolicy="SoftEviction")
    cluster.job("j", 0)
    cluster.annotated(cluster.looks())
    assert not passes.soft_evictions_to_withdraw(all_jobs(cluster.builder), cluster.builder)
    if change == "deleted":
        gone = CustomObjectDeleted(kind="PodMigrationJob", namespace="", name="j")
        cluster.tell(custom_ref("podmigrationjobs", "", "j"), gone)
    else:
        cluster.job("j", 0, paused=change == "paused", status={"phase": "Aborted"} if change == "aborted" else {})
    (back,) = passes.soft_evictions_to_withdraw(all_jobs(cluster.builder), cluster.builder)
    assert (back.uid, back.patch) == ("u0", {"metadata": {"annotations": {keys.SOFT_EVICTION: None}}})
    cluster.pod(0, annotations={keys.SOFT_EVICTION: "of somebody else"})
    assert not passes.soft_evictions_to_withdraw(all_jobs(cluster.builder), cluster.builder)


def test_a_job_that_was_paused_takes_back_the_soft_eviction_that_it_asked_for_again() -> None:
    cluster = Cluster(evictionPolicy="SoftEviction")
    cluster.job("j", 0)
    cluster.annotated(cluster.looks())
    cluster.pod(0)
    cluster.annotated(cluster.looks(NOW + 2 * RETRY_SECONDS))
    cluster.job("j", 0, status={"phase": "Aborted"})
    (back,) = passes.soft_evictions_to_withdraw(all_jobs(cluster.builder), cluster.builder)
    assert back.uid == "u0"


def test_a_soft_eviction_is_taken_back_while_the_workload_cannot_spare_the_pod() -> None:
    cluster = Cluster(evictionPolicy="SoftEviction")
    cluster.job("j", 0)
    cluster.annotated(cluster.looks())
    assert cluster.overtaken() == passes.Decided([], patches=[])
    cluster.scale(1)
    found = cluster.overtaken()
    assert [(each.uid, each.patch) for each in found.patches] == [
        ("u0", {"metadata": {"annotations": {keys.SOFT_EVICTION: None}}})
    ]
    assert [each.limits for each in cluster.store(found.steps) if isinstance(each, MigrationHeld)] == [
        ["expected_replicas"]
    ]
    cluster.pod(0)
    assert not cluster.overtaken().patches
    assert not cluster.looks(NOW + 2 * RETRY_SECONDS).plans
    cluster.scale(REPLICAS)
    cluster.annotated(cluster.looks(NOW + 3 * RETRY_SECONDS))
    assert not cluster.overtaken().patches


def test_an_old_job_is_aborted_and_deleted_with_its_reservation() -> None:
    cluster = Cluster()
    cluster.job("j", 0, ttl="1s", reservationOptions={"reservationRef": {"name": "mine"}})
    jobs, state = all_jobs(cluster.builder), cluster.builder.state
    assert passes.collected(jobs, state, NOW) == passes.Decided([], [])
    decided = passes.collected(jobs, state, unix_seconds(CREATED) + 1 + passes.AFTER_TTL)
    assert [(each.kind, each.name) for each in decided.deletions] == [("Reservation", "mine"), ("PodMigrationJob", "j")]
    (ended,) = cluster.store(decided.steps)
    assert isinstance(ended, MigrationEnded)
    assert ended.progress.phase == Phase.ABORTED
