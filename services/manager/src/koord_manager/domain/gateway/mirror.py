"""Turn an object of the API server into the fact that brings the log up to it, if the log is behind.

Seen(resource, object) --next_draft(view)--> Draft | None        called until there is none

It is level-triggered: it compares with the fold, so an object that is seen twice, after a restart or in a relist writes
nothing twice. A node that comes back under its name with another uid is first removed, then added.

Source:
    event-bus spec, 2.1
"""

from typing import Any, NamedTuple, cast

from koordcore.events.envelope import AggregateRef, Draft, name_token, namespaced_token
from koordcore.events.objects.custom import CustomObjectDeleted, CustomObjectObserved, custom_ref
from koordcore.events.objects.mirror import (
    ConfigAccepted,
    ConfigDeleted,
    ConfigRejected,
    NamespaceDeleted,
    NamespaceObserved,
    NodeSpecAdded,
    NodeSpecChanged,
    NodeSpecDeleted,
    PodSpecAdded,
    PodSpecChanged,
    PodSpecDeleted,
    PriorityClassDeleted,
    PriorityClassObserved,
)
from koordcore.protocol.config.config_map import read_config_map
from koordcore.protocol.objects import ConfigMap, Namespace, Node, ObjectMeta, Pod, PriorityClass
from koordcore.state.aggregates import (
    CustomObjectState,
    NamespaceState,
    NodeSpecState,
    PodSpecState,
    PriorityClassState,
)

from koord_manager.domain.admission.recording.pod_templates import with_recorded_templates
from koord_manager.domain.admission.recording.recorded_object import LAST_APPLIED, our_sections
from koord_manager.domain.cluster.view import ManagerView
from koord_manager.domain.gateway.resources import Intake, Mirrored

Json = dict[str, Any]
Object = Pod | Node | Namespace | PriorityClass | ConfigMap | Json

_KEPT_METADATA = (
    "name",
    "namespace",
    "uid",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "labels",
    "annotations",
    "ownerReferences",
)
_PLACEMENT_SPEC = (
    "replicas",
    "parallelism",
    "selector",
    "clusterIP",
    "volumeName",
    "storageClassName",
    "accessModes",
    "nodeAffinity",
)
"""Fields of owners, services, claims and volumes that placement reads."""


class Seen(NamedTuple):
    """An object as the API server has it, cleaned by `cleaned`; `gone` if it does not exist any more."""

    resource: Mirrored
    object: Object
    gone: bool = False

    @property
    def ref(self) -> AggregateRef:
        """The aggregate that mirrors it."""
        return mirrored_ref(self.resource, self.object)


def cleaned(resource: Mirrored, found: Object) -> Object:
    """Return the object as it enters the log.

    It has no managed fields, no resourceVersion and no copy of the manifest. A pod template is reduced to what is
    recorded of pods, and the configuration to its sections.
    """
    if not isinstance(found, dict):
        _clean_meta(found.metadata)
        if isinstance(found, ConfigMap) and resource.has_sections:
            found.data = our_sections(found.data)
        return found
    meta: Json = {key: found["metadata"][key] for key in _KEPT_METADATA if found["metadata"].get(key)}
    annotations = meta.get("annotations")
    if annotations and LAST_APPLIED in annotations:
        meta["annotations"] = {key: value for key, value in annotations.items() if key != LAST_APPLIED}
    result: Json = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": meta}
    if resource.intake is Intake.TRIMMED:
        meta.pop("generation", None)
        meta.pop("annotations", None)
        spec: Json = found.get("spec") or {}
        result["spec"] = {key: spec[key] for key in _PLACEMENT_SPEC if key in spec}
        return result
    for key, value in found.items():
        if key not in ("apiVersion", "kind", "metadata") and value is not None:
            result[key] = value
    return with_recorded_templates(resource.plural, result).document


def _clean_meta(meta: ObjectMeta) -> None:
    meta.resource_version = ""
    meta.annotations.pop(LAST_APPLIED, None)


def name_of(found: Object) -> tuple[str, str, str]:
    """Return namespace, name and uid of an object."""
    if isinstance(found, dict):
        meta: Json = found["metadata"]
        return str(meta.get("namespace", "")), str(meta["name"]), str(meta.get("uid", ""))
    return found.metadata.namespace, found.metadata.name, found.metadata.uid


def mirrored_ref(resource: Mirrored, found: Object) -> AggregateRef:
    """Return the aggregate of an object."""
    namespace, name, uid = name_of(found)
    match resource.kind:
        case "Pod":
            return AggregateRef("podspec", uid)
        case "Node":
            return AggregateRef("nodespec", name_token(name))
        case "Namespace":
            return AggregateRef("namespace", name_token(name))
        case "PriorityClass":
            return AggregateRef("priorityclass", name_token(name))
        case "ConfigMap":
            return AggregateRef("config", namespaced_token(namespace, name))
        case _:
            return custom_ref(resource.plural, namespace, name)


def next_draft(view: ManagerView, seen: Seen) -> Draft | None:
    """Return the next fact that the log needs to agree with an observed object, or None if it agrees."""
    found = seen.object
    match found:
        case Pod():
            return _pod(view, seen, found)
        case Node():
            return _node(view, seen, found)
        case Namespace():
            namespaces = view.state.of_kind(NamespaceState).get(seen.ref.id)
            old = namespaces.object if namespaces else None
            if seen.gone:
                return None if old is None else _draft(view, seen, NamespaceDeleted(name=found.metadata.name))
            return None if old == found else _draft(view, seen, NamespaceObserved(object=found))
        case PriorityClass():
            classes = view.state.of_kind(PriorityClassState).get(seen.ref.id)
            known = classes.object if classes else None
            if seen.gone:
                return None if known is None else _draft(view, seen, PriorityClassDeleted(name=found.metadata.name))
            return None if known == found else _draft(view, seen, PriorityClassObserved(object=found))
        case ConfigMap():
            return _config(view, seen, found)
        case _:
            return _custom(view, seen, found)


def _draft(
    view: ManagerView,
    seen: Seen,
    event: NamespaceDeleted | NamespaceObserved | PriorityClassDeleted | PriorityClassObserved,
) -> Draft:
    return Draft(seen.ref, event, view.state.last_seq(seen.ref))


def _pod(view: ManagerView, seen: Seen, pod: Pod) -> Draft | None:
    ref = seen.ref
    known = view.state.of_kind(PodSpecState).get(ref.id)
    if seen.gone:
        if known is None:
            return None
        return Draft(ref, PodSpecDeleted(namespace=pod.metadata.namespace, name=pod.metadata.name), known.seq)
    if known is None:
        return Draft(ref, PodSpecAdded(object=pod), view.state.last_seq(ref))
    return None if known.object == pod else Draft(ref, PodSpecChanged(object=pod), known.seq)


def _node(view: ManagerView, seen: Seen, node: Node) -> Draft | None:
    ref = seen.ref
    state = view.state.of_kind(NodeSpecState).get(ref.id)
    old, last = (state.object if state else None), view.state.last_seq(ref)
    if seen.gone:
        return None if old is None else Draft(ref, NodeSpecDeleted(name=node.metadata.name), last)
    if old is None:
        return Draft(ref, NodeSpecAdded(object=node), last)
    if old.metadata.uid and old.metadata.uid != node.metadata.uid:
        return Draft(ref, NodeSpecDeleted(name=node.metadata.name), last)
    return None if old == node else Draft(ref, NodeSpecChanged(object=node), last)


def _config(view: ManagerView, seen: Seen, config: ConfigMap) -> Draft | None:
    """Return the fact of a changed configuration; an unreadable section keeps its last text, with the reason.

    Source:
        protocol spec, 6.2
    """
    meta = config.metadata
    ref, last = seen.ref, view.state.last_seq(seen.ref)
    state = view.config(meta.namespace, meta.name)
    old = state.object if state else None
    if seen.gone:
        return None if old is None else Draft(ref, ConfigDeleted(namespace=meta.namespace, name=meta.name), last)
    reasons: dict[str, str] = {}
    good = dict(config.data)
    if seen.resource.has_sections:
        for rejection in read_config_map(None, config.data).rejections:
            key = rejection.section.key
            where = f"{key}.{rejection.field}" if rejection.field else key
            reasons[key] = f"{where} must be {rejection.rule}, got {rejection.value!r}"
            good.pop(key, None)
            if old is not None and key in old.data:
                good[key] = old.data[key]
    in_force = ConfigMap(metadata=meta, data=good)
    if not reasons:
        same = old == in_force and state is not None and not state.rejected
        return None if same else Draft(ref, ConfigAccepted(object=in_force), last)
    rejected = state.rejected if state else {}
    if rejected == reasons and (old == in_force or (old is None and not good)):
        return None
    if old != in_force and (good or old is not None):
        return Draft(ref, ConfigAccepted(object=in_force), last)
    event = ConfigRejected(
        namespace=meta.namespace, name=meta.name, data={key: config.data[key] for key in reasons}, reasons=reasons
    )
    return Draft(ref, event, last)


def _custom(view: ManagerView, seen: Seen, found: Object) -> Draft | None:
    ref, document = seen.ref, cast("Json", found)
    state = view.state.of_kind(CustomObjectState).get(ref.id)
    old, last = (state.object if state else None), view.state.last_seq(ref)
    namespace, name, _ = name_of(document)
    deleted = CustomObjectDeleted(kind=seen.resource.kind, namespace=namespace, name=name)
    if seen.gone:
        return None if old is None else Draft(ref, deleted, last)
    if old is not None and _uid(old) and _uid(old) != _uid(document):
        return Draft(ref, deleted, last)
    return None if old == document else Draft(ref, CustomObjectObserved(object=document), last)


def _uid(document: Json) -> str:
    """Return the uid of an object, or "" for one that an older version stored without readable metadata."""
    metadata: object = document.get("metadata")
    return str(cast("Json", metadata).get("uid", "")) if isinstance(metadata, dict) else ""


def known_of(view: ManagerView, resource: Mirrored) -> dict[AggregateRef, Object]:
    """Return the objects that the log has of a resource; after a relist, those that were not listed are gone."""
    match resource.kind:
        case "Pod":
            pods = view.state.of_kind(PodSpecState).items()
            return {
                AggregateRef("podspec", uid): state.object
                for uid, state in pods
                if not resource.namespace or state.object.metadata.namespace == resource.namespace
            }
        case "Node":
            nodes = view.state.of_kind(NodeSpecState).items()
            return {AggregateRef("nodespec", key): state.object for key, state in nodes if state.object is not None}
        case "Namespace":
            spaces = view.state.of_kind(NamespaceState).items()
            return {AggregateRef("namespace", key): state.object for key, state in spaces if state.object is not None}
        case "PriorityClass":
            classes = view.state.of_kind(PriorityClassState).items()
            return {
                AggregateRef("priorityclass", key): state.object for key, state in classes if state.object is not None
            }
        case "ConfigMap":
            name = resource.field_selector.removeprefix("metadata.name=")
            config = view.config(resource.namespace, name)
            if config is None or config.object is None:
                return {}
            return {AggregateRef("config", namespaced_token(resource.namespace, name)): config.object}
        case _:
            prefix = f"{resource.plural}="
            customs = view.state.of_kind(CustomObjectState).items()
            return {
                AggregateRef("customspec", key): state.object
                for key, state in customs
                if state.object is not None and key.startswith(prefix)
            }
