"""Changes of objects that other services ask for, in a cluster without an API server: the facts that make them.

Source:
    descheduler spec, 11.2 (3), 11.3; 14 (effects carry idempotency keys)
"""

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

import msgspec
from koordcore.events.envelope import AggregateRef, Draft, name_token
from koordcore.events.objects import NodeSpecChanged, PodSpecChanged
from koordcore.protocol.objects import Node, pod_from_json
from koordcore.requests.objects import ChangeNode, PatchObject
from koordcore.state.aggregates import NodeSpecState

from koord_manager.domain.admission.options import Options
from koord_manager.domain.cluster.view import ManagerView
from koord_manager.domain.documents.applied import Applied
from koord_manager.domain.documents.apply_custom import patch_custom, resource_of_kind
from koord_manager.domain.documents.merge_patch import merged

NOT_FOUND: Final = Applied("not-found", "", [])

Change: TypeAlias = ChangeNode | PatchObject


def decide_change(view: ManagerView, change: Change, *, new_uid: str, options: Options) -> Applied:
    """Decide the change of a node, a pod or a custom resource: return the fact that makes it.

    If the object does not exist, or has the wanted state already, the result has no fact. For a node, only labels,
    taints and `unschedulable` are compared: annotations alone are no change.

    Args:
        view: The folded state of the cluster.
        change: The change.
        new_uid: Uid of the admission request for the changed object. The object keeps its own uid.
        options: Feature gates and flags of admission.

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
    """Return whether an object with kind, namespace and name of a document exists."""
    metadata: Mapping[str, Any] = document.get("metadata") or {}
    names = (str(document.get("kind", "")), str(metadata.get("namespace", "")), str(metadata.get("name", "")))
    return uid_of(view, *names) is not None


def uid_of(view: ManagerView, kind: str, namespace: str, name: str) -> str | None:
    """Return the uid of a pod or custom resource; None if it does not exist."""
    if kind == "Pod":
        found = view.pod(namespace, name)
        return None if found is None else found[0]
    resource = resource_of_kind(kind)
    state = view.custom(resource.plural, namespace, name) if resource is not None else None
    if state is None:
        return None
    return str(state.object["metadata"].get("uid", ""))
