"""Turn objects of the API server into facts, if they differ from the log.

`next_draft` compares an observed object with the fold and returns one fact. It is called again after that fact is
folded, until it returns None. So an object that is observed twice, after a restart or in a second list, is written
once. A node that was deleted and created again with another uid first gets the fact of its deletion.

Of objects that only placement reads (owners of pods, Services, storage objects), only the fields that it reads enter
the log.

Source:
    event-bus spec, 2.1
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple, cast

import msgspec
from koordcore.events import objects
from koordcore.events.envelope import AggregateRef, Draft, Event, name_token, namespaced_token
from koordcore.events.objects import CustomObjectDeleted, CustomObjectObserved, custom_ref
from koordcore.protocol import keys, storage
from koordcore.protocol.config.config_map import read_config_map
from koordcore.protocol.objects import (
    ConfigMap,
    KubeStruct,
    Namespace,
    Node,
    ObjectMeta,
    Pod,
    PodStatus,
    PriorityClass,
    ResourceRequirements,
    Workload,
    object_from_json,
)
from koordcore.protocol.pod_resources import pod_requests, pod_requests_non_zero, resize_of
from koordcore.state.aggregates import (
    ConfigState,
    CustomObjectState,
    NamespaceState,
    NodeSpecState,
    PodSpecState,
    PriorityClassState,
)
from koordcore.values import codec
from koordcore.values.invalid import InvalidInput

from koord_manager.domain.admission.recorded_object import LAST_APPLIED, our_sections, with_recorded_templates
from koord_manager.domain.cluster.mirrored_kinds import (
    CUSTOM,
    deleted,
    object_of,
    objects_of_aggregate,
    objects_of_kind,
)
from koord_manager.domain.cluster.view import ManagerView
from koord_manager.domain.gateway.binding import is_same_binding, observed_binding
from koord_manager.domain.gateway.resources import Intake, Mirrored

Json = dict[str, Any]

LONGEST_FOREIGN: Final = 4096
"""Largest number of characters of an annotation that nothing of the product reads."""
_OUR_DOMAINS: Final = ("koordinator.sh", "kubernetes.io", "k8s.io")
_OUR_KEYS: Final = frozenset(value for value in vars(keys).values() if isinstance(value, str))
_SPEC: Final = ("replicas", "parallelism", "selector", "clusterIP")
"""Fields of the spec of owners and Services that placement reads."""
_STORAGE: Final[Mapping[str, type[KubeStruct]]] = {
    "persistentvolumeclaims": storage.PersistentVolumeClaim,
    "persistentvolumes": storage.PersistentVolume,
    "storageclasses": storage.StorageClass,
    "csinodes": storage.CsiNode,
    "volumeattachments": storage.VolumeAttachment,
    "csidrivers": storage.CsiDriver,
    "csistoragecapacities": storage.CsiStorageCapacity,
}
"""Plural name of a kind -> its shape, which contains exactly the fields that placement reads."""


def trimmed_part(plural: str, found: Json) -> Json:
    """Return the part of an object, besides its metadata, that enters the log.

    Raises:
        DecodeError: The spec, or a field of a storage object, has a wrong type.
    """
    shape = _STORAGE.get(plural)
    if shape is None:
        spec = codec.convert(found.get("spec") or {}, Json)
        return {"spec": {key: spec[key] for key in _SPEC if key in spec}}
    kept: Json = codec.to_builtins(object_from_json(found, shape))
    kept.pop("metadata", None)
    return kept


def trimmed_annotations(annotations: Mapping[str, str]) -> dict[str, str]:
    """Return the annotations that enter the log: those that tell whether a claim is bound, and to what."""
    return {key: value for key, value in annotations.items() if key in storage.KEPT_ANNOTATIONS}


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


_MIRRORED: Final = (PodSpecState, NodeSpecState, NamespaceState, PriorityClassState, ConfigState, CustomObjectState)


class Seen(NamedTuple):
    """An object of the API server, reduced by `cleaned` to the fields that the log keeps."""

    resource: Mirrored
    object: Object  # The object; typed, or JSON for a custom resource
    gone: bool = False  # Whether the object was deleted; then `object` is its last version

    @property
    def ref(self) -> AggregateRef:
        return mirrored_ref(self.resource, self.object)


def cleaned(resource: Mirrored, found: Object) -> Object:
    """Return the part of an object that enters the log. A typed object is changed in place, JSON is not.

    Managed fields, the resourceVersion and kubectl's copy of the manifest are removed. A pod template keeps only the
    fields that the log keeps of pods. slo-controller-config keeps only its sections.
    """
    if isinstance(found, Pod):
        return cleaned_pod(found)
    if not isinstance(found, dict):
        clean_meta(found.metadata)
        if isinstance(found, ConfigMap) and resource.has_sections:
            found.data = our_sections(found.data)
        return found
    meta: Json = {key: found["metadata"][key] for key in _KEPT_METADATA if found["metadata"].get(key)}
    if "annotations" in meta:
        meta["annotations"] = kept_annotations(meta["annotations"])
    result: Json = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": meta}
    if resource.intake is Intake.TRIMMED:
        meta.pop("generation", None)
        annotations = trimmed_annotations(meta.pop("annotations", {}))
        if annotations:
            meta["annotations"] = annotations
        return {**result, **trimmed_part(resource.plural, found)}
    for key, value in found.items():
        if key not in ("apiVersion", "kind", "metadata") and value is not None:
            result[key] = value
    return with_recorded_templates(resource.plural, result).document


def is_unbound_pod(found: Object) -> bool:
    return isinstance(found, Pod) and not found.spec.node_name


def cleaned_pod(pod: Pod) -> Pod:
    """Return the part of a pod that enters the log. The pod is changed in place.

    A kubelet tells the resources of every container. They are kept only while the pod counts otherwise because of them,
    that is during a resize. Limits in force are read by the agent, from the kubelet.
    """
    clean_meta(pod.metadata)
    status = pod.status
    is_resized = resize_of(pod) is not None and not _counts_as_spec(pod)
    if not is_resized:
        status.resources, status.allocated_resources = None, {}
    for container in (*status.container_statuses, *status.init_container_statuses):
        if is_resized and container.resources is not None:
            container.resources = ResourceRequirements(requests=container.resources.requests)
        else:
            container.resources, container.allocated_resources = None, {}
    return pod


def _counts_as_spec(pod: Pod) -> bool:
    """Return whether a pod counts as if the kubelet had told nothing of its resources."""
    status = pod.status
    wanted = {each.name: each.resources.requests for each in (*pod.spec.containers, *pod.spec.init_containers)}
    of_all = (*status.container_statuses, *status.init_container_statuses)
    told = [(each.name, each.resources.requests, each.allocated_resources) for each in of_all if each.resources]
    if status.resources is None and all(
        actual == wanted.get(name) and allocated in ({}, actual) for name, actual, allocated in told
    ):
        return True  # nearly every pod; nothing is parsed
    untold = msgspec.structs.replace(pod, status=PodStatus())
    try:
        return pod_requests(pod) == pod_requests(untold) and pod_requests_non_zero(pod) == pod_requests_non_zero(untold)
    except InvalidInput:
        return False  # nobody counts such a pod


def kept_annotations(annotations: dict[str, str]) -> dict[str, str]:
    """Return the annotations that the log keeps: without kubectl's copy of the manifest, and without texts of more than
    `LONGEST_FOREIGN` characters that nothing of the product and of Kubernetes reads.
    """
    if LAST_APPLIED not in annotations and all(len(text) <= LONGEST_FOREIGN for text in annotations.values()):
        return annotations
    return {
        key: text
        for key, text in annotations.items()
        if key != LAST_APPLIED and (len(text) <= LONGEST_FOREIGN or _is_read(key))
    }


def _is_read(key: str) -> bool:
    return key in _OUR_KEYS or key.partition("/")[0].endswith(_OUR_DOMAINS)


def clean_meta(meta: ObjectMeta) -> None:
    """Remove the fields of an object's metadata that the log does not keep."""
    meta.resource_version = ""
    meta.annotations = kept_annotations(meta.annotations)


def name_of(found: Object) -> tuple[str, str, str]:
    if isinstance(found, dict):
        meta: Json = found["metadata"]
        return str(meta.get("namespace", "")), str(meta["name"]), str(meta.get("uid", ""))
    return found.metadata.namespace, found.metadata.name, found.metadata.uid


def mirrored_ref(resource: Mirrored, found: Object) -> AggregateRef:
    return named_ref(resource, *name_of(found))


def named_ref(resource: Mirrored, namespace: str, name: str, uid: str) -> AggregateRef:
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
    """Compare an object of the API server with the log, and return the next fact to append, or None if they agree.

    One call returns one fact. An object may need two, so call again after the fact is folded, until None comes back.
    """
    found, ref = seen.object, seen.ref
    last = view.state.last_seq(ref)
    if isinstance(found, ConfigMap) and not seen.gone:
        return _config(view, seen, found)
    old = object_of(view.state.get(ref))
    if old is None:
        return None if seen.gone else Draft(ref, _observed(found, is_new=True), last)
    if seen.gone or _is_another(old, found):
        return Draft(ref, _deleted(seen), last)
    if old == found:
        return None
    bound = None
    if isinstance(old, Pod) and isinstance(found, Pod):
        if is_same_binding(old, found):
            return None
        bound = observed_binding(view, ref.id, old, found)
    return Draft(ref, bound or _observed(found, is_new=False), last)


_WHOLE: Final = (
    objects.PodSpecAdded,
    objects.PodSpecChanged,
    objects.NodeSpecAdded,
    objects.NodeSpecChanged,
    objects.NamespaceObserved,
    objects.PriorityClassObserved,
    CustomObjectObserved,
)


def is_whole(event: Event) -> bool:
    """Return whether a fact has the whole observed object, so that `next_draft` returns None once it is folded."""
    return isinstance(event, _WHOLE)


def _deleted(seen: Seen) -> Event:
    """Return the fact that an object was deleted. Owners of pods, such as Deployments, are custom resources here."""
    namespace, name, _ = name_of(seen.object)
    kind = seen.resource.kind
    if seen.ref.kind == CUSTOM:
        return CustomObjectDeleted(kind=kind, namespace=namespace, name=name)
    return deleted(kind, namespace, name)


def _is_another(old: object, found: Object) -> bool:
    """Return whether a node or custom resource was deleted and created again, so that its uid is another one."""
    if isinstance(old, Node):
        uid = old.metadata.uid
    elif isinstance(old, dict):
        uid = _uid(cast("Json", old))
    else:
        return False
    return bool(uid) and uid != name_of(found)[2]


def _observed(found: Object, *, is_new: bool) -> Event:
    match found:
        case Pod():
            return objects.PodSpecAdded(object=found) if is_new else objects.PodSpecChanged(object=found)
        case Node():
            return objects.NodeSpecAdded(object=found) if is_new else objects.NodeSpecChanged(object=found)
        case Namespace():
            return objects.NamespaceObserved(object=found)
        case PriorityClass():
            return objects.PriorityClassObserved(object=found)
        case ConfigMap():
            return objects.ConfigAccepted(object=found)
        case _:
            return CustomObjectObserved(object=found)


def _config(view: ManagerView, seen: Seen, config: ConfigMap) -> Draft | None:
    """Return the fact of a changed configuration.

    If a section is not valid, its previous text stays in force, and the fact names the reason (protocol spec, 6.2).
    """
    meta = config.metadata
    ref, last = seen.ref, view.state.last_seq(seen.ref)
    state = view.config(meta.namespace, meta.name)
    old = state.object if state else None
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
        return None if same else Draft(ref, objects.ConfigAccepted(object=in_force), last)
    rejected = state.rejected if state else {}
    if rejected == reasons and (old == in_force or (old is None and not good)):
        return None
    if old != in_force and (good or old is not None):
        return Draft(ref, objects.ConfigAccepted(object=in_force), last)
    event = objects.ConfigRejected(
        namespace=meta.namespace, name=meta.name, data={key: config.data[key] for key in reasons}, reasons=reasons
    )
    return Draft(ref, event, last)


def _uid(document: Json) -> str:
    """Return the uid of an object, or "" for one that an older version stored without readable metadata."""
    metadata: object = document.get("metadata")
    return str(cast("Json", metadata).get("uid", "")) if isinstance(metadata, dict) else ""


def known_of(view: ManagerView, resource: Mirrored) -> dict[AggregateRef, Object]:
    """Return the existing objects of a resource in the log, by aggregate.

    The caller compares them with a complete list of the API server: what the list does not contain was deleted there.
    """
    if resource.kind == "ConfigMap":
        name = resource.field_selector.removeprefix("metadata.name=")
        config = view.config(resource.namespace, name)
        found = config.object if config is not None else None
        return {mirrored_ref(resource, found): found} if found is not None else {}
    if resource.intake is not Intake.TYPED:
        prefix = f"{resource.plural}="
        return {
            ref: cast("Json", found) for ref, found in objects_of_aggregate(view, CUSTOM) if ref.id.startswith(prefix)
        }
    return {
        ref: found
        for ref, found in objects_of_kind(view, resource.kind)
        if not isinstance(found, Workload)
        and (not isinstance(found, Pod) or resource.namespace in ("", found.metadata.namespace))
    }


def mirrored_count(view: ManagerView) -> int:
    """Return the number of objects in the log that may be those of an API server."""
    return sum(len(view.state.of_kind(kind)) for kind in _MIRRORED)
