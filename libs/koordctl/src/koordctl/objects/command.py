"""`koord apply`, `koord delete` and `koord get`: change objects, and show present or past ones."""

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from enum import StrEnum
from typing import Annotated, Any, Final

import typer
from koordcore.values import codec

from koordctl.access.clients import NOT_FOUND, find_service, manager, meant_elsewhere, refusal, silent_nodes
from koordctl.access.files import UNREADABLE, manifest_texts
from koordctl.objects.columns import is_cluster_scoped, object_table
from koordctl.render.output import (
    Format,
    errors,
    fail,
    field,
    is_refused,
    show_document,
    show_remarks,
    show_table,
    write_line,
)

Files = Annotated[
    list[str],
    typer.Option(
        "--filename", "-f", help="File, folder (its `.yaml`, `.yml` and `.json` files), or - for standard input."
    ),
]
Namespace = Annotated[str, typer.Option("--namespace", "-n", help="Namespace of a namespaced kind.")]

_NO_MANIFEST: Final = 400
"""The manager's status for a text that is not valid YAML or JSON."""
KINDS = {
    "pod": "Pod", "po": "Pod", "node": "Node", "no": "Node", "configmap": "ConfigMap", "cm": "ConfigMap",
    "namespace": "Namespace", "ns": "Namespace", "priorityclass": "PriorityClass", "pc": "PriorityClass",
    "deployment": "Deployment", "deploy": "Deployment", "job": "Job",
}  # fmt: skip
SHORT = {
    "quota": "ElasticQuota", "eq": "ElasticQuota", "profile": "ClusterColocationProfile", "resv": "Reservation",
    "pg": "PodGroup", "gang": "PodGroup", "migration": "PodMigrationJob", "drain": "DrainNode",
}  # fmt: skip
"""Short names of our own, in addition to those of the resource definitions."""
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show the result for each document; change nothing.")]


class Shown(StrEnum):
    TABLE = "table"
    WIDE = "wide"
    YAML = "yaml"
    JSON = "json"
    NAME = "name"


def kind_named(text: str) -> str:
    """Return the kind that a word on the command line names, for example Pod for `pods`, `po` or `Pod`.

    An unknown word ends the command with an error.
    """
    lower = text.lower()
    found = KINDS.get(lower) or KINDS.get(lower.removesuffix("s")) or KINDS.get(lower.removesuffix("es"))
    found = found or SHORT.get(lower) or SHORT.get(lower.removesuffix("s"))
    if found is not None:
        return found
    from koordcore.protocol.crd import accepted_kinds  # only now: it reads the definitions of all custom resources

    for resource in accepted_kinds():
        if lower in (resource.kind.lower(), resource.plural, *resource.short_names):
            return resource.kind
    known = sorted({*KINDS.values(), *(resource.kind for resource in accepted_kinds())})
    meant = get_close_matches(lower, {name.lower(): name for name in known}, 1)
    hint = f"; did you mean {meant[0]}?" if meant else ""
    return fail(f"unknown kind {text!r}{hint}; known: {', '.join(known)}", status=2)


def apply(filename: Files, dry_run: DryRun = False) -> None:
    """Apply manifests: every document is accepted or refused as a whole.

    A misspelt field or an unknown policy is accepted with a warning on standard error.

    Examples:

      koord apply -f examples/pod.yaml

      cat examples/pod.yaml | koord apply -f -

      koord apply -f examples/ --dry-run
    """
    _submit("/v1/apply?dryRun=All" if dry_run else "/v1/apply", filename, dry_run=dry_run)


def delete(
    target: Annotated[list[str] | None, typer.Argument(help="KIND NAME [NAME ...], or KIND/NAME.")] = None,
    filename: Annotated[
        list[str] | None,
        typer.Option("--filename", "-f", help="Manifests that name what to delete: file, folder, or -."),
    ] = None,
    namespace: Namespace = "default",
) -> None:
    """Delete objects by kind and name, or those that manifests name.

    Examples:

      koord delete pod web

      koord delete -f examples/pod.yaml
    """
    if filename:
        _submit("/v1/delete", filename)
        return
    if target and len(target) == 1 and "/" in target[0]:
        target = target[0].split("/", 1)
    if not target or len(target) < 2:
        fail("nothing to delete was named: koord delete KIND NAME [NAME ...], KIND/NAME, or -f FILE", status=2)
    kind = kind_named(target[0])
    documents = [
        {"kind": kind, "name": name, **({} if is_cluster_scoped(kind) else {"namespace": namespace})}
        for name in target[1:]
    ]
    submit_list(documents, "/v1/delete")


def get(
    kind: Annotated[
        str,
        typer.Argument(
            help="pods, nodes, configmaps, namespaces, priorityclasses, deployments, jobs, services, "
            "poddisruptionbudgets, or a custom resource: elasticquotas, podgroups, clustercolocationprofiles, "
            "reservations, migrations, drains ...; short names such as po, no, cm, quota, pg, pdb"
        ),
    ],
    name: Annotated[str | None, typer.Argument(help="One object's name.")] = None,
    namespace: Annotated[str | None, typer.Option("--namespace", "-n", help="Only this namespace.")] = None,
    output: Annotated[Shown, typer.Option("--output", "-o", help="table, wide, yaml, json or name.")] = Shown.TABLE,
    as_of: Annotated[
        str | None,
        typer.Option("--as-of", help="Position of the log, or RFC 3339 time: the objects as they were then."),
    ] = None,
) -> None:
    """Show objects now, or as they were at any position or time.

    Examples:

      koord get pods

      koord get node node-1 -o yaml

      koord get elasticquotas

      koord get pods --as-of 1200

      koord get nodes --as-of 2026-11-21T08:30:00Z

      koord get devices
    """
    full = kind_named(kind)
    if full == "Device" and output in (Shown.TABLE, Shown.WIDE):
        from koordctl.objects.devices import DEVICE_COLUMNS, device_rows, devices_of

        show_table(DEVICE_COLUMNS, device_rows(devices_of(name, as_of)), empty=f"no {kind} found")
        return
    if full == "Reservation" and output in (Shown.TABLE, Shown.WIDE):
        from koordcore.values.timestamps import rfc3339

        from koordctl.access.times import run_clock
        from koordctl.objects.reservations import COLUMNS, reservation_rows, reservations_of

        found = reservations_of(name, as_of)
        shown_at = found.at if as_of is not None else rfc3339(run_clock().now())
        show_table(COLUMNS, reservation_rows(found.views, shown_at), empty=f"no {kind} found")
        return
    where = None if is_cluster_scoped(full) else namespace
    if as_of is not None:
        from koordctl.access.past import objects_as_of

        items = [
            item
            for item in objects_as_of(full, as_of)
            if name in (None, field(item, "metadata.name")) and where in (None, field(item, "metadata.namespace"))
        ]
        if name is not None and not items:
            fail(f"{full} {name} did not exist at {as_of}")
    elif name is not None:
        items = [_object(full, name, where)]
    else:
        items = manager.get(f"/v1/objects/{full}", {"namespace": where})["items"]
    match output:
        case Shown.YAML | Shown.JSON:
            one = name is not None and len(items) == 1
            show_document(
                items[0] if one else {"apiVersion": "v1", "kind": "List", "items": items}, Format(output.value)
            )
        case Shown.NAME:
            for item in items:
                write_line(f"{full.lower()}/{item['metadata']['name']}")
        case Shown.TABLE | Shown.WIDE:
            silent: dict[str, int] = {}
            if full == "Node" and as_of is None and (url := find_service("projector")):
                silent = silent_nodes(url) or {}
            columns, rows = object_table(full, items, wide=output is Shown.WIDE, silent=silent)
            show_table(columns, rows, empty=f"no {kind} found")


def _object(kind: str, name: str, namespace: str | None) -> dict[str, Any]:
    """If there is no pod of this name, end the command, and name the namespaces that have one."""
    answer = manager.request("GET", f"/v1/objects/{kind}/{name}", params={"namespace": namespace})
    if answer.status_code == NOT_FOUND and kind == "Pod" and (hint := meant_elsewhere(name, namespace or "default")):
        fail(f"{refusal(answer)}{hint}")
    return manager.decoded(answer)


def _submit(path: str, names: list[str], *, dry_run: bool = False) -> None:
    failed, readable, found = False, True, 0
    for name in names:
        for label, text in manifest_texts(name):
            response = manager.post(path, text, content_type="application/yaml")
            answer: dict[str, Any]
            answer = response.json() if "json" in response.content_type else {"error": response.text}
            if "results" not in answer:
                errors.print(f"{label}: {answer.get('error', response.status_code)}")
                failed = True
                readable = readable and response.status_code != _NO_MANIFEST
                continue
            found += len(answer["results"])
            if not answer["results"]:
                errors.print(f"{label}: no objects in it")
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
