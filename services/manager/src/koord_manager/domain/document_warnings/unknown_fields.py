"""Fields of a document that its kind does not have: they are taken, and nobody reads them.

A kind of Kubernetes itself is looked at by its documented fields, a custom resource by its definition (which drops what
it does not name), pods and metadata inside of it by Kubernetes' fields again. Text and numbers are not judged here.
"""

from collections.abc import Iterator, Mapping
from typing import Final, cast

from koordcore.protocol.crd import ResourceVersion, find_accepted
from koordcore.protocol.crd.schema import Schema
from koordcore.protocol.kubernetes_fields import field_types
from koordcore.protocol.manifests import KINDS

from koord_manager.domain.document_warnings.spelling import place, suggestion

_EMBEDDED: Final[Mapping[tuple[str, str], str]] = {
    ("ClusterColocationProfile", "spec.patch"): "Pod",
    ("Reservation", "spec.template"): "PodTemplateSpec",
}
"""(kind, place) -> what stands there, where the definition leaves it open. `metadata` is such a place everywhere."""
_DIRECTIVE: Final = "$"
"""How the names of a strategic merge patch's directives begin."""


def unknown_fields(document: object) -> Iterator[str]:
    """A sentence for each unknown field, in the order of the document; none for what is of no kind that is taken."""
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
    """Unknown fields of a value, or of each item of a list, of a type of Kubernetes."""
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
    """Unknown fields of a value, or of each item of a list, where a definition says what stands there."""
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
