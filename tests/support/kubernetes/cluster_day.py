"""A cluster behind the emulated API server with real processes: managers over TLS with the rights of k8s/, and others.

async with cluster_day(tmp_path, nats_server) as day:
    await day.start_manager("manager-a")
    await day.start("scheduler", "koord_scheduler")
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from koordcore.bus.factory import BusSettings, bootstrap_bus, open_bus
from koordcore.bus.setup.tls_files import ensure_tls_files
from koordcore.embedded.errors import StartError
from koordcore.embedded.nats import NatsServer
from koordcore.embedded.ports import free_ports
from koordcore.service.clock import SystemClock
from koordcore.state import ClusterState
from support.kubernetes.apiserver import ApiServer, running_api_server
from support.kubernetes.authorization import manager_user
from support.kubernetes.services import CLUSTER, Services

Json = dict[str, Any]

BASE = Path(__file__).parents[3] / "k8s" / "base"
SERVICE = "koordinator-system/koordinator-webhook-service"


def manifests(name: str) -> list[Json]:
    """The documents of a file of k8s/base."""
    return [item for item in yaml.safe_load_all((BASE / name).read_text(encoding="utf-8")) if item]


@dataclass(kw_only=True)
class Day(Services):
    """Everything that runs behind an emulated API server."""

    server: ApiServer
    kubeconfig: Path
    webhook_ports: dict[str, int] = field(default_factory=dict[str, int])

    async def start_manager(self, name: str, *, failpoint: str = "") -> None:
        """failpoint: `<name>:<passage>` at which it dies, perhaps before anybody has seen it ready."""
        port = free_ports(1)[0]
        flags = (
            *("--kubeconfig", str(self.kubeconfig), "--rest-config-qps", "0", "--take-node-metrics"),
            *("--lease-duration", "3s", "--lease-renew-deadline", "2s", "--lease-retry", "500ms"),
            *("--webhook-address", "127.0.0.1", "--sweep-period", "20s", "--watch-timeout", "20s"),
        )
        env = {
            **({"KOORD_FAILPOINT": failpoint} if failpoint else {}),
            "WEBHOOK_PORT": str(port),
            "WEBHOOK_CERT_DIR": str(self.directory / f"{name}-certs"),
        }
        self.webhook_ports[name] = port
        try:
            await self.start(name, "koord_manager", flags, env)
        except StartError:
            if not failpoint:
                raise
        self.endpoints()

    def endpoints(self) -> None:
        """The Service leads to a manager that lives."""
        for name, port in self.webhook_ports.items():
            if self.processes[name].is_running:
                self.server.webhooks.services[SERVICE] = ("127.0.0.1", port)

    async def leader(self) -> str:
        """Which manager holds the lease."""
        lease = self.server.object("leases", "koordinator-system", "koordinator-manager")
        assert lease is not None, "nobody ever led"
        return str(lease["spec"].get("holderIdentity", "")).rsplit("_", 1)[0]

    def unbound(self) -> list[str]:
        return [item["metadata"]["name"] for item in self.server.objects("pods") if not item["spec"].get("nodeName")]


@asynccontextmanager
async def cluster_day(directory: Path, nats: NatsServer) -> AsyncGenerator[Day]:
    """The API server is served, the log has its streams; nothing else runs yet."""
    tls = ensure_tls_files(directory / "tls", now=SystemClock().now())
    async with running_api_server(tls=tls) as server:
        server.users["manager"] = manager_user()
        kubeconfig = server.kubeconfig(directory / "kubeconfig", token="manager")
        whole = Day(nats=nats, directory=directory, server=server, kubeconfig=kubeconfig)
        await bootstrap_bus(BusSettings(urls=(nats.url,), cluster=CLUSTER))
        try:
            yield whole
        finally:
            await whole.kill()


async def fold_of(nats: NatsServer) -> ClusterState:
    """The log folded from zero."""
    state = ClusterState()
    async with open_bus(BusSettings(urls=(nats.url,), cluster=CLUSTER)) as bus:
        head = await bus.events.head()
        async for batch in bus.events.history(0, head.last_seq):
            for stored in batch:
                state.apply(stored)
    return state
