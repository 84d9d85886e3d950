"""`koord apply` and `koord delete`: change objects."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

import typer
from koordcore.values import codec

from koordctl import completing
from koordctl.access.clients import manager, refusal
from koordctl.access.files import UNREADABLE, manifest_texts
from koordctl.objects.columns import is_cluster_scoped
from koordctl.objects.kinds import Target, targets_of
from koordctl.render.output import errors, fail, is_refused, say_error, show_remarks, write_line

Namespace = Annotated[str, typer.Option("--namespace", "-n", help="Namespace of a namespaced kind.")]

_NO_MANIFEST: Final = 400
"""The manager's status for a text that is not valid YAML or JSON."""
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show the result for each document; change nothing.")]


def apply(
    filename: Annotated[
        list[str] | None,
        typer.Option(
            "--filename", "-f", help="File, folder (its `.yaml`, `.yml` and `.json` files), or - for standard input."
        ),
    ] = None,
    dry_run: DryRun = False,
    misplaced: Annotated[list[str] | None, typer.Argument(hidden=True)] = None,
) -> None:
    """Apply manifests: every document is accepted or refused as a whole.

    A misspelt field or an unknown policy is accepted with a warning on standard error.

    Examples:

      koord apply -f examples/pod.yaml

      cat examples/pod.yaml | koord apply -f -

      koord apply -f examples/ --dry-run
    """
    if misplaced or not filename:
        meant = " ".join(f"-f {word}" for word in misplaced or ["FILE"])
        fail(f"a manifest is named with -f; did you mean `koord apply {meant}`?", status=2)
    _submit("/v1/apply?dryRun=All" if dry_run else "/v1/apply", filename, dry_run=dry_run)


def delete(
    target: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="KIND",
            help="KIND NAME [NAME ...], KIND/NAME [KIND/NAME ...], or KIND with -l.",
            autocompletion=completing.kinds_and_names,
        ),
    ] = None,
    filename: Annotated[
        list[str] | None,
        typer.Option("--filename", "-f", help="Manifests that name what to delete: file, folder, or -."),
    ] = None,
    namespace: Namespace = "default",
    selector: Annotated[
        str, typer.Option("--selector", "-l", help="Delete the objects of the namespace with these labels.")
    ] = "",
) -> None:
    """Delete objects by kind and name, or those that manifests name.

    Examples:

      koord delete pod web

      koord delete pod/web deployment/shop

      koord delete pods -l app=web

      koord delete -f examples/pod.yaml
    """
    selector = selector.strip()
    if filename and (target or selector):
        fail("-f names what to delete; it goes with neither KIND nor -l", status=2)
    if filename:
        _submit("/v1/delete", filename)
        return
    targets = targets_of(target) if target else []
    is_named = bool(targets) and all(each.name is not None for each in targets)
    if not targets or is_named == bool(selector):
        fail("name what to delete: KIND NAME [NAME ...], KIND/NAME ..., KIND -l LABELS, or -f FILE", status=2)
    if selector:
        from koordctl.objects.asking import Question, answers

        found = answers(Question(targets, namespace, selector))
        targets = [Target(answer.kind, item["metadata"]["name"]) for answer in found for item in answer.items]
        if not targets:
            errors.print("no objects found")
            return
    documents = [
        {"kind": kind, "name": name, **({} if is_cluster_scoped(kind) else {"namespace": namespace})}
        for kind, name in targets
    ]
    submit_list(documents, "/v1/delete")


def _submit(path: str, names: list[str], *, dry_run: bool = False) -> None:
    failed, readable, found = False, True, 0
    for name in names:
        for label, text in manifest_texts(name):
            response = manager.post(path, text, content_type="application/yaml")
            answer: dict[str, Any]
            answer = response.json() if "json" in response.content_type else {"error": response.text}
            if "results" not in answer:
                say_error(f"{label}: {answer.get('error', response.status_code)}")
                failed = True
                readable = readable and response.status_code != _NO_MANIFEST
                continue
            found += len(answer["results"])
            if not answer["results"]:
                say_error(f"{label}: no objects in it")
            failed = not _report(answer["results"], dry_run=dry_run) or failed
    if not readable or (not failed and not found):
        raise typer.Exit(UNREADABLE)
    if failed:
        raise typer.Exit(1)


def submit_list(documents: Sequence[object], path: str, *, dry_run: bool = False, quiet: bool = False) -> list[Any]:
    """Send documents as one list to `/v1/apply` or `/v1/delete`, and return the manager's results.

    Warnings and refusals are printed, and unless `quiet` what was done. End the command if a document is refused.
    """
    body = codec.encode({"kind": "List", "items": documents})
    reply = manager.post(f"{path}?dryRun=All" if dry_run else path, body)
    answer: dict[str, Any] = reply.json() if "json" in reply.content_type else {}
    if "results" not in answer:
        fail(refusal(reply))
    if not _report(answer["results"], dry_run=dry_run, quiet=quiet):
        raise typer.Exit(1)
    return answer["results"]


def _report(results: Sequence[Mapping[str, Any]], *, dry_run: bool = False, quiet: bool = False) -> bool:
    """Print one line per document, with warnings and refusals on stderr. False if a document was refused."""
    fine, mark = True, " (dry run)" if dry_run else ""
    for result in results:
        where = show_remarks(result, mark)
        if is_refused(result):
            fine = False
        elif not quiet:
            write_line(f"{where} {result['action']}{mark}")
    return fine
