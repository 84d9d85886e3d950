"""Decode JSON of annotations and ConfigMap keys: field names match in any case, types must be exact.

An exact spelling takes precedence over other spellings of a field. Unknown keys are dropped. The last of a repeated key
counts. null means "not set". A wrong type makes the whole value invalid, such as text for a boolean or `15.0` for an
integer. Types are msgspec structs. A pydantic model uses `fold_keys` in a "before" validator.

Source: protocol spec, 1.2.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import cache
from typing import NoReturn, TypeVar, cast

import msgspec

from koordcore.values.invalid import InvalidInput
from koordcore.values.text_limits import check_json

T = TypeVar("T")


def parse_json(text: str) -> object:
    """Decode a text as strict JSON: NaN, trailing commas and comments are refused. The last of a repeated key counts.

    Raises:
        InvalidInput: The text is not strict JSON, is empty, or exceeds a limit (`text_limits.check_json`). The error
            has the reason of the decoder.
    """
    check_json(text)
    try:
        decoded: object = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"JSON ({error})", text) from error
    return decoded


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")


def fold_keys(entry: Mapping[str, object], names: Iterable[str]) -> dict[str, object]:
    """Return a copy of a JSON object with its keys spelled as in `names`, matched in any case. Other keys are dropped.
    An exactly spelled key takes precedence over other spellings. Of several other spellings the last one counts.
    """
    by_folded = _folded(tuple(names))
    respelled: dict[str, object] = {}
    exact: set[str] = set()
    for key, value in entry.items():
        name = by_folded.get(key.lower())
        if name is None or (name in exact and key != name):
            continue
        if key == name:
            exact.add(name)
        respelled[name] = value
    return respelled


@cache
def _folded(names: tuple[str, ...]) -> Mapping[str, str]:
    return {name.lower(): name for name in names}


def decode(text: str, kind: type[T]) -> T:
    """Decode the text of an annotation or ConfigMap key as a value of the msgspec type `kind`.

    Raises:
        InvalidInput: The text does not match the type. The error has path and rule.
    """
    return convert(parse_json(text), kind)


def convert(value: object, kind: type[T]) -> T:
    """Convert a decoded JSON value to the msgspec type `kind`. `null` becomes a struct with its defaults.

    Raises:
        InvalidInput: The value does not match the type. The error has path and rule.
    """
    shape = _shape(kind)
    if value is None and isinstance(shape, msgspec.inspect.StructType):
        value = {}
    try:
        return msgspec.convert(_respell(value, shape), type=kind)
    except msgspec.ValidationError as error:
        raise InvalidInput(str(error), value) from error


@cache
def _shape(kind: type) -> msgspec.inspect.Type:
    return msgspec.inspect.type_info(kind)


def _respell(value: object, shape: msgspec.inspect.Type) -> object:
    if isinstance(shape, msgspec.inspect.UnionType):
        return _respell(value, _member_for(value, shape))
    if isinstance(value, dict):
        return _respell_object(cast("dict[str, object]", value), shape)
    if isinstance(value, list) and isinstance(shape, msgspec.inspect.ListType):
        return [_respell(item, shape.item_type) for item in cast("list[object]", value)]
    return cast("object", value)


def _respell_object(value: dict[str, object], shape: msgspec.inspect.Type) -> object:
    if isinstance(shape, msgspec.inspect.StructType):
        fields = {field.encode_name: field.type for field in shape.fields}
        # null is "not set": the field's own default then applies
        entry = fold_keys(value, fields)
        return {name: _respell(item, fields[name]) for name, item in entry.items() if item is not None}
    if isinstance(shape, msgspec.inspect.DictType):
        kept = value if _takes_null(shape.value_type) else {k: item for k, item in value.items() if item is not None}
        return {key: _respell(item, shape.value_type) for key, item in kept.items()}
    return value


def _takes_null(shape: msgspec.inspect.Type) -> bool:
    if isinstance(shape, msgspec.inspect.UnionType):
        return any(isinstance(member, msgspec.inspect.NoneType) for member in shape.types)
    return isinstance(shape, msgspec.inspect.AnyType | msgspec.inspect.NoneType)


def _member_for(value: object, shape: msgspec.inspect.UnionType) -> msgspec.inspect.Type:
    """Return the type of the union that fits `value`. A union has at most one object type and at most one list type (a
    rule of msgspec).
    """
    objects = (msgspec.inspect.StructType, msgspec.inspect.DictType)
    wanted = objects if isinstance(value, dict) else (msgspec.inspect.ListType,)
    return next((member for member in shape.types if isinstance(member, wanted)), msgspec.inspect.AnyType())
