"""Run nats-server from its wheel as a child process.

`NatsServer` runs one server on a directory; after a stop or a kill -9 it starts again on the same directory and port.
`supervisor` restarts it if it is part of a stack.
"""

import asyncio
from dataclasses import replace
from pathlib import Path

from koordcore.embedded.binaries import nats_server_binary, nats_server_version, require_nats_version
from koordcore.embedded.errors import PortInUseError, StartError
from koordcore.embedded.nats_config import NatsServerConfig, render
from koordcore.embedded.ports import LOOPBACK, free_ports, is_port_free, require_free_port
from koordcore.embedded.process import ChildProcess, ProcessSpec

PORT_ATTEMPTS = 5


class NatsServer:
    """One nats-server with JetStream.

    Only one task at a time may start or stop it. It may be used from different event loops.
    """

    def __init__(self, config: NatsServerConfig) -> None:
        self.config = config
        self._child: ChildProcess | None = None

    @property
    def port(self) -> int:
        """Client port; must not be read before configuration or the first start has chosen it."""
        assert self.config.port is not None, "the server was never started and no port is configured"
        return self.config.port

    @property
    def url(self) -> str:
        """URL for clients: `nats://127.0.0.1:<port>`, or `tls://` if TLS is configured."""
        return f"{'tls' if self.config.tls is not None else 'nats'}://{LOOPBACK}:{self.port}"

    @property
    def monitor_url(self) -> str:
        """URL of the monitoring endpoint, `http://127.0.0.1:<port>`."""
        assert self.config.monitor_port is not None, "the server was never started and no monitoring port is configured"
        return f"http://{LOOPBACK}:{self.config.monitor_port}"

    @property
    def health_url(self) -> str:
        """URL that answers 200 as soon as JetStream accepts requests (event-bus spec, 9.1)."""
        return f"{self.monitor_url}/healthz?js-enabled-only=true"

    @property
    def log_file(self) -> Path:
        """File that receives stdout and stderr of the server."""
        return self.config.log_file or self.config.directory / f"{self.config.name}.log"

    @property
    def pid(self) -> int | None:
        """Process id of the running server; None if it does not run."""
        return self._child.pid if self._child is not None and self._child.is_running else None

    @property
    def is_running(self) -> bool:
        """Whether the process runs. It may not be ready yet."""
        return self.pid is not None

    def choose_ports(self) -> None:
        """Choose a free port where the configuration names none. Later starts use the same ports."""
        client, monitor = free_ports(2)
        self.config = replace(
            self.config,
            port=client if self.config.port is None else self.config.port,
            monitor_port=monitor if self.config.monitor_port is None else self.config.monitor_port,
        )

    def spec(self) -> ProcessSpec:
        """Return the server as a process for a supervisor.

        Chooses ports that are still open. The `prepare` step of the process writes the configuration file.

        Raises:
            BinaryNotFoundError: nats-server is missing or older than 2.12.
        """
        binary = nats_server_binary()
        require_nats_version(nats_server_version(binary), binary=binary)
        self.choose_ports()
        config_file = self.config.directory / f"{self.config.name}.conf"
        ports = {"client": self.port, "monitor": self.config.monitor_port or 0}
        if self.config.cluster is not None:
            ports["cluster"] = self.config.cluster.port

        async def prepare() -> None:
            for port in ports.values():
                require_free_port(port, owner=f"nats-server {self.config.name}")
            self.config.directory.mkdir(parents=True, exist_ok=True)
            config_file.write_text(render(self.config))

        return ProcessSpec(
            name=self.config.name,
            argv=(str(binary), "--config", str(config_file)),
            # rarer collections at the price of some memory, with a bound: the server shares its cores with the services
            env={"GOGC": "400", "GOMEMLIMIT": "1GiB"},
            ready=self.health_url,
            ready_seconds=self.config.ready_seconds,
            prepare=prepare,
            log_file=self.log_file,
            ports=ports,
            urls={"client": self.url, "monitor": self.monitor_url},
        )

    async def start(self) -> None:
        """Start and wait until JetStream is enabled. No-op if it runs already.

        Raises:
            PortInUseError: Another process listens on the configured port.
            StartError: The server ended or did not become ready. The message has the end of its log.
            BinaryNotFoundError: A server binary is missing from this environment, or too old to hold the log safely.
        """
        if self.is_running:
            return
        configured = self.config
        for attempt in range(1, PORT_ATTEMPTS + 1):
            child = ChildProcess(self.spec())
            try:
                await child.start()
            except (PortInUseError, StartError) as error:
                # Another process may have taken a port between our choice and the server's listen.
                taken = next((port for port in child.spec.ports.values() if not is_port_free(port)), None)
                if taken is None:
                    raise
                if _is_configured(taken, configured) or attempt == PORT_ATTEMPTS:
                    raise PortInUseError(owner=f"nats-server {self.config.name}", port=taken) from error
                self.config = configured
                continue
            self._child = child
            return

    async def stop(self) -> None:
        """Stop gracefully, so that streams are flushed; kill the server after ten seconds."""
        if self._child is not None:
            await self._child.stop()

    async def kill(self) -> None:
        """Kill the server. Acknowledged messages stay in the store; `start` recovers them on the same port."""
        if self._child is not None:
            await self._child.kill()

    async def restart(self) -> None:
        """Stop the server and start it again on the same store and port."""
        await self.stop()
        await self.start()

    async def wait_exit(self, seconds: float | None = None) -> int | None:
        """Wait until the server ends and return its exit code; None if it still runs or never ran."""
        return None if self._child is None else await self._child.wait_exit(seconds)

    async def __aenter__(self) -> "NatsServer":
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        # Shielded: a cancelled caller must not leave the server behind.
        await asyncio.shield(self.stop())


def _is_configured(port: int, config: NatsServerConfig) -> bool:
    cluster_port = config.cluster.port if config.cluster is not None else None
    return port in {config.port, config.monitor_port, cluster_port}
