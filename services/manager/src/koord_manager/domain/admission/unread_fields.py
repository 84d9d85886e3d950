"""Find parts of slo-controller-config that are ignored: unknown sections, unknown fields and unknown policies.

The protocol accepts them: an unknown field is skipped, and an unknown policy acts as the default of its field. This
module compares the text with the tables of `koordcore.protocol.config`.

Source:
    protocol spec, 1.2 and 6.1 to 6.9
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from itertools import islice
from typing import Final, cast

from koordcore.protocol.config.fields import Field, Kind, Part, fields_of
from koordcore.protocol.config.sections import SECTIONS, SectionShape, SectionTable
from koordcore.protocol.lenient_json import parse_json
from koordcore.values.invalid import InvalidInput

_CLOSE: Final = 0.7
_LONGEST: Final = 80
"""Longer names are truncated and not compared, because the time grows with the square of the length."""


def suggestion(name: str, known: Iterable[str]) -> str:
    """Return text such as `; did you mean nodeSelector?` with the most similar known name, or "" if none is similar.

    The case of letters is ignored.
    """
    if len(name) > _LONGEST:
        return ""
    by_lower = {each.lower(): each for each in known}
    near = get_close_matches(name.lower(), by_lower, 1, _CLOSE)
    return f"; did you mean {by_lower[near[0]]}?" if near else ""


def place(path: str, name: str) -> str:
    """Return the path `path.name` of a field. A long name is truncated."""
    shown = name if len(name) <= _LONGEST else f"{name[:_LONGEST]}..."
    return f"{path}.{shown}" if path else shown


_CLUSTER: Final = "clusterStrategy"
_ENTRY: Final = ("name", "nodeSelector")
_NOTE: Final = "_"
"""Prefix of data keys that are comments."""
_MOST: Final = 50
"""Maximum number of warnings."""


def unread(data: Mapping[str, str]) -> tuple[str, ...]:
    """Return a sentence for each unknown section, field and policy of slo-controller-config.

    At most 50 are returned. Text that is not valid JSON has none.

    Args:
        data: Section key -> JSON text.
    """
    return tuple(islice(_unread(data), _MOST))


def _unread(data: Mapping[str, str]) -> Iterator[str]:
    tables = {name.key: table for name, table in SECTIONS.items()}
    for key, text in data.items():
        table = tables.get(key)
        if table is not None:
            yield from _of_section(table, key, text)
        elif not key.startswith(_NOTE):
            yield f"{place('data', key)}: unknown section, it is ignored{suggestion(key, tables)}"


def _of_section(table: SectionTable, key: str, text: str) -> Iterator[str]:
    try:
        document = parse_json(text)
    except InvalidInput:
        return
    if not isinstance(document, dict):
        return
    outer = cast("dict[str, object]", document)
    entries_key = table.entries_key
    if table.shape is SectionShape.STRATEGY:
        for name, value in outer.items():
            match name.lower():
                case "clusterstrategy":
                    yield from _of_object(table.part, value, place(key, _CLUSTER))
                case lower if lower == entries_key.lower():
                    yield from _of_entries(table, value, place(key, entries_key))
                case _:
                    at_home = _row(table.part, name)
                    meant = f"; it belongs into {_CLUSTER}" if at_home else suggestion(name, (_CLUSTER, entries_key))
                    yield f"{place(key, name)}: unknown field, it is ignored{meant}"
        return
    more = () if table.shape is SectionShape.CLUSTER_ONLY else (entries_key,)
    yield from _of_object(table.part, outer, key, more)
    for name, value in outer.items():
        if more and name.lower() == entries_key.lower():
            yield from _of_entries(table, value, place(key, entries_key))


def _of_entries(table: SectionTable, value: object, path: str) -> Iterator[str]:
    for index, entry in enumerate(cast("list[object]", value) if isinstance(value, list) else ()):
        yield from _of_object(table.part, entry, f"{path}[{index}]", _ENTRY)


def _of_object(part: type[Part], value: object, path: str, more: Sequence[str] = ()) -> Iterator[str]:
    """Yield a sentence for each unknown field and policy of an object.

    Args:
        path: Path of the object, for the sentences.
        more: Further names of fields that are known.
    """
    if not isinstance(value, dict):
        return
    others = {name.lower() for name in more}
    for name, item in cast("dict[str, object]", value).items():
        field = _row(part, name)
        if field is not None:
            yield from _of_value(field, item, place(path, field.name), field)
        elif name.lower() not in others:
            known = (*fields_of(part), *more)
            yield f"{place(path, name)}: unknown field, it is ignored{suggestion(name, known)}"


def _of_value(shape: Field, value: object, path: str, field: Field) -> Iterator[str]:
    """Yield the sentences for a value of the field, or for an item of it, which has the type `shape`."""
    match shape.kind:
        case Kind.TEXT if shape.known and isinstance(value, str) and value and value not in shape.known:
            effect = f"; it counts as {field.default}" if field.default else ""
            yield f"{path}: should be one of {', '.join(shape.known)}, got {value[:80]!r}{effect}"
        case Kind.OBJECT if fields_of(shape.part):
            yield from _of_object(shape.part, value, path)
        case Kind.LIST if shape.item is not None:
            for index, item in enumerate(cast("list[object]", value) if isinstance(value, list) else ()):
                yield from _of_value(shape.item, item, f"{path}[{index}]", field)
        case Kind.MAP if shape.item is not None and isinstance(value, dict):
            for name, item in cast("dict[str, object]", value).items():
                yield from _of_value(shape.item, item, place(path, name), field)
        case _:
            return


def _row(part: type[Part], name: str) -> Field | None:
    """Return the field of this name, ignoring case, or None if there is none."""
    lower = name.lower()
    return next((field for field in fields_of(part).values() if field.name.lower() == lower), None)
