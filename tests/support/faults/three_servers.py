"""The whole system on three nats-servers: two managers, two schedulers, two deschedulers, projector, Postgres, agents.

All are real processes with a supervisor, as on the embedded stack. The routes between the servers can be cut.
"""

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncGenerator, Generator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from koordcore.bus.factory import BusSettings, bootstrap_bus
from koordcore.bus.setup.manifest import BOOTSTRAP, OPERATOR
from koordcore.bus.setup.principals import seed_file
from koordcore.embedded.nats import NatsServer
from koordcore.embedded.nats_config import NatsClusterMembership
from koordcore.embedded.ports import LOOPBACK, free_ports
from koordcore.embedded.process import ProcessSpec, RestartPolicy
from koordcore.embedded.supervisor import Supervisor
from koordctl.access.log import key_folder
from koordctl.stack.processes import DESCHEDULER, StackOptions, log_server, specs
from support.embedded_stack import url_of, with_standbys, write_nodes
from support.faults.routes import Routes
from support.rolling_restart import node_manifest

SERVERS: Final = ("nats-0", "nats-1", "nats-2")
TWICE: Final = ("manager", "scheduler", DESCHEDULER)
_DESCHEDULER_CONFIGURATION: Final = "apiVersion: descheduler/v1alpha2\nkind: DeschedulerConfiguration\n"
_READY_SECONDS: Final = 240.0
_LEASE: Final = (
    "--leader-elect-lease-duration=4s",
    "--leader-elect-renew-deadline=3s",
    "--leader-elect-retry-period=500ms",
)
"""A standby leads soon after a kill."""
_RESTART: Final = RestartPolicy(first_delay_seconds=0.1, max_delay_seconds=1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """The running system.

    Attributes:
        servers: Supervisor of the nats-servers.
        services: Supervisor of everything else.
        routes: Routes between the servers.
        processes: Declarations of the services.
        nodes: Manifests of the simulated nodes.
    """

    servers: Supervisor
    services: Supervisor
    routes: Routes
    processes: tuple[ProcessSpec, ...]
    nodes: tuple[dict[str, Any], ...]

    @property
    def managers(self) -> list[str]:
        """Addresses of both managers."""
        return [url_of(self.processes, name) for name in ("manager", "manager-2")]

    def supervisor_of(self, name: str) -> Supervisor:
        """The supervisor of a process."""
        return self.servers if name in SERVERS else self.services


def _servers(options: StackOptions, routes: Routes, cluster_ports: Sequence[int]) -> list[NatsServer]:
    plain = log_server(options).config
    found: list[NatsServer] = []
    for number, name in enumerate(SERVERS):
        membership = NatsClusterMembership(name="koord", port=cluster_ports[number], routes=tuple(routes.of(number)))
        client, monitor = free_ports(2)
        found.append(
            NatsServer(
                replace(
                    plain,
                    name=name,
                    directory=options.var / name,
                    port=client,
                    monitor_port=monitor,
                    cluster=membership,
                    log_file=options.log_folder / f"{name}.log",
                    ready_seconds=_READY_SECONDS,
                )
            )
        )
    return found


def _with_advertised(server: NatsServer, port: int) -> ProcessSpec:
    """The process of a server that tells the others an address on which nothing listens."""
    spec = server.spec()
    write = spec.prepare
    assert write is not None
    file = Path(spec.argv[-1])

    async def prepare() -> None:
        await write()
        await asyncio.to_thread(_advertise, file, port)

    return replace(spec, prepare=prepare, restart=_RESTART)


def _advertise(file: Path, port: int) -> None:
    document = json.loads(file.read_text())
    document["cluster"]["advertise"] = f"{LOOPBACK}:{port}"
    file.write_text(json.dumps(document))


@contextlib.asynccontextmanager
async def three_servers(var: Path, *, nodes: int, simulators: int = 2) -> AsyncGenerator[System]:
    """The system, with simulated nodes that have room for all pods. Commands of this process find its log."""
    manifests = tuple(node_manifest(number) for number in range(nodes))
    file = write_nodes(var, manifests)
    descheduler = var / "descheduler.yaml"
    descheduler.write_text(_DESCHEDULER_CONFIGURATION)
    options = StackOptions(
        var=var,
        simulated=file,
        simulators=simulators,
        descheduler=descheduler,
        flags=dict.fromkeys(TWICE, _LEASE),
    )
    cluster_ports = free_ports(len(SERVERS))
    routes = Routes(cluster_ports)
    members = _servers(options, routes, cluster_ports)
    server_specs = [_with_advertised(member, routes.nowhere) for member in members]
    urls = [member.url for member in members]
    processes = tuple(_on_three(spec, urls) for spec in with_standbys(specs(options), TWICE) if spec.name != "nats")
    async with routes.running(), Supervisor(server_specs, state_file=var / "run" / "servers.json") as servers:
        settings = BusSettings(
            urls=tuple(urls),
            cluster=options.cluster,
            user=BOOTSTRAP.name,
            nkey_seed_file=seed_file(key_folder(var), BOOTSTRAP.name),
            connect_seconds=_READY_SECONDS,
        )
        await bootstrap_bus(settings, replicas=len(SERVERS))
        with _commands_use(urls, seed_file(key_folder(var), OPERATOR.name)):
            async with Supervisor(processes, state_file=var / "run" / "stack.json") as services:
                yield System(servers=servers, services=services, routes=routes, processes=processes, nodes=manifests)


def _on_three(spec: ProcessSpec, urls: list[str]) -> ProcessSpec:
    """A process of the embedded stack with the addresses of all servers."""
    argv = list(spec.argv)
    if "--nats-urls" in argv:
        argv[argv.index("--nats-urls") + 1] = ",".join(urls)
    return replace(spec, argv=tuple(argv), after=(), ready_seconds=_READY_SECONDS, restart=_RESTART)


@contextlib.contextmanager
def _commands_use(urls: list[str], seed: Path) -> Generator[None]:
    given = {"KOORD_NATS": ",".join(urls), "KOORD_NATS_SEED": str(seed)}
    before = {name: os.environ.get(name) for name in given}
    os.environ.update(given)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


async def wait_ready(system: System, seconds: float) -> None:
    """Wait until every process is ready."""
    names = [(system.servers, each.name) for each in system.servers.status().processes]
    names += [(system.services, each.name) for each in system.services.status().processes]
    await asyncio.gather(*(supervisor.wait_ready(name, seconds=seconds) for supervisor, name in names))
