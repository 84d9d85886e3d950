"""`koord get`: present and past objects, in the forms of kubectl."""

from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any, Final, NamedTuple

import typer
from koordcore.values.invalid import InvalidInput

from koordctl import completing
from koordctl.objects.asking import Answer, Question, answers, beside
from koordctl.objects.columns import object_table
from koordctl.objects.jsonpath import Template, parse_template
from koordctl.objects.kinds import plural, targets_of
from koordctl.render.output import (
    Format,
    errors,
    fail,
    field,
    say_error,
    show_document,
    show_table,
    write_line,
    write_text,
)

_JSONPATH: Final = "jsonpath="
_JSONPATH_FILE: Final = "jsonpath-file="


class Form(NamedTuple):
    """How the objects are shown."""

    output: str  # One of `completing.OUTPUTS`, or `jsonpath`
    template: Template | None
    headers: bool
    labels: bool


def get(
    target: Annotated[
        list[str],
        typer.Argument(
            metavar="KIND",
            help="pods, nodes, configmaps, namespaces, priorityclasses, deployments, jobs, services, "
            "poddisruptionbudgets, or a custom resource: elasticquotas, podgroups, clustercolocationprofiles, "
            "reservations, migrations, drains ...; short names such as po, no, cm, quota, pg, pdb; "
            "several with commas; all; or KIND/NAME ...",
            autocompletion=completing.kinds_and_names,
        ),
    ],
    namespace: Annotated[
        str | None,
        typer.Option("--namespace", "-n", help="Only this namespace."),
    ] = None,
    all_namespaces: Annotated[
        bool, typer.Option("--all-namespaces", "-A", help="All namespaces, which is the default without a name.")
    ] = False,
    selector: Annotated[
        str, typer.Option("--selector", "-l", help="Only objects with these labels: app=web,tier in (a,b),!old.")
    ] = "",
    field_selector: Annotated[
        str, typer.Option("--field-selector", help="Only objects with these fields: status.phase=Pending.")
    ] = "",
    output: Annotated[
        str,
        typer.Option(
            "--output",
            "-o",
            help="table, wide, yaml, json, name, jsonpath=TEMPLATE or jsonpath-file=FILE.",
            autocompletion=completing.outputs,
        ),
    ] = "table",
    sort_by: Annotated[str, typer.Option("--sort-by", help="Order by the value at a path: .spec.priority.")] = "",
    no_headers: Annotated[bool, typer.Option("--no-headers", help="A table without its first line.")] = False,
    show_labels: Annotated[bool, typer.Option("--show-labels", help="A column with all labels.")] = False,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Then show each change until interrupted.")] = False,
    as_of: Annotated[
        str | None,
        typer.Option("--as-of", help="Position, RFC 3339 time, or duration before now (5m): the objects as of then."),
    ] = None,
) -> None:
    r"""Show objects now, or as they were at any position or time.

    Examples:

      koord get pods

      koord get pods -l app=web --sort-by .metadata.creationTimestamp

      koord get pod,node

      koord get pod/web node/node-1

      koord get node node-1 -o yaml

      koord get pods -o jsonpath='{range .items[*]}{.metadata.name}{"\n"}{end}'

      koord get pods --watch

      koord get elasticquotas

      koord get pods --as-of 1200

      koord get nodes --as-of 5m

      koord get nodes --as-of 2026-11-21T08:30:00Z

      koord get devices
    """
    form = _form(output, headers=not no_headers, labels=show_labels)
    targets = targets_of(target)
    is_named = any(each.name is not None for each in targets)
    if is_named and (selector or field_selector):
        fail("a name cannot be given with a selector", status=2)
    if is_named and all_namespaces:
        fail("an object cannot be named in all namespaces; name one with -n", status=2)
    if watch and as_of is not None:
        fail("--watch shows what changes from now on; without --as-of", status=2)
    where = None if all_namespaces else namespace
    question = Question(targets, where, selector, field_selector, sort_by, as_of)
    if watch:
        from koordctl.objects.watching import watch_objects

        watch_objects(question, form)
    found = answers(question)
    show_answers(found, question, form)
    missing = [sentence for answer in found for sentence in answer.missing]
    for sentence in missing:
        say_error(sentence)
    if missing:
        raise typer.Exit(1)


def _form(output: str, *, headers: bool, labels: bool) -> Form:
    template: str | None = None
    if output.startswith(_JSONPATH):
        template = output.removeprefix(_JSONPATH)
    elif output.startswith(_JSONPATH_FILE):
        from pathlib import Path

        template = Path(output.removeprefix(_JSONPATH_FILE)).read_text()
    elif output not in completing.OUTPUTS:
        fail(f"--output must be one of {', '.join(completing.OUTPUTS)} or jsonpath=TEMPLATE, got {output!r}", status=2)
    try:
        parsed = None if template is None else parse_template(template)
    except InvalidInput as error:
        fail(f"--output: must be {error.rule}, got {error.value!r}", status=2)
    return Form(output if parsed is None else "jsonpath", parsed, headers, labels)


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
