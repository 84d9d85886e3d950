"""`koord demo`: place the pods of a real trace on a live cluster and print the results."""

import asyncio
import contextlib
import signal
import time
from collections.abc import Generator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Annotated

import typer

from koordctl.access.clients import demo_directory, running_stack, var_directory
from koordctl.demo.device_health import DeviceDaySummary
from koordctl.demo.failing_devices import run_failing_devices
from koordctl.demo.on_running import RunningDemo, RunningSummary, run_on_running
from koordctl.demo.run import DemoOptions, run
from koordctl.demo.submitting import Watching
from koordctl.demo.summary import Checks, Summary, write_summary
from koordctl.demo.tail import PodCounts
from koordctl.demo.trace import TRACE_FOLDER, InvalidTrace, find_trace, node_manifest, read_nodes, read_pods
from koordctl.render.console import Line
from koordctl.render.output import console, errors, fail
from koordctl.stack.nodes import write_nodes

PLAIN_LINE_SECONDS = 5.0


def demo(
    end: Annotated[bool, typer.Option("--exit", help="Exit when done; status 0 only if every invariant held.")] = False,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="Maximum number of pods; the first ones.")] = None,
    nodes: Annotated[int | None, typer.Option("--nodes", min=1, help="Maximum number of nodes, of every kind.")] = None,
    seconds: Annotated[float, typer.Option("--seconds", min=0, help="Real seconds during which pods arrive.")] = 75.0,
    speed: Annotated[
        float, typer.Option("--speed", min=0.1, help="Speed of the run's clock; 360: a day in 4 min.")
    ] = 360.0,
    trace: Annotated[
        Path | None, typer.Option("--trace", help=f"Folder of the trace; default: {TRACE_FOLDER}.")
    ] = None,
    var: Annotated[Path | None, typer.Option("--var", help="Folder of the demo's data; emptied first.")] = None,
    port_base: Annotated[
        int | None, typer.Option("--port-base", min=1024, max=65000, help="First of its ports.")
    ] = None,
    running: Annotated[
        bool, typer.Option("--running", help="Use the running system instead of a new stack; its clock is real.")
    ] = False,
    failing_devices: Annotated[
        bool,
        typer.Option(
            "--failing-devices", help="GPUs, RDMA adapters and the devices of whole nodes fail and come back."
        ),
    ] = False,
    nodes_file: Annotated[
        Path | None,
        typer.Option("--write-nodes", help="Only write the nodes for an agent that simulates them, and end."),
    ] = None,
) -> None:
    """Place a real trace (openb: 1,523 nodes, 8,152 pods) on a live cluster, with this host as a measured node.

    The demo prints a table, writes VAR/summary.json and leaves the dashboard running. Ctrl-C stops everything.

    Examples:

      koord demo

      koord demo --exit

      koord demo --nodes 60 --limit 300 --seconds 5 --exit

      koord demo --nodes 60 --limit 300 --seconds 5 --running

      koord demo --failing-devices --speed 1152 --exit
    """
    if failing_devices and (running or nodes_file is not None):
        fail("--failing-devices needs a stack of its own, without --running and --write-nodes", status=2)
    if running or nodes_file is not None:
        _without_a_stack(trace or find_trace("--trace"), nodes_file, nodes=nodes, limit=limit, seconds=seconds)
        return
    folder = (var or demo_directory()).absolute()
    if var is None and running_stack(var_directory()) is not None:
        fail(
            f"a stack runs in {var_directory()}, and other commands would still use it; stop it with"
            " `koord down`, or name another folder for the demo: --var FOLDER"
        )
    if running_stack(folder) is not None:
        fail(
            f"a demo or stack already runs in {folder}; stop it with Ctrl-C or `koord down --var {folder}`, or name"
            " another folder for the demo: --var FOLDER"
        )
    source = trace or find_trace("--trace")
    try:
        options = DemoOptions(
            var=folder,
            nodes=read_nodes(source, limit=nodes),
            pods=read_pods(source, limit=limit),
            speed=speed,
            seconds=seconds,
            port_base=port_base,
        )
    except InvalidTrace as error:
        fail(str(error))
    summary = asyncio.run(_demo(options, end=end, failing_devices=failing_devices))
    if not summary.all_held:
        raise typer.Exit(1)


def _without_a_stack(
    source: Path, nodes_file: Path | None, *, nodes: int | None, limit: int | None, seconds: float
) -> None:
    try:
        found = RunningDemo(nodes=read_nodes(source, limit=nodes), pods=read_pods(source, limit=limit), seconds=seconds)
    except InvalidTrace as error:
        fail(str(error))
    if nodes_file is not None:
        write_nodes(nodes_file, [node_manifest(node) for node in found.nodes])
        return
    with _watching() as watching:
        summary = asyncio.run(run_on_running(found, watching))
    show(summary)
    if not summary.all_held:
        raise typer.Exit(1)


async def _demo(options: DemoOptions, *, end: bool, failing_devices: bool) -> Checks:
    """SIGTERM ends the demo like Ctrl-C; the stack is always stopped."""
    task = asyncio.current_task()
    assert task is not None, "a coroutine runs in a task"
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    async with AsyncExitStack() as resources:
        with _watching() as watching:
            course = run_failing_devices if failing_devices else run
            summary, dashboard = await course(options, watching, resources)
        file = options.var / "summary.json"
        write_summary(file, summary)
        show(summary)
        console.print(f"summary {file}")
        if not end:
            console.print(f"dashboard {dashboard}   Ctrl-C ends the demo")
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
        return summary


@contextlib.contextmanager
def _watching() -> Generator[Watching]:
    """A progress bar on a terminal, plain lines elsewhere."""
    if not errors.is_terminal:
        yield _plain()
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from koordctl.render.rich_console import rich_errors

    columns = (
        TextColumn("pods"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[became]}  {task.fields[rate]:,.0f}/s"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=rich_errors(), transient=True) as bar:
        task = bar.add_task("pods", total=None, became="", rate=0.0, visible=False)
        began = 0.0

        def progress(pods: PodCounts) -> None:
            nonlocal began
            began = began or time.monotonic()
            rate = pods.placed / max(time.monotonic() - began, 0.1)
            bar.update(task, completed=pods.sent, total=pods.total, became=_became(pods), rate=rate, visible=True)

        yield Watching(step=lambda line: bar.console.print(line), progress=progress)


def _plain() -> Watching:
    last = 0.0

    def step(line: str) -> None:
        errors.print(line)

    def progress(pods: PodCounts) -> None:
        nonlocal last
        if time.monotonic() - last >= PLAIN_LINE_SECONDS:
            last = time.monotonic()
            step(f"  {pods.sent:,} of {pods.total:,} pods sent, {_became(pods)}")

    return Watching(step=step, progress=progress)


def _became(pods: PodCounts) -> str:
    ended = f", {pods.ended:,} ended" if pods.ended else ""
    return f"{pods.placed:,} placed, {pods.evicted:,} evicted for others, {pods.pending:,} pending{ended}"


def show(summary: Summary | DeviceDaySummary | RunningSummary) -> None:
    rows = list(summary.rows())
    wide = max((len(what) for what, _ in rows), default=0)
    for what, how_much in rows:
        console.print(f"{what:<{wide}}  {how_much}", soft_wrap=True)
    for rule, held, found in summary.invariants():
        mark = Line("held  ", "green") if held else Line("BROKEN", "red")
        console.print(mark, f" {rule}: {found}", soft_wrap=True)
    for sentence in summary.violations[:20]:
        console.print(f"  {sentence}", soft_wrap=True)
