"""`koord down`, `koord status` and `koord dashboard`: commands about the embedded stack that runs."""

import asyncio
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from koordcore.embedded.process import http_ok
from koordcore.embedded.stack import Phase, ProcessState, Stack, read_stack, stop_stack

from koordctl.access.clients import live_directory, named_instances, readiness_trouble, state_file
from koordctl.render.output import console, errors, fail, show_table
from koordctl.stack.kubernetes.programs import API_SERVER, admin_kubeconfig, folder_of

if TYPE_CHECKING:
    from koordctl.stack.leaders import Leading

Var = Annotated[Path | None, typer.Option("--var", help="Folder of data and logs; default: KOORD_VAR or ./var.")]


def down(var: Var = None) -> None:
    """Stop the embedded stack; its data is kept.

    Examples:

      koord down
    """
    folder = (var or live_directory()).absolute()
    if asyncio.run(stop_stack(state_file(folder))):
        console.print("stopped")
    else:
        console.print(f"nothing runs in {folder}")


def status(var: Var = None) -> None:
    """Show processes and leaders. Exit status 0 if all are ready and have a leader, else 1.

    They are those of the embedded stack. If KOORD_MANAGER, KOORD_SCHEDULER, KOORD_DESCHEDULER or KOORD_PROJECTOR name
    the instances of another system, they are those. Its leader of the scheduler is read from the log, KOORD_NATS.

    Examples:

      koord status
    """
    if var is None and (instances := named_instances()):
        _status_elsewhere(instances)
        return
    folder = (var or live_directory()).absolute()
    stack = read_stack(state_file(folder))
    if stack is None or not stack.is_live:
        fail(
            f"nothing runs in {folder}; another folder: --var or KOORD_VAR; another system: KOORD_MANAGER=http://host:port"
            if stack is None
            else f"the supervisor of the stack in {folder} is gone; start the stack again with `koord up`"
        )
    stack = stack.as_seen()
    rows: list[list[object]] = []
    fine = stack.phase is Phase.READY
    for process in stack.processes:
        http = process.urls.get("http")
        answers = None if http is None else http_ok(f"{http}/readyz")
        fine = fine and answers is not False
        ready = process.state.value if answers is None else ("ready" if answers else "not ready")
        pid = process.process.pid if process.process is not None else None
        ports = ",".join(str(port) for port in process.ports.values())
        rows.append([process.name, process.state.value, ready, pid, ports, process.restarts, process.log_file])
    show_table(["process", "state", "readiness", "pid", "ports", "restarts", "log"], rows)
    for sentence in endings(stack):
        errors.print(sentence)
    for leading in _leaders(stack, folder):
        fine = fine and leading.leads
        console.print(leading.sentence)
    if stack.find(API_SERVER) is not None:
        console.print(f"kubeconfig {admin_kubeconfig(folder_of(folder))}", soft_wrap=True)
    phase = Phase.DEGRADED if stack.phase is Phase.READY and not fine else stack.phase
    console.print(f"{phase.value}; dashboard {dashboard(stack)}")
    if not fine:
        raise typer.Exit(1)


def _status_elsewhere(instances: Mapping[str, str]) -> None:
    """The instances of services that do not belong to an embedded stack. `instances`: name -> base URL."""
    from koordctl.stack.leaders import leaders_elsewhere

    troubles = {name: readiness_trouble(url) for name, url in instances.items()}
    told = {None: "no answer", "": "ready"}
    show_table(["process", "readiness"], [(name, told.get(why, f"not ready: {why}")) for name, why in troubles.items()])
    leaders = asyncio.run(leaders_elsewhere(time.time()))
    for leading in leaders:
        console.print(leading.sentence)
    if any(why != "" for why in troubles.values()) or not all(leading.leads for leading in leaders):
        raise typer.Exit(1)


def endings(stack: Stack) -> list[str]:
    """A sentence with the last output of each process that ended by itself and is not ready again.

    The sentence says whether the process will be restarted.
    """
    sentences: list[str] = []
    for process in stack.processes:
        if process.last_exit is None or process.state in (ProcessState.READY, ProcessState.STOPPED):
            continue
        words = f": {process.last_words}" if process.last_words else ""
        then = "is not restarted" if process.state is ProcessState.GIVEN_UP else "will be restarted"
        log = f" (log: {process.log_file})" if process.log_file else ""
        sentences.append(f"{process.name} ended with exit code {process.last_exit} and {then}{words}{log}")
    return sentences


def _leaders(stack: Stack, var: Path) -> "list[Leading]":
    """Empty while the server of the log does not run."""
    nats = stack.find("nats")
    if nats is None or nats.state is not ProcessState.READY:
        return []
    from koordctl.stack.leaders import leaders

    lease_object = None
    if stack.find(API_SERVER) is not None:
        from koordctl.stack.kubernetes.installing import manager_lease

        lease_object = manager_lease(folder_of(var))
    return asyncio.run(leaders(stack, var, time.time(), lease_object))


def dashboard(stack: Stack) -> str:
    """ "not running" if the stack has no projector."""
    projector = stack.find("projector")
    return f"{projector.urls['http']}/" if projector is not None and "http" in projector.urls else "not running"
