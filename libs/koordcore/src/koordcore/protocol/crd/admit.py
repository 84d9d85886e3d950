"""Admission of a custom resource as an API server performs it: prune, default, validate.

`admit` consists of `prune_and_default` and `first_violation`. All functions take decoded JSON and do not change it.

Source: protocol spec, 9; vectors/protocol/crd_object.json.
"""

from __future__ import annotations

import copy
import datetime
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from koordcore.protocol.crd.catalogue import Json, ResourceVersion, Schema, find_resource, resource_versions

_DATE_TIME: Final = re.compile(
    r"(\d{4})-(\d{2})-(\d{2})[Tt](\d{2}):(\d{2}):(\d{2})(?:\.\d+)?(?:[Zz]|[+-](\d{2}):(\d{2}))", re.ASCII
)
_INTEGER_BITS: Final = {"int32": 32, "int64": 64}
_TYPE_NAMES: Final = {
    "object": "an object",
    "array": "a list",
    "string": "text",
    "integer": "an integer",
    "number": "a number",
    "boolean": "true or false",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """A valid custom resource in the form in which it is stored: without unknown fields and with defaults."""

    object: dict[str, Json]


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """The first rule of its schema that a custom resource violates. The object is not stored."""

    field: str  # Path of the violation, such as `spec.owners[0].controller.uid`; "" for the object itself
    rule: str  # Sentence fragment that says which values are accepted
    value: Json  # Value of the field; None if the field is missing

    def sentence(self) -> str:
        """Return the violation as one sentence with field, rule and value."""
        where = f"{self.field}: " if self.field else ""
        shown = repr(self.value)
        return f"{where}must be {self.rule}, got {shown if len(shown) <= 120 else shown[:120] + '...'}"


def admit(document: Json) -> Accepted | Refused:
    """Return the stored form of a custom resource, or the first rule of its schema that it violates. The steps have the
    order of the API server. Fields that the schema does not have, and nulls of fields that may not be null, are
    dropped. Defaults are added inside objects and list items that are present. Then the result is validated. The status
    is kept; the caller decides whether the request may change it.

    It is not changed, but the result shares its metadata and its parts without a schema (pod templates, patches).
    """
    if not isinstance(document, dict):
        return Refused(field="", rule="an object", value=document)
    for name in ("apiVersion", "kind"):
        if not isinstance(document.get(name), str) or not document[name]:
            return Refused(field=name, rule="a non-empty text", value=document.get(name))
    api_version, kind = str(document["apiVersion"]), str(document["kind"])
    resource = find_resource(api_version, kind)
    if resource is None:
        versions = sorted(known.api_version for known in resource_versions() if known.kind == kind and known.served)
        if versions:
            return Refused(field="apiVersion", rule=" or ".join(versions), value=api_version)
        kinds = sorted({known.kind for known in resource_versions()})
        return Refused(field="kind", rule=f"one of {', '.join(kinds)}", value=kind)
    return admit_as(resource, document)


def admit_as(resource: ResourceVersion, document: dict[str, Json]) -> Accepted | Refused:
    """Return the stored form of a custom resource of a given kind, or the first rule of the schema that it violates.
    The steps are those of `admit`, which finds the kind by itself. `resource`: kind and version, whose schema applies.
    It is not changed.
    """
    stored = prune_and_default(resource.schema, document)
    violation = first_violation(resource.schema, stored)
    return violation if violation is not None else Accepted(object=stored)


def prune_and_default(schema: Schema, document: dict[str, Json]) -> dict[str, Json]:
    """Return a copy of a custom resource without unknown fields and with defaults. The copy shares `metadata` and the
    parts without a schema with the document.
    """
    pruned = _prune(schema, document)
    assert isinstance(pruned, dict)
    if "metadata" in document:
        pruned["metadata"] = document["metadata"]
    _fill_defaults(schema, pruned)
    return pruned


def _prune(schema: Schema, value: Json) -> Json:
    # only what the schema describes is copied and walked: an open subtree may be nested deeper than the stack
    if isinstance(value, dict) and schema.type == "object":
        result: dict[str, Json] = {}
        for name, child in value.items():
            known = schema.properties.get(name) or schema.additional
            if known is not None:
                if child is None and not known.nullable and name in schema.properties:
                    continue
                result[name] = _prune(known, child)
            elif schema.preserve_unknown:
                result[name] = child
        return result
    if isinstance(value, list) and schema.items is not None:
        items = schema.items
        return [_prune(items, child) for child in value]
    return value


def _fill_defaults(schema: Schema, value: Json) -> None:
    if isinstance(value, dict):
        for name, child in schema.properties.items():
            if child.has_default and name not in value:
                value[name] = copy.deepcopy(child.default)
            if name in value:
                _fill_defaults(child, value[name])
        if schema.additional is not None:
            for name, item in value.items():
                if name not in schema.properties:
                    _fill_defaults(schema.additional, item)
    elif isinstance(value, list) and schema.items is not None:
        for item in value:
            _fill_defaults(schema.items, item)


def first_violation(schema: Schema, value: Json, path: str = "") -> Refused | None:
    """Return the first rule of a schema that a JSON value violates, outer levels first; None if it is valid. `path`:
    Path of the value, for the result.
    """
    if value is None:
        return None if schema.nullable or _takes_anything(schema) else _wrong_type(schema, value, path)
    if not _has_type(schema, value):
        return _wrong_type(schema, value, path)
    if schema.enum and value not in schema.enum:
        return Refused(field=path, rule=f"one of {', '.join(map(str, schema.enum))}", value=value)
    if isinstance(value, str):
        return _text_violation(schema, value, path)
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return _number_violation(schema, value, path)
    if isinstance(value, list):
        return _list_violation(schema, value, path)
    return _object_violation(schema, value, path)


def _takes_anything(schema: Schema) -> bool:
    return schema.type is None and not schema.int_or_string


def _has_type(schema: Schema, value: Json) -> bool:
    if schema.int_or_string:
        return isinstance(value, str) or _is_integer(value)
    match schema.type:
        case None:
            return True
        case "object":
            return isinstance(value, dict)
        case "array":
            return isinstance(value, list)
        case "string":
            return isinstance(value, str)
        case "boolean":
            return isinstance(value, bool)
        case "integer":
            return _is_integer(value)
        case _:
            return isinstance(value, int | float) and not isinstance(value, bool)


def _is_integer(value: Json) -> bool:
    # 3.0 is an integer to a JSON schema, true is not
    return not isinstance(value, bool) and (isinstance(value, int) or (isinstance(value, float) and value.is_integer()))


def _wrong_type(schema: Schema, value: Json, path: str) -> Refused:
    rule = "an integer or text" if schema.int_or_string else _TYPE_NAMES[schema.type or "object"]
    return Refused(field=path, rule=rule, value=value)


def _text_violation(schema: Schema, value: str, path: str) -> Refused | None:
    if schema.min_length is not None and len(value) < schema.min_length:
        return Refused(field=path, rule=f"at least {schema.min_length} characters", value=value)
    if schema.max_length is not None and len(value) > schema.max_length:
        return Refused(field=path, rule=f"at most {schema.max_length} characters", value=value)
    if schema.pattern is not None and schema.pattern.search(value) is None:
        return Refused(field=path, rule=f"text that matches {schema.pattern.pattern}", value=value)
    if schema.format == "date-time" and not _is_date_time(value):
        return Refused(field=path, rule="an RFC 3339 time", value=value)
    return None


def _is_date_time(text: str) -> bool:
    match = _DATE_TIME.fullmatch(text)
    if match is None:
        return False
    year, month, day, hour, minute, second = map(int, match.groups()[:6])
    offset_hour, offset_minute = (int(part or 0) for part in match.groups()[6:])
    try:
        # a leap second is legal in RFC 3339
        datetime.datetime(year, month, day, hour, minute, min(second, 59), tzinfo=datetime.UTC)
    except ValueError:
        return False
    return second <= 60 and offset_hour <= 23 and offset_minute <= 59


def _number_violation(schema: Schema, value: float, path: str) -> Refused | None:
    bits = _INTEGER_BITS.get(schema.format or "")
    if bits is not None and not -(1 << (bits - 1)) <= value < 1 << (bits - 1):
        return Refused(field=path, rule=f"an integer within int{bits}", value=value)
    low, high = schema.minimum, schema.maximum
    if (low is not None and value < low) or (high is not None and value > high):
        if low is not None and high is not None:
            rule = f"between {low:g} and {high:g}"
        else:
            rule = f"at least {low:g}" if low is not None else f"at most {high:g}"
        return Refused(field=path, rule=rule, value=value)
    return None


def _list_violation(schema: Schema, value: list[Json], path: str) -> Refused | None:
    if schema.min_items is not None and len(value) < schema.min_items:
        return Refused(field=path, rule=f"a list of at least {schema.min_items}", value=value)
    if schema.items is not None:
        for index, item in enumerate(value):
            violation = first_violation(schema.items, item, f"{path}[{index}]")
            if violation is not None:
                return violation
    return None


def _object_violation(schema: Schema, value: Mapping[str, Json], path: str) -> Refused | None:
    if schema.min_properties is not None and len(value) < schema.min_properties:
        names = ", ".join(schema.properties)
        return Refused(
            field=path, rule=f"an object with at least {schema.min_properties} of {names}", value=dict(value)
        )
    for name in schema.required:
        if name not in value:
            return Refused(field=_child(path, name), rule="present", value=None)
    for name, item in value.items():
        known = schema.properties.get(name) or schema.additional
        if known is not None:
            violation = first_violation(known, item, _child(path, name))
            if violation is not None:
                return violation
    return None


def _child(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
