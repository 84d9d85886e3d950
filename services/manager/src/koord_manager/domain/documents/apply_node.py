"""Apply a manifest of a Node: keep fields that its host or users set, and ignore fields that the manager computes.

`koord get` shows a node with overcommitted resources, ratios and device labels. If these were stored with the node,
they would become outdated. Labels, annotations and taints stay if no applied document ever had them, such as those of
the host.

Source:
    event-bus spec, 2.1; manager spec, 5.5 to 5.12, 11
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final, cast

import msgspec
from koordcore.events.envelope import AggregateRef, Draft, name_token
from koordcore.events.objects import NodeSpecAdded, NodeSpecChanged
from koordcore.protocol import keys
from koordcore.protocol.manifests import Manifest
from koordcore.protocol.objects import Node, node_from_json, without_nulls
from koordcore.state.aggregates import NodePolicyState, NodeSpecState
from koordcore.values import codec

from koord_manager.domain.admission.chain import mutate, surroundings, validate
from koord_manager.domain.admission.options import Options
from koord_manager.domain.admission.recorded_object import LAST_APPLIED
from koord_manager.domain.admission.request import JsonObject, Operation, Request
from koord_manager.domain.cluster.view import ManagerView
from koord_manager.domain.documents.admitting import AdmissionRefused, Applied, keep_identity
from koord_manager.domain.documents.cordon import with_cordon_taint
from koord_manager.domain.documents.merging import last_applied, three_way
from koord_manager.domain.gateway.node_writes import wanted_annotations, wanted_resources

_HOST_PREFIX: Final = "koordstream.io/"
_HOST_NAMES: Final = frozenset(("kubernetes.io/hostname", "kubernetes.io/os", "kubernetes.io/arch"))
"""Labels that a host registers itself with: leaving them out of a document removes them as little as labels and taints
of the prefix.
"""
_NOT_WRITTEN: Final = frozenset((LAST_APPLIED, keys.RAW_ALLOCATABLE))
"""Annotations that applying a node does not change."""
_WRITTEN: Final = ("labels", "annotations")


def apply_node(view: ManagerView, manifest: Manifest, *, now: str, options: Options) -> Applied:
    """Decide `koord apply` of a Node: return the facts that mirror it. `now`: creation time of a new node, RFC 3339.

    Raises:
        InvalidManifest: The document is refused, with every violation that was found.
    """
    token = name_token(manifest.object.metadata.name)
    ref = AggregateRef("nodespec", token)
    state = view.state.of_kind(NodeSpecState).get(token)
    old = state.object if state else None
    document = _without_decided(cast("JsonObject", without_nulls(manifest.document)), view.policy(token))
    written = _written(document)
    steps: tuple[str, ...] = ()
    made: JsonObject = document
    if old is not None:
        document = made = _merged(document, old)
        status = Request(
            uid=old.metadata.name,
            operation=Operation.UPDATE,
            resource="nodes",
            subresource="status",
            object=document,
            old_object=msgspec.to_builtins(old),
        )
        around = surroundings(status, view.admission, options)
        amplified = mutate(status, around)
        judged = validate(msgspec.structs.replace(status, subresource="", object=amplified.object), around)
        if amplified.violations or judged.violations:
            raise AdmissionRefused([*amplified.violations, *judged.violations])
        steps, made = amplified.steps, amplified.object or document
    node = node_from_json(made)
    node.spec = with_cordon_taint(node.spec)
    keep_identity(node.metadata, old.metadata if old else None, "", now)
    if written:
        node.metadata.annotations[LAST_APPLIED] = codec.encode_canonical(written).decode()
    if old is not None and not node.status.capacity and not node.status.allocatable:
        node.status = old.status  # a manifest without status leaves what the kubelet reported
    node.status.capacity = node.status.capacity or dict(node.status.allocatable)
    node.status.allocatable = node.status.allocatable or dict(node.status.capacity)
    if old is None:
        return Applied("created", "", [Draft(ref, NodeSpecAdded(object=node), view.state.last_seq(ref))])
    if node == old:
        return Applied("unchanged", "", [])
    drafts = [Draft(ref, NodeSpecChanged(object=node), view.state.last_seq(ref))]
    return Applied("configured", "", drafts, steps=steps, given=document, made=made if steps else None)


def _without_decided(document: JsonObject, policy: NodePolicyState | None) -> JsonObject:
    """Return the document without the values that the manager computes for the node."""
    if policy is None:
        return document
    metadata, status = _part(document, "metadata"), _part(document, "status")
    decided: Mapping[str, Iterable[str]] = {
        "labels": policy.device_labels,
        "annotations": (*wanted_annotations(policy), keys.SLO_HEALTH),
    }
    lent = wanted_resources(policy)
    result = {**document, "metadata": _without(metadata, decided)}
    if status:
        result["status"] = _without(status, {"capacity": lent, "allocatable": lent})
    return result


def _without(holder: JsonObject, left_out: Mapping[str, Iterable[str]]) -> JsonObject:
    result = dict(holder)
    for field, names in left_out.items():
        if field in holder:
            gone = frozenset(names)
            result[field] = {name: value for name, value in _part(holder, field).items() if name not in gone}
    return result


def _written(document: JsonObject) -> JsonObject:
    """Return the part of the document that belongs to the user, which a later document can remove."""
    metadata: JsonObject = {}
    for field in _WRITTEN:
        entries = _part(_part(document, "metadata"), field)
        metadata[field] = {
            name: text for name, text in entries.items() if not _is_the_hosts(name) and name not in _NOT_WRITTEN
        }
    spec = {name: value for name, value in _part(document, "spec").items() if name in ("unschedulable", "taints")}
    if "taints" in spec:
        spec["taints"] = [taint for taint in spec["taints"] if not _is_the_hosts(taint["key"])]
    written = {"metadata": _filled(metadata), "spec": {name: value for name, value in spec.items() if value != []}}
    return _filled(written)


def _is_the_hosts(name: str) -> bool:
    return name in _HOST_NAMES or name.startswith(_HOST_PREFIX)


def _filled(parts: JsonObject) -> JsonObject:
    return {name: part for name, part in parts.items() if part}


def _merged(document: JsonObject, old: Node) -> JsonObject:
    """Return the document with the labels, annotations and spec that the node will have."""
    stored, last = msgspec.to_builtins(old), last_applied(old.metadata.annotations)
    metadata = dict(_part(document, "metadata"))
    for field in _WRITTEN:
        present, before = _part(_part(stored, "metadata"), field), _part(_part(last, "metadata"), field)
        metadata[field] = three_way(present, before, _part(metadata, field))
    spec = three_way(_part(stored, "spec"), _part(last, "spec"), _part(document, "spec"))
    if "taints" not in spec:
        spec["taints"] = [taint for taint in _part(stored, "spec").get("taints", []) if _is_the_hosts(taint["key"])]
    return {**document, "metadata": metadata, "spec": spec}


def _part(holder: JsonObject, name: str) -> JsonObject:
    found: Any = holder.get(name)
    return cast("JsonObject", found) if isinstance(found, dict) else {}
