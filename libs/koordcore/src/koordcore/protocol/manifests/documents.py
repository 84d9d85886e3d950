"""Split the text of a manifest into decoded documents, within limits on their size after expansion.

JSON (one value, or a `kind: List`) is decoded by a fast parser. Everything else is read as kubectl reads YAML, with
JSON's types only: timestamps and tags are not supported, and aliases count against the limits
(`koordcore.values.yaml_text`). If one document has a syntax error, or a key twice in one object, the whole text is
refused: the end of that document, or the meaning of that key, is unknown. If a document is well-formed but invalid,
only this document is refused (`reader`).
"""

import math
from typing import Any, cast

from koordcore.values import codec, yaml_text
from koordcore.values.invalid import InvalidInput
from koordcore.values.text_limits import check_json, check_unique_keys

# Longest text in one request. It equals the body limit of the services' HTTP servers; a test compares both.
MAX_BYTES = 16 * 1024 * 1024


def read_documents(text: bytes) -> list[object]:
    """Decode the documents of a manifest (YAML or JSON), in order. Empty documents are left out, and Lists are
    expanded.

    Returns:
        JSON values: dict with text keys, list, str, int, float, bool, None. Nulls are kept because they have a meaning
        in patches.

    Raises:
        InvalidInput: The text is not valid YAML or exceeds a limit. The error has the document (`documents[2]`) or the
            place (`line 3, column 7`), the rule, and the invalid part.
    """
    if len(text) > MAX_BYTES:
        raise InvalidInput(f"at most {MAX_BYTES} bytes in one request", f"{len(text)} bytes")
    decoded = _decode_json(text)
    if decoded is None:
        decoded = [_json_value(raw, f"documents[{index}]") for index, raw in enumerate(_decode_yaml(text))]
    documents = [document for raw in decoded if raw is not None for document in _opened(raw)]
    if len(documents) > yaml_text.MAX_DOCUMENTS:
        raise InvalidInput(f"at most {yaml_text.MAX_DOCUMENTS} documents in one request", f"{len(documents)} documents")
    return documents


def _decode_json(text: bytes) -> list[Any] | None:
    """Return the top-level values of a JSON text; None if it is not JSON, but perhaps YAML's flow style."""
    if text.lstrip()[:1] not in (b"{", b"["):
        return None
    check_json(text)
    try:
        value: Any = codec.decode(text, object)
    except (codec.DecodeError, UnicodeDecodeError):
        return None
    check_unique_keys(text, value)
    return cast("list[Any]", value) if isinstance(value, list) else [value]


def _decode_yaml(text: bytes) -> list[Any]:
    try:
        return yaml_text.load_yaml_documents(text)
    except yaml_text.YamlError as error:
        raise _no_yaml(error, text) from error
    except UnicodeDecodeError as error:
        raise InvalidInput(f"YAML or JSON ({error})", _shown(text), "manifest") from error


def _no_yaml(error: yaml_text.YamlError, text: bytes) -> InvalidInput:
    """Return the error of an invalid YAML text, with its place and the invalid part."""
    mark = getattr(error, "problem_mark", None)
    begin = getattr(error, "context_mark", None)
    problem = getattr(error, "problem", None) or getattr(error, "reason", None) or str(error).splitlines()[0]
    if mark is None:
        before = text[: getattr(error, "position", 0)]
        line, column = before.count(b"\n"), len(before) - before.rfind(b"\n") - 1
    else:
        line, column = mark.line, mark.column
    if begin is not None and (begin.line, begin.column) != (line, column):
        problem = (
            f"{problem} {getattr(error, 'context', None) or 'in what begins'} at {_place(begin.line, begin.column)}"
        )
    lines = text.splitlines()
    found = _shown(lines[line]) if line < len(lines) else "the end of the text"
    return InvalidInput(f"YAML or JSON ({problem})", found, _place(line, column))


def _place(line: int, column: int) -> str:
    """Format line and column as editors count them, from 1."""
    return f"line {line + 1}, column {column + 1}"


def _shown(text: bytes) -> str:
    return text[:80].decode("utf-8", "replace")


def _opened(document: object) -> list[object]:
    """Return the items of a `kind: List`, or the document itself as a list."""
    if isinstance(document, dict):
        entries = cast("dict[str, object]", document)
        items = entries.get("items")
        if entries.get("kind") in ("List", "PodList", "NodeList") and isinstance(items, list):
            return cast("list[object]", items)
    return [document]


def _json_value(value: object, path: str) -> object:
    """Return a copy of a decoded YAML value with JSON types only. Aliases are copied.

    Raises:
        InvalidInput: A type does not exist in JSON.
    """
    if isinstance(value, str | int) or value is None:
        return value
    if isinstance(value, dict):
        return {name: _json_value(item, path) for name, item in cast("dict[str, object]", value).items()}
    if isinstance(value, list):
        return [_json_value(item, path) for item in cast("list[object]", value)]
    if isinstance(value, float):
        if not math.isfinite(value):
            raise InvalidInput("a finite number", value, path)
        return value
    raise InvalidInput("a JSON value (text, number, boolean, list, object)", type(value).__name__, path)
