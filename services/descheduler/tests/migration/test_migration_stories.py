"""Whatever happens to pods and Reservations, in whatever order, a migration job keeps its promises."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from koord_descheduler.domain.jobs.job import (
    Condition,
    ConditionType,
    MigrationJob,
    Phase,
    PodRef,
    job_from_json,
)
from koord_descheduler.domain.jobs.reservation_template import reservation_for
from koord_descheduler.domain.jobs.state_machine import created, evicted, look
from koord_descheduler.domain.jobs.world import CreateReservation, DeleteReservation, Evict, JobPolicy, ReservationView
from koord_descheduler.domain.view.pods import PodView
from koordcore.protocol import keys
from koordcore.protocol.migrations import EVICT_DIRECTLY, RESERVATION_FIRST
from support.depth import examples
from support.descheduler.views import pod_view_from_json

TTL = 300.0
ENDED = (Phase.SUCCEEDED, Phase.FAILED, Phase.ABORTED)
POLICY = JobPolicy()


def pod(name: str, uid: str, node: str, *, ready: bool) -> PodView:
    return pod_view_from_json(
        {
            "metadata": {"name": name, "namespace": "d", "uid": uid},
            "spec": {"nodeName": node},
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": str(ready)}]},
        }
    )


@dataclass
class Cluster:
    """Pods by name and Reservations by name, as a job sees them."""

    pods: dict[str, PodView] = field(default_factory=dict[str, PodView])
    reservations: dict[str, ReservationView] = field(default_factory=dict[str, ReservationView])
    limited: bool = False

    def pod(self, namespace: str, name: str) -> PodView | None:
        return self.pods.get(name)

    def reservation(self, name: str) -> ReservationView | None:
        return self.reservations.get(name)

    def pod_scheduled(self, pod: PodView) -> Condition | None:
        return Condition(bool(pod.node))

    def plan(self, name: str) -> None:
        return None

    def is_limited(self, pod: PodView) -> bool:
        return self.limited


SCHEDULED = {"Scheduled": Condition(True, "Scheduled")}
HAPPENINGS = st.sampled_from(
    [
        *("pod goes", "pod returns under its name", "owner appears", "owner gets ready", "owner goes"),
        *("reservation is scheduled", "reservation lands on the pod's node", "reservation has no node"),
        *("reservation is taken", "reservation expires", "reservation goes", "limited", "not limited"),
        *("effects fail", "effects work", "kill after the effect", "time passes", "the end of time", "aborted"),
        *("paused", "resumed"),
    ]
)


@dataclass
class Story:
    """One job, looked at after each happening as the service does, over crashes between effect and record."""

    job: MigrationJob
    cluster: Cluster = field(default_factory=Cluster)
    now: float = 0.0
    fails: bool = False
    is_killed: bool = False
    evictions: list[str] = field(default_factory=list[str])
    asked: set[str] = field(default_factory=set[str])

    def happen(self, what: str) -> None:
        self.is_killed = what == "kill after the effect"
        known = self.cluster.reservations.get(self.job.uid)
        match what:
            case "pod goes":
                self.cluster.pods.pop("app", None)
            case "pod returns under its name":
                self.cluster.pods["app"] = pod("app", "another", "n3", ready=True)
            case "owner appears" | "owner gets ready":
                self.cluster.pods["new"] = pod("new", "u2", "n2", ready=what == "owner gets ready")
            case "owner goes":
                self.cluster.pods.pop("new", None)
            case "reservation goes":
                self.cluster.reservations.pop(self.job.uid, None)
            case "limited" | "not limited":
                self.cluster.limited = what == "limited"
            case "effects fail" | "effects work":
                self.fails = what == "effects fail"
            case "time passes":
                self.now += 40
            case "the end of time":
                self.now += TTL
            case "aborted":
                self.job = replace(self.job, phase=Phase.ABORTED)
            case "paused" | "resumed":
                self.job = replace(self.job, is_paused=what == "paused")
            case _ if known is None or known.phase in ("Succeeded", "Failed"):
                pass
            case "reservation is scheduled" | "reservation lands on the pod's node":
                node = "n2" if what == "reservation is scheduled" else "n1"
                if not known.node:
                    self.put(replace(known, phase="Available", node=node, conditions=SCHEDULED))
            case "reservation has no node" if not known.node:
                self.put(replace(known, phase="Pending", conditions={"Scheduled": Condition(False, "Unschedulable")}))
            case "reservation is taken" if known.node:
                self.put(replace(known, phase="Succeeded", current_owners=(PodRef("d", "new", "u2"),)))
            case "reservation expires":
                ready = {"Ready": Condition(False, "Expired")}
                self.put(replace(known, phase="Failed", conditions={**known.conditions, **ready}))
            case _:
                pass

    def put(self, reservation: ReservationView) -> None:
        self.cluster.reservations[reservation.name] = reservation

    def settle(self) -> None:
        for _ in range(20):
            before = self.job
            looked = look(before, self.cluster, POLICY, self.now)
            if before.phase in ENDED or before.is_paused:
                assert looked.job == before
                assert not looked.effects
                return
            self.job = looked.job
            answered = False
            for effect in looked.effects:
                match effect:
                    case CreateReservation():
                        if not self.fails:
                            self.cluster.reservations.setdefault(before.uid, ReservationView(name=before.uid))
                        if self.is_killed:
                            return
                        self.job = created(self.job, "refused" if self.fails else "").job
                        answered = not self.fails
                    case Evict(victim, _, _):
                        self.check_eviction(victim)
                        if not self.fails:
                            self.evictions.append(victim.uid)
                        if self.is_killed:
                            return
                        self.job = evicted(self.job, victim, "refused" if self.fails else "").job
                    case DeleteReservation(name):
                        self.cluster.reservations.pop(name, None)
                    case _:
                        pass
            if not answered:
                return
        raise AssertionError("the job does not settle")

    def check_eviction(self, victim: PodView) -> None:
        assert victim.uid == "u1", "nobody else is evicted"
        assert self.job.condition(ConditionType.EVICTION) is None, "what was asked for is not asked for again"
        if self.job.mode == RESERVATION_FIRST:
            reservation = self.cluster.reservations[self.job.uid]
            assert reservation.is_scheduled
            assert reservation.phase == "Available"
            assert reservation.node != victim.node


def story(mode: str) -> Story:
    job = MigrationJob(name="mj", uid="mj", created=0.0, pod=PodRef("d", "app"), mode=mode, ttl=TTL)
    return Story(job.passed(), Cluster(pods={"app": pod("app", "u1", "n1", ready=True)}))


@settings(max_examples=examples(400))
@given(st.sampled_from([RESERVATION_FIRST, EVICT_DIRECTLY]), st.lists(HAPPENINGS, max_size=25))
def test_no_order_of_happenings_makes_a_job_break_its_promises(mode: str, happenings: Sequence[str]) -> None:
    it = story(mode)
    it.settle()
    for what in happenings:
        it.happen(what)
        it.settle()
        assert it.job.conditions == {} or it.job.phase is not Phase.NEW
        if it.job.phase is Phase.SUCCEEDED:
            assert it.job.conditions[ConditionType.EVICTION].is_true
            assert it.evictions
    if it.job.phase not in ENDED:
        it.job = replace(it.job, is_paused=False)
        it.now += TTL
        it.settle()
    assert it.job.phase in ENDED, "after its ttl every job has ended"
    if it.job.reason == "Timeout":
        assert it.job.uid not in it.cluster.reservations, "nothing stays reserved"


def _status_of(job: MigrationJob) -> dict[str, object]:
    """The status as the manager writes it."""
    pod = job.bound_pod
    return {
        "phase": str(job.phase),
        "status": job.status,
        "reason": job.reason,
        "message": job.message,
        "nodeName": job.node,
        "podRef": None if pod is None else {"namespace": pod.namespace, "name": pod.name, "uid": pod.uid},
        "conditions": [
            {"type": type_, "status": str(each.is_true), "reason": each.reason, "message": each.message}
            for type_, each in job.conditions.items()
        ],
    }


@given(st.lists(HAPPENINGS, max_size=20))
def test_a_new_leader_reads_the_same_job_from_its_object(happenings: Sequence[str]) -> None:
    it = story(RESERVATION_FIRST)
    it.settle()
    for what in happenings:
        it.happen(what)
        it.settle()
    job = it.job
    document = {
        "metadata": {"name": "mj", "uid": "mj", "creationTimestamp": "1970-01-01T00:00:00Z"},
        "spec": {"mode": job.mode, "ttl": "5m", "podRef": {"namespace": "d", "name": "app"}},
        "status": _status_of(job),
    }
    read = job_from_json(document)
    fields = ("phase", "status", "reason", "message", "conditions", "node", "bound_pod")
    assert [getattr(read, name) for name in fields] == [getattr(job, name) for name in fields]


def test_a_refused_eviction_is_told_as_a_failed_call_and_asked_for_again() -> None:
    it = story(EVICT_DIRECTLY)
    it.fails = True
    it.settle()
    assert not it.evictions
    (event,) = evicted(it.job, it.cluster.pods["app"], "too many requests").events
    assert (event.type, event.reason) == ("Warning", "Evicting")
    assert event.message.startswith('Failed evict Pod "d/app"')
    it.fails = False
    it.settle()
    assert it.evictions == ["u1"]


def test_a_job_whose_pod_was_replaced_before_it_began_fails_and_makes_no_reservation() -> None:
    it = story(RESERVATION_FIRST)
    it.job = replace(it.job, pod=PodRef("d", "app", "u0"))
    it.settle()
    assert (it.job.phase, it.job.reason) == (Phase.FAILED, "MissingPod")
    assert it.cluster.reservations == {}


@pytest.mark.parametrize(
    "written",
    [
        {"spec": None},
        {"spec": {"affinity": None}},
        {"spec": {"affinity": {"nodeAffinity": None}}},
        {"spec": {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": None}}}},
    ],
)
def test_a_template_with_nulls_excludes_the_node_of_the_pod(written: dict[str, Any]) -> None:
    options = {"reservationOptions": {"template": {"metadata": None, "spec": {"template": written}}}}
    job = job_from_json({"metadata": {"name": "mj", "uid": "mj"}, "spec": options})
    made = reservation_for(job, {"metadata": {"name": "app", "namespace": "d"}, "spec": {"nodeName": "n1"}}, 0.0)
    affinity = made["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]
    (term,) = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert term["matchFields"] == [{"key": "metadata.name", "operator": "NotIn", "values": ["n1"]}]


@pytest.mark.parametrize("ttl", ["", "0s", "-5m"])
def test_a_job_whose_ttl_is_not_above_0_never_times_out(ttl: str) -> None:
    job = job_from_json({"metadata": {"name": "j"}, "spec": {"ttl": ttl}})
    assert not job.is_over(job.created + 86_400.0)


def test_a_template_may_name_its_reservation_and_keeps_its_metadata() -> None:
    metadata = {"name": "mine", "labels": {"a": "b"}, "annotations": {"c": "d"}}
    options = {"reservationOptions": {"template": {"metadata": metadata}}}
    job = job_from_json({"metadata": {"name": "j", "uid": "u"}, "spec": options})
    made = reservation_for(job, {"metadata": {"name": "app", "namespace": "d"}, "spec": {}}, 0.0)
    labels = {"a": "b", "app.kubernetes.io/created-by": "koord-descheduler", keys.RESERVATION_ORDER: "0"}
    assert made["metadata"] == {"name": "mine", "labels": labels, "annotations": {"c": "d"}}
    done = created(job, "")
    assert (done.job.reservation, done.events[0].message) == ("mine", 'Successfully create Reservation "mine"')
