"""`koord drain`: empty a node. First every pod gets a place elsewhere, then the pods are migrated to these places."""

import time
from collections.abc import Callable
from typing import Annotated, Any, Final, TypeAlias

import typer
from koord_descheduler.domain.drain.node_drain import is_ignored
from koord_descheduler.domain.framework import codes
from koord_descheduler.domain.framework.registry import SharedState
from koord_descheduler.domain.jobs.arguments import MigrationControllerArgs
from koord_descheduler.domain.jobs.limits import EXPECTED_REPLICAS
from koord_descheduler.domain.jobs.plugin import MigrationController
from koord_descheduler.domain.rounds.moves import landings, question
from koordcore.protocol.drains import ConfirmState
from koordcore.requests.objects import ChangeResult, CreateObject, DeleteObject, ObjectChange, PatchObject

from koordctl.access.clients import demo_directory, find_service, live_directory, named_addresses, service_url
from koordctl.access.log import open_log, wait_for
from koordctl.access.requests import ask_capacity_on, change_objects
from koordctl.descheduling.cordon import ENDED_PHASES, drains, is_over
from koordctl.descheduling.live_cluster import live_cluster
from koordctl.objects.kinds import name_of_kind
from koordctl.render.output import console, errors, fail, field, going_on, show_table, working, write_line

Status: TypeAlias = dict[str, Any]
"""Field `status` of a DrainNode."""

_API_VERSION: Final = "scheduling.koordinator.sh/v1alpha1"
_WITHOUT_PLACE: Final = ("Unmigratable", "Unavailable", "Failed")
_RULES: Final = {
    codes.MIRROR: "is a mirror pod",
    codes.STATIC: "is a static pod",
    codes.TERMINATING: "is being deleted",
    codes.BARE_POD: "has no controller that would replace it",
    codes.SYSTEM_CRITICAL: "has a priority that is protected",
    codes.MAX_EVICTION_COST: "has the highest eviction cost",
    codes.DO_NOT_DISRUPT: "has an annotation for an autoscaler that forbids to move it",
    codes.LOCAL_STORAGE: "has local storage",
    codes.PVC: "has a volume with a claim",
    EXPECTED_REPLICAS: "belongs to a workload that cannot spare it",
}
"""What is said of a pod, by the code of the rule that keeps it on its node."""
_PAUSE: Final = 0.5
"""Seconds between two looks at the status."""


def drain(
    node: Annotated[str, typer.Argument(help="Name of the node.")],
    is_dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show where its pods would land. Change nothing.")
    ] = False,
    confirm: Annotated[
        bool, typer.Option("--confirm", help="Migrate the pods, once every pod has a place or has none.")
    ] = False,
    abort: Annotated[bool, typer.Option("--abort", help="End the drain and open the node again.")] = False,
    seconds: Annotated[float, typer.Option("--timeout", help="Stop to wait after this time. The drain goes on.")] = 300,
) -> None:
    """Empty a node: reserve a place for each of its pods, show the plan, and migrate the pods after --confirm.

    The descheduler does the work, so it must run. When it sees the drain, it closes the node for new pods. Pods of
    DaemonSets stay. A pod that its workload cannot spare is Unmigratable.

    Examples:

      koord drain node-1 --dry-run

      koord drain node-1

      koord drain node-1 --confirm

      koord drain node-1 --abort
    """
    node = name_of_kind(node, "Node")
    if is_dry_run:
        _show_landings(node)
        return
    name = f"drain-{node}"
    _need_descheduler()
    if abort:
        stored = _stored(name)
        if stored is None:
            fail(f"node {node} has no drain")
        if field(stored, "status.phase") == "Complete":
            fail(f"drainnode/{name} is Complete. To open the node again: koord uncordon {node}")
    errors.print(f"waiting for the descheduler, at most {seconds:g} s")
    if abort:
        _change(_with_state(name, ConfirmState.ABORTED))
        found = _wait(name, seconds, _has_ended)
        write_line(f"drainnode/{name} {found.get('phase', 'Pending')}")
        return
    _begin(name, node)
    found = _wait(name, seconds, _is_planned)
    if confirm and found.get("phase") not in ENDED_PHASES:
        _change(_with_state(name, ConfirmState.CONFIRMED))
        found = _wait(name, seconds, _has_ended)
    _show(name, node, found)


def _need_descheduler() -> None:
    """End the command if the embedded stack has no descheduler. Of a remote system, the command does not know."""
    if find_service("descheduler") is None and not named_addresses("manager"):
        service_url("manager")  # without a stack, that is the sentence to say
        if live_directory() == demo_directory():
            another = "`koord down`, then `koord up --simulated-nodes 5 --descheduler FILE`"
            fail(f"the demo has no descheduler; to drain nodes of another stack: {another}")
        fail("no descheduler runs: `koord down`, then `koord up --descheduler FILE`")


def _begin(name: str, node: str) -> None:
    """Create the DrainNode. One that has ended, or that was aborted before it began, is replaced; others are kept."""
    stored = _stored(name)
    if stored is not None and is_over(stored):  # in one request, the new one would be taken for the old one
        _change(DeleteObject(kind="DrainNode", name=name, uid=stored["metadata"]["uid"]))
    spec = {"nodeName": node, "migrationPolicy": {"mode": "MigrateDirectly"}}
    document = {"apiVersion": _API_VERSION, "kind": "DrainNode", "metadata": {"name": name}, "spec": spec}
    _change(CreateObject(document=document))


def _with_state(name: str, state: ConfirmState) -> PatchObject:
    return PatchObject(kind="DrainNode", name=name, patch={"spec": {"confirmState": str(state)}})


def _change(*changes: ObjectChange) -> None:
    for outcome in wait_for(change_objects(changes)):
        if outcome.result in (ChangeResult.REFUSED, ChangeResult.ABSENT):
            fail(outcome.message)


def _stored(name: str) -> dict[str, Any] | None:
    return next((item for item in drains() if item["metadata"]["name"] == name), None)


def _wait(name: str, seconds: float, holds: Callable[[Status], bool]) -> Status:
    """Return the status of a drain once a condition holds, or when the time is over."""
    end = time.monotonic() + seconds
    status: Status = {}
    with going_on(f"drainnode/{name} goes on; to end it: koord drain {name.removeprefix('drain-')} --abort"):
        while time.monotonic() < end:
            stored = _stored(name)
            status = (stored or {}).get("status") or {}
            if holds(status):
                return status
            time.sleep(_PAUSE)
    if not status:
        fail(f"drainnode/{name} has not begun within {seconds:g} s: does the descheduler run?")
    return status


def _has_ended(status: Status) -> bool:
    return status.get("phase") in ENDED_PHASES


def _is_planned(status: Status) -> bool:
    """Whether every pod has a place or has none, or the drain has ended."""
    pods: list[dict[str, Any]] = status.get("podMigrations") or []
    known = all(pod["phase"] not in ("Waiting", "Ready") for pod in pods)
    return status.get("phase") in ENDED_PHASES or (status.get("phase") == "Running" and known)


def _show(name: str, node: str, status: Status) -> None:
    """Print the plan, and what to do next. End with status 1 if pods have no place or the drain was aborted."""
    pods: list[dict[str, Any]] = status.get("podMigrations") or []
    rows = [(f"{pod['namespace']}/{pod['podName']}", pod["phase"], pod.get("targetNode", "")) for pod in pods]
    show_table(("pod", "phase", "to"), rows, empty=f"no pod has to leave {node}")
    phase, message = status.get("phase", "Pending"), status.get("message", "")
    stuck = [pod for pod in pods if pod["phase"] in _WITHOUT_PLACE]
    console.print(f"drainnode/{name} is {phase}{': ' + message if message else ''}")
    if phase == "Running":
        console.print(
            f"to migrate: koord drain {node} --confirm; to open the node again: koord drain {node} --abort",
        )
    if phase == "Complete":
        console.print(f"to open the node again: koord uncordon {node}")
    if stuck or phase == "Aborted":
        raise typer.Exit(1)


def _show_landings(node: str) -> None:
    """Ask the scheduler where the pods of a node would land, and print its answer. End with 1 if a pod cannot leave."""

    async def plan() -> list[tuple[str, str, str]]:
        async with open_log() as log:
            cluster = await live_cluster(log)
            if node not in cluster.node_by_name:
                fail(f"node {node} does not exist")
            controller = MigrationController(
                MigrationControllerArgs(), SharedState(priority_classes=cluster.priority_classes)
            )
            pods = [pod for pod in cluster.pods_on(node) if not is_ignored(pod)]
            refused = {
                pod.uid: "; ".join(f"it {_RULES.get(code, 'must stay')} ({code})" for code in found)
                for pod in pods
                for found in [controller.lasting_refusals(pod, cluster)]
            }
            leaving = [pod for pod in pods if not refused[pod.uid]]
            targets: dict[str, str] = {}
            if leaving:
                targets = landings(leaving, await ask_capacity_on(log, question(leaving), seconds=60.0))
            return [
                (pod.key, targets.get(pod.uid, ""), refused[pod.uid] or ("" if pod.uid in targets else "no place"))
                for pod in pods
            ]

    with working(f"asking the scheduler where the pods of {node} would land"):
        rows = wait_for(plan())
    show_table(("pod", "to", "stays because"), rows, empty=f"no pod has to leave {node}")
    if any(reason for _, _, reason in rows):
        raise typer.Exit(1)
