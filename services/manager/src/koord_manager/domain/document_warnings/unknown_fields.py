"""Find fields that the kind of a document does not have, which are accepted and ignored.

Kubernetes' own kinds are compared with their documented fields, and custom resources with their definition. Pods and
metadata inside custom resources are compared with Kubernetes' fields. Values are not checked.
"""

from collections.abc import Iterator, Mapping
from typing import Final, cast

from koordcore.protocol.crd import ResourceVersion, find_accepted
from koordcore.protocol.crd.catalogue import Schema
from koordcore.protocol.kubernetes_fields import field_types
from koordcore.protocol.manifests import KINDS

from koord_manager.domain.document_warnings.spelling import place, suggestion

_EMBEDDED: Final[Mapping[tuple[str, str], str]] = {
    ("ClusterColocationProfile", "spec.patch"): "Pod",
    ("Reservation", "spec.template"): "PodTemplateSpec",
}
"""(kind, place) -> type of a value that the definition leaves open; `metadata` is such a place everywhere."""
_DIRECTIVE: Final = "$"
"""Prefix of directives of a strategic merge patch."""


def unknown_fields(document: object) -> Iterator[str]:
    """Yield a sentence for each unknown field of a document. A document of an unknown kind yields nothing."""
    if not isinstance(document, dict):
        return
    entries = cast("dict[str, object]", document)
    api_version, kind = entries.get("apiVersion"), entries.get("kind")
    if not isinstance(api_version, str) or not isinstance(kind, str):
        return
    resource = None if (api_version, kind) in KINDS else find_accepted(api_version, kind)
    if kind in field_types() and ((api_version, kind) in KINDS or resource is not None):
        yield from _of_type(kind, entries, "")
    elif resource is not None:
        yield from _of_definition(resource, resource.schema, entries, "")


def _of_type(name: str, value: object, path: str) -> Iterator[str]:
    """Yield the unknown fields of a value of a Kubernetes type, or of each item of a list."""
    if isinstance(value, list):
        for index, item in enumerate(cast("list[object]", value)):
            yield from _of_type(name, item, f"{path}[{index}]")
        return
    if not isinstance(value, dict):
        return
    types = field_types()[name]
    for field, item in cast("dict[str, object]", value).items():
        nested = types.get(field)
        if nested:
            yield from _of_type(nested, item, place(path, field))
        elif nested is None and not field.startswith(_DIRECTIVE):
            yield f"{place(path, field)}: unknown field, it is ignored{suggestion(field, types)}"


def _of_definition(resource: ResourceVersion, schema: Schema, value: object, path: str) -> Iterator[str]:
    """Yield the unknown fields of a value with a schema, or of each item of a list."""
    embedded = "ObjectMeta" if path == "metadata" else _EMBEDDED.get((resource.kind, path))
    if embedded is not None:
        yield from _of_type(embedded, value, path)
    elif isinstance(value, list) and schema.items is not None:
        for index, item in enumerate(cast("list[object]", value)):
            yield from _of_definition(resource, schema.items, item, f"{path}[{index}]")
    elif isinstance(value, dict) and schema.type == "object":
        for field, item in cast("dict[str, object]", value).items():
            known = schema.properties.get(field) or schema.additional
            if known is not None:
                yield from _of_definition(resource, known, item, place(path, field))
            elif not schema.preserve_unknown:
                yield f"{place(path, field)}: unknown field, it is dropped{suggestion(field, schema.properties)}"
