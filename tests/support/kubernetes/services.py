"""Processes of Koordstream's services that use one NATS server, for tests with an API server.

`support.kubernetes.cluster_day` starts them behind the emulated API server, `support.kubernetes.installation` behind a
real one.
"""

import asyncio
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from koordcore.embedded.nats import NatsServer
from koordcore.embedded.ports import free_ports
from koordcore.embedded.process import ChildProcess, ProcessSpec
from support.until import DEADLINE_SECONDS, until

CLUSTER = "day"


@dataclass(kw_only=True)
class Services:
    """The running services.

    Attributes:
        nats: Server of the log.
        directory: Folder of the log files.
        processes: Instance -> process.
        urls: Instance -> address of its HTTP server.
    """

    nats: NatsServer
    directory: Path
    processes: dict[str, ChildProcess] = field(default_factory=dict[str, ChildProcess])
    urls: dict[str, str] = field(default_factory=dict[str, str])

    async def start(
        self,
        name: str,
        module: str,
        flags: Sequence[str] = (),
        env: dict[str, str] | None = None,
        *,
        cluster: str = CLUSTER,
        log: str = "",
    ) -> None:
        """Start an instance of a service and wait until it answers.

        Args:
            name: Name of the instance.
            module: Python package of the service.
            flags: Further flags.
            env: Further environment variables.
            cluster: Id of the cluster, which names the streams.
            log: Address of another server of the log than `nats`, or "".
        """
        port = free_ports(1)[0]
        self.urls[name] = f"http://127.0.0.1:{port}"
        common = (
            "--cluster",
            cluster,
            "--instance",
            name,
            "--nats-urls",
            log or self.nats.url,
            "--http-port",
            str(port),
        )
        spec = ProcessSpec(
            name=name,
            argv=(sys.executable, "-m", module, *common, "--log-format", "json", *flags),
            ready=f"{self.urls[name]}/healthz",
            ready_seconds=DEADLINE_SECONDS,
            log_file=self.directory / f"{name}.log",
            env={"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", **(env or {})},
        )
        self.processes[name] = ChildProcess(spec)
        await self.processes[name].start()

    async def kill(self) -> None:
        """Kill every process."""
        await asyncio.gather(*(process.kill() for process in self.processes.values() if process.is_running))

    async def until(self, holds: Callable[[], object], what: str, seconds: float = 240.0) -> None:
        """Wait until something holds; a failure shows the last lines of every process's log."""
        try:
            await until(holds, what, seconds=seconds, every=0.1)
        except AssertionError as error:
            error.add_note(self.trouble())
            raise

    def trouble(self) -> str:
        """Return the last lines of every process's log."""
        found: list[str] = []
        for name in self.processes:
            log = self.directory / f"{name}.log"
            lines = log.read_text(encoding="utf-8", errors="replace").splitlines() if log.exists() else []
            found += [f"{name}: {line}" for line in lines[-4:]]
        return "\n".join(found)
