"""The inputs of migration jobs, read from the folded facts.

Source:
    descheduler spec, 7.5
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from koordcore.events.envelope import AggregateRef, name_token
from koordcore.events.objects import custom_ref
from koordcore.protocol import keys
from koordcore.protocol.reservations import PLURAL as RESERVATIONS
from koordcore.protocol.reservations import reservation_from_json
from koordcore.state import ClusterState
from koordcore.state.aggregates import CustomObjectState, PodSpecState
from koordcore.state.migrations import MigrationState, RepackState
from koordcore.state.reservations import reservation_of_log
from koordcore.values import codec
from koordcore.values.timestamps import unix_seconds

from koord_descheduler.domain.jobs.job import Condition, ConditionType, MigrationJob, PodRef, job_from_json
from koord_descheduler.domain.jobs.object_limiter import Evicted, ObjectLimiter, Shortage
from koord_descheduler.domain.jobs.plan_steps import reservations_of
from koord_descheduler.domain.jobs.recording import with_facts
from koord_descheduler.domain.jobs.world import ReservationView
from koord_descheduler.domain.view.building import ViewBuilder
from koord_descheduler.domain.view.pods import PodView

JOBS: Final = "podmigrationjobs"
_EVERY_PLACE: Final = ("podspec", "pod")


def all_jobs(builder: ViewBuilder) -> list[MigrationJob]:
    """Return all jobs with their facts, by name. Objects that are not valid are left out."""
    facts = builder.state.of_kind(MigrationState)
    jobs = builder.customs.decoded(JOBS, MigrationJob, job_from_json)
    return sorted((with_facts(job, facts.get(job.uid)) for job in jobs), key=lambda job: job.name)


def reservation_of_job(state: ClusterState, name: str) -> str:
    """Name of the Reservation that was created for a migration job; "" if the job does not exist.

    Before the fact of its creation, the Reservation may exist already. Then this is the uid of the job, which no other
    Reservation has as its name.
    """
    found = state.of_kind(CustomObjectState).get(custom_ref(JOBS, "", name).id)
    if found is None:
        return ""
    try:
        job = job_from_json(found.object)
    except codec.DecodeError:
        return ""
    return with_facts(job, state.of_kind(MigrationState).get(job.uid)).created_reservation or job.uid


def counted_evictions(builder: ViewBuilder, now: float) -> Iterator[Evicted]:
    """Yield the evictions that the object limiter counts, in any order. `now`: Unix seconds.

    An eviction that succeeded counts from the time at which the pod was gone. One that is under way counts as if it
    succeeded now, also while the pod terminates. One that failed or was withdrawn does not count. The facts of a
    deleted job are kept as long as its eviction counts, so a new leader goes on with the same counts.

    Source: descheduler spec, 7.5 (10), 7.7; reality.md, 5.2
    """
    specs, leaving = builder.state.of_kind(PodSpecState), builder.leaving()
    for facts in builder.state.of_kind(MigrationState).values():
        if not facts.evicted_at or facts.pod is None:
            continue
        spec = specs.get(facts.pod.uid)
        at = unix_seconds(facts.since.get(ConditionType.EVICTION, facts.evicted_at))
        if spec is not None:
            meta, at = spec.object.metadata, now
            is_under_way = meta.deletion_timestamp is not None or keys.SOFT_EVICTION in meta.annotations
            if not is_under_way and facts.pod.uid not in leaving:
                continue
        yield Evicted(facts.controller, facts.pod.namespace, at, facts.replicas)


class JobWorld:
    """The folded cluster. It implements `World`. `now`: Unix seconds."""

    def __init__(self, builder: ViewBuilder, limiter: ObjectLimiter, now: float) -> None:
        self._builder = builder
        self._limiter = limiter
        self._now = now
        # The bucket for whose tokens the last pod has to wait; None if it does not wait.
        self.shortage: Shortage | None = None

    def pod(self, namespace: str, name: str) -> PodView | None:
        return self._builder.pod_named(namespace, name)

    def reservation(self, name: str) -> ReservationView | None:
        return reservation_view(self._builder.state, name)

    def pod_scheduled(self, pod: PodView) -> Condition | None:
        """Without an API server, a pod with a node is scheduled."""
        if pod.node:
            return Condition(True)
        for each in pod.object.status.conditions:
            if each.type == "PodScheduled":
                return Condition(each.status == "True", each.reason)
        return None

    def plan(self, name: str) -> RepackState | None:
        return self._builder.state.of_kind(RepackState).get(name)

    def is_limited(self, pod: PodView) -> bool:
        self.shortage = self._limiter.limiting(pod, self._now)
        return self.shortage is not None


def reservation_view(state: ClusterState, name: str) -> ReservationView | None:
    """None if its object does not exist or is not valid."""
    document = _reservation(state, name)
    if document is None:
        return None
    try:
        reservation = reservation_from_json(document)
    except codec.DecodeError:
        return None
    status = reservation_of_log(state, reservation.metadata.uid)
    named = (rule.object.uid for rule in reservation.spec.owners if rule.object is not None)
    return ReservationView(
        name=name,
        phase=status.phase,
        node=status.node,
        job=reservation.metadata.annotations.get(keys.RESERVATION_OF_JOB, ""),
        has_order=keys.RESERVATION_ORDER in reservation.metadata.labels,
        owner_pods=frozenset(uid for uid in named if uid),
        current_owners=tuple(PodRef(each.namespace, each.name, each.uid) for each in status.owners),
        conditions={
            each.type: Condition(each.status == "True", each.reason, each.message) for each in status.conditions
        },
    )


def available_reservations(state: ClusterState, plan: RepackState, jobs: Mapping[str, MigrationJob]) -> dict[str, str]:
    """Name -> node of the Reservations of a plan that are available. `jobs`: all, by name."""
    views = [view for name in reservations_of(plan, jobs) if (view := reservation_view(state, name)) is not None]
    return {view.name: view.node for view in views if view.phase == "Available"}


def version_of(state: ClusterState, job: MigrationJob) -> tuple[int, ...]:
    """Positions of the last events about the objects that a job depends on. If equal, none of these objects changed."""
    pod_uid = "" if job.pod is None else job.pod.uid
    refs = [AggregateRef(kind, pod_uid) for kind in (*_EVERY_PLACE, "eviction") if pod_uid]
    if job.plan:
        refs.append(AggregateRef("repack", job.plan))
    if job.bound_pod is not None:
        refs += [AggregateRef(kind, job.bound_pod.uid) for kind in _EVERY_PLACE]
    if job.reservation:
        refs.append(custom_ref(RESERVATIONS, "", job.reservation))
        document = _reservation(state, job.reservation)
        if document is not None:
            uid = str(document["metadata"].get("uid", ""))
            refs += [AggregateRef("pod", uid), AggregateRef("reservation", uid)]
    if job.node:
        refs += [AggregateRef("node", name_token(job.node)), AggregateRef("nodestate", name_token(job.node))]
    return tuple(state.last_seq(ref) for ref in refs)


def _reservation(state: ClusterState, name: str) -> dict[str, Any] | None:
    found = state.of_kind(CustomObjectState).get(custom_ref(RESERVATIONS, "", name).id)
    return None if found is None else found.object
