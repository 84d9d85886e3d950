"""Evictions that were asked for and are not done: the request for each, and what its answer means.

`evict` goes through policy/v1 Eviction, so that disruption budgets are honoured: 429 means "not now", and is asked
again until the request's own patience ends. `delete` is a preemption: budgets were weighed by who chose the victim.
Both name the pod's uid, so that a successor of the same name is never taken for it.

source    event-bus spec, 3.2; https://kubernetes.io/docs/concepts/scheduling-eviction/api-eviction/
"""

from datetime import datetime
from typing import NamedTuple

from koordcore.events.envelope import AggregateRef, Draft
from koordcore.events.objects.gateway import PodEvicted, PodEvictionFailed, PodEvictionRequested
from koordcore.state.aggregates import EvictionState, PodSpecState

from koord_manager.domain.cluster.view import ManagerView
from koord_manager.domain.gateway.binding import pod_path
from koord_manager.domain.gateway.requests import Json, Meaning, Request, meaning_of


class Eviction(NamedTuple):
    """An eviction that is owed."""

    uid: str
    request: PodEvictionRequested
    requested_at: str


class Evicted(NamedTuple):
    """It is done. gone: the pod did not exist any more."""

    gone: bool = False


class GivenUp(NamedTuple):
    """It will not be done."""

    reason: str
    message: str


class Waits(NamedTuple):
    """Not now."""

    why: str


def pending_eviction(view: ManagerView, uid: str) -> Eviction | None:
    """The eviction that is owed for a pod; None when nobody asks for one."""
    state = view.state.of_kind(EvictionState).get(uid)
    return Eviction(uid, state.request, state.requested_at) if state is not None else None


def is_leaving(view: ManagerView, eviction: Eviction) -> bool:
    """Whether the mirrored pod is gone or being deleted: then there is nothing left to ask."""
    spec = view.state.of_kind(PodSpecState).get(eviction.uid)
    return spec is None or spec.object.metadata.deletion_timestamp is not None


def eviction_request(eviction: Eviction) -> Request:
    """The request that evicts or deletes."""
    asked = eviction.request
    options: Json = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": eviction.uid}}
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


def judge_eviction(eviction: Eviction, status: int, message: str, now: datetime) -> Evicted | GivenUp | Waits:
    """What the answer means. 409 is the precondition: the pod of that name is another one, ours is gone."""
    match meaning_of(status):
        case Meaning.DONE:
            return Evicted()
        case Meaning.GONE | Meaning.CONFLICT:
            return Evicted(gone=True)
        case Meaning.REFUSED:
            return GivenUp("Forbidden" if status == 403 else "Invalid", message)
        case Meaning.LATER:
            patience = eviction.request.give_up_after_seconds
            waited = (now - datetime.fromisoformat(eviction.requested_at)).total_seconds()
            if status == 429 and patience and waited > patience:
                return GivenUp("TooManyRequests", message)
            return Waits(message)


def eviction_draft(view: ManagerView, eviction: Eviction, ended: Evicted | GivenUp) -> Draft | None:
    """The fact of how an eviction ended; None when it is recorded."""
    state = view.state.of_kind(EvictionState).get(eviction.uid)
    if state is None:
        return None
    ref = AggregateRef("eviction", eviction.uid)
    if isinstance(ended, Evicted):
        return Draft(ref, PodEvicted(gone=ended.gone), state.seq)
    return Draft(ref, PodEvictionFailed(reason=ended.reason, message=ended.message[:1000]), state.seq)
