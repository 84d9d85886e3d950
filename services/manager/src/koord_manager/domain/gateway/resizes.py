"""Decide which resizes of pods have to be sent to the API server, and interpret its answers.

A resize is a patch of the subresource `resize`, which exists since Kubernetes 1.33. It names the uid of the pod, so a
new pod with the same name is never resized.

Source: https://kubernetes.io/docs/tasks/configure-pod-container/resize-container-resources/
"""

from typing import NamedTuple

from koordcore.events.envelope import AggregateRef, Draft
from koordcore.events.gateway import PodResizeAnswered, ResizedContainer
from koordcore.state.aggregates import PodSpecState

from koord_manager.domain.cluster.view import ManagerView
from koord_manager.domain.gateway.binding import pod_path
from koord_manager.domain.gateway.requests import STRATEGIC_PATCH, Json, Meaning, Request, meaning_of


class PendingResize(NamedTuple):
    uid: str
    namespace: str
    name: str
    containers: list[ResizedContainer]
    seq: int  # Sequence of the `PodResizeRequested`


def pending_resize(view: ManagerView, uid: str) -> PendingResize | None:
    """None if none is requested, the API server has answered, or the pod is being deleted."""
    spec = view.state.of_kind(PodSpecState).get(uid)
    if spec is None or spec.resize is None or spec.resize.answered_at:
        return None
    meta = spec.object.metadata
    if meta.deletion_timestamp is not None:
        return None
    return PendingResize(uid, meta.namespace, meta.name, spec.resize.containers, spec.resize.seq)


def resize_request(resize: PendingResize) -> Request:
    containers: list[Json] = [
        {
            "name": each.name,
            "resources": {"requests": each.requests, **({"limits": each.limits} if each.limits else {})},
        }
        for each in resize.containers
    ]
    body: Json = {"metadata": {"uid": resize.uid}, "spec": {"containers": containers}}
    return Request("resize", "PATCH", f"{pod_path(resize.namespace, resize.name)}/resize", body, STRATEGIC_PATCH)


def judge_resize(resize: PendingResize, status: int, message: str) -> PodResizeAnswered | None:
    """Interpret the API server's answer. None: it has to be asked again.

    404 is a refusal: the API server does not know the subresource, or the pod is gone, which its mirror then says.
    """
    match meaning_of(status):
        case Meaning.DONE:
            return PodResizeAnswered(request=resize.seq)
        case Meaning.GONE:
            return PodResizeAnswered(request=resize.seq, failure="NotFound", message=message[:1000])
        case Meaning.REFUSED:
            failure = "Forbidden" if status == 403 else "Invalid"
            return PodResizeAnswered(request=resize.seq, failure=failure, message=message[:1000])
        case Meaning.CONFLICT | Meaning.LATER:
            return None


def resize_draft(view: ManagerView, resize: PendingResize, answer: PodResizeAnswered) -> Draft | None:
    """Return the fact that records an answer; None if it is recorded, or another resize was requested since."""
    present = pending_resize(view, resize.uid)
    if present is None or present.seq != resize.seq:
        return None
    return Draft(AggregateRef("podspec", resize.uid), answer, view.state.of_kind(PodSpecState)[resize.uid].seq)
