"""Start the stack of a demo on an emptied folder, and follow its log."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import httpx
from koordcore.embedded.process import ProcessSpec
from koordcore.embedded.supervisor import Supervisor

from koordctl.access.clients import state_file
from koordctl.access.log import OpenLog, open_log
from koordctl.demo.submitting import Watching
from koordctl.demo.tail import Tail
from koordctl.demo.trace import TraceNode, TracePod
from koordctl.embedded.nodes import Manifest, write_nodes
from koordctl.embedded.processes import SIMULATOR, StackOptions, manager_url, shared_clock, specs, wipe
from koordctl.render.units import duration_text

NOT_FOUND: Final = 404


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoOptions:
    """The values of the command-line options of one run of the demo.

    Attributes:
        var: Folder of the demo's data; emptied first.
        nodes: Nodes of the trace.
        pods: Pods of the trace, in order.
        speed: Simulated seconds per real second.
        seconds: Real time during which pods arrive.
        simulators: Number of agent processes that share the simulated nodes.
        port_base: First of consecutive ports, or None for free ports.
    """

    var: Path
    nodes: Sequence[TraceNode]
    pods: Sequence[TracePod]
    speed: float
    seconds: float
    simulators: int = 1
    port_base: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningStack:
    """The running stack of a demo.

    Attributes:
        processes: Its processes.
        urls: Name of a process -> URL of its HTTP server; "" without one.
        client: Client of the manager.
        log: The log.
        tail: Counts of pods; a task follows the log.
        startup_s: Real seconds until every process was ready.
    """

    processes: Sequence[ProcessSpec]
    urls: Mapping[str, str]
    client: httpx.AsyncClient
    log: OpenLog
    tail: Tail
    startup_s: float

    async def simulate(self, path: str, body: Mapping[str, Any]) -> None:
        """Send a change of the simulation to all agents that simulate nodes.

        Args:
            path: Path of the agents' HTTP server.
            body: The change. If it names a node, agents that do not simulate the node ignore it.
        """
        async with httpx.AsyncClient(timeout=10, trust_env=False) as client:
            for spec in self.processes:
                if spec.name.startswith(SIMULATOR):
                    answer = await client.put(f"{spec.urls['http']}{path}", json=body)
                    if answer.status_code != NOT_FOUND:
                        answer.raise_for_status()


def fresh(options: DemoOptions, nodes: Sequence[Manifest]) -> StackOptions:
    """Empty the folder of the demo. Return the options of a stack in this folder that simulates the given nodes."""
    file = options.var / "simulated-nodes.json"
    stack = StackOptions(var=options.var, port_base=options.port_base, simulated=file, simulators=options.simulators)
    wipe(stack)
    write_nodes(file, nodes)
    return replace(stack, clock=shared_clock(options.speed, options.var))


async def start(stack: StackOptions, watching: Watching, resources: AsyncExitStack) -> RunningStack:
    """Start the stack and follow its log. It runs until `resources` is closed.

    Raises:
        EmbeddedError, LogTrouble: The stack failed, or the log cannot be used. The message is a sentence for the user.
    """
    began = time.monotonic()
    processes = specs(stack)
    await resources.enter_async_context(
        Supervisor(processes, state_file=state_file(stack.var), log=lambda line: watching.step(f"  {line}"))
    )
    startup_s = time.monotonic() - began
    urls = {spec.name: spec.urls.get("http", "") for spec in processes}
    watching.step(f"ready after {duration_text(startup_s)}; dashboard {urls['projector']}/")
    client = await resources.enter_async_context(
        httpx.AsyncClient(base_url=manager_url(processes), timeout=60, trust_env=False)
    )
    log = await resources.enter_async_context(open_log(stack.var))
    tail = Tail()
    tailing = asyncio.create_task(tail.follow(log))
    resources.callback(tailing.cancel)
    return RunningStack(processes=processes, urls=urls, client=client, log=log, tail=tail, startup_s=startup_s)
