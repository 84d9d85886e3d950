"""`koord up`: start the embedded stack (all services on this machine) in the background or in the foreground."""

import asyncio
import contextlib
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import httpx
import typer
from koordcore.embedded.errors import AlreadyRunningError, EmbeddedError
from koordcore.embedded.identity import command_words
from koordcore.embedded.stack import ProcessState, Stack, read_stack, start_in_background, stop_stack
from koordcore.embedded.supervisor import Supervisor

from koordctl.access.clients import DEFAULT_VAR, demo_directory, running_stack, state_file, var_directory
from koordctl.objects.priority_classes import priority_class_manifests
from koordctl.render.output import console, errors, fail, going_on
from koordctl.render.units import duration_text
from koordctl.stack.kubernetes.programs import BUILT_FOLDER, Programs, admin_kubeconfig, find_programs, folder_of
from koordctl.stack.kubernetes.stack_part import KubernetesPart
from koordctl.stack.nodes import Manifest, host_manifest, host_node_name, register, simulated_nodes, write_nodes
from koordctl.stack.processes import StackOptions, data_of, delete_data, manager_url, shared_clock, specs
from koordctl.stack.running import Var, dashboard, endings

START_SECONDS = 300.0
DEFAULT_NODES = "3"


def up(
    context: typer.Context,
    var: Var = None,
    port_base: Annotated[
        int | None,
        typer.Option("--port-base", min=1024, max=65000, help="First of consecutive ports; default: free ports."),
    ] = None,
    speed: Annotated[
        float,
        typer.Option("--speed", min=0.01, help="Speed of the clock of all services; 60: an hour in a minute."),
    ] = 1,
    nodes: Annotated[
        str, typer.Option("--simulated-nodes", help="A number, or a file of Node manifests (YAML or JSON).")
    ] = DEFAULT_NODES,
    agent: Annotated[bool, typer.Option("--agent/--no-agent", help="Measure this host as a real node.")] = True,
    sync: Annotated[
        str, typer.Option("--sync", help="How often the log is synced to disk: a duration, or `always` for each write.")
    ] = "1s",
    descheduler: Annotated[
        Path | None, typer.Option("--descheduler", help="Run the descheduler with this DeschedulerConfiguration.")
    ] = None,
    kubernetes: Annotated[
        bool, typer.Option("--kubernetes", help="Run an API server; objects come from kubectl, not from `koord apply`.")
    ] = False,
    binaries: Annotated[
        Path | None,
        typer.Option(
            "--kubernetes-binaries",
            envvar="KOORD_KUBERNETES_BINARIES",
            help="Folder of etcd, kube-apiserver, kube-controller-manager; default: PATH, then var/kubernetes-tools.",
        ),
    ] = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Stop a stack that runs, and delete all its data except keys and ports.")
    ] = False,
    new_log: Annotated[
        bool, typer.Option("--new-log", help="Begin a new, empty log if the stream of facts is gone.")
    ] = False,
    traces: Annotated[bool, typer.Option("--traces", help="Write spans to traces.jsonl beside the logs.")] = False,
    foreground: Annotated[bool, typer.Option("--foreground", help="Stay in the foreground until Ctrl-C.")] = False,
) -> None:
    """Start the embedded stack: NATS, Postgres, manager, scheduler, projector, agents.

    Examples:

      koord up

      koord up --speed 60 --simulated-nodes 100

      koord up --var ./trial --no-agent

      koord up --kubernetes

      koord up --fresh
    """
    folder = (var or var_directory()).absolute()
    programs = _programs(binaries) if kubernetes else None
    _check_arguments(speed, nodes, descheduler, kubernetes=kubernetes)
    if fresh:
        _begin_afresh(folder, named=var is not None)
    _check_earlier_data(folder, kubernetes=kubernetes)
    if foreground:
        # Also what the background process runs: it finds everything prepared by the one that the user started.
        asyncio.run(
            _run(
                folder, port_base, speed, sync, nodes,
                agent=agent, descheduler=descheduler, programs=programs, traces=traces, new_log=new_log,
            )
        )  # fmt: skip
        return
    running = running_stack(folder)
    if running is not None:
        if ignored := _not_in_force(context, command_words(running.supervisor.pid)):
            given = ", ".join(ignored)
            fail(f"already running, but not with the given {given}: `koord down`, then `koord up` with these options")
        console.print(
            f"already running, with the options of its start (`koord down` stops it); dashboard {dashboard(running)}"
        )
        return
    if var is None:
        _check_demo()
    began = time.monotonic()
    argv = [sys.executable, "-m", "koordctl", "up", "--foreground", "--var", str(folder)]
    argv += ["--speed", str(speed), "--simulated-nodes", nodes, "--agent" if agent else "--no-agent", "--sync", sync]
    argv += ["--descheduler", str(descheduler.absolute())] if descheduler is not None else []
    argv += ["--kubernetes"] if kubernetes else []
    argv += ["--kubernetes-binaries", str(binaries.absolute())] if binaries is not None else []
    argv += ["--traces"] if traces else []
    argv += ["--new-log"] if new_log else []
    argv += ["--port-base", str(port_base)] if port_base is not None else []
    try:
        with going_on("the stack goes on starting in the background; to stop it: koord down"):
            stack = asyncio.run(_started(tuple(argv), folder))
    except AlreadyRunningError as error:
        fail(str(error))
    console.print(f"ready after {duration_text(time.monotonic() - began)}")
    console.print(f"dashboard {dashboard(stack)}")
    if kubernetes:
        console.print(f"kubeconfig {admin_kubeconfig(folder_of(folder))}", soft_wrap=True)
    ended = endings(stack)
    if ended:
        fail("; ".join(ended))


def _begin_afresh(folder: Path, *, named: bool) -> None:
    """Stop a stack and delete its data, if nothing speaks against it. `named`: whether the user named the folder."""
    if not named:
        _check_demo()
    try:
        data_of(folder)
        if asyncio.run(stop_stack(state_file(folder))):
            errors.print("stopped")
        if delete_data(folder):
            errors.print(f"deleted the data of the stack in {folder}")
    except EmbeddedError as error:
        fail(str(error))


def _check_demo() -> None:
    """End the command if a demo runs in its default folder."""
    if running_stack(demo_directory()) is not None:
        fail(
            f"a demo runs in {demo_directory()}, and other commands would use this stack instead; stop it with"
            " Ctrl-C or `koord down`, or name another folder for this stack: --var FOLDER"
        )


def _not_in_force(context: typer.Context, words: list[str]) -> list[str]:
    """Return the options that the user gave and with which the running stack was not started.

    Args:
        context: The call of `koord up`.
        words: Command line of the supervisor.
    """
    options = words[words.index("up") + 1 :] if "up" in words else []
    found = context.command.make_context("up", options, resilient_parsing=True).params

    def value(params: dict[str, Any], name: str) -> object:
        return params[name].absolute() if isinstance(params[name], Path) else params[name]

    return [
        (option.secondary_opts if context.params[option.name] is False else option.opts)[0]
        for option in context.command.params
        if option.name not in (None, "var", "foreground", "fresh")
        and (source := context.get_parameter_source(option.name)) is not None
        and source.name == "COMMANDLINE"
        and value(context.params, option.name) != value(found, option.name)
    ]


def _programs(folder: Path | None) -> Programs:
    """End the command if a program of the control plane is missing."""
    try:
        return find_programs(folder, built=Path.cwd() / DEFAULT_VAR / BUILT_FOLDER)
    except EmbeddedError as error:
        fail(str(error), status=2)


def _check_arguments(speed: float, nodes: str, descheduler: Path | None, *, kubernetes: bool) -> None:
    """End the command if an option names a file that is missing, or does not fit another one."""
    if kubernetes and speed != 1:
        fail("--speed must be 1 with --kubernetes: the API server uses the clock of this machine", status=2)
    if descheduler is not None and not descheduler.is_file():
        fail(f"--descheduler: there is no file {descheduler}", status=2)
    simulated_nodes(nodes)


def _check_earlier_data(folder: Path, *, kubernetes: bool) -> None:
    """End the command if the data of earlier starts does not fit the choice of an API server."""
    known = folder_of(folder).exists()
    if kubernetes and not known and (folder / "nats").exists():
        fail(f"the log in {folder} has objects of a stack without API server; name another folder with --var")
    if known and not kubernetes:
        fail(f"the objects in {folder} come from an API server; add --kubernetes, or name another folder with --var")


async def _started(argv: tuple[str, ...], var: Path) -> Stack:
    """Start the stack in the background, and print each process as it becomes ready."""
    starting = asyncio.create_task(
        start_in_background(argv, state_file=state_file(var), log_file=var / "log" / "up.log", seconds=START_SECONDS)
    )
    said: set[str] = set()
    while not starting.done():
        stack = read_stack(state_file(var))
        if stack is not None and stack.is_live:
            _say_ready(stack, said)
        await asyncio.wait({starting}, timeout=0.1)
    ready = starting.result()
    _say_ready(ready, said)  # what became ready last ended the waiting
    return ready


def _say_ready(stack: Stack, said: set[str]) -> None:
    """Print one line for each process that became ready since the last call, and add its name to `said`."""
    for status in stack.processes:
        if status.state is ProcessState.READY and status.name not in said:
            said.add(status.name)
            errors.print(f"  {status.name} is ready")


async def _run(
    var: Path,
    port_base: int | None,
    speed: float,
    sync: str,
    nodes: str,
    *,
    agent: bool,
    descheduler: Path | None,
    programs: Programs | None,
    traces: bool,
    new_log: bool,
) -> None:
    """Run the stack until a signal arrives.

    When the manager is ready, the nodes and the priority classes are registered with it. An API server has its own
    priority classes, and the stand-in for kubelets registers the nodes there.
    """
    simulated = simulated_nodes(nodes)
    host = host_node_name() if agent else None
    registered = [*simulated, *([host_manifest(host)] if host is not None else [])]
    options = StackOptions(
        var=var,
        port_base=port_base,
        clock=shared_clock(speed, var),
        sync=sync,
        host_node=host,
        simulated=write_nodes(var / "simulated-nodes.json", simulated) if simulated else None,
        descheduler=descheduler,
        kubernetes=_control_plane(var, programs, registered) if programs is not None else None,
        traces=traces,
        new_log=new_log,
    )
    processes = specs(options)
    wanted = [*priority_class_manifests(), *registered]
    supervisor = Supervisor(processes, state_file=state_file(var), log=_say)

    async def register_when_ready() -> None:
        try:
            await supervisor.wait_ready("manager", seconds=60)
            await register(manager_url(processes), wanted, var / "registered.json")
        except (EmbeddedError, httpx.HTTPError, OSError) as problem:
            _say(f"the nodes could not be registered: {problem}")

    registering = asyncio.create_task(register_when_ready()) if programs is None else None
    try:
        await supervisor.run_until_stopped()
    finally:
        if registering is not None:
            registering.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await registering


def _control_plane(var: Path, programs: Programs, nodes: Sequence[Manifest]) -> KubernetesPart:
    """Write the file of the nodes that are registered at the API server, and return this part of the stack."""
    file = write_nodes(folder_of(var) / "nodes.json", nodes)
    return KubernetesPart(programs=programs, nodes=file, names=tuple(node["metadata"]["name"] for node in nodes))


def _say(sentence: str) -> None:
    errors.print(sentence)
