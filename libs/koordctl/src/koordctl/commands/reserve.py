"""`koord reserve`: write Reservations for the pods of a workload, or show where they would land."""

import sys
from typing import Annotated, Any

import typer
from koordcore.requests.fit import FitRequest
from koordcore.values import codec
from koordcore.values.invalid import InvalidInput

from koordctl.access.capacity import ask_capacity
from koordctl.access.clients import manager, refusal
from koordctl.access.log import wait_for
from koordctl.commands.objects import Namespace, kind_named
from koordctl.documents.wanted_reservations import Wanted, reservations_for
from koordctl.render.document_results import is_refused, show_remarks
from koordctl.render.output import console, fail, show_table


def reserve(
    workload: Annotated[str, typer.Option("--for", help="KIND/NAME of the workload, such as deployment/web.")],
    cpu: Annotated[str | None, typer.Option("--cpu", help="CPUs of each Reservation, such as 8 or 500m.")] = None,
    memory: Annotated[str | None, typer.Option("--memory", help="Memory of each Reservation, such as 16Gi.")] = None,
    ttl: Annotated[str, typer.Option("--ttl", help="Time until they expire, such as 30m; 0s: never.")] = "24h",
    count: Annotated[int, typer.Option("--count", min=1, max=1000, help="Number of Reservations.")] = 1,
    name: Annotated[str | None, typer.Option("--name", help="Name; by default that of the workload.")] = None,
    is_reusable: Annotated[
        bool, typer.Option("--reusable", help="Several pods may use one Reservation (allocateOnce: false).")
    ] = False,
    policy: Annotated[str, typer.Option("--policy", help="Aligned or Restricted; by default neither.")] = "",
    namespace: Namespace = "default",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show where they would land; change nothing.")] = False,
) -> None:
    """Reserve resources for the pods of a workload.

    Each Reservation holds its amounts on a node until a pod of the workload takes them or the time is over. Without
    --cpu and --memory it holds what the pod template requests. Placement follows the template: node selector,
    affinity, tolerations, priority, and annotations for CPUs and devices.

    Examples:

      koord reserve --for deployment/web --cpu 8 --ttl 30m --count 3

      koord reserve --for deployment/web --cpu 8 --count 3 --dry-run

      koord reserve --for pod/db-0 --memory 16Gi --ttl 2h
    """
    kind, _, named = workload.partition("/")
    if not named:
        fail(f"--for must be KIND/NAME, such as deployment/web, got {workload!r}", status=2)
    subject: dict[str, Any] = manager.get(f"/v1/objects/{kind_named(kind)}/{named}", {"namespace": namespace})
    amounts = {key: value for key, value in (("cpu", cpu), ("memory", memory)) if value is not None}
    wanted = Wanted(name or named, count, amounts, ttl, is_reusable, policy)
    try:
        documents = list(reservations_for(subject, wanted))
    except InvalidInput as error:
        fail(error.sentence(), status=2)
    results = _submitted(documents, dry_run=dry_run)
    if dry_run:
        _show_places([result["object"] for result in results if result.get("object")])


def _submitted(documents: list[dict[str, Any]], *, dry_run: bool) -> list[dict[str, Any]]:
    """Apply the documents and return the manager's results. End the command if one is refused."""
    path, mark = ("/v1/apply?dryRun=All", " (dry run)") if dry_run else ("/v1/apply", "")
    reply = manager.post(path, codec.encode({"kind": "List", "items": documents}))
    answer: dict[str, Any] = reply.json() if "json" in reply.content_type else {}
    if "results" not in answer:
        fail(refusal(reply))
    results: list[dict[str, Any]] = answer["results"]
    refused = False
    for result in results:
        where = show_remarks(result, mark)
        if is_refused(result):
            refused = True
        else:
            sys.stdout.write(f"{where} {result['action']}{mark}\n")
    if refused:
        raise typer.Exit(1)
    return results


def _show_places(documents: list[dict[str, Any]]) -> None:
    """Ask the scheduler where these Reservations would land, and print its answer."""
    answer = wait_for(ask_capacity(FitRequest(objects=documents), seconds=30.0))
    show_table(
        ["node", "reservations"],
        [(each.node, ", ".join(pod.partition("/")[2] for pod in each.pods)) for each in answer.nodes],
    )
    missing = next((each.shortage for each in answer.sets if each.shortage is not None), None)
    if not answer.fits:
        placed = sum(each.placed for each in answer.sets)
        console.print(f"{placed} of {len(documents)} would get a node", style="red", highlight=False)
        if missing is not None:
            console.print(missing.message or missing.reason, highlight=False, markup=False)
        raise typer.Exit(1)
