"""Changes of objects that other services ask for, as requests to the API server.

Each request can be repeated: a deletion and a patch name the uid of their object.
"""

from koordcore.protocol.crd.catalogue import find_resource
from koordcore.protocol.objects import node_from_json
from koordcore.requests import objects
from koordcore.values import codec
from koordcore.values.invalid import InvalidInput

from koord_manager.domain.documents.apply_custom import resource_of_kind
from koord_manager.domain.gateway.binding import pod_path
from koord_manager.domain.gateway.requests import (
    JSON,
    MERGE_PATCH,
    Json,
    Meaning,
    Request,
    meaning_of,
)
from koord_manager.domain.object_changes.facts import changed_node


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
    """Return how a change ended; None if it has to be repeated.

    Args:
        change: The change.
        status: HTTP status of the answer.
        message: Text of the answer.
    """
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
    """Return the path of a node in the API of the API server."""
    return f"/api/v1/nodes/{name}"


def node_request(change: objects.ChangeNode, document: Json) -> Request:
    """Return the request that changes `unschedulable`, labels and taints of a node, for example to cordon it.

    The API server refuses it if the node has changed since it was read.

    Args:
        change: The change.
        document: The whole node as read from the API server, because a merge patch replaces lists.

    Raises:
        codec.DecodeError: The node is not valid.
    """
    wanted = changed_node(node_from_json(document), change)
    version = document["metadata"].get("resourceVersion", "")
    metadata: Json = {"resourceVersion": version, "labels": change.labels, "annotations": change.annotations}
    spec: Json = {"taints": codec.to_builtins(wanted.spec.taints), "unschedulable": wanted.spec.unschedulable}
    return Request("change-node", "PATCH", node_path(change.name), {"metadata": metadata, "spec": spec}, MERGE_PATCH)
