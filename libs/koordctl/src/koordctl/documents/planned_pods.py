"""The pods of a manifest: Pods, and the pod templates of controllers with their number of replicas."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple, cast

from koordcore.protocol.objects import OwnerReference, Workload, object_from_json
from koordcore.values import codec
from koordcore.values.invalid import InvalidInput

POD: Final = "Pod"
_NUMBER_OF: Final = {
    "Deployment": "replicas",
    "ReplicaSet": "replicas",
    "StatefulSet": "replicas",
    "Job": "parallelism",
}
"""Kind of a controller -> field of its spec with the number of pods that run at the same time."""


class PlannedPods(NamedTuple):
    """The equal pods that one document, such as a Deployment, creates.

    Attributes:
        title: Kind and name of the document, for example "deployment/web".
        pod: Manifest of one pod before admission.
        replicas: Number of pods.
        workload: The controller, whose selector default spreading reads; None for a Pod.
    """

    title: str
    pod: dict[str, Any]
    replicas: int
    workload: Workload | None


def planned_pods(document: object) -> PlannedPods | None:
    """Return the pods that a document creates; None if its kind creates no pods.

    Raises:
        InvalidInput: The document is not valid. The error names field, rule and value.
    """
    if not isinstance(document, dict):
        raise InvalidInput("an object with apiVersion and kind", document)
    entries = cast("dict[str, Any]", document)
    kind = entries.get("kind")
    if not isinstance(kind, str) or (kind != POD and kind not in _NUMBER_OF):
        return None
    metadata = _object(entries.get("metadata", {}), "metadata")
    name, namespace = metadata.get("name") or metadata.get("generateName", ""), metadata.get("namespace") or "default"
    if not isinstance(name, str) or not name:
        raise InvalidInput("a name", name, "metadata.name")
    title = f"{kind.lower()}/{name}"
    if kind == POD:
        kept = {key: value for key, value in metadata.items() if key not in ("uid", "generateName")}
        return PlannedPods(title, {**entries, "metadata": {**kept, "name": name, "namespace": namespace}}, 1, None)
    spec = _object(entries.get("spec"), "spec")
    template = _object(spec.get("template"), "spec.template")
    workload = _workload(entries, name, namespace, spec)
    return PlannedPods(title, _templated(template, workload), _replicas(spec, _NUMBER_OF[kind]), workload)


def _templated(template: Mapping[str, Any], workload: Workload) -> dict[str, Any]:
    """Return the manifest of one pod of a controller."""
    meta = workload.metadata
    owner = OwnerReference(
        api_version=workload.api_version, kind=workload.kind, name=meta.name, uid=meta.uid, controller=True
    )
    own = _object(template.get("metadata", {}), "spec.template.metadata")
    metadata = {**own, "name": meta.name, "namespace": meta.namespace, "ownerReferences": [codec.to_builtins(owner)]}
    return {"apiVersion": "v1", "kind": POD, "metadata": metadata, "spec": template.get("spec", {})}


def _workload(entries: Mapping[str, Any], name: str, namespace: str, spec: Mapping[str, Any]) -> Workload:
    flat = {
        "kind": entries["kind"],
        "apiVersion": entries.get("apiVersion", ""),
        "metadata": {"name": name, "namespace": namespace, "uid": f"{entries['kind']}/{namespace}/{name}"},
        "selector": spec.get("selector"),
    }
    try:
        return object_from_json(flat, Workload)
    except codec.DecodeError as error:
        raise InvalidInput(f"valid: {error}", spec.get("selector"), "spec") from None


def _replicas(spec: Mapping[str, Any], field: str) -> int:
    number = spec.get(field, 1)
    if not isinstance(number, int) or isinstance(number, bool) or number < 0:
        raise InvalidInput("a number of pods, 0 or more", number, f"spec.{field}")
    return number


def _object(value: object, path: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InvalidInput("an object", value, path)
    return cast("dict[str, Any]", value)
