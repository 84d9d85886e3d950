"""The embedded stack with a few pods, whose files and rows are damaged."""

import contextlib
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from koordcore.embedded.process import ProcessSpec
from koordcore.embedded.supervisor import Supervisor
from koordctl.stack.processes import StackOptions, specs
from support.embedded_stack import url_of, write_nodes
from support.faults.constant_load import Load, Watched
from support.koord_command import KoordCommand
from support.rolling_restart import node_manifest
from support.until import until

NODES: Final = 2
PATIENCE_SECONDS: Final = 240.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SmallStack:
    """A running stack.

    Attributes:
        var: Its folder.
        supervisor: Its supervisor.
        processes: Declarations of its processes.
        load: Submits pods.
        koord: Commands on it.
    """

    var: Path
    supervisor: Supervisor
    processes: tuple[ProcessSpec, ...]
    load: Load
    koord: KoordCommand

    @property
    def dsn(self) -> str:
        """Address of its database."""
        return next(spec.env["KOORD_PROJECTOR_DSN"] for spec in self.processes if spec.name == "projector")

    async def settled(self) -> None:
        """Wait until every live pod is placed."""
        watched = Watched(self.var)
        names = {f"default/{name}" for name in self.load.live}

        async def all_placed() -> bool:
            if not await watched.catch_up():
                return False
            return not watched.audit.findings(()).pending and watched.alive == names

        await until(all_placed, "every live pod is placed", seconds=PATIENCE_SECONDS, every=0.2)


def small_options(var: Path) -> StackOptions:
    """Options of the stack; its file of nodes is written when the folder is new."""
    nodes = var / "nodes.json"
    if not nodes.exists():
        write_nodes(var, [node_manifest(number) for number in range(NODES)])
    return StackOptions(var=var, simulated=nodes)


@contextlib.asynccontextmanager
async def small_stack(var: Path) -> AsyncGenerator[SmallStack]:
    """The stack with its simulated nodes."""
    options = small_options(var)
    processes = tuple(specs(options))
    async with Supervisor(processes, state_file=var / "run" / "stack.json") as supervisor:
        load = Load([url_of(processes, "manager")])
        try:
            await load.send("/v1/apply", [node_manifest(number) for number in range(NODES)])
            yield SmallStack(var=var, supervisor=supervisor, processes=processes, load=load, koord=KoordCommand(var))
        finally:
            await load.close()
