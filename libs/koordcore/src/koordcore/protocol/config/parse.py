"""Parse the text of one section of slo-controller-config into values in canonical spelling.

It implements protocol spec, 1.2: keys match case-insensitively, unknown keys are ignored, null and the empty text mean
"not set". A value of a wrong type makes the whole text invalid. Next module: strategy.py.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, TypeAlias, cast

from koordcore.protocol.config.kinds import (
    Bool,
    DurationText,
    Field,
    Float,
    Int,
    JsonObject,
    JsonValue,
    Kind,
    ListOf,
    MapOf,
    Obj,
    OpenMap,
    PercentOrQuantity,
    QuantityValue,
    Text,
)
from koordcore.protocol.config.sections import SectionShape, SectionTable
from koordcore.protocol.lenient_json import fold_keys, parse_json
from koordcore.protocol.objects import LabelSelector, LabelSelectorRequirement
from koordcore.protocol.selectors import Selector, compile_selector
from koordcore.values.duration import format_duration, parse_duration
from koordcore.values.invalid import InvalidInput
from koordcore.values.quantity import quantity_from_json

_CLUSTER_KEY: Final = "clusterStrategy"
_EXPRESSION: Final = Obj((Field("key", Text()), Field("operator", Text()), Field("values", ListOf(Text()))))
_MAX_FLOAT: Final = 1.7976931348623157e308


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenEntry:
    """One entry for selected nodes in a section of slo-controller-config, as the user wrote it.

    Attributes:
        path: Path in the document, such as `nodeConfigs[0]`.
        name: Name of the entry; "" if not set.
        labels: The selector as written; None if absent, and the entry then matches no node.
        selector: The checked selector; None if it is absent or invalid.
        selector_fault: Error of an invalid selector, with its path in the document; None if it is valid.
        strategy: Fields that the user wrote.
    """

    path: str
    name: str
    labels: LabelSelector | None
    selector: Selector | None
    selector_fault: InvalidInput | None
    strategy: JsonObject


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenSection:
    """One section of slo-controller-config as the user wrote it.

    Attributes:
        cluster: Fields for the whole cluster.
        cluster_path: Path of these fields in the document; "" if they are at the top.
        entries: Entries for selected nodes.
    """

    cluster: JsonObject
    cluster_path: str
    entries: tuple[WrittenEntry, ...]


def decode_document(text: str) -> JsonValue:
    """Decode the JSON text of a configuration section.

    Raises:
        InvalidInput: The text is not valid JSON. The error has line and column.
    """
    return cast("JsonValue", parse_json(text))


def _representable(value: JsonValue, path: str) -> JsonValue:
    """Check that the value can be encoded as JSON again.

    Escapes may produce lone surrogates, and exponents infinity.
    """
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    if isinstance(value, float) and not math.isfinite(value):
        raise InvalidInput("a number within the range of float64", value, path)
    if isinstance(value, list):
        return [_representable(item, path) for item in value]
    if isinstance(value, dict):
        return {cast("str", _representable(key, path)): _representable(item, path) for key, item in value.items()}
    return value


Faults: TypeAlias = list[InvalidInput] | None
"""List that collects invalid fields, which are then left out. None: raise the first error instead."""


def parse_value(kind: Kind, value: JsonValue, path: str, faults: Faults = None) -> JsonValue:
    """Convert a decoded JSON value to the type of its configuration field, in canonical spelling.

    Args:
        kind: Type of the field.
        value: Decoded JSON value.
        path: Path of the field, for errors.
        faults: List to which errors inside objects are added; None: raise the first one.

    Raises:
        InvalidInput: The JSON type is wrong, or a duration or quantity is invalid.
    """
    match kind:
        case Bool():
            if isinstance(value, bool):
                return value
            raise InvalidInput("true or false", value, path)
        case Int(bits=bits):
            if isinstance(value, int) and not isinstance(value, bool) and -(1 << bits - 1) <= value < 1 << bits - 1:
                return value
            raise InvalidInput(f"an integer within int{bits}", value, path)
        case Float():
            if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= _MAX_FLOAT:
                return value
            raise InvalidInput("a number", value, path)
        case Text():
            if isinstance(value, str):
                return _representable(value, path)
            raise InvalidInput("text", value, path)
        case DurationText():
            if not isinstance(value, str):
                raise InvalidInput("a duration as text, such as 5m", value, path)
            try:
                return format_duration(parse_duration(value))
            except InvalidInput as error:
                raise error.at(path) from error
        case QuantityValue():
            try:
                return quantity_from_json(value).canonical()
            except InvalidInput as error:
                raise error.at(path) from error
        case PercentOrQuantity():
            if isinstance(value, str):
                return _representable(value, path)
            if isinstance(value, int) and not isinstance(value, bool) and -(1 << 31) <= value < 1 << 31:
                return value
            raise InvalidInput("an integer (percent) or text (quantity)", value, path)
        case OpenMap():
            try:
                return _representable(_object(value, path), path)
            except RecursionError:
                raise InvalidInput("an object that is nested less deeply", "...", path) from None
        case MapOf(value=item_kind):
            return _parse_map(item_kind, _object(value, path), path)
        case ListOf(item=item_kind):
            return _parse_list(item_kind, value, path)
        case Obj():
            return parse_object(kind, _object(value, path), path, faults)


def _object(value: JsonValue, path: str) -> JsonObject:
    if isinstance(value, dict):
        return value
    raise InvalidInput("an object", value, path)


def _parse_map(kind: Kind, value: JsonObject, path: str) -> JsonObject:
    return {
        cast("str", _representable(key, path)): parse_value(kind, item, f"{path}.{key}")
        for key, item in value.items()
        if item is not None
    }


def _list(value: JsonValue, path: str) -> list[JsonValue]:
    if isinstance(value, list):
        return value
    raise InvalidInput("a list", value, path)


def _parse_list(kind: Kind, value: JsonValue, path: str) -> list[JsonValue]:
    empty: JsonObject = {}
    return [
        parse_value(kind, empty if item is None and isinstance(kind, Obj) else item, f"{path}[{index}]")
        for index, item in enumerate(_list(value, path))
    ]


def parse_object(obj: Obj, document: Mapping[str, JsonValue], path: str, faults: Faults = None) -> JsonObject:
    """Return the fields that a JSON object sets, in the order and spelling of the field table.

    Nulls and empty texts count as not set.

    Args:
        obj: Type of the object.
        document: Decoded JSON object.
        path: Path of the object, for errors.
        faults: List to which the errors of fields are added; None: raise the first one.

    Raises:
        InvalidInput: A field has a wrong type or value, and `faults` is None.
    """
    written = _respelled(document, *(field.name for field in obj.fields))
    result: JsonObject = {}
    for field in obj.fields:
        value = written.get(field.name)
        if value is None or (value == "" and isinstance(field.kind, Text)):
            continue
        with _collecting(faults):
            place = f"{path}.{field.name}" if path else field.name
            result[field.name] = parse_value(field.kind, value, place, faults)
    return result


@contextmanager
def _collecting(faults: Faults) -> Generator[None]:
    """Append an InvalidInput raised in the block to `faults` instead of raising it, unless `faults` is None."""
    try:
        yield
    except InvalidInput as error:
        if faults is None:
            raise
        faults.append(error)


def _respelled(document: Mapping[str, JsonValue], *names: str) -> dict[str, JsonValue]:
    return cast("dict[str, JsonValue]", fold_keys(document, names))


def parse_section(table: SectionTable, text: str, faults: Faults = None) -> WrittenSection:
    """Parse the text of one section of slo-controller-config.

    Args:
        table: Definition of the section.
        text: JSON text of the section's key in the ConfigMap.
        faults: List to which errors of fields and entries are added, which are then left out; None: raise the first
            one.

    Raises:
        InvalidInput: The text is not a JSON object, or, if `faults` is None, a field has a wrong type. An invalid
            selector does not raise; its entry contains the error.

    Source:
        protocol spec, 6.1; manager spec, 3.1
    """
    decoded = decode_document(text)
    document: JsonObject = {} if decoded is None else _object(decoded, "")
    outer = _respelled(document, _CLUSTER_KEY, table.entries_key)
    if table.shape is SectionShape.STRATEGY:
        cluster_path = _CLUSTER_KEY
        part = outer.get(_CLUSTER_KEY)
        cluster: JsonObject = {}
        with _collecting(faults):
            written = {} if part is None else _object(part, _CLUSTER_KEY)
            cluster = parse_object(table.fields, written, _CLUSTER_KEY, faults)
    else:
        cluster_path = ""
        cluster = parse_object(table.fields, document, "", faults)
    entries: list[WrittenEntry] = []
    if table.shape is not SectionShape.CLUSTER_ONLY:
        with _collecting(faults):
            listed = outer.get(table.entries_key)
            for index, item in enumerate([] if listed is None else _list(listed, table.entries_key)):
                path = f"{table.entries_key}[{index}]"
                with _collecting(faults):
                    entry = {} if item is None else _object(item, path)
                    entries.append(_parse_entry(table.fields, entry, path, faults))
    return WrittenSection(cluster=cluster, cluster_path=cluster_path, entries=tuple(entries))


def _parse_entry(fields: Obj, document: JsonObject, path: str, faults: Faults) -> WrittenEntry:
    written = _respelled(document, "name", "nodeSelector")
    labels: LabelSelector | None = None
    selector: Selector | None = None
    fault: InvalidInput | None = None
    if written.get("nodeSelector") is not None:
        where = f"{path}.nodeSelector"
        labels = _parse_selector(_object(written["nodeSelector"], where), where)
        try:
            selector = compile_selector(labels)
        except InvalidInput as error:
            fault = error.at(where)
    name = written.get("name")
    return WrittenEntry(
        path=path,
        name="" if name is None else cast("str", parse_value(Text(), name, f"{path}.name")),
        labels=labels,
        selector=selector,
        selector_fault=fault,
        strategy=parse_object(fields, document, path, faults),
    )


def _parse_selector(document: JsonObject, path: str) -> LabelSelector:
    """Parse a selector and check only types. A missing text becomes empty, which `compile_selector` refuses."""
    written = _respelled(document, "matchLabels", "matchExpressions")
    found = written.get("matchLabels")
    labels = {} if found is None else _object(found, f"{path}.matchLabels")
    # a null value is the empty text: dropping its key would widen the selector
    texts: JsonObject = {key: "" if value is None else value for key, value in labels.items()}
    pairs = parse_value(MapOf(Text()), texts, f"{path}.matchLabels")
    items = written.get("matchExpressions")
    parsed = parse_value(ListOf(_EXPRESSION), [] if items is None else items, f"{path}.matchExpressions")
    return LabelSelector(
        match_labels=cast("dict[str, str]", pairs),
        match_expressions=[
            LabelSelectorRequirement(
                key=cast("str", expression.get("key", "")),
                operator=cast("str", expression.get("operator", "")),
                values=cast("list[str]", expression.get("values", [])),
            )
            for expression in cast("list[JsonObject]", parsed)
        ],
    )
