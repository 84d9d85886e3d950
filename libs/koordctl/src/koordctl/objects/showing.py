"""The objects of an answer as tables, documents, names, or by a template."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from koordcore.values.invalid import InvalidInput

from koordctl.objects.asking import Answer, Question, beside
from koordctl.objects.columns import object_table
from koordctl.objects.jsonpath import Template
from koordctl.objects.kinds import plural
from koordctl.render.output import Format, errors, fail, field, show_document, show_table, write_line, write_text


class Form(NamedTuple):
    """How the objects are shown."""

    output: str  # One of `completing.OUTPUTS`, or `jsonpath`
    template: Template | None
    headers: bool
    labels: bool


def show_answers(found: Sequence[Answer], question: Question, form: Form) -> None:
    items = [item for answer in found for item in answer.items]
    if form.output in ("table", "wide"):
        for number, answer in enumerate(each for each in found if each.items or len(found) == 1):
            if number:
                write_line("")
            _show_table(answer, question, form, prefixed=len(found) > 1)
        if len(found) > 1 and not items:
            errors.print("no objects found")
        return
    if form.output == "name":
        for item in items:
            write_line(name_text(item))
        return
    is_one = len(items) == 1 and all(target.name is not None for target in question.targets)
    if not items and any(answer.missing for answer in found):
        return
    show_value(items[0] if is_one else {"apiVersion": "v1", "kind": "List", "items": items}, form)


def name_text(item: dict[str, Any]) -> str:
    return f"{str(item['kind']).lower()}/{item['metadata']['name']}"


def show_value(value: dict[str, Any], form: Form) -> None:
    if form.template is None:
        show_document(value, Format(form.output))
        return
    try:
        write_text(form.template.render(value))
    except InvalidInput as error:
        fail(f"--output: must be {error.rule}, got {error.value!r}")


def _show_table(answer: Answer, question: Question, form: Form, *, prefixed: bool) -> None:
    if not answer.items and answer.missing:
        return
    columns, rows = table_of(answer, question, form)
    if prefixed:
        at = columns.index("name") if "name" in columns else 0
        for row in rows:
            row[at] = f"{answer.kind.lower()}/{row[at]}"
    show_table(columns, rows, empty=f"no {plural(answer.kind)} found", headers=form.headers)


def table_of(answer: Answer, question: Question, form: Form) -> tuple[list[str], list[list[object]]]:
    special: dict[str, Callable[[Answer, Question], tuple[Sequence[str], Iterator[Sequence[object]]]]] = {
        "Device": _device_table,
        "Reservation": _reservation_table,
    }
    if answer.kind in special and not form.labels:
        heads, cells = special[answer.kind](answer, question)
        return list(heads), [list(row) for row in cells]
    wide = form.output == "wide"
    return object_table(answer.kind, answer.items, wide=wide, beside=beside(answer, question), labels=form.labels)


def _names(answer: Answer) -> list[str]:
    return [str(field(item, "metadata.name")) for item in answer.items]


def _device_table(answer: Answer, question: Question) -> tuple[Sequence[str], Iterator[Sequence[object]]]:
    from koordctl.objects.devices import DEVICE_COLUMNS, device_rows, devices_of

    by_node = {found.node: found for found in devices_of(None, question.as_of)}
    return DEVICE_COLUMNS, iter(device_rows([by_node[name] for name in _names(answer) if name in by_node]))


def _reservation_table(answer: Answer, question: Question) -> tuple[Sequence[str], Iterator[Sequence[object]]]:
    from koordcore.values.timestamps import rfc3339

    from koordctl.objects.reservations import COLUMNS, reservation_rows, reservations_of

    views = {view.name: view for view in reservations_of(None, question.as_of).views}
    now = rfc3339(answer.now) if answer.now is not None else ""
    return COLUMNS, iter(reservation_rows([views[name] for name in _names(answer) if name in views], now))
