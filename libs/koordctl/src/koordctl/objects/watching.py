"""`koord get --watch`: the objects, then a line or document for each one that changes.

The manager is asked again and again: at most a tenth of the time is spent on answers.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NoReturn, TypeAlias

from koordctl.objects.asking import Answer, Question, answers
from koordctl.objects.showing import Form, name_text, show_answers, show_value, table_of
from koordctl.render.output import flush, show_rows, write_line

SECONDS: Final = 2.0
_MOVING: Final = ("age", "expires in", "lastupdatetime")
"""Columns that change although the object does not."""
_OF_DEVICE: Final = ("node", "type", "minor")
"""Columns that identify a row of a table with several rows for one object."""

Row: TypeAlias = tuple[Sequence[str], Sequence[object], dict[str, Any]]
Seen: TypeAlias = dict[tuple[object, ...], Row]
"""Key of what is shown -> its columns, its cells and its object. Without a table, there are no cells."""


def watch_objects(question: Question, form: Form) -> NoReturn:
    """Does not return: the user interrupts it."""
    begin = time.monotonic()
    found = answers(question)
    if form.output not in ("table", "wide", "name"):
        for item in (item for answer in found for item in answer.items):
            show_value(item, form)
    else:
        show_answers(found, question, form)
    flush()
    before = seen(found, question, form)
    least = _widths(before)
    while True:
        time.sleep(max(SECONDS, 9 * (time.monotonic() - begin)))
        begin = time.monotonic()
        found = answers(question)
        now = seen(found, question, form)
        for columns, row, item in changes(before, now):
            _show(form, columns, row, item, least)
        flush()
        before = now


def seen(found: Sequence[Answer], question: Question, form: Form) -> Seen:
    """The key is the identity of the object: no cell of it may change while the object exists."""
    shown: Seen = {}
    for answer in found:
        if form.output not in ("table", "wide"):
            for item in answer.items:
                meta = item["metadata"]
                shown[answer.kind, meta.get("namespace", ""), meta["name"]] = ((), (), item)
            continue
        columns, rows = table_of(answer, question, form)
        names = ("namespace", "name") if "name" in columns else _OF_DEVICE
        at = [index for index, column in enumerate(columns) if column in names]
        for row in rows:
            shown[answer.kind, *(row[index] for index in at)] = (columns, row, {})
    return shown


def changes(before: Seen, now: Seen) -> Iterator[Row]:
    """What is new or different, then what is gone, in its last state."""
    for key, (columns, row, item) in now.items():
        if key not in before or _fixed(*before[key]) != _fixed(columns, row, item):
            yield columns, row, item
    for key, (columns, row, item) in before.items():
        if key not in now:
            yield columns, [_ended(column, cell) for column, cell in zip(columns, row, strict=True)], item


def _fixed(columns: Sequence[str], row: Sequence[object], item: dict[str, Any]) -> object:
    return [cell for column, cell in zip(columns, row, strict=True) if column not in _MOVING], item


def _ended(column: str, cell: object) -> object:
    return "Deleted" if column in ("status", "phase") else cell


def _widths(shown: Seen) -> dict[tuple[str, ...], list[int]]:
    """Columns of a table -> their widths in its first rows."""
    widths: dict[tuple[str, ...], list[int]] = {}
    for columns, row, _ in shown.values():
        before = widths.get((*columns,), [len(column) for column in columns])
        widths[(*columns,)] = [max(width, len(str(cell))) for width, cell in zip(before, row, strict=True)]
    return widths


def _show(
    form: Form,
    columns: Sequence[str],
    row: Sequence[object],
    item: dict[str, Any],
    least: Mapping[tuple[str, ...], Sequence[int]],
) -> None:
    if columns:
        show_rows(columns, [row], least.get((*columns,), [0] * len(columns)))
    elif form.output == "name":
        write_line(name_text(item))
    else:
        show_value(item, form)
