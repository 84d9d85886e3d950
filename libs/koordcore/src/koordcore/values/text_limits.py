"""Limits of JSON and YAML texts from outside: depth, number of values and documents, checked before values are built.

A text of 60 kB can nest deeper than the C stack of a composer, and a text of 14 MB can become gigabytes of values. So
the brackets of a JSON text, or the events of a YAML text, are counted first. Both scans have no recursion and keep no
values. An alias of YAML counts as the value that it repeats.

Every text of a user, a request or an annotation is decoded through this module, `koordcore.values.yaml_text` or
`koordcore.protocol.lenient_json`; a test of the architecture finds other decoders.
"""

import json
import re
from typing import Final, TypeVar, cast

from koordcore.values import codec
from koordcore.values.invalid import InvalidInput, joined

T = TypeVar("T")

MAX_DEPTH: Final = 64  # Most containers around one value
# Most values of a JSON text. The worst text of this size decodes to 110 MiB (objects with one member each).
MAX_JSON_VALUES: Final = 500_000
UNIQUE: Final = "a key that occurs once in its object"

_ESCAPED: Final = re.compile(rb"\\.", re.DOTALL)
_TEXT: Final = re.compile(rb'"[^"]*+"?')  # Without escapes; also a text without its end
_SPACED_COLON: Final = re.compile(rb'"\s+:')
_NOT_STRUCTURE: Final = bytes(set(range(256)) - set(b'[]{},"'))
_NOT_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}"))
_OPENING: Final = ord("[")
_ONE_KIND: Final = bytes.maketrans(b"{}", b"[]")


def check_json(text: str | bytes, path: str = "", *, most_values: int = MAX_JSON_VALUES) -> None:
    """Check depth and number of values of a JSON text before it is decoded. Whether it is JSON is not checked.

    Entries of objects and lists count, and containers. A text without many brackets and commas costs four counts.

    Args:
        path: Place of the text, for the error.

    Raises:
        InvalidInput: The text is nested more than 64 deep, or has more values than `most_values`.
    """
    data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    if _openings(data) <= MAX_DEPTH and _values(data) <= most_values:
        return
    data = _structure(data)
    values = _values(data)
    if values > most_values:
        raise InvalidInput(f"a text of at most {most_values} values", f"{values} values", path)
    deepest = _depth(data.translate(_ONE_KIND, _NOT_BRACKETS))
    if deepest > MAX_DEPTH:
        raise InvalidInput(f"nested at most {MAX_DEPTH} deep", f"{deepest} deep", path)


def _structure(data: bytes) -> bytes:
    """Return the brackets and commas of a JSON text that are outside of its texts.

    A list of an API server has megabytes, so nearly all bytes go in scans that no Python code steps through. Two quotes
    that touch end one text and begin the next, or are an empty text, so nothing changes without them.
    """
    if b"\\" in data:
        data = _ESCAPED.sub(b"", data)
    data = data.translate(None, _NOT_STRUCTURE).replace(b'""', b"")
    return _TEXT.sub(b"", data) if b'"' in data else data


def _depth(brackets: bytes) -> int:
    """Return how deep brackets of one kind are nested, also if some have no partner."""
    left = brackets
    for depth in range(MAX_DEPTH + 1):
        if not left:
            return depth
        left = left.replace(b"[]", b"")  # the innermost ones: what is left is one less deep
    depth = deepest = 0
    for bracket in brackets:
        depth += 1 if bracket == _OPENING else -1
        deepest = max(deepest, depth)
    return deepest


def check_unique_keys(text: bytes, value: object) -> None:
    """Check that no key occurs twice in one object of a JSON text. The decoder keeps the last of two equal keys.

    If there is none, the text and its value written as JSON have equally many members, so no keys are compared.

    Args:
        text: A text that is valid JSON.
        value: The decoded text.

    Raises:
        InvalidInput: A key occurs twice. The error has the path of the first one.
    """
    if b"\\u" in text or _colons(text) != _colons(codec.encode(value)):
        _refuse_repeated(json.loads(text, object_pairs_hook=_Object))


def _colons(data: bytes) -> int:
    """Return the number of quotes before a colon. Those inside of texts are written alike, unless by their number."""
    return data.count(b'":') + len(_SPACED_COLON.findall(data))


class _Object(list[tuple[str, object]]):
    """The members of a JSON object, as written."""


def _refuse_repeated(value: object) -> None:
    waiting: list[tuple[object, tuple[str | int, ...]]] = [(value, ())]
    while waiting:
        found, steps = waiting.pop()
        if isinstance(found, _Object):
            names: set[str] = set()
            for name, _ in found:
                if name in names:
                    raise InvalidInput(UNIQUE, f"{name} again", joined("", (*steps, name)))
                names.add(name)
            waiting += [(inner, (*steps, name)) for name, inner in reversed(found)]
        elif isinstance(found, list):
            items = cast("list[object]", found)
            waiting += [(inner, (*steps, index)) for index, inner in reversed(list(enumerate(items)))]


def decode_within_limits(text: str | bytes, kind: type[T]) -> T:
    """Decode JSON from outside as a value of type `kind`. Use it for types that contain `Any` or `object`.

    Raises:
        DecodeError: The text exceeds a limit (`check_json`), or is not JSON of this type.
    """
    try:
        check_json(text)
    except InvalidInput as error:
        raise codec.DecodeError(str(error)) from error
    return codec.decode(text, kind)


def _openings(data: bytes) -> int:
    return data.count(b"[") + data.count(b"{")


def _values(data: bytes) -> int:
    return _openings(data) + data.count(b",") + 1
