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

from koordcore.protocol.config.fields import Field, JsonObject, JsonValue, Kind, Part, fields_of
from koordcore.protocol.config.sections import SectionShape, SectionTable
from koordcore.protocol.lenient_json import fold_keys, parse_json
from koordcore.protocol.objects import LabelSelector, LabelSelectorRequirement
from koordcore.protocol.selectors import Selector, compile_selector
from koordcore.values.duration import format_duration, parse_duration
from koordcore.values.invalid import InvalidInput
from koordcore.values.quantity import quantity_from_json

_CLUSTER_KEY: Final = "clusterStrategy"
_MAX_FLOAT: Final = 1.7976931348623157e308
_BITS: Final = {Kind.INT: 63, Kind.INT32: 31, Kind.RATE: 31}
_TEXT: Final = Field(kind=Kind.TEXT)


class _Expression(Part, frozen=True):
    key: str | None = None
    operator: str | None = None
    values: list[str] | None = None


class _Selector(Part, frozen=True):
    match_labels: dict[str, str] = {}
    match_expressions: list[_Expression] = []


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenEntry:
    """One entry for selected nodes in a section of slo-controller-config, as the user wrote it."""

    path: str  # Path in the document, such as `nodeConfigs[0]`
    name: str  # Name of the entry; "" if not set
    labels: LabelSelector | None  # The selector as written; None if absent, and the entry then matches no node
    selector: Selector | None  # The checked selector; None if it is absent or invalid
    # Error of an invalid selector, with its path in the document; None if it is valid.
    selector_fault: InvalidInput | None
    strategy: JsonObject  # Fields that the user wrote


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenSection:
    """One section of slo-controller-config as the user wrote it."""

    cluster: JsonObject  # Fields for the whole cluster
    cluster_path: str  # Path of these fields in the document; "" if they are at the top
    entries: tuple[WrittenEntry, ...]  # Entries for selected nodes


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


# List that collects invalid fields, which are then left out. None: raise the first error instead.
Faults: TypeAlias = list[InvalidInput] | None


def parse_value(field: Field, value: JsonValue, path: str, faults: Faults = None) -> JsonValue:
    """Return a decoded JSON value in canonical spelling. Errors inside objects go to `faults`.

    Raises:
        InvalidInput: The JSON type is wrong, or a duration or quantity is invalid.
    """
    kind = field.kind
    match kind:
        case Kind.OBJECT:
            return parse_object(field.part, _object(value, path), path, faults)
        case Kind.BOOL if isinstance(value, bool):
            return value
        case Kind.INT | Kind.INT32 | Kind.RATE if isinstance(value, int) and not isinstance(value, bool):
            if -(1 << _BITS[kind]) <= value < 1 << _BITS[kind]:
                return value
        case Kind.FLOAT if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= _MAX_FLOAT:
            return value
        case Kind.TEXT | Kind.RATE if isinstance(value, str):
            return _representable(value, path)
        case Kind.DURATION if isinstance(value, str):
            with _at(path):
                return format_duration(parse_duration(value))
        case Kind.QUANTITY:
            with _at(path):
                return quantity_from_json(value).canonical()
        case Kind.OPEN_MAP:
            try:
                return _representable(_object(value, path), path)
            except RecursionError:
                raise InvalidInput("an object that is nested less deeply", "...", path) from None
        case Kind.MAP:
            return _parse_map(field.item or _TEXT, _object(value, path), path)
        case Kind.LIST:
            return _parse_list(field.item or _TEXT, value, path)
        case _:
            pass
    raise InvalidInput(kind.value, value, path)


@contextmanager
def _at(path: str) -> Generator[None]:
    try:
        yield
    except InvalidInput as error:
        raise error.at(path) from error


def _object(value: JsonValue, path: str) -> JsonObject:
    if isinstance(value, dict):
        return value
    raise InvalidInput("an object", value, path)


def _parse_map(item_field: Field, value: JsonObject, path: str) -> JsonObject:
    return {
        cast("str", _representable(key, path)): parse_value(item_field, item, f"{path}.{key}")
        for key, item in value.items()
        if item is not None
    }


def _list(value: JsonValue, path: str) -> list[JsonValue]:
    if isinstance(value, list):
        return value
    raise InvalidInput("a list", value, path)


def _parse_list(field: Field, value: JsonValue, path: str) -> list[JsonValue]:
    empty: JsonObject = {}
    return [
        parse_value(field, empty if item is None and field.kind is Kind.OBJECT else item, f"{path}[{index}]")
        for index, item in enumerate(_list(value, path))
    ]


def parse_object(part: type[Part], document: Mapping[str, JsonValue], path: str, faults: Faults = None) -> JsonObject:
    """Return the fields that a JSON object sets, in the order and spelling of the struct. Nulls and empty texts count
    as not set.

    Raises:
        InvalidInput: A field has a wrong type or value, and `faults` is None.
    """
    fields = fields_of(part)
    written = _respelled(document, *fields)
    result: JsonObject = {}
    for name, field in fields.items():
        value = written.get(name)
        if value is None or (value == "" and field.kind is Kind.TEXT):
            continue
        with _collecting(faults):
            result[name] = parse_value(field, value, f"{path}.{name}" if path else name, faults)
    return result


def parse_text(part: type[Part], text: str, path: str) -> JsonObject:
    """Return the fields that the text of an annotation sets, as `parse_object` does.

    Raises:
        InvalidInput: The text is not a JSON object, or a field has a wrong type or value.
    """
    return parse_object(part, _object(decode_document(text), path), path)


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
    """Parse the text of one section of slo-controller-config. `faults`: list to which errors of fields and entries are
    added, which are then left out; None: raise the first one.

    Raises:
        InvalidInput: The text is not a JSON object, or, if `faults` is None, a field has a wrong type. An invalid
            selector does not raise; its entry contains the error.

    Source: protocol spec, 6.1; manager spec, 3.1.
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
            cluster = parse_object(table.part, written, _CLUSTER_KEY, faults)
    else:
        cluster_path = ""
        cluster = parse_object(table.part, document, "", faults)
    entries: list[WrittenEntry] = []
    if table.shape is not SectionShape.CLUSTER_ONLY:
        with _collecting(faults):
            listed = outer.get(table.entries_key)
            for index, item in enumerate([] if listed is None else _list(listed, table.entries_key)):
                path = f"{table.entries_key}[{index}]"
                with _collecting(faults):
                    entry = {} if item is None else _object(item, path)
                    entries.append(_parse_entry(table.part, entry, path, faults))
    return WrittenSection(cluster=cluster, cluster_path=cluster_path, entries=tuple(entries))


def _parse_entry(part: type[Part], document: JsonObject, path: str, faults: Faults) -> WrittenEntry:
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
        name="" if name is None else cast("str", parse_value(_TEXT, name, f"{path}.name")),
        labels=labels,
        selector=selector,
        selector_fault=fault,
        strategy=parse_object(part, document, path, faults),
    )


def _parse_selector(document: JsonObject, path: str) -> LabelSelector:
    """Parse a selector and check only types. A missing text becomes empty, which `compile_selector` refuses."""
    written = _respelled(document, "matchLabels", "matchExpressions")
    found = written.get("matchLabels")
    labels = {} if found is None else _object(found, f"{path}.matchLabels")
    # a null value is the empty text: dropping its key would widen the selector
    texts: JsonObject = {key: "" if value is None else value for key, value in labels.items()}
    items = written.get("matchExpressions")
    parsed = parse_object(_Selector, {"matchLabels": texts, "matchExpressions": items}, path)
    return LabelSelector(
        match_labels=cast("dict[str, str]", parsed["matchLabels"]),
        match_expressions=[
            LabelSelectorRequirement(
                key=cast("str", expression.get("key", "")),
                operator=cast("str", expression.get("operator", "")),
                values=cast("list[str]", expression.get("values", [])),
            )
            for expression in cast("list[JsonObject]", parsed.get("matchExpressions", []))
        ],
    )
