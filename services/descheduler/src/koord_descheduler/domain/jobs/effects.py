"""The effects of a look at a job as changes of objects and as facts, and when a refused change is tried again.

Source:
    descheduler spec, 7.5, 7.6
"""

from collections.abc import Container, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from math import ceil
from typing import Any, Final, NamedTuple

from koordcore.events.descheduling import ChangedField
from koordcore.events.gateway import PodEvictionRequested
from koordcore.protocol import keys
from koordcore.requests.objects import (
    ChangeOutcome,
    ChangeResult,
    CreateObject,
    DeleteObject,
    ObjectChange,
    PatchObject,
)
from koordcore.values import codec
from koordcore.values.timestamps import rfc3339

from koord_descheduler.domain.framework.eviction import INITIATOR, LONGEST_MESSAGE, REASON
from koord_descheduler.domain.jobs.arguments import DELETE, SOFT_EVICTION
from koord_descheduler.domain.jobs.job import ConditionType, MigrationJob
from koord_descheduler.domain.jobs.reservation_template import movable_document, reservation_for
from koord_descheduler.domain.jobs.state_machine import created, evicted, eviction_of
from koord_descheduler.domain.jobs.world import (
    RETRY_SECONDS,
    CreateReservation,
    DeleteReservation,
    Evict,
    JobPolicy,
    Looked,
    OrderReservation,
    World,
)
from koord_descheduler.domain.view.pods import PodView

_OWN_OPTIONS: Final = ("apiVersion", "kind", "gracePeriodSeconds")
"""Options of a deletion that the request for an eviction has as fields of its own, or that the gateway sets."""
_API_VERSION: Final = "scheduling.koordinator.sh/v1alpha1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One look at a job, and the actions that follow."""

    before: MigrationJob  # The job before the look, with its facts
    looked: Looked
    changes: Sequence[ObjectChange] = ()
    eviction: PodEvictionRequested | None = None
    pod: PodView | None = None
    # Whether another component has already requested the eviction of this pod. The job waits for that eviction.
    is_under_way: bool = False

    @property
    def evicts(self) -> bool:
        """Whether the job requests the end of its pod now, by an eviction or by the soft-eviction annotation."""
        return self.pod is not None and not self.is_under_way


def plan(before: MigrationJob, looked: Looked, under_way: Container[str], now: float, *, without_claims: bool) -> Plan:
    """Return the actions that follow from a look at a job.

    Args:
        under_way: Uids of the pods whose eviction was requested and has not ended.
        now: Unix seconds.
        without_claims: Whether Reservations leave out volumes with a claim (gate DisablePVCReservation).
    """
    job = looked.job
    changes: list[ObjectChange] = []
    found = Plan(before=before, looked=looked, changes=changes)
    for effect in looked.effects:
        match effect:
            case DeleteReservation(name=name):
                changes.append(DeleteObject(kind="Reservation", name=name))
            case OrderReservation(name=name):
                labels = {keys.RESERVATION_ORDER: str(int(now * 1000))}
                changes.append(PatchObject(kind="Reservation", name=name, patch={"metadata": {"labels": labels}}))
            case CreateReservation(pod=pod, avoided=avoided):
                document = reservation_for(
                    job, movable_document(pod), now, without_claims=without_claims, avoided=avoided
                )
                if job.reservation_name != job.uid:
                    metadata = document["metadata"]
                    annotations: dict[str, str] = metadata.get("annotations") or {}
                    marks = {**annotations, keys.RESERVATION_OF_JOB: job.uid}
                    document["metadata"] = {**metadata, "annotations": marks}
                head = {"apiVersion": _API_VERSION, "kind": "Reservation"}
                changes.append(CreateObject(document={**head, **document}))
            case Evict(pod=pod, policy=policy, options=options):
                found = replace(found, pod=pod)
                if pod.uid in under_way:
                    found = replace(found, is_under_way=True)
                elif policy == SOFT_EVICTION:
                    changes.append(_soft_eviction(job, pod, options, now))
                else:
                    found = replace(found, eviction=_eviction(job, pod, policy, options, now))
    return found


def asks_again(job: MigrationJob, looked: Looked, world: World, under_way: Container[str], policy: JobPolicy) -> Looked:
    """Return a look that evicts the pod again, if an earlier eviction was given up; otherwise `looked` itself.

    A paused job evicts nothing. An eviction that is a dry run is not repeated: its pod stays until the job is late.
    """
    eviction = looked.job.condition(ConditionType.EVICTION)
    is_asking = job.is_in_flight and looked.job.is_in_flight and not job.is_paused and job.is_for(policy.installation)
    if looked.effects or eviction is None or eviction.is_true or job.pod is None or not is_asking:
        return looked
    pod = world.pod(job.pod.namespace, job.pod.name)
    if (
        pod is None
        or pod.uid != job.pod.uid
        or pod.is_terminating
        or pod.uid in under_way
        or keys.SOFT_EVICTION in pod.annotations
    ):
        return looked
    again = eviction_of(job, pod, policy)
    return looked if (again.options or {}).get("dryRun") else replace(looked, effects=(again,))


def judged(done: Plan, outcomes: Sequence[ChangeOutcome]) -> list[ChangeOutcome]:
    """Return the outcomes of the changes of a plan, as they count for its job.

    If a Reservation with the name of a template exists already, its creation counts as refused. It may be somebody
    else's. The next look, which sees the Reservation, decides.
    """
    job = done.before
    return [
        ChangeOutcome(result=ChangeResult.REFUSED, message=f'existing Reservation "{job.reservation_name}"')
        if isinstance(change, CreateObject)
        and outcome.result is ChangeResult.EXISTS
        and job.reservation_name != job.uid
        else outcome
        for change, outcome in zip(done.changes, outcomes, strict=True)
    ]


def concluded_look(done: Plan, outcomes: Sequence[ChangeOutcome]) -> Looked:
    """Return a look with the job and the events after the changes and the eviction of its plan.

    If the Reservation was refused, or the soft-eviction annotation was not written, the job gets the reason. A
    requested eviction counts as accepted, also one that another component has requested.
    """
    looked = done.looked
    for change, outcome in zip(done.changes, outcomes, strict=True):
        if isinstance(change, CreateObject):
            error = _error(outcome) if outcome.result is ChangeResult.REFUSED else ""
            looked = _followed_by(looked, created(looked.job, error))
        elif isinstance(change, PatchObject) and done.pod is not None and change.kind == "Pod":
            error = "" if outcome.result is ChangeResult.DONE else _error(outcome)
            looked = _followed_by(looked, evicted(looked.job, done.pod, error))
    if done.pod is not None and (done.eviction is not None or done.is_under_way):
        looked = _followed_by(looked, evicted(looked.job, done.pod, ""))
    return looked


def _error(outcome: ChangeOutcome) -> str:
    return outcome.message or str(outcome.result)


def _followed_by(looked: Looked, answer: Looked) -> Looked:
    return replace(looked, job=answer.job, events=(*looked.events, *answer.events))


def soft_eviction(done: Plan, outcomes: Sequence[ChangeOutcome]) -> ChangedField | None:
    """The soft-eviction annotation that a plan set, with its value before; None if it set none."""
    for change, outcome in zip(done.changes, outcomes, strict=True):
        if done.pod is not None and isinstance(change, PatchObject) and change.kind == "Pod":
            after = change.patch["metadata"]["annotations"][keys.SOFT_EVICTION]
            before = done.pod.annotations.get(keys.SOFT_EVICTION, "")
            return ChangedField(before=before, after=after) if outcome.result is ChangeResult.DONE else None
    return None


def _eviction(
    job: MigrationJob, pod: PodView, policy: str, options: Mapping[str, Any] | None, now: float
) -> PodEvictionRequested:
    """The request for an eviction. It expires with the job, so that no pod leaves after its job has failed."""
    given = options or {}
    grace = given.get("gracePeriodSeconds")
    return PodEvictionRequested(
        namespace=pod.namespace,
        name=pod.name,
        node=pod.node,
        initiator=INITIATOR,
        method="delete" if policy == DELETE else "evict",
        reason=REASON,
        message=f"{job.cause} (migration job {job.name})"[:LONGEST_MESSAGE],
        grace_period_seconds=grace if isinstance(grace, int) else None,
        give_up_after_seconds=max(1, ceil(job.created + job.ttl - now)) if job.ttl else 0,
        delete_options={name: value for name, value in given.items() if name not in _OWN_OPTIONS},
        trigger=job.annotations.get(keys.EVICT_TRIGGER, ""),
        job=job.name,
        job_uid=job.uid,
        round=job.annotations.get(keys.JOB_ROUND, ""),
        profile=job.annotations.get(keys.JOB_PROFILE, ""),
    )


def _soft_eviction(job: MigrationJob, pod: PodView, options: Mapping[str, Any] | None, now: float) -> PatchObject:
    """Set the soft-eviction annotation, which asks an external controller to end the pod."""
    asked = {
        "timestamp": rfc3339(datetime.fromtimestamp(now, UTC)),
        "deleteOptions": dict(options or {}),
        "initiator": job.annotations.get(keys.EVICT_TRIGGER, ""),
        "reason": job.cause,
    }
    annotations = {keys.SOFT_EVICTION: codec.encode(asked).decode()}
    return PatchObject(
        kind="Pod",
        namespace=pod.namespace,
        name=pod.name,
        uid=pod.uid,
        patch={"metadata": {"annotations": annotations}},
    )


FIRST_SECONDS: Final = RETRY_SECONDS
LONGEST_SECONDS: Final = 60.0


class _Refused(NamedTuple):
    pause: float
    until: float


@dataclass(slots=True)
class Refusals:
    """The refused changes of one controller, each by what identifies it. Only its task uses it.

    Pauses double. Without them, a change that is refused for a lasting reason, such as a Reservation without owners,
    would be sent and logged every few seconds.
    """

    _known: dict[Hashable, _Refused] = field(default_factory=dict[Hashable, _Refused])

    def waits(self, change: Hashable, now: float) -> bool:
        """Whether a change was refused and is not to be tried yet, at `now` in Unix seconds.

        A clock set back ends the pause.
        """
        known = self._known.get(change)
        return known is not None and known.until - known.pause <= now < known.until

    def pause_after(self, change: Hashable, outcomes: Iterable[ChangeOutcome], now: float) -> float | None:
        """Return the seconds after which to try a change again; None if it was accepted.

        It is refused if one of its parts is. `now`: Unix seconds.
        """
        known = self._known.pop(change, None)
        if all(outcome.result is not ChangeResult.REFUSED for outcome in outcomes):
            return None
        pause = FIRST_SECONDS if known is None else min(2 * known.pause, LONGEST_SECONDS)
        self._known[change] = _Refused(pause, now + pause)
        return pause

    def forget(self, change: Hashable) -> None:
        self._known.pop(change, None)

    def forget_old(self, now: float) -> None:
        """Forget changes that were not tried again long after their pause, because nobody wants them any more."""
        self._known = {change: each for change, each in self._known.items() if now - each.until < LONGEST_SECONDS}

    def clear(self) -> None:
        self._known.clear()
