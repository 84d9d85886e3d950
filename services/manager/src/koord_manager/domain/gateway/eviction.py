"""Decide which pods have to be evicted through the API server, and interpret its answers.

A request with the method `evict` becomes a policy/v1 Eviction, which respects disruption budgets. If a budget refuses
it (429), it is retried until the request expires. An expired request is never sent. The method `delete` is used for
preemption, where the scheduler has checked the budgets. Both name the uid of the pod, so a new pod with the same name
is never evicted.

Source:
    event-bus spec, 3.2; https://kubernetes.io/docs/concepts/scheduling-eviction/api-eviction/
"""

from datetime import datetime
from typing import Any, Final, NamedTuple, TypeAlias

from koordcore.events.envelope import AggregateRef, Draft
from koordcore.events.gateway import (
    ONLY_TRIED,
    PodEvicted,
    PodEvictionDelayed,
    PodEvictionFailed,
    PodEvictionRequested,
    PodEvictionWithdrawn,
)
from koordcore.state.aggregates import EvictionState, PodSpecState
from koordcore.values import codec

from koord_manager.domain.cluster.view import MIGRATION_JOBS, ManagerView
from koord_manager.domain.cluster.withdrawn_evictions import withdrawal_by_job
from koord_manager.domain.gateway.binding import pod_path
from koord_manager.domain.gateway.requests import Json, Meaning, Request, meaning_of

_JOBS_PATH: Final = f"/apis/scheduling.koordinator.sh/v1alpha1/{MIGRATION_JOBS}"
_DELAYS: Final = {0: "NoAnswer", 401: "Unauthorized", 408: "NoAnswer", 429: "TooManyRequests"}
"""HTTP status of an answer after which an eviction is retried -> reason in the fact. Others are server errors."""


class Eviction(NamedTuple):
    uid: str
    request: PodEvictionRequested
    requested_at: str  # Time of that event, RFC 3339


class Evicted(NamedTuple):
    gone: bool = False  # Whether the pod did not exist any more, so that no eviction was necessary


class GivenUp(NamedTuple):
    """Outcome of an eviction: it failed, or was a dry run that the API server accepted. It is not retried."""

    reason: str  # Reason in one word, for the fact
    message: str


class Waits(NamedTuple):
    reason: str  # Reason in one word, for the fact
    why: str  # Explanation, for example the disruption budget that refuses it


Ended: TypeAlias = Evicted | GivenUp | PodEvictionWithdrawn
"""How an eviction ended: it is not tried again."""


def pending_eviction(view: ManagerView, uid: str) -> Eviction | None:
    state = view.state.of_kind(EvictionState).get(uid)
    return Eviction(uid, state.request, state.requested_at) if state is not None else None


def is_leaving(view: ManagerView, eviction: Eviction) -> bool:
    """Return whether the pod of an eviction is deleted or being deleted, so that no request has to be sent."""
    spec = view.state.of_kind(PodSpecState).get(eviction.uid)
    return spec is None or spec.object.metadata.deletion_timestamp is not None


def expired(view: ManagerView, uid: str, now: datetime) -> GivenUp | None:
    """Return the outcome of an eviction whose request has expired, so that it must not be sent; else None."""
    state = view.state.of_kind(EvictionState).get(uid)
    failure = state.expired(now) if state is not None else None
    return GivenUp(failure.reason, failure.message) if failure is not None else None


def job_request(eviction: Eviction) -> Request | None:
    """Return the request that reads the job of an eviction; None if no job requested it.

    The API server answers with the job as it is now. The fold may be behind.
    """
    if not eviction.request.job:
        return None
    return Request("read-job", "GET", f"{_JOBS_PATH}/{eviction.request.job}", None)


def judge_job(eviction: Eviction, status: int, body: bytes, message: str) -> PodEvictionWithdrawn | Waits | None:
    """Interpret the answer to `job_request`: None if the job still wants the eviction.

    Args:
        status: HTTP status. If it does not say whether the job exists, the eviction waits.
    """
    match meaning_of(status):
        case Meaning.DONE:
            return withdrawal_by_job(eviction.request, codec.decode(body, dict[str, Any]))
        case Meaning.GONE:
            return withdrawal_by_job(eviction.request, None)
        case _:
            reason = "Forbidden" if status == 403 else _DELAYS.get(status, "ServerError")
            return Waits(reason, f"cannot get PodMigrationJob {eviction.request.job}: {message}")


def eviction_request(eviction: Eviction) -> Request:
    asked = eviction.request
    preconditions = {"uid": eviction.uid, **asked.delete_options.get("preconditions", {})}
    options: Json = {
        **asked.delete_options,
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "preconditions": preconditions,
    }
    if asked.grace_period_seconds is not None:
        options["gracePeriodSeconds"] = asked.grace_period_seconds
    path = pod_path(asked.namespace, asked.name)
    if asked.method == "delete":
        return Request("delete-pod", "DELETE", path, options)
    body: Json = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": asked.name, "namespace": asked.namespace},
        "deleteOptions": options,
    }
    return Request("evict", "POST", f"{path}/eviction", body)


def judge_eviction(eviction: Eviction, status: int, message: str) -> Evicted | GivenUp | Waits:
    """Interpret the API server's answer to an eviction: it is done, has failed for good, or must be retried.

    A pod that does not exist counts as evicted. A dry run that the API server accepts is `GivenUp`: the pod
    stays.

    Args:
        status: HTTP status; 409 means that another pod has the name now, so the pod is gone. If the eviction has
            preconditions of its own, one of them may be violated instead.
    """
    match meaning_of(status):
        case Meaning.DONE:
            return GivenUp(ONLY_TRIED.reason, ONLY_TRIED.message) if eviction.request.is_dry_run else Evicted()
        case Meaning.CONFLICT if eviction.request.delete_options.get("preconditions"):
            return GivenUp("Conflict", message)
        case Meaning.GONE | Meaning.CONFLICT:
            return Evicted(gone=True)
        case Meaning.REFUSED:
            return GivenUp("Forbidden" if status == 403 else "Invalid", message)
        case Meaning.LATER:
            return Waits(_DELAYS.get(status, "ServerError"), message)


def eviction_draft(view: ManagerView, eviction: Eviction, ended: Ended | Waits) -> Draft | None:
    """Return the fact that records the outcome of an eviction or of an attempt. Return None if it is recorded already.

    An eviction that is retried has one fact for each reason, however often an attempt fails.
    """
    state = view.state.of_kind(EvictionState).get(eviction.uid)
    if state is None:
        return None
    ref = AggregateRef("eviction", eviction.uid)
    if isinstance(ended, Waits):
        delayed = PodEvictionDelayed(reason=ended.reason, message=ended.why[:1000])
        return None if ended.reason in state.delays else Draft(ref, delayed, state.seq)
    if isinstance(ended, Evicted):
        return Draft(ref, PodEvicted(gone=ended.gone), state.seq)
    if isinstance(ended, PodEvictionWithdrawn):
        return Draft(ref, ended, state.seq)
    return Draft(ref, PodEvictionFailed(reason=ended.reason, message=ended.message[:1000]), state.seq)
