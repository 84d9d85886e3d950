"""Apply and delete custom resources: merge the manifest, check the schema, run admission, and return one fact.

The log keeps only a part of a pod template. So a manifest that changes only the other part is unchanged.

Source:
    protocol spec, 9; manager spec, 8.4, 13; reality spec, 1
"""

from typing import Any, cast

import msgspec
from koordcore.events.envelope import Draft
from koordcore.events.objects import CustomObjectDeleted, CustomObjectObserved, custom_ref
from koordcore.protocol.crd import Refused, ResourceVersion, accepted_kinds, admit_as
from koordcore.protocol.manifests import CustomObject, InvalidManifest
from koordcore.protocol.reservations import PLURAL, changes_without_effect, readable_reservation
from koordcore.requests.objects import PatchObject
from koordcore.state.aggregates import CustomObjectState, PodState
from koordcore.values import codec
from koordcore.values.invalid import InvalidInput

from koord_manager.domain.admission.chain import mutate, surroundings, validate
from koord_manager.domain.admission.json_object import seen
from koord_manager.domain.admission.options import Options
from koord_manager.domain.admission.recorded_object import LAST_APPLIED, with_recorded_templates
from koord_manager.domain.admission.request import AdmissionDecision, JsonObject, Operation, Request
from koord_manager.domain.cluster.view import ManagerView
from koord_manager.domain.documents.admitting import AdmissionRefused, Applied
from koord_manager.domain.documents.merging import last_applied, three_way
from koord_manager.domain.documents.merging import merged as merge_patched
from koord_manager.domain.documents.template_defaults import with_template_defaults, without_template_defaults

_OURS = ("uid", "creationTimestamp", "generation", "resourceVersion", "managedFields", "deletionTimestamp")
"""Metadata that users cannot set."""


def apply_custom(view: ManagerView, custom: CustomObject, *, new_uid: str, now: str, options: Options) -> Applied:
    """Decide `koord apply` of a custom resource: return the fact that mirrors it. `now`: creation time, RFC 3339.

    Raises:
        InvalidManifest: The document is refused, with every violation that was found.
    """
    resource, meta = custom.resource, custom.metadata
    ref = custom_ref(resource.plural, meta.namespace, meta.name)
    state = view.custom(resource.plural, meta.namespace, meta.name)
    old = state.object if state else None
    written = _as_written(custom.document, resource)
    manifest, fault = with_recorded_templates(resource.plural, written)
    warnings = () if fault is None else (f"{fault.sentence()}: nothing of this template is kept",)
    if resource.kind == "ClusterColocationProfile":
        warnings += _unknown_class(view, written)
    if old is None:
        merged = written
    else:
        last = last_applied(_annotations(old))
        merged = three_way(without_template_defaults(resource.plural, old, last), last, manifest)
    request = Request(
        uid=new_uid if old is None else str(_metadata(old).get("uid") or meta.name),
        operation=Operation.CREATE if old is None else Operation.UPDATE,
        resource=resource.plural,
        namespace=meta.namespace,
        name=meta.name,
        object=_stored(resource, with_template_defaults(resource.plural, merged, old)),
        old_object=old,
    )
    document, decision = _admitted(view, resource, request, options)
    uid = new_uid if old is None else str(_metadata(old).get("uid") or "")
    document = with_recorded_templates(resource.plural, document).document
    document = with_template_defaults(resource.plural, document, old)
    document = _with_identity(document, old, manifest, uid=uid, now=now)
    warnings += _changes_without_effect(view, resource, old, document)
    if document == old:
        return Applied("unchanged", uid, [], warnings=warnings)
    draft = Draft(ref, CustomObjectObserved(object=document), view.state.last_seq(ref))
    return Applied(
        "created" if old is None else "configured",
        uid,
        [draft],
        steps=decision.steps,
        given=request.object,
        made=decision.object,
        warnings=warnings,
    )


def patch_custom(view: ManagerView, change: PatchObject, *, new_uid: str, options: Options) -> Applied | None:
    """Decide a merge patch of a custom resource: return the fact that mirrors the patched object.

    Return None if the object does not exist, or has another uid than the patch names. The patch cannot change identity
    and last applied manifest. `new_uid` is that of the request.

    Raises:
        InvalidManifest: The patched object is refused, with every violation that was found.
    """
    resource = resource_of_kind(change.kind)
    state = view.custom(resource.plural, change.namespace, change.name) if resource else None
    old = state.object if state is not None else None
    if resource is None or state is None or old is None or change.uid not in ("", _metadata(old).get("uid")):
        return None
    request = Request(
        uid=new_uid,
        operation=Operation.UPDATE,
        resource=resource.plural,
        namespace=change.namespace,
        name=change.name,
        object=_stored(resource, with_template_defaults(resource.plural, merge_patched(old, change.patch), old)),
        old_object=old,
    )
    document, decision = _admitted(view, resource, request, options)
    document = with_recorded_templates(resource.plural, document).document
    uid, manifest = str(_metadata(old).get("uid") or ""), last_applied(_annotations(old))
    document = _with_identity(document, old, manifest, uid=uid, now="")
    if document == old:
        return Applied("unchanged", uid, [])
    ref = custom_ref(resource.plural, change.namespace, change.name)
    draft = Draft(ref, CustomObjectObserved(object=document), state.seq)
    return Applied(
        "configured",
        uid,
        [draft],
        steps=decision.steps,
        given=request.object,
        made=decision.object,
        warnings=_changes_without_effect(view, resource, old, document),
    )


def _changes_without_effect(
    view: ManagerView, resource: ResourceVersion, old: JsonObject | None, new: JsonObject
) -> tuple[str, ...]:
    """Return a warning for each change of a Reservation with a node that the scheduler does not carry out."""
    before = None if old is None or resource.plural != PLURAL else readable_reservation(old)
    after = None if before is None else readable_reservation(new)
    if before is None or after is None:
        return ()
    placed = view.state.of_kind(PodState).get(before.metadata.uid)
    has_node = bool(before.status.node_name) or (placed is not None and bool(placed.node))
    return changes_without_effect(before, after) if has_node else ()


def delete_custom(view: ManagerView, kind: str, namespace: str, name: str, options: Options) -> list[Draft] | None:
    """Return the fact that deletes a custom resource, as a list of one; None if the object or the kind does not exist.

    Raises:
        AdmissionRefused: Admission denies the deletion, for example of a quota with pods.
    """
    resource = resource_of_kind(kind)
    state: CustomObjectState | None = view.custom(resource.plural, namespace, name) if resource else None
    if resource is None or state is None:
        return None
    request = Request(
        uid=name,
        operation=Operation.DELETE,
        resource=resource.plural,
        namespace=namespace,
        name=name,
        old_object=state.object,
    )
    decision = validate(request, surroundings(request, view.admission, options))
    if not decision.allowed:
        raise AdmissionRefused(decision.violations)
    ref = custom_ref(resource.plural, namespace, name)
    return [Draft(ref, CustomObjectDeleted(kind=kind, namespace=namespace, name=name), state.seq)]


def _admitted(
    view: ManagerView, resource: ResourceVersion, request: Request, options: Options
) -> tuple[JsonObject, AdmissionDecision]:
    """Return an object as admission changes it, and the decision.

    Raises:
        AdmissionRefused: Admission refuses the object.
    """
    around = surroundings(request, view.admission, options)
    decision = mutate(request, around)
    if not decision.allowed:
        raise AdmissionRefused(decision.violations)
    assert decision.object is not None
    document = _stored(resource, decision.object)  # a mutation, too, has to keep to the schema
    judged = validate(msgspec.structs.replace(request, object=document), around)
    if not judged.allowed:
        raise AdmissionRefused(judged.violations)
    return document, decision


def resource_of_kind(kind: str) -> ResourceVersion | None:
    """Return the stored version of a custom resource definition by kind, or None if the protocol has no such kind."""
    return next((found for found in accepted_kinds() if found.kind == kind and found.stored), None)


def _unknown_class(view: ManagerView, profile: JsonObject) -> tuple[str, ...]:
    name = str(seen(profile, "spec").get("priorityClassName") or "")
    if not name or view.admission.priority_class(name) is not None:
        return ()
    effect = "until it exists, no pod that the profile matches can be created"
    return (f"spec.priorityClassName: should be the name of an existing PriorityClass, got {name!r}; {effect}",)


def _as_written(document: dict[str, Any], resource: ResourceVersion) -> dict[str, Any]:
    """Return the manifest without fields that users cannot set: identity, last applied manifest, and status."""
    annotations = {key: value for key, value in _annotations(document).items() if key != LAST_APPLIED}
    metadata = {name: value for name, value in _metadata(document).items() if name not in _OURS}
    metadata.pop("annotations", None)
    if annotations:
        metadata["annotations"] = annotations
    kept = {name: value for name, value in document.items() if not (resource.has_status and name == "status")}
    return {**kept, "metadata": metadata}


def _stored(resource: ResourceVersion, document: JsonObject) -> JsonObject:
    admitted = admit_as(resource, document)
    if isinstance(admitted, Refused):
        raise InvalidManifest([InvalidInput(admitted.rule, admitted.value, admitted.field)])
    return cast("JsonObject", admitted.object)


def _with_identity(
    document: JsonObject, old: JsonObject | None, manifest: JsonObject, *, uid: str, now: str
) -> JsonObject:
    before = _metadata(old) if old is not None else {}
    same_spec = old is not None and old.get("spec") == document.get("spec")
    generation = int(before.get("generation") or 0) + (0 if same_spec else 1)
    annotations = {**_annotations(document), LAST_APPLIED: codec.encode_canonical(manifest).decode()}
    metadata = {
        **{name: value for name, value in _metadata(document).items() if name not in _OURS},
        "uid": uid,
        "creationTimestamp": before.get("creationTimestamp") or now,
        "generation": generation,
        "annotations": annotations,
    }
    return {**document, "metadata": metadata}


def _metadata(document: JsonObject) -> JsonObject:
    return cast("JsonObject", document.get("metadata") or {})


def _annotations(document: JsonObject) -> JsonObject:
    return cast("JsonObject", _metadata(document).get("annotations") or {})
