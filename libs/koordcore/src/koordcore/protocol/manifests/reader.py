"""Convert one decoded document to one typed object, or report every violation with field, rule and value.

The structs of `koordcore.protocol.objects` define the types. `rules` validates objects with correct types.

The schema of Reservations keeps every field of the pod template, and accepts any text as `ttl`. An API server therefore
stores Reservations that no scheduler can place. `koord apply` and `koord lint` refuse them here.

Source: scheduler-fine-grained spec, 3.1, 3.2, 3.4.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, cast

import msgspec

from koordcore.protocol import objects as kube
from koordcore.protocol.crd import Refused, ResourceVersion, admit_as, find_accepted
from koordcore.protocol.crd.kubernetes_kinds import kubernetes_kinds
from koordcore.protocol.manifests import rules
from koordcore.protocol.manifests.budget_rules import check_budget
from koordcore.protocol.manifests.names import check_metadata
from koordcore.protocol.manifests.placement_rules import check_taints
from koordcore.protocol.manifests.unread_rules import check_unread
from koordcore.protocol.objects import ObjectMeta, Pod
from koordcore.protocol.reservations import Reservation, ReservationOwnerRule, reservation_from_json
from koordcore.protocol.selectors import compile_selector
from koordcore.values import codec
from koordcore.values.duration import parse_duration
from koordcore.values.invalid import InvalidInput

_MISMATCH = re.compile(r"^(?P<rule>.*?)(?: - at `\$?(?P<path>.*)`)?$", re.DOTALL)


def shape_mismatch(error: Exception, value: object) -> InvalidInput:
    """Return the error for users that corresponds to a decoding error: with path, expected type and value. `error`:
    Error of the decoder for a field with a wrong type. `value`: the decoded JSON value of the document.
    """
    match = _MISMATCH.match(str(error))
    assert match is not None
    path = (match["path"] or "").lstrip(".")
    rule = match["rule"].removeprefix("Expected ").replace("`", "")
    if "[...]" in path:
        # msgspec does not say which entry of a map it was; the map itself is named instead
        path, _, below = path.partition("[...]")
        unquoted = None if below else _unquoted(_value_at(value, path), path)
        if unquoted is not None:
            return unquoted
    return InvalidInput(rule, _value_at(value, path), path)


def _unquoted(entries: object, path: str) -> InvalidInput | None:
    """Return the error about the first value of a map of texts that YAML reads as boolean or number; None if none is.
    `entries`: the map, for example the labels of an object.
    """
    for name, entry in cast("dict[str, object]", entries).items() if isinstance(entries, dict) else ():
        if isinstance(entry, bool | int | float):
            text = str(entry).lower() if isinstance(entry, bool) else str(entry)
            return InvalidInput(f'a text (quote it: "{text}")', entry, f"{path}[{name}]")
    return None


_STEP = re.compile(r"\.?([^.\[\]]+)|\[(\d+)\]")


def _value_at(value: object, path: str) -> object:
    """Return the value at a path such as `a.b[0].c`; None if the path does not exist."""
    for name, index in _STEP.findall(path):
        if index and isinstance(value, list):
            items = cast("list[object]", value)
            value = items[int(index)] if int(index) < len(items) else None
        elif isinstance(value, dict):
            value = cast("dict[str, object]", value).get(name)
        else:
            return None
    return value


def check_reservation(document: dict[str, Any]) -> list[InvalidInput]:
    """Return every violation in a Reservation that passed its schema; empty if it is valid."""
    try:
        reservation = reservation_from_json(document)
    except (msgspec.ValidationError, RecursionError, OverflowError) as error:
        return [shape_mismatch(error, document)]
    taints = check_taints(reservation.spec.taints, "spec.taints")
    return [*_template(reservation), *_owners(reservation), *_ttl(reservation), *taints]


def _template(reservation: Reservation) -> Iterator[InvalidInput]:
    template = reservation.spec.template
    if template is None:
        yield InvalidInput("a pod template", None, "spec.template")
        return
    written = template.metadata
    metadata = ObjectMeta(
        name=reservation.metadata.name,
        namespace=written.namespace or "default",
        labels=written.labels,
        annotations=written.annotations,
    )
    pod = Pod(metadata=metadata, spec=template.spec)
    for fault in rules.check("Pod", pod):
        # its name is the Reservation's, and no container of it ever runs, so that an image is of no use
        if fault.path != "metadata.name" and not fault.path.endswith(".image"):
            yield fault.at("spec.template")


def _owners(reservation: Reservation) -> Iterator[InvalidInput]:
    for index, owner in enumerate(reservation.spec.owners):
        where = f"spec.owners[{index}]"
        if owner == ReservationOwnerRule():
            yield InvalidInput("at least one of object, controller and labelSelector", {}, where)
        if owner.label_selector is not None:
            try:
                compile_selector(owner.label_selector)
            except InvalidInput as error:
                yield error.at(f"{where}.labelSelector")


def _ttl(reservation: Reservation) -> Iterator[InvalidInput]:
    text = reservation.spec.ttl
    if text is None:
        return
    try:
        nanos = parse_duration(text)
    except InvalidInput as error:
        yield error.at("spec.ttl")
        return
    if nanos < 0:
        yield InvalidInput("not negative (0s: no expiry)", text, "spec.ttl")


# Kind of a custom resource whose rules are not all in its schema -> its other violations.
_CHECKS: Final[Mapping[str, Callable[[dict[str, Any]], Iterable[InvalidInput]]]] = {
    "Reservation": check_reservation,
    "PodDisruptionBudget": check_budget,
}


@dataclass(slots=True, kw_only=True)
class CustomObject:
    """A custom resource from a document of `koord apply`."""

    resource: ResourceVersion  # Kind and version of the object, with its schema
    metadata: kube.ObjectMeta  # Metadata of the object as a typed value, for validation
    document: dict[str, Any]  # The object as it is stored: without unknown fields and with defaults


KubeObject = kube.Pod | kube.Node | kube.ConfigMap | kube.Namespace | kube.PriorityClass | kube.Workload | CustomObject

# (apiVersion, kind) -> type of the mirrored object.
KINDS: dict[tuple[str, str], type[Any]] = {
    ("v1", "Pod"): kube.Pod,
    ("v1", "Node"): kube.Node,
    ("v1", "ConfigMap"): kube.ConfigMap,
    ("v1", "Namespace"): kube.Namespace,
    ("scheduling.k8s.io/v1", "PriorityClass"): kube.PriorityClass,
    ("apps/v1", "Deployment"): kube.Workload,
    ("batch/v1", "Job"): kube.Workload,
}

# Kinds that have a namespace ("default" if the manifest states none).
NAMESPACED = {"Pod", "ConfigMap", "Deployment", "Job"}


class InvalidManifest(Exception):
    """A document of a manifest is refused. The error has field, rule and value of every violation."""

    def __init__(self, violations: list[InvalidInput]) -> None:
        super().__init__("; ".join(violation.sentence() for violation in violations))
        self.violations = violations


class Manifest(NamedTuple):
    """A valid document of a manifest."""

    kind: str  # Kind as the user wrote it
    object: KubeObject  # Typed object with its namespace set
    # The decoded document, for callers that need fields that the typed object lacks. Do not change it.
    document: dict[str, Any]


def read_manifest(document: object) -> Manifest:
    """Convert a document to its typed object and validate it by the rules of its kind. `document`: JSON value, as
    `read_documents` returns it.

    Raises:
        InvalidManifest: The document is invalid. The error has field, rule and value of every violation.
    """
    manifest = shape_manifest(document)
    check_manifest(manifest)
    return manifest


def shape_manifest(document: object) -> Manifest:
    """Convert a document to its typed object. Check only the types of its fields, not the rules of its kind. An API
    server runs mutating webhooks between these two steps, so callers that do this need them separately. Null entries
    count as absent. A namespace of a cluster-scoped object is removed. `document`: JSON value, as `read_documents`
    returns it.

    Raises:
        InvalidManifest: A field has a wrong type, or a custom resource violates its schema. The error has the first
            violation.
    """
    if not isinstance(document, dict):
        raise InvalidManifest([InvalidInput("an object with apiVersion, kind and metadata", document, "document")])
    entries = cast("dict[str, Any]", document)
    api_version, kind = entries.get("apiVersion"), entries.get("kind")
    if not isinstance(api_version, str) or not isinstance(kind, str):
        missing = "kind" if isinstance(api_version, str) else "apiVersion"
        raise InvalidManifest([InvalidInput("text such as v1 / Pod", entries.get(missing), missing)])
    model = KINDS.get((api_version, kind))
    resource = None if model else find_accepted(api_version, kind)
    if resource is not None:
        return Manifest(kind, _custom(resource, entries), entries)
    if model is None:
        known = ", ".join(f"{version} {name}" for version, name in KINDS)
        others = ", ".join(f"{each.api_version} {each.kind}" for each in kubernetes_kinds())
        rule = f"one of {known}, {others}, or a kind of this system's custom resources"
        raise InvalidManifest([InvalidInput(rule, f"{api_version} {kind}", "apiVersion, kind")])
    try:
        typed = _typed(kind, entries, model)
    except InvalidManifest:
        # nulls are rare, and looking for them in every document costs more than looking again
        cleaned = cast("dict[str, Any]", kube.without_nulls(entries))
        if cleaned == entries:
            raise
        typed = _typed(kind, cleaned, model)
        entries = cleaned
    if kind not in NAMESPACED and typed.metadata.namespace:
        typed.metadata.namespace = ""
        entries = {**entries, "metadata": _without_namespace(entries["metadata"])}
    elif kind in NAMESPACED and not typed.metadata.namespace:
        typed.metadata.namespace = "default"
    return Manifest(kind, typed, entries)


def check_manifest(manifest: Manifest) -> None:
    """Validate an object that `shape_manifest` returned by the rules of its kind.

    Raises:
        InvalidManifest: The object is invalid. The error has every violation.
    """
    subject = manifest.object
    if isinstance(subject, CustomObject):
        violations = list(check_metadata(subject.metadata, namespaced=subject.resource.scope == "Namespaced"))
        check = _CHECKS.get(subject.resource.kind)
        if check is not None:
            violations += check(subject.document)
    else:
        violations = [*rules.check(manifest.kind, subject), *check_unread(manifest.kind, manifest.document)]
    if violations:
        raise InvalidManifest(violations)


def _typed(kind: str, entries: dict[str, Any], model: type[Any]) -> KubeObject:
    shaped = _flattened(kind, entries) if model is kube.Workload else entries
    return cast("KubeObject", _shape(shaped, model))


def _custom(resource: ResourceVersion, entries: dict[str, Any]) -> CustomObject:
    stored = admit_as(resource, entries)
    if isinstance(stored, Refused):
        raise InvalidManifest([InvalidInput(stored.rule, stored.value, stored.field)])
    document = cast("dict[str, Any]", stored.object)
    written: object = document.get("metadata") or {}
    try:
        metadata = kube.object_from_json(written, kube.ObjectMeta)
    except msgspec.ValidationError as error:
        raise InvalidManifest([shape_mismatch(error, written).at("metadata")]) from error
    namespaced = resource.scope == "Namespaced"
    if namespaced and not metadata.namespace:
        metadata.namespace = "default"
        document["metadata"] = {**cast("dict[str, Any]", written), "namespace": metadata.namespace}
    elif not namespaced and metadata.namespace:
        metadata.namespace = ""
        document["metadata"] = _without_namespace(written)
    return CustomObject(resource=resource, metadata=metadata, document=document)


def _without_namespace(metadata: object) -> dict[str, Any]:
    return {name: value for name, value in cast("dict[str, Any]", metadata).items() if name != "namespace"}


def _flattened(kind: str, entries: dict[str, object]) -> dict[str, object]:
    """Return a Deployment or Job as the fields of our Workload. Replicas (Job: parallelism), selector and template move
    from `spec` to the top level.
    """
    spec = entries.get("spec")
    if not isinstance(spec, dict):
        raise InvalidManifest([InvalidInput("an object", spec, "spec")])
    fields = cast("dict[str, object]", spec)
    if "template" not in fields:
        raise InvalidManifest([InvalidInput("a pod template", None, "spec.template")])
    number = fields.get("replicas" if kind == "Deployment" else "parallelism", 1)
    flat: dict[str, object] = {
        "kind": kind,
        "apiVersion": entries["apiVersion"],
        "metadata": entries.get("metadata", {}),
        "replicas": number,
        "template": fields["template"],
    }
    if fields.get("selector") is not None:
        flat["selector"] = fields["selector"]
    return flat


def _shape(value: dict[str, object], model: type[Any]) -> object:
    """Convert a JSON object to a struct. Raises InvalidManifest with path, expected type and value."""
    try:
        return codec.convert(value, model)
    except (msgspec.ValidationError, RecursionError, OverflowError) as error:
        raise InvalidManifest([shape_mismatch(error, value)]) from error
