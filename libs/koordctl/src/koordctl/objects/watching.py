"""`koord get --watch`: the objects, then a line or document for each one that changes.

The manager is asked again and again: at most a tenth of the time is spent on answers.
"""

import time
from collections.abc import Mapping, Sequence
from typing import Any, Final, NoReturn

from koordctl.objects.asking import Answer, Question, answers
from koordctl.objects.showing import Form, name_text, show_answers, show_value, table_of
from koordctl.render.output import flush, show_rows, write_line

SECONDS: Final = 2.0
_MOVING: Final = ("age", "expires in")
"""Columns that change although the object does not."""


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
    before = _seen(found, question, form)
    least = _widths(before)
    while True:
        time.sleep(max(SECONDS, 9 * (time.monotonic() - begin)))
        begin = time.monotonic()
        found = answers(question)
        now = _seen(found, question, form)
        for key, (columns, row, item) in now.items():
            if key not in before or _fixed(columns, before[key][1], before[key][2]) != _fixed(columns, row, item):
                _show(form, columns, row, item, least)
        for key in before.keys() - now.keys():
            columns, row, item = before[key]
            ended = [_ended(column, cell) for column, cell in zip(columns, row, strict=True)]
            _show(form, columns, ended, item, least)
        flush()
        before = now


Row = tuple[Sequence[str], Sequence[object], dict[str, Any]]


def _seen(found: Sequence[Answer], question: Question, form: Form) -> dict[tuple[object, ...], Row]:
    """Key of what is shown -> its columns, its cells and its object. Without a table, there are no cells."""
    seen: dict[tuple[object, ...], Row] = {}
    for answer in found:
        if form.output not in ("table", "wide"):
            for item in answer.items:
                meta = item["metadata"]
                seen[answer.kind, meta.get("namespace", ""), meta["name"]] = ((), (), item)
            continue
        columns, rows = table_of(answer, question, form)
        width = next((at for at, column in enumerate(columns) if column in ("status", "state", "phase")), 2)
        for row in rows:
            seen[answer.kind, *row[: min(width, 3)]] = (columns, row, {})
    return seen


def _fixed(columns: Sequence[str], row: Sequence[object], item: dict[str, Any]) -> object:
    return [cell for column, cell in zip(columns, row, strict=True) if column not in _MOVING], item


def _ended(column: str, cell: object) -> object:
    return "Deleted" if column in ("status", "phase") else cell


def _widths(seen: Mapping[tuple[object, ...], Row]) -> dict[tuple[str, ...], list[int]]:
    """Columns of a table -> their widths in its first rows."""
    widths: dict[tuple[str, ...], list[int]] = {}
    for columns, row, _ in seen.values():
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
