"""Decide which placed pods have to be bound, and interpret the answers of the API server.

The fact `PodPlaced` says that the scheduler chose a node. `pending_binding` returns the binding that is still to be
sent, and `outcome_draft` the fact about its result: `PodBound` or `PodBindFailed`. After `PodBindFailed` the scheduler
releases the node.

A binding carries the uid of the pod, so it never binds a new pod with the same name. It also sets the annotations of
the pod's allocation. It is pending until the mirrored pod has a node or a fact records the result. So a crash loses no
binding: the next leader sends it again, gets status 409, and reads the pod.

For the device plugin of a vendor, the node is locked before by an annotation. It is read from the API server, because
device plugins remove it there. The patch names the version that was read, so two managers never set it at once.

Source:
    event-bus spec, 3.2, 12; scheduler-fine-grained spec, 2.14 (lock);
    https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/
"""

from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

import msgspec
from koordcore.events.envelope import AggregateRef, Draft, name_token
from koordcore.events.gateway import PodBindFailed, PodBound
from koordcore.protocol.annotations.allocation import binding_annotations
from koordcore.protocol.hardware.vendor_devices import POD_LABELS, NodeLock, node_lock_of, parse_node_lock
from koordcore.protocol.objects import POD_SCHEDULED, Pod, PodCondition
from koordcore.state.aggregates import PodSpecState, PodState
from koordcore.state.evolution.api_objects import bound_pod
from koordcore.values import codec
from koordcore.values.allocation import ClaimBinding
from msgspec.structs import replace

from koord_manager.domain.cluster.view import ManagerView
from koord_manager.domain.gateway.requests import MERGE_PATCH, REQUEST_SECONDS, Json, Meaning, Request, meaning_of

COPIED_LABELS: Final = frozenset(("topology.kubernetes.io/zone", "topology.kubernetes.io/region"))
"""Labels of a node that the API server copies to a pod that is bound to it (admission plugin PodTopologyLabels)."""


class Binding(NamedTuple):
    uid: str
    namespace: str
    name: str
    node: str
    placement: int  # Position in the log of the `PodPlaced` that the binding carries out
    annotations: dict[str, str]  # Annotations that the binding sets on the pod, such as those of its allocation
    labels: dict[str, str] = {}  # Labels to set on the pod before it is bound
    lock: str = ""  # Annotation of the node that must be set for the pod before it is bound; "" for none
    # Claims that must be bound before the pod is bound, with the volumes that the scheduler chose.
    claims: tuple[ClaimBinding, ...] = ()
    claims_due: datetime | None = None  # Time until which the claims must be bound; None if there are no claims

    @property
    def node_token(self) -> str:
        return name_token(self.node)


class Settled(NamedTuple):
    """The final outcome of a binding: the pod is bound, or it will never be bound by this placement."""

    failure: str = ""  # Reason in one word, for the fact, why the pod will never be bound; "" if it is bound
    message: str = ""  # Explanation of a failure
    found: Pod | None = None  # The pod from which the outcome was read; None if it is the answer to the binding


class Later(NamedTuple):
    # Whether the caller has to read the pod to find out. Otherwise it sends the binding again later.
    look: bool = False


def pending_binding(view: ManagerView, uid: str) -> Binding | None:
    """Return the binding to send for a pod; None if it is not placed, is deleted, or its outcome is recorded."""
    placed = view.state.of_kind(PodState).get(uid)
    spec = view.state.of_kind(PodSpecState).get(uid)
    if placed is None or not placed.node or spec is None:
        return None
    if spec.binding is not None and spec.binding.placement == placed.seq:
        return None
    meta = spec.object.metadata
    annotations = binding_annotations(placed.allocation, placed.gang, placed.annotations, meta.annotations)
    labels = {key: annotations.pop(key) for key in POD_LABELS & annotations.keys()}
    lock = node_lock_of(annotations)
    claims, due = placed.allocation.volume_claims, None
    if claims:
        limit = timedelta(seconds=placed.allocation.bind_timeout_seconds)
        due = datetime.fromisoformat(placed.placed_at) + limit
    return Binding(uid, meta.namespace, meta.name, placed.node, placed.seq, annotations, labels, lock, claims, due)


def known_outcome(view: ManagerView, binding: Binding) -> Settled | None:
    """Return the outcome that the mirrored pod shows, for example of an earlier attempt; None to send the binding."""
    spec = view.state.of_kind(PodSpecState).get(binding.uid)
    return outcome_of_pod(binding, spec.object) if spec is not None else None


def outcome_of_pod(binding: Binding, pod: Pod) -> Settled | None:
    """Return the outcome of a binding as the pod object shows it, or None if the pod can still be bound."""
    node = pod.spec.node_name
    if node == binding.node:
        return Settled(found=pod)
    if node:
        return Settled("AssignedElsewhere", f"the pod is assigned to node {node}", pod)
    if pod.metadata.deletion_timestamp is not None:
        return Settled("Terminating", "the pod is being deleted", pod)
    return None


def binding_request(binding: Binding) -> Request:
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
    """Return what the API server's answer says about a binding. `status`: 0 stands for no answer.

    `Later` if the final outcome is not known yet; after a conflict, the pod must be read first. None if the pod does
    not exist, so that there is nothing to record.
    """
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
    """Return the outcome of a binding that the API server refused as a conflict, from the pod that was read afterwards.

    `pod` is None if it could not be read. `Later` if the binding has to be sent again. None if the pod does not exist,
    or if another pod has its name now.
    """
    if pod is None:
        return None if meaning_of(status) is Meaning.GONE else Later()
    if pod.metadata.uid != binding.uid:
        return None
    return outcome_of_pod(binding, pod) or Later()


def outcome_draft(view: ManagerView, binding: Binding, settled: Settled, answered_at: datetime) -> Draft | None:
    """Return the fact that records the final outcome of a binding; None if it is recorded, or the pod is deleted.

    If the log does not have the bound pod yet, `PodBound` contains its node, annotations, labels and time of binding.
    The gateway then records no further fact when it observes the bound pod. `answered_at` is by the clock of the API
    server.
    """
    spec = view.state.of_kind(PodSpecState).get(binding.uid)
    if spec is None or (spec.binding is not None and spec.binding.placement >= binding.placement):
        return None
    ref = AggregateRef("podspec", binding.uid)
    if settled.failure:
        event = PodBindFailed(
            node=binding.node, placement=binding.placement, reason=settled.failure, message=settled.message[:1000]
        )
        return Draft(ref, event, spec.seq)
    found = settled.found
    if found is None and not spec.object.spec.node_name:
        event = _bound(view, binding, f"{answered_at.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}")
    else:
        ours = observed_binding(view, binding.uid, spec.object, found) if found is not None else None
        event = ours or PodBound(node=binding.node, placement=binding.placement, observed=found is not None)
    return Draft(ref, event, spec.seq)


def observed_binding(view: ManagerView, uid: str, old: Pod, found: Pod) -> PodBound | None:
    """Return the fact for a bound pod that was observed, and whose binding was not answered.

    None if our pending binding does not explain all that has changed.
    """
    binding = pending_binding(view, uid) if found.spec.node_name and not old.spec.node_name else None
    if binding is None:
        return None
    condition = _scheduled(found)
    event = _bound(view, binding, (condition and condition.last_transition_time) or "")
    return event if bound_pod(old, event) == found else None


def is_same_binding(old: Pod, found: Pod) -> bool:
    """Return whether an observed pod differs from the log only in the second in which the API server bound it.

    The log has the time of the answer to the binding. The API server sets the condition `PodScheduled` before, at most
    30 seconds. With a longer difference, return False.
    """
    was, at = _scheduled(old), _scheduled(found)
    if was is None or at is None or not was.last_transition_time or not at.last_transition_time:
        return False
    early = datetime.fromisoformat(was.last_transition_time) - datetime.fromisoformat(at.last_transition_time)
    if not 0 < early.total_seconds() <= REQUEST_SECONDS:
        return False
    of_answer = [was if each is at else each for each in found.status.conditions]
    return old == replace(found, status=replace(found.status, conditions=of_answer))


def _scheduled(pod: Pod) -> PodCondition | None:
    """Return the condition that says that a pod has a node, or None."""
    true = (each for each in pod.status.conditions if each.type == POD_SCHEDULED and each.status == "True")
    return next(true, None)


def _bound(view: ManagerView, binding: Binding, at: str) -> PodBound:
    node = view.node(binding.node_token)
    labels = {key: text for key, text in node.metadata.labels.items() if key in COPIED_LABELS} if node else {}
    return PodBound(
        node=binding.node,
        placement=binding.placement,
        bound_at=at,
        annotations=binding.annotations,
        labels=labels,
    )


def pod_path(namespace: str, name: str) -> str:
    return f"/api/v1/namespaces/{namespace}/pods/{name}"


LOCKED = "NodeLocked"


class _Meta(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    annotations: dict[str, str] | None = None


class _Node(msgspec.Struct):
    metadata: _Meta


def look_request(binding: Binding) -> Request:
    return Request("read-node", "GET", _path(binding), None)


def lock_request(
    view: ManagerView, binding: Binding, status: int, body: bytes, now: datetime
) -> Request | Settled | Later | None:
    """Return the next step to lock the node of a binding, after the node was read.

    A lock that has expired, or whose pod does not exist any more, is replaced.

    Args:
        binding: The binding; it needs a lock.
        status: HTTP status of reading the node; 0 stands for no answer.

    Returns:
        The request that sets the lock. None if the pod holds the lock already. `Settled` if the binding failed,
        because another pod holds the lock, or because the node is gone or may not be read. `Later` if the API server
        did not answer readably, so that the node has to be read again.
    """
    match meaning_of(status):
        case Meaning.DONE:
            pass
        case Meaning.GONE:
            return Settled("NodeGone", f"the node {binding.node} does not exist")
        case Meaning.REFUSED:
            return Settled("Forbidden", f"the lock of node {binding.node} cannot be read")
        case _:
            return Later()
    try:
        meta = codec.decode(body, _Node).metadata
    except codec.DecodeError:
        return Later()
    held = parse_node_lock((meta.annotations or {}).get(binding.lock, ""))
    own = NodeLock(now, binding.namespace, binding.name)
    if held is not None and not held.is_expired(now):
        if (held.namespace, held.name) == (own.namespace, own.name):
            return None
        if view.pod(held.namespace, held.name) is not None:
            return Settled(LOCKED, f"node {binding.node} is locked for pod {held.namespace}/{held.name}")
    written: Json = {"resourceVersion": meta.resource_version, "annotations": {binding.lock: own.text()}}
    return Request("lock-node", "PATCH", _path(binding), {"metadata": written}, MERGE_PATCH)


def label_request(binding: Binding) -> Request | None:
    """Return the request that sets the labels of a binding on its pod; None if it has none."""
    if not binding.labels:
        return None
    meta: dict[str, Any] = {"uid": binding.uid, "labels": binding.labels}
    return Request("label-pod", "PATCH", pod_path(binding.namespace, binding.name), {"metadata": meta}, MERGE_PATCH)


def _path(binding: Binding) -> str:
    return f"/api/v1/nodes/{binding.node}"
