"""Find fields that are accepted and have no effect, or another one than expected.

Fields that the kind does not have are ignored. Kubernetes' own kinds are compared with their documented fields, and
custom resources with their definition. Pods and metadata inside custom resources are compared with Kubernetes' fields.
Values are not checked.

Label selectors of custom resources may be accepted and match nothing: their schemas do not restrict operators and
values, as those of Kubernetes' own kinds do. Reservations may end earlier than their author seems to expect.

Source:
    protocol spec, 1.3, 8; manager spec, 1 (an invalid selector never matches), 14; scheduler-fine-grained spec, 3.3 (a
    Reservation that states only `expires` has the default `ttl` of 24 hours)
"""

from collections.abc import Iterator, Mapping
from typing import Final, cast

from koordcore.protocol.crd import ResourceVersion, find_accepted
from koordcore.protocol.crd.catalogue import Schema
from koordcore.protocol.kubernetes_fields import field_types
from koordcore.protocol.manifests import KINDS
from koordcore.protocol.objects import LabelSelector, object_from_json
from koordcore.protocol.selectors import compile_selector
from koordcore.values import codec
from koordcore.values.invalid import InvalidInput

from koord_manager.domain.admission.unread_fields import place, suggestion

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


_SELECTORS: Final[Mapping[str, Mapping[str, str]]] = {
    "ClusterColocationProfile": {
        "selector": "the profile matches no pod",
        "namespaceSelector": "the profile matches no pod",
    },
    "ElasticQuotaProfile": {"nodeSelector": "no quota is made of the profile"},
}
"""Kind -> field of `spec` -> effect of a selector that cannot be read."""


def unreadable_selectors(document: object) -> Iterator[str]:
    """Yield a sentence for each selector that matches nothing, with field, rule, value and effect.

    The schema denies a selector with fields of the wrong type, so these are not reported here.
    """
    if not isinstance(document, dict):
        return
    entries = cast("dict[str, object]", document)
    kind, spec = entries.get("kind"), entries.get("spec")
    if not isinstance(kind, str) or not isinstance(spec, dict):
        return
    for field, effect in _SELECTORS.get(kind, {}).items():
        written = cast("dict[str, object]", spec).get(field)
        if written is None:
            continue
        try:
            compile_selector(object_from_json(written, LabelSelector))
        except codec.DecodeError:
            continue
        except InvalidInput as error:
            fault = error.at(f"spec.{field}")
            yield f"{fault.path}: should be {fault.rule}, got {fault.value!r}; {effect}"


_BOTH: Final = "the earlier of both ends the Reservation; a later expires needs a longer ttl, and ttl 0s turns off both"


def lifetime_warnings(document: object) -> Iterator[str]:
    """Yield a sentence if a Reservation states `expires` and leaves `ttl` at its default."""
    if not isinstance(document, dict):
        return
    fields = cast("dict[str, object]", document)
    spec = fields.get("spec")
    if fields.get("kind") != "Reservation" or not isinstance(spec, dict):
        return
    written = cast("dict[str, object]", spec)
    if written.get("expires") is not None and written.get("ttl") is None:
        yield f"spec.ttl: is not set and therefore 24h, beside spec.expires {written['expires']!r}; {_BOTH}"
