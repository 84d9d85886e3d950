"""Run nats-server, whose program a Python wheel contains, as a child process.

`NatsServer` runs one server on a directory; after a stop or a kill -9 it starts again on the same directory and port.
`supervisor` restarts it if it is part of a stack.

After a failed write, for example on a full disk, a server stores no message in this stream until it is restarted, and
does not answer who sends one. Only its `/healthz` says so (`write_trouble`).
"""

import asyncio
import http.client
import shutil
import urllib.parse
from dataclasses import replace
from pathlib import Path
from typing import Final

import msgspec

from koordcore.embedded.nats_config import NatsServerConfig, render
from koordcore.embedded.ports import LOOPBACK, free_ports, require_free_port
from koordcore.embedded.process import ProcessSpec
from koordcore.embedded.server import EmbeddedServer, nats_server_binary, nats_server_version, require_nats_version

RESTART_FREE_BYTES: Final = 64 << 20  # Free space from which a server is restarted that stores nothing after an error
MEMORY_LIMIT: Final = "1GiB"  # Memory from which the server collects garbage more often (GOMEMLIMIT)
_PROBE_SECONDS: Final = 2.0
_STORES_NOTHING: Final = ("write error", "JetStream not enabled")  # In what `/healthz` says after a failed write


def write_trouble(monitor_url: str) -> str:
    """Return what a server says about a stream that it does not write any more; "" if it writes all, or does not
    answer. Blocks the calling thread. `monitor_url`: its monitoring endpoint, `http://host:port`.
    """
    parts = urllib.parse.urlsplit(monitor_url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=_PROBE_SECONDS)
    try:
        connection.request("GET", "/healthz")
        told = msgspec.json.decode(connection.getresponse().read(), type=dict[str, object]).get("error", "")
    except (OSError, http.client.HTTPException, msgspec.MsgspecError):
        return ""
    finally:
        connection.close()
    return str(told) if any(text in str(told) for text in _STORES_NOTHING) else ""


class NatsServer(EmbeddedServer[NatsServerConfig]):
    """One nats-server with JetStream as a child process. `stop` writes all streams to disk."""

    @property
    def port(self) -> int:
        """Port for clients. If the configuration names none, it exists only after `spec`, `choose_ports` or `start`."""
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
        return self.config.log_file or self.config.directory / f"{self.config.name}.log"

    def choose_ports(self) -> None:
        """Choose a free port for each port that the configuration leaves open. Later starts use these ports again."""
        client, monitor = free_ports(2)
        self.config = replace(
            self.config,
            port=client if self.config.port is None else self.config.port,
            monitor_port=monitor if self.config.monitor_port is None else self.config.monitor_port,
        )

    def spec(self) -> ProcessSpec:
        """Return the server as a process declaration for a `Supervisor`. Open ports are chosen now. The `prepare` step
        of the process writes the configuration file.

        Raises:
            BinaryNotFoundError: nats-server is missing or older than 2.14.
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
                require_free_port(port, owner=self.config.name)
            self.config.directory.mkdir(parents=True, exist_ok=True)
            config_file.write_text(render(self.config))

        async def restart_reason() -> str:
            trouble = await asyncio.to_thread(write_trouble, self.monitor_url)
            # A server that starts on a full disk fails again, and cannot write the state of its streams.
            return trouble if trouble and shutil.disk_usage(self.config.directory).free > RESTART_FREE_BYTES else ""

        return ProcessSpec(
            name=self.config.name,
            argv=(str(binary), "--config", str(config_file)),
            # rarer collections at the price of some memory, with a bound: the server shares its cores with the services
            env={"GOGC": "400", "GOMEMLIMIT": MEMORY_LIMIT},
            ready=self.health_url,
            ready_seconds=self.config.ready_seconds,
            prepare=prepare,
            restart_reason=restart_reason,
            log_file=self.log_file,
            ports=ports,
            urls={"client": self.url, "monitor": self.monitor_url},
        )

    def _is_configured(self, port: int, config: NatsServerConfig) -> bool:
        return port in {config.port, config.monitor_port, config.cluster.port if config.cluster is not None else None}
