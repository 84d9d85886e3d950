"""Find documents that are accepted as an API server accepts them, and can never do what their author wants.

A ClusterColocationProfile may make every pod that it matches fail, and a PodMigrationJob may end at once. Schemas do
not say so: they leave texts and patches open.

Source:
    reality spec, 1.7, 5.6
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

from koordcore.protocol.crd import find_accepted
from koordcore.protocol.manifests import KINDS
from koordcore.protocol.manifests.names import check_labels
from koordcore.protocol.manifests.reader import NAMESPACED
from koordcore.protocol.manifests.resource_rules import check_quantities
from koordcore.protocol.migrations import check_mode, check_ttl
from koordcore.protocol.objects import PodSpec, object_from_json
from koordcore.values import codec
from koordcore.values.invalid import InvalidInput

from koord_manager.domain.admission.context.profiles import read_profile
from koord_manager.domain.admission.json_object import seen
from koord_manager.domain.admission.request import JsonObject

_NO_POD: Final = "no pod that the profile matches can be created"
_IDENTITY: Final = ("apiVersion", "kind")


def warnings_without_use(document: object) -> Iterator[str]:
    """Yield a sentence for each part of a document that makes it useless, with field, rule, value and effect."""
    if not isinstance(document, dict):
        return
    entries = cast("JsonObject", document)
    yield from _namespace(entries)
    try:
        if entries.get("kind") == "ClusterColocationProfile":
            yield from _profile(entries)
        elif entries.get("kind") == "PodMigrationJob":
            yield from _job(seen(entries, "spec"))
    except InvalidInput:
        return  # the schema refuses it


def _namespace(document: JsonObject) -> Iterator[str]:
    api_version, kind, metadata = document.get("apiVersion"), document.get("kind"), document.get("metadata")
    if not isinstance(metadata, dict) or not isinstance(api_version, str) or not isinstance(kind, str):
        return
    written = cast("Mapping[str, object]", metadata).get("namespace")
    if not written:
        return
    resource = None if (api_version, kind) in KINDS else find_accepted(api_version, kind)
    is_known = resource is not None or (api_version, kind) in KINDS
    is_namespaced = kind in NAMESPACED if resource is None else resource.scope == "Namespaced"
    if is_known and not is_namespaced:
        yield f"metadata.namespace: is removed, because a {kind} belongs to no namespace; got {written!r}"


def _told(fault: InvalidInput, effect: str) -> str:
    return f"{fault.path}: should be {fault.rule}, got {fault.value!r}; {effect}"


def _profile(document: JsonObject) -> Iterator[str]:
    profile = read_profile(document)
    for fault in (profile.probability, profile.patch):
        if isinstance(fault, InvalidInput):
            yield _told(fault, _NO_POD)
    if isinstance(profile.probability, int) and not 0 <= profile.probability <= 100:
        fault = InvalidInput("0..100 percent", profile.probability, "spec.probability")
        yield _told(fault, "less than 0 means never, and more than 100 always")
    labels = {**profile.labels, **dict.fromkeys(profile.label_keys_mapping.values(), "")}
    for fault in check_labels(labels, "spec.labels"):
        yield _told(fault, _NO_POD)
    if isinstance(profile.patch, dict):
        yield from _patch(profile.patch)


def _patch(patch: JsonObject) -> Iterator[str]:
    for field in _IDENTITY:
        if field in patch:
            yield _told(InvalidInput("absent: a patch changes no kind", patch[field], f"spec.patch.{field}"), _NO_POD)
    metadata: Any = patch.get("metadata")
    for field in ("name", "namespace"):
        if isinstance(metadata, dict) and field in metadata:
            value = cast("JsonObject", metadata)[field]
            fault = InvalidInput("absent: a patch renames no pod", value, f"spec.patch.metadata.{field}")
            yield _told(fault, _NO_POD)
    spec: Any = patch.get("spec")
    if isinstance(spec, dict):
        written = cast("JsonObject", spec)
        if "containers" in written and not written["containers"]:
            rule = "at least one container, or absent"
            yield _told(InvalidInput(rule, written["containers"], "spec.patch.spec.containers"), _NO_POD)
        yield from _spec_of_patch(written)


def _spec_of_patch(written: JsonObject) -> Iterator[str]:
    try:
        spec = object_from_json(written, PodSpec)
    except codec.DecodeError as error:
        yield f"spec.patch.spec: should be a part of a pod's spec ({error}); {_NO_POD}"
        return
    for index, container in enumerate(spec.containers):
        for name, amounts in (("requests", container.resources.requests), ("limits", container.resources.limits)):
            for fault in check_quantities(amounts, f"spec.patch.spec.containers[{index}].resources.{name}"):
                yield _told(fault, _NO_POD)


def _job(spec: JsonObject) -> Iterator[str]:
    for name, check in (("ttl", check_ttl), ("mode", check_mode)):
        value = spec.get(name)
        fault = check(value) if isinstance(value, str) else None
        if fault is not None:
            yield _told(fault.at(f"spec.{name}"), "the job fails at once")
