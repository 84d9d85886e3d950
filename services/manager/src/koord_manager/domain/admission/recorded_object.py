"""Reduce an object to the part that an admission decision records, so that the decision can be repeated.

Pods and nodes are recorded with the fields that the log keeps: without environment, command and arguments. kubectl's
copy of the object and managed fields are never recorded.

The schema of a pod template inside a custom resource is open, so it may contain a secret. It is reduced to the fields
that the log keeps of pods. Writes to these objects change other fields, so the object at an API server keeps its
template.

Source:
    manager spec, 17.3; event-bus spec, 2.1 (cut down to the fields that are used); protocol spec, 9.6, 9.7
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, cast

import msgspec
from koordcore.protocol.config.sections import SectionName
from koordcore.protocol.manifests import shape_mismatch
from koordcore.protocol.objects import ConfigMap, KubeStruct, Node, ObjectMeta, Pod, PodTemplate, without_nulls
from koordcore.values import codec
from koordcore.values.invalid import InvalidInput

from koord_manager.domain.admission.json_object import seen
from koord_manager.domain.admission.request import JsonObject, Violation

LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
"""kubectl's own copy of the manifest, which may hold secrets and never enters the log."""
MAX_BYTES: Final = 64 * 1024
"""Maximum size of a recorded object, because messages of the bus are limited."""
MAX_VIOLATIONS: Final = 100
"""Maximum number of recorded violations; a large object may break a rule in each of its containers."""
MAX_FIELD: Final = 500
"""Maximum length of a recorded field, because keys of maps may have any length."""
_QUOTA_FIELDS: Final = {"spec": frozenset(("min", "max")), "status": frozenset(("used",))}
_RESERVATION_FIELDS: Final = frozenset(
    (
        *("template", "owners", "ttl", "expires", "preAllocation", "preAllocationPolicy"),
        *("allocateOnce", "allocatePolicy", "unschedulable", "taints"),
    )
)
_SECTIONS: Final = frozenset(section.key for section in SectionName)


def recorded_part(resource: str, document: JsonObject | None) -> JsonObject | None:
    """Return the part of an object that an admission decision records.

    Args:
        resource: Plural of its kind, such as `pods`.

    Returns:
        The part as JSON. None if admission has no rules for the kind, if there is no object, if it has the wrong
        shape, or if the part exceeds 64 KiB.
    """
    keep = _RECORDED.get(resource)
    if keep is None or document is None:
        return None
    try:
        recorded = keep(document)
        if recorded is None:
            return None
        named = {name: text for name in ("apiVersion", "kind") if isinstance(text := document.get(name), str)}
        return None if len(codec.encode(recorded)) > MAX_BYTES else {**named, **recorded}
    except (codec.DecodeError, RecursionError, UnicodeEncodeError):
        return None


def recorded_reservation(document: Any) -> JsonObject:
    """Return the part of a Reservation, or of a template for one, that an admission decision records.

    Raises:
        codec.DecodeError: The object has the wrong shape.
    """
    document = codec.convert(document, dict[str, Any])
    recorded = _metadata(document)
    written: Any = document.get("spec")
    if written is None:
        return recorded
    recorded["spec"] = spec = _only(written, _RESERVATION_FIELDS)
    if spec.get("template") is not None:
        spec["template"] = recorded_template(spec["template"])
    return recorded


def recorded_template(given: Any) -> JsonObject:
    """Return the part of a pod template that an admission decision records.

    Raises:
        codec.DecodeError: The template has the wrong shape.
    """
    template = _typed(given, PodTemplate)
    if "metadata" in template and not _without_copy(template["metadata"]).get("annotations", True):
        del template["metadata"]["annotations"]
    return template


def our_sections(data: Mapping[str, str]) -> dict[str, str]:
    """Return the entries of a ConfigMap's data whose keys are sections of slo-controller-config."""
    return {name: text for name, text in data.items() if name in _SECTIONS}


def digest_of(resource: str, document: JsonObject | None) -> str:
    """Return a hexadecimal digest of the part of an object that is recorded, or "" if no part is recorded.

    Args:
        resource: Plural of its kind, such as `pods`.
    """
    recorded = recorded_part(resource, document)
    return hashlib.blake2b(codec.encode_canonical(recorded), digest_size=8).hexdigest() if recorded is not None else ""


def recorded_violations(violations: Sequence[Violation]) -> tuple[list[str], list[str]]:
    """Return the rules and the fields of violations for the record.

    At most 100 violations are kept, and each field is cut to 500 characters.
    """
    told = violations[:MAX_VIOLATIONS]
    return [violation.rule for violation in told], [violation.field[:MAX_FIELD] for violation in told]


def _typed(document: Any, kind: type[KubeStruct]) -> JsonObject:
    # nulls inside of maps are refused here, though the log reads them as absent: admission does not
    return cast("JsonObject", msgspec.to_builtins(codec.convert(document, kind)))


def _without_copy(metadata: JsonObject) -> JsonObject:
    annotations = cast("Mapping[str, str]", metadata.get("annotations") or {})
    if LAST_APPLIED in annotations:
        metadata["annotations"] = {name: text for name, text in annotations.items() if name != LAST_APPLIED}
    return metadata


def _object(document: JsonObject, kind: type[KubeStruct]) -> JsonObject:
    recorded = _typed(document, kind)
    if "metadata" in recorded:
        _without_copy(recorded["metadata"])
    return recorded


def _pod(document: JsonObject) -> JsonObject:
    return _object(document, Pod)


def _node(document: JsonObject) -> JsonObject:
    recorded = _object(document, Node)
    for name in ("images", "conditions"):
        seen(recorded, "status").pop(name, None)
    return recorded


def _config(document: JsonObject) -> JsonObject:
    recorded = _object(document, ConfigMap)
    recorded["data"] = our_sections(recorded.get("data", {}))
    return recorded


def _quota(document: JsonObject) -> JsonObject:
    recorded = _metadata(document)
    for name, fields in _QUOTA_FIELDS.items():
        if document.get(name) is not None:
            recorded[name] = _only(document[name], fields)
    return recorded


def _reservation(document: JsonObject) -> JsonObject | None:
    recorded = recorded_reservation(document)
    if _has_pod_spec(document) != _has_pod_spec(recorded):
        return None  # whether the template has a spec at all is looked at
    return recorded


def _has_pod_spec(reservation: JsonObject) -> bool:
    spec: Any = reservation.get("spec") or {}
    template: Any = spec.get("template") or {}
    return bool(template.get("spec"))


def _only(value: Any, fields: frozenset[str]) -> JsonObject:
    return {name: inner for name, inner in codec.convert(value, dict[str, Any]).items() if name in fields}


def _metadata(document: JsonObject) -> JsonObject:
    written: Any = document.get("metadata")
    return {"metadata": _without_copy(_typed({} if written is None else written, ObjectMeta))}


_RECORDED: Final[Mapping[str, Callable[[JsonObject], JsonObject | None]]] = {
    "pods": _pod,
    "nodes": _node,
    "configmaps": _config,
    "elasticquotas": _quota,
    "reservations": _reservation,
}


TEMPLATES: Final[Mapping[str, tuple[tuple[str, ...], Callable[[Any], JsonObject]]]] = {
    "reservations": (("spec", "template"), recorded_template),
    "podmigrationjobs": (("spec", "reservationOptions", "template"), recorded_reservation),
    "scheduleexplanations": (("spec", "questionObjectTemplate"), recorded_template),
}
"""Plural -> place of the template, and the function that reduces it."""


class RecordedDocument(NamedTuple):
    """A custom resource as the log records it."""

    document: JsonObject  # The object with the reduced pod template
    fault: InvalidInput | None = None  # Reason why the template is not valid and was recorded as empty, or None


def with_recorded_templates(plural: str, document: JsonObject) -> RecordedDocument:
    """Return a copy of a custom resource whose pod template is reduced to the fields that the log keeps of pods.

    A resource without a pod template is returned itself. The argument is never changed.

    Args:
        plural: Plural of its kind, such as `reservations`.
    """
    if plural not in TEMPLATES:
        return RecordedDocument(document)
    path, keep = TEMPLATES[plural]
    holders = [document]
    for name in path[:-1]:
        below: Any = holders[-1].get(name)
        if not isinstance(below, dict):
            return RecordedDocument(document)
        holders.append(cast("JsonObject", below))
    given: Any = holders[-1].get(path[-1])
    if given is None:
        return RecordedDocument(document)
    fault = None
    try:
        recorded = keep(without_nulls(given))
    except (codec.DecodeError, RecursionError, OverflowError) as error:
        recorded, fault = keep({}), shape_mismatch(error, given).at(".".join(path))
    for holder, name in zip(reversed(holders), reversed(path), strict=True):
        recorded = {**holder, name: recorded}
    return RecordedDocument(recorded, fault)
