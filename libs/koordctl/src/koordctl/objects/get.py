"""`koord get`: present and past objects, in the forms of kubectl."""

from typing import Annotated, Final

import typer
from koordcore.values.invalid import InvalidInput

from koordctl import completing
from koordctl.objects.asking import Question, answers
from koordctl.objects.jsonpath import parse_template
from koordctl.objects.kinds import targets_of
from koordctl.objects.showing import Form, show_answers
from koordctl.render.output import fail, say_error

_JSONPATH: Final = "jsonpath="
_JSONPATH_FILE: Final = "jsonpath-file="


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
