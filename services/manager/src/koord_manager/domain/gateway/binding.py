"""Bindings of placed pods: which are pending, and what an answer of the API server means.

PodPlaced -> pending_binding -> POST pods/<name>/binding -> PodBound | PodBindFailed (the scheduler releases the node)

The binding carries the pod's uid, so it never binds another pod of that name, and the pod's allocation as annotations,
which the object has from the moment it has a node. It is pending while the fold says placed and neither the mirrored
object nor a recorded outcome answers. So a crash leaves it pending; a repetition is answered 409, and then the pod is
read.

Source:
    event-bus spec, 3.2, 12; https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/
"""

from typing import NamedTuple

from koordcore.events.envelope import AggregateRef, Draft
from koordcore.events.objects.gateway import PodBindFailed, PodBound
from koordcore.protocol.annotations.binding import binding_annotations
from koordcore.protocol.objects import Pod
from koordcore.state.aggregates import PodSpecState, PodState

from koord_manager.domain.cluster.view import ManagerView
from koord_manager.domain.gateway.requests import Json, Meaning, Request, meaning_of


class Binding(NamedTuple):
    """A pending binding.

    Attributes:
        placement: Sequence of the `PodPlaced`.
        annotations: Annotations that the binding sets on the pod.
    """

    uid: str
    namespace: str
    name: str
    node: str
    placement: int
    annotations: dict[str, str]


class Settled(NamedTuple):
    """The outcome of a binding.

    `failure` is empty if the pod is bound, else the reason why it never will be. `observed` says that it was found
    bound.
    """

    failure: str = ""
    message: str = ""
    observed: bool = False


class Later(NamedTuple):
    """The outcome is unknown; if `look` is set, read the pod first."""

    look: bool = False


def pending_binding(view: ManagerView, uid: str) -> Binding | None:
    """Return the pending binding of a pod, or None if it is not placed, settled, gone, or being deleted."""
    placed = view.state.of_kind(PodState).get(uid)
    spec = view.state.of_kind(PodSpecState).get(uid)
    if placed is None or not placed.node or spec is None:
        return None
    if spec.binding is not None and spec.binding.placement == placed.seq:
        return None
    meta = spec.object.metadata
    annotations = binding_annotations(placed.allocation, placed.gang, placed.annotations, meta.annotations)
    return Binding(uid, meta.namespace, meta.name, placed.node, placed.seq, annotations)


def known_outcome(view: ManagerView, binding: Binding) -> Settled | None:
    """Return the outcome that the mirrored object shows, or None if the binding has to be tried."""
    spec = view.state.of_kind(PodSpecState).get(binding.uid)
    return outcome_of_pod(binding, spec.object) if spec is not None else None


def outcome_of_pod(binding: Binding, pod: Pod) -> Settled | None:
    """Return the outcome that an object shows, or None if it can still be bound."""
    node = pod.spec.node_name
    if node == binding.node:
        return Settled(observed=True)
    if node:
        return Settled("AssignedElsewhere", f"the pod is assigned to node {node}", observed=True)
    if pod.metadata.deletion_timestamp is not None:
        return Settled("Terminating", "the pod is being deleted", observed=True)
    return None


def binding_request(binding: Binding) -> Request:
    """Return the request that binds."""
    meta: Json = {"name": binding.name, "namespace": binding.namespace, "uid": binding.uid}
    if binding.annotations:
        meta["annotations"] = binding.annotations
    body: Json = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": meta,
        "target": {"apiVersion": "v1", "kind": "Node", "name": binding.node},
    }
    return Request("bind", "POST", f"{pod_path(binding.namespace, binding.name)}/binding", body)


def judge_binding(status: int, message: str) -> Settled | Later | None:
    """Return the outcome of an answer to a binding, or None if the pod is gone, which the mirror records."""
    match meaning_of(status):
        case Meaning.DONE:
            return Settled()
        case Meaning.CONFLICT:
            return Later(look=True)
        case Meaning.GONE:
            return None
        case Meaning.LATER:
            return Later()
        case Meaning.REFUSED:
            return Settled("Forbidden" if status == 403 else "Invalid", message)


def judge_look(binding: Binding, status: int, pod: Pod | None) -> Settled | Later | None:
    """Return the outcome that a pod shows after a conflict, or None if it is gone or another one of its name."""
    if pod is None:
        return None if meaning_of(status) is Meaning.GONE else Later()
    if pod.metadata.uid != binding.uid:
        return None
    return outcome_of_pod(binding, pod) or Later()


def outcome_draft(view: ManagerView, binding: Binding, settled: Settled) -> Draft | None:
    """Return the fact of an outcome, or None if it is recorded or the pod is gone."""
    spec = view.state.of_kind(PodSpecState).get(binding.uid)
    if spec is None or (spec.binding is not None and spec.binding.placement >= binding.placement):
        return None
    ref = AggregateRef("podspec", binding.uid)
    if settled.failure:
        event = PodBindFailed(
            node=binding.node, placement=binding.placement, reason=settled.failure, message=settled.message[:1000]
        )
        return Draft(ref, event, spec.seq)
    return Draft(ref, PodBound(node=binding.node, placement=binding.placement, observed=settled.observed), spec.seq)


def pod_path(namespace: str, name: str) -> str:
    """Return the path of a pod."""
    return f"/api/v1/namespaces/{namespace}/pods/{name}"
