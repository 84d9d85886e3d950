"""`koord reserve`: write Reservations for the pods of a workload, or show where they would land."""

import copy
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final, NamedTuple, cast

import typer
from koordcore.protocol import keys
from koordcore.protocol.pod_defaults import with_pod_defaults
from koordcore.requests.fit import FitRequest
from koordcore.values.invalid import InvalidInput

from koordctl.access.clients import manager
from koordctl.access.log import wait_for
from koordctl.access.requests import ask_capacity
from koordctl.objects.command import Namespace, submit_list
from koordctl.objects.kinds import kind_named
from koordctl.render.output import console, fail, show_table

API_VERSION: Final = "scheduling.koordinator.sh/v1alpha1"
_CONTAINER: Final = "reserved"
_KEPT_OF_SPEC: Final = (
    "affinity", "nodeSelector", "tolerations", "priorityClassName", "priority", "schedulerName",
    "topologySpreadConstraints",
)  # fmt: skip
"""Fields of a pod that decide where it may run, besides its requests."""

_OWN: Final = "scheduling.koordinator.sh"
"""Domain of the annotations that ask for CPUs, zones and devices."""
_GIVEN: Final = (keys.RESOURCE_STATUS, keys.DEVICE_ALLOCATED, keys.RESERVATION_ALLOCATED, keys.RESERVATION_AFFINITY)
"""Annotations of this domain that say what a pod got, or which Reservation it needs."""


class Wanted(NamedTuple):
    name: str  # Name of the Reservations; with several, each gets its number as a suffix
    number: int  # Number of Reservations
    amounts: Mapping[str, str]  # Resource -> quantity that replaces the one in the template, such as {"cpu": "8"}
    ttl: str  # Go duration after which a Reservation expires; "0s" for never
    is_reusable: bool = False  # Whether several pods may use one Reservation, one after the other or together
    policy: str = ""  # Aligned, Restricted, or empty for the default


def reservations_for(workload: Mapping[str, Any], wanted: Wanted) -> Iterator[dict[str, Any]]:
    """Yield one Reservation document for each wanted Reservation.

    Pods of a controller may use them if they have its namespace and the labels of its selector. A Reservation for a Pod
    is for the pod of this name alone.

    Args:
        workload: A Pod, or an object with a pod template and a selector.

    Raises:
        InvalidInput: The object has no pod template, or nothing would be reserved.
    """
    meta, spec = _object(workload, "metadata"), _object(workload, "spec")
    namespace = str(meta.get("namespace") or "default")
    is_pod = workload.get("kind") == "Pod"
    template = with_pod_defaults(dict(workload) if is_pod else _object(spec, "template"))
    if not template:
        raise InvalidInput("an object with a pod template", workload.get("kind"), "spec.template")
    selector = _object(spec, "selector") or {"matchLabels": _object(_object(template, "metadata"), "labels")}
    owner: dict[str, Any] = {"object": {"namespace": namespace}, "labelSelector": selector}
    if is_pod:
        owner = {"object": {"namespace": namespace, "name": meta["name"]}}
    for index in range(wanted.number):
        fields: dict[str, Any] = {
            "ttl": wanted.ttl,
            "allocateOnce": not wanted.is_reusable,
            "owners": [copy.deepcopy(owner)],
            "template": _template(template, namespace, wanted.amounts),
        }
        if wanted.policy:
            fields["allocatePolicy"] = wanted.policy
        name = wanted.name if wanted.number == 1 else f"{wanted.name}-{index + 1}"
        yield {"apiVersion": API_VERSION, "kind": "Reservation", "metadata": {"name": name}, "spec": fields}


def _template(template: Mapping[str, Any], namespace: str, amounts: Mapping[str, str]) -> dict[str, Any]:
    """The pod template of a Reservation: the fields that decide about its node, and its requests.

    Args:
        template: Pod template of the workload.
        amounts: Resource -> quantity that replaces the requests of the template; empty keeps them.
    """
    meta, spec = _object(template, "metadata"), _object(template, "spec")
    written = cast("list[dict[str, Any]]", spec.get("containers") or [])
    containers = [{"name": each["name"], "resources": each["resources"]} for each in written if each.get("resources")]
    if amounts:
        own = _object(written[0], "resources") if len(written) == 1 else {}
        requests = {**_object(own, "requests"), **amounts}
        limits = {name: limit for name, limit in _object(own, "limits").items() if name not in amounts}
        containers = [{"name": _CONTAINER, "resources": {"requests": requests, "limits": limits}}]
    if not containers:
        raise InvalidInput("given, because the template requests nothing", None, "--cpu or --memory")
    metadata: dict[str, Any] = {"namespace": namespace}
    if _object(meta, "labels"):
        metadata["labels"] = meta["labels"]
    notes = _object(meta, "annotations")
    asked = {key: value for key, value in notes.items() if key.partition("/")[0] == _OWN and key not in _GIVEN}
    if asked:
        metadata["annotations"] = asked
    kept = {name: spec[name] for name in _KEPT_OF_SPEC if spec.get(name) is not None}
    return {"metadata": metadata, "spec": {**kept, "containers": containers}}


def _object(holder: Mapping[str, Any], field: str) -> dict[str, Any]:
    """An object inside another one; empty if it is absent."""
    return cast("dict[str, Any]", holder.get(field) or {})


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
    results = submit_list(documents, "/v1/apply", dry_run=dry_run)
    if dry_run:
        _show_places([result["object"] for result in results if result.get("object")])


def _show_places(documents: list[dict[str, Any]]) -> None:
    """Ask the scheduler where these Reservations would land, and print its answer."""
    answer = wait_for(ask_capacity(FitRequest(objects=documents), seconds=30.0))
    show_table(
        ["node", "reservations"],
        [(each.node, ", ".join(pod.partition("/")[2] for pod in each.pods)) for each in answer.nodes],
        empty="no node has room for one of them",
    )
    missing = next((each.shortage for each in answer.sets if each.shortage is not None), None)
    if not answer.fits:
        placed = sum(each.placed for each in answer.sets)
        console.print(f"{placed} of {len(documents)} would get a node", style="red")
        if missing is not None:
            console.print(missing.message or missing.reason)
        raise typer.Exit(1)
