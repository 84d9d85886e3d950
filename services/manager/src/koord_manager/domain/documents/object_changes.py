"""Changes of objects that other services ask for: as facts, or with an API server as requests to it.

Each request can be repeated: a deletion and a patch name the uid of their object.

Source:
    descheduler spec, 11.2 (3), 11.3; 14 (effects carry idempotency keys)
"""

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

import msgspec
from koordcore.events.envelope import AggregateRef, Draft, name_token
from koordcore.events.objects import NodeSpecChanged, PodSpecChanged
from koordcore.protocol.crd.catalogue import find_resource
from koordcore.protocol.objects import Node, node_from_json, pod_from_json
from koordcore.requests import objects
from koordcore.requests.objects import ChangeNode, PatchObject
from koordcore.state.aggregates import NodeSpecState
from koordcore.values import codec
from koordcore.values.invalid import InvalidInput

from koord_manager.domain.admission.options import Options
from koord_manager.domain.cluster.view import ManagerView
from koord_manager.domain.documents.admitting import Applied
from koord_manager.domain.documents.apply_custom import patch_custom, resource_of_kind
from koord_manager.domain.documents.cordon import with_cordon_taint
from koord_manager.domain.documents.merging import merged
from koord_manager.domain.gateway.binding import pod_path
from koord_manager.domain.gateway.requests import JSON, MERGE_PATCH, Json, Meaning, Request, meaning_of

NOT_FOUND: Final = Applied("not-found", "", [])

Change: TypeAlias = ChangeNode | PatchObject


def decide_change(view: ManagerView, change: Change, *, new_uid: str, options: Options) -> Applied:
    """Decide the change of a node, a pod or a custom resource: return the fact that makes it.

    If the object does not exist, or has the wanted state already, the result has no fact. For a node, only labels,
    taints and `unschedulable` are compared: annotations alone are no change.

    Args:
        new_uid: Uid of the admission request for the changed object. The object keeps its own uid.

    Raises:
        InvalidManifest: Admission refuses the changed object.
    """
    if isinstance(change, ChangeNode):
        return _node(view, change)
    if change.kind == "Pod":
        return _pod(view, change)
    return patch_custom(view, change, new_uid=new_uid, options=options) or NOT_FOUND


def changed_node(node: Node, change: ChangeNode) -> Node:
    """Return a copy of a node in which a change has set labels, annotations, taints and `unschedulable`.

    A label with the value None is removed. A new taint replaces that of the same key and effect. If the change leaves
    `unschedulable` None, it stays.
    """
    labels = {name: text for name, text in {**node.metadata.labels, **change.labels}.items() if text is not None}
    gone = {(taint.key, taint.effect) for taint in (*change.taints, *change.removed_taints)}
    taints = [taint for taint in node.spec.taints if (taint.key, taint.effect) not in gone]
    unschedulable = node.spec.unschedulable if change.unschedulable is None else change.unschedulable
    return msgspec.structs.replace(
        node,
        metadata=msgspec.structs.replace(
            node.metadata, labels=labels, annotations={**node.metadata.annotations, **change.annotations}
        ),
        spec=msgspec.structs.replace(node.spec, taints=[*taints, *change.taints], unschedulable=unschedulable),
    )


def _node(view: ManagerView, change: ChangeNode) -> Applied:
    ref = AggregateRef("nodespec", name_token(change.name))
    state = view.state.of_kind(NodeSpecState).get(ref.id)
    if state is None:
        return NOT_FOUND
    node = changed_node(state.object, change)
    node.spec = with_cordon_taint(node.spec)
    if _same_node(node, state.object):
        return Applied("unchanged", "", [])
    return Applied("configured", "", [Draft(ref, NodeSpecChanged(object=node), state.seq)])


def _same_node(one: Node, other: Node) -> bool:
    """Return whether labels, `unschedulable` and the set of taints are equal. Their order does not matter."""
    sets = [{(taint.key, taint.effect, taint.value) for taint in node.spec.taints} for node in (one, other)]
    return (
        sets[0] == sets[1]
        and one.metadata.labels == other.metadata.labels
        and one.spec.unschedulable == other.spec.unschedulable
    )


def _pod(view: ManagerView, change: PatchObject) -> Applied:
    found = view.pod(change.namespace, change.name)
    if found is None or change.uid not in ("", found[0]):
        return NOT_FOUND
    uid, state = found
    pod = pod_from_json(merged(msgspec.to_builtins(state.object), change.patch))
    if pod == state.object:
        return Applied("unchanged", uid, [])
    return Applied("configured", uid, [Draft(AggregateRef("podspec", uid), PodSpecChanged(object=pod), state.seq)])


def is_present(view: ManagerView, document: Mapping[str, Any]) -> bool:
    metadata: Mapping[str, Any] = document.get("metadata") or {}
    names = (str(document.get("kind", "")), str(metadata.get("namespace", "")), str(metadata.get("name", "")))
    return uid_of(view, *names) is not None


def uid_of(view: ManagerView, kind: str, namespace: str, name: str) -> str | None:
    if kind == "Pod":
        found = view.pod(namespace, name)
        return None if found is None else found[0]
    resource = resource_of_kind(kind)
    state = view.custom(resource.plural, namespace, name) if resource is not None else None
    if state is None:
        return None
    return str(state.object["metadata"].get("uid", ""))


def request_of(change: objects.CreateObject | objects.DeleteObject | objects.PatchObject) -> Request:
    """Return the request to the API server that makes a change.

    Raises:
        InvalidInput: The kind of the object is not one that this service may write.
    """
    match change:
        case objects.CreateObject(document=document):
            version, kind = str(document.get("apiVersion", "")), str(document.get("kind", ""))
            resource = find_resource(version, kind)
            if resource is None:
                raise InvalidInput("a custom resource of the protocol", f"{version} {kind}", "document.kind")
            metadata: Json = document.get("metadata") or {}
            namespace = str(metadata.get("namespace", ""))
            return Request("create-object", "POST", _path(kind, namespace), document, JSON)
        case objects.DeleteObject():
            options: Json = {"apiVersion": "v1", "kind": "DeleteOptions"}
            if change.uid:
                options["preconditions"] = {"uid": change.uid}
            return Request("delete-object", "DELETE", _path(change.kind, change.namespace, change.name), options, JSON)
        case objects.PatchObject():
            body: Json = {**change.patch}
            if change.uid:
                body["metadata"] = {**body.get("metadata", {}), "uid": change.uid}
            path = _path(change.kind, change.namespace, change.name)
            return Request("patch-object", "PATCH", path, body, MERGE_PATCH)


def outcome_of(change: objects.ObjectChange, status: int, message: str) -> objects.ChangeOutcome | None:
    """Return how a change ended; None if it has to be repeated. `status`: HTTP status of the answer."""
    match meaning_of(status):
        case Meaning.DONE:
            return objects.ChangeOutcome(result=objects.ChangeResult.DONE)
        case Meaning.CONFLICT if isinstance(change, objects.CreateObject):
            return objects.ChangeOutcome(result=objects.ChangeResult.EXISTS, message=message)
        case Meaning.GONE if isinstance(change, objects.CreateObject):  # the API server does not serve the kind
            return objects.ChangeOutcome(result=objects.ChangeResult.REFUSED, message=message)
        case Meaning.CONFLICT if isinstance(change, objects.ChangeNode):
            return None
        case Meaning.GONE | Meaning.CONFLICT:
            return objects.ChangeOutcome(result=objects.ChangeResult.ABSENT, message=message)
        case Meaning.REFUSED:
            return objects.ChangeOutcome(result=objects.ChangeResult.REFUSED, message=message)
        case Meaning.LATER:
            return None


def _path(kind: str, namespace: str, name: str = "") -> str:
    """Return the path of an object, or of its collection if no name is given.

    Raises:
        InvalidInput: The kind is not one that this service may write.
    """
    if kind == "Pod":
        return pod_path(namespace, name)
    resource = resource_of_kind(kind)
    if resource is None:
        raise InvalidInput("Pod or a custom resource of the protocol", kind, "kind")
    inside = f"namespaces/{namespace}/" if resource.scope == "Namespaced" else ""
    collection = f"/apis/{resource.group}/{resource.version}/{inside}{resource.plural}"
    return f"{collection}/{name}" if name else collection


def node_path(name: str) -> str:
    return f"/api/v1/nodes/{name}"


def node_request(change: objects.ChangeNode, document: Json) -> Request:
    """Return the request that changes `unschedulable`, labels and taints of a node, for example to cordon it.

    The API server refuses it if the node has changed since it was read. `document` is the whole node, because a merge
    patch replaces lists.

    Raises:
        codec.DecodeError: The node is not valid.
    """
    wanted = changed_node(node_from_json(document), change)
    version = document["metadata"].get("resourceVersion", "")
    metadata: Json = {"resourceVersion": version, "labels": change.labels, "annotations": change.annotations}
    spec: Json = {"taints": codec.to_builtins(wanted.spec.taints), "unschedulable": wanted.spec.unschedulable}
    return Request("change-node", "PATCH", node_path(change.name), {"metadata": metadata, "spec": spec}, MERGE_PATCH)
