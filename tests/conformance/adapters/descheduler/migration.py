"""Vectors of the descheduler about migration jobs: arbitration, life cycle, Reservation, collection."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime

from conformance.adapters.descheduler.limits import cluster_with_workloads
from conformance.registry import Json, adapter
from koord_descheduler.domain.config.arguments import native_args
from koord_descheduler.domain.framework.registry import SharedState
from koord_descheduler.domain.jobs.arbitration import arbitrate
from koord_descheduler.domain.jobs.arguments import MigrationControllerArgs
from koord_descheduler.domain.jobs.job import Condition, MigrationJob, Phase, PodRef, job_from_json
from koord_descheduler.domain.jobs.object_limiter import EvictionBuckets, ObjectLimiter
from koord_descheduler.domain.jobs.passes import is_collectable
from koord_descheduler.domain.jobs.plugin import MigrationController
from koord_descheduler.domain.jobs.reservation_template import reservation_for
from koord_descheduler.domain.jobs.state_machine import created, evicted, look
from koord_descheduler.domain.jobs.world import (
    CreateReservation,
    DeleteReservation,
    Evict,
    JobEvent,
    JobPolicy,
    Looked,
    OrderReservation,
    ReservationView,
)
from koord_descheduler.domain.view.pods import PodView
from koord_descheduler.domain.view.workloads import replicas_of
from koordcore.protocol import keys
from support.descheduler.views import pod_view_from_json

EPOCH = datetime.fromisoformat("2026-01-01T00:00:00Z").timestamp()
ACTIONS = {"Eviction": "evict", "Delete": "delete", "SoftEviction": "soft_evict"}


def _now(given: dict[str, Json]) -> float:
    return datetime.fromisoformat(given["now"]).timestamp() if given.get("now") else EPOCH


def _args(given: dict[str, Json]) -> MigrationControllerArgs:
    return native_args(given.get("args") or {}, MigrationControllerArgs)


@adapter("descheduler.arbitrate", exact_text=("passed", "failed", "waiting"), sets=("passed", "failed", "waiting"))
def arbitrate_rounds(given: dict[str, Json]) -> dict[str, Json]:
    """Which waiting jobs go on in each round (descheduler spec, 7.4)."""
    cluster = replace(cluster_with_workloads(given), now=_now(given))
    args = _args(given)
    controller = MigrationController(args, SharedState())
    jobs = {raw["metadata"]["name"]: job_from_json(raw) for raw in given["jobs"]}
    arrived = set(given.get("arrive", list(jobs)))
    rounds: list[Json] = []
    for step in given["rounds"]:
        for name, phase in _part(step, "setPhase").items():
            jobs[name] = replace(jobs[name], phase=Phase(phase))
        taken = [job for name, job in jobs.items() if name in arrived or job.has_passed or not job.is_in_flight]
        done = arbitrate(taken, cluster, args, controller.lasting_refusals)
        jobs |= {job.name: job for job in (*done.passed, *done.failed)}
        passed = [name for name, job in jobs.items() if keys.PASSED_ARBITRATION in job.annotations]
        failed = [name for name, job in jobs.items() if job.phase is Phase.FAILED]
        waiting = [name for name in jobs if name not in passed and name not in failed]
        rounds.append({"passed": passed, "failed": failed, "waiting": waiting})
    return {"rounds": rounds}


@adapter("descheduler.migration_gc", exact_text=("remaining",), sets=("remaining",))
def migration_gc(given: dict[str, Json]) -> dict[str, Json]:
    """The jobs that are not deleted yet (descheduler spec, 7.10)."""
    jobs = [job_from_json(raw) for raw in given["jobs"]]
    return {"remaining": [job.name for job in jobs if not is_collectable(job, _now(given))]}


@adapter("descheduler.reservation_template", whole=("reservation", "metadata", "spec", "labels"))
def reservation_template(given: dict[str, Json]) -> dict[str, Json]:
    """The Reservation of a job (descheduler spec, 7.9)."""
    made = reservation_for(
        job_from_json(given["job"]),
        given["pod"],
        _now(given),
        without_claims="DisablePVCReservation" in str(given.get("gates") or ""),
    )
    return {"reservation": made}


@dataclass
class Story:
    """The objects of a life cycle, changed by the steps of a case and by the effects of the job."""

    given: dict[str, Json]
    job: MigrationJob
    now: float = EPOCH
    pods: dict[str, Json] = field(default_factory=dict[str, Json])
    reservations: dict[str, Json] = field(default_factory=dict[str, Json])
    limiter: ObjectLimiter = field(init=False)
    actions: list[str] = field(default_factory=list[str])
    events: list[JobEvent] = field(default_factory=list[JobEvent])

    def __post_init__(self) -> None:
        for raw in self.given.get("pods") or ():
            self.put_pod(raw)
        self.limiter = ObjectLimiter(_args(self.given), EvictionBuckets())

    def put_pod(self, raw: Json) -> None:
        self.pods[f"{raw['metadata'].get('namespace', '')}/{raw['metadata']['name']}"] = raw

    def pod(self, namespace: str, name: str) -> PodView | None:
        raw = self.pods.get(f"{namespace}/{name}")
        return None if raw is None else pod_view_from_json(raw)

    def reservation(self, name: str) -> ReservationView | None:
        raw = self.reservations.get(name)
        if raw is None:
            return None
        status, spec = _part(raw, "status"), _part(raw, "spec")
        owners: list[dict[str, Json]] = spec.get("owners") or []
        return ReservationView(
            name=name,
            phase=status.get("phase", ""),
            node=status.get("nodeName", ""),
            has_order=keys.RESERVATION_ORDER in _part(raw["metadata"], "labels"),
            owner_pods=frozenset(owner["object"].get("uid", "") for owner in owners if owner.get("object")),
            current_owners=tuple(
                PodRef(each.get("namespace", ""), each.get("name", ""), each.get("uid", ""))
                for each in _list(status, "currentOwners")
            ),
            conditions={each["type"]: _condition(each) for each in _list(status, "conditions")},
        )

    def pod_scheduled(self, pod: PodView) -> Condition | None:
        conditions = _list(_part(self.pods[pod.key], "status"), "conditions")
        return next((_condition(each) for each in conditions if each["type"] == "PodScheduled"), None)

    def plan(self, name: str) -> None:
        return None

    def is_limited(self, pod: PodView) -> bool:
        return self.limiter.is_limited(pod, self.now)

    def settle(self, step: dict[str, Json], policy: JobPolicy) -> float | None:
        """Look until the job waits, as the service does; a refused effect is tried once."""
        while True:
            looked = look(self.job, self, policy, self.now)
            self._took(looked)
            answers = [self._answer(effect, step) for effect in looked.effects]
            answer = next((each for each in answers if each is not None), None)
            if answer is None:
                return looked.requeue
            told, is_refused = answer
            self._took(told)
            if is_refused:
                return None

    def _took(self, looked: Looked) -> None:
        self.job = looked.job
        self.events += looked.events

    def _answer(self, effect: Json, step: dict[str, Json]) -> tuple[Looked, bool] | None:
        match effect:
            case CreateReservation(pod):
                refused = bool(step.get("failReserve"))
                if not refused:
                    self.reservations[self.job.uid] = reservation_for(self.job, self.pods[pod.key], self.now)
                return created(self.job, "denied" if refused else ""), refused
            case Evict(pod, policy, _):
                refused = bool(step.get("failEvict"))
                if not refused:
                    self.actions.append(f"{ACTIONS[policy]}:{pod.key}")
                    replicas = replicas_of(pod, cluster_with_workloads(self.given).workloads)
                    self.limiter.evicted(pod, self.now, replicas)
                return evicted(self.job, pod, "denied" if refused else ""), refused
            case DeleteReservation(name):
                self.reservations.pop(name, None)
            case OrderReservation(name):
                labels = self.reservations[name]["metadata"].setdefault("labels", {})
                labels[keys.RESERVATION_ORDER] = str(int(self.now * 1000))
            case _:
                raise AssertionError(effect)
        return None


def _part(raw: Json, name: str) -> dict[str, Json]:
    return raw.get(name) or {}


def _list(raw: dict[str, Json], name: str) -> list[dict[str, Json]]:
    return raw.get(name) or []


def _condition(raw: Json) -> Condition:
    return Condition(raw["status"] == "True", raw.get("reason", ""), raw.get("message", ""))


def _change(story: Story, step: dict[str, Json]) -> None:
    story.now = EPOCH + float(step["at"])
    for raw in _list(step, "putPods"):
        story.put_pod(raw)
    for key in step.get("deletePods") or ():
        story.pods.pop(key, None)
    for raw in _list(step, "putReservations"):
        story.reservations[raw["metadata"]["name"]] = raw
    for name in step.get("deleteReservations") or ():
        story.reservations.pop(name, None)
    if step.get("reservationStatus") is not None:
        for raw in story.reservations.values():
            raw["status"] = step["reservationStatus"]
    for name, value in _part(step, "patchJob").items():
        if name == "paused":
            story.job = replace(story.job, is_paused=bool(value))
        elif name == "phase":
            story.job = replace(story.job, phase=Phase(value))
        elif name == "annotations":
            story.job = replace(story.job, annotations={**story.job.annotations, **value})
        else:
            raise AssertionError(f"patchJob.{name}")


@adapter(
    "descheduler.migration_state",
    exact_text=("phase", "status", "reason", "message", "node_name", "new_pod", "reservation", "actions", "events"),
    whole=("conditions",),
)
def migration_state(given: dict[str, Json]) -> dict[str, Json]:
    """The life cycle of a job (descheduler spec, 7.5, 7.6)."""
    args = _args(given)
    story = Story(given=given, job=job_from_json(given["job"]))
    policy = JobPolicy(default_mode=args.default_job_mode, eviction_policy=args.eviction_policy)
    steps: list[Json] = []
    for step in given["steps"]:
        _change(story, step)
        story.actions, story.events = [], []
        requeue = story.settle(step, policy)
        job = story.job
        steps.append(
            {
                "phase": str(job.phase),
                "status": job.status,
                "reason": job.reason,
                "message": job.message,
                "node_name": job.node,
                "new_pod": job.bound_pod.key if job.bound_pod else "",
                "reservation": job.reservation,
                "conditions": {
                    type_: ("True" if each.is_true else "False") + (f":{each.reason}" if each.reason else "")
                    for type_, each in job.conditions.items()
                },
                "actions": story.actions,
                "events": [f"{each.about}/{each.type}/{each.reason}" for each in story.events],
                "requeue_seconds": requeue,
                "reservations": sorted(story.reservations),
            }
        )
    return {"steps": steps}
