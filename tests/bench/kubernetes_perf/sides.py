"""What places pods: kube-scheduler, or Koordstream with its log, manager and compiled scheduler.

Each is started on the same API server, one after the other, with 5,000 requests per second unless told otherwise.
"""

import shutil
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

import httpx
import yaml
from bench.kubernetes_perf.machine import Machine
from koordcore.bus.factory import BusSettings, bootstrap_bus
from koordcore.embedded.nats import NatsServer
from koordcore.embedded.nats_config import NatsServerConfig
from koordcore.embedded.ports import LOOPBACK, free_ports
from koordcore.embedded.process import NEVER_RESTART, ChildProcess, ProcessSpec
from support.kubernetes.control_plane import TOOLS
from support.kubernetes.installation import Installation
from support.kubernetes.services import CLUSTER
from support.until import until

THEIRS: Final = "kube-scheduler"
OURS: Final = "koordstream"
QPS: Final = 5_000
UNLIMITED: Final = (f"--rest-config-qps={QPS}", f"--rest-config-burst={QPS}")
IDLE_LOOKS: Final = 10
"""Looks without a new write after which the manager has written what it owes to nodes."""


@dataclass(frozen=True, kw_only=True)
class Side:
    """A running side.

    Attributes:
        name: `THEIRS` or `OURS`.
        scheduler: Name by which pods choose it.
        pids: Name -> process id of its processes.
        installed: The processes of Koordstream, or None for kube-scheduler.
    """

    name: str
    scheduler: str
    pids: dict[str, int] = field(default_factory=dict[str, int])
    installed: Installation | None = None


Start = Callable[[Machine], AbstractAsyncContextManager[Side]]


@asynccontextmanager
async def kube_scheduler(machine: Machine) -> AsyncGenerator[Side]:
    """Run kube-scheduler with the rights that Kubernetes has for it, and its default profile."""
    plane = machine.plane
    account = "kube-scheduler"
    accounts: list[dict[str, object]] = [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": account, "namespace": "kube-system"}}
    ]
    for role in ("system:kube-scheduler", "system:volume-scheduler"):
        accounts.append(
            {
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "ClusterRoleBinding",
                "metadata": {"name": role.replace("system:", "bench-")},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
                "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": "kube-system"}],
            }
        )
    plane.apply(*accounts)
    kubeconfig = plane.kubeconfig(account, plane.token(account, "kube-system"))
    configuration = machine.directory / "kube-scheduler.yaml"
    written: dict[str, object] = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": str(kubeconfig), "qps": QPS, "burst": QPS},
        "leaderElection": {"leaderElect": False},
    }
    configuration.write_text(yaml.safe_dump(written), encoding="utf-8")
    (port,) = free_ports(1)
    process = ChildProcess(
        ProcessSpec(
            name=THEIRS,
            argv=(
                str(TOOLS / THEIRS),
                f"--config={configuration}",
                f"--bind-address={LOOPBACK}",
                f"--secure-port={port}",
            ),
            log_file=machine.directory / "kube-scheduler.log",
            restart=NEVER_RESTART,
        )
    )
    await process.start()
    try:
        yield Side(name=THEIRS, scheduler="default-scheduler", pids={THEIRS: process.pid or 0})
    finally:
        await process.kill()


@asynccontextmanager
async def koordstream(
    machine: Machine, *, flags: tuple[str, ...] = UNLIMITED, managers: int = 1, webhooks: bool = False
) -> AsyncGenerator[Side]:
    """Run a new log, managers with the shipped flags and role, and the scheduler, until all nodes are mirrored.

    Args:
        machine: The API server.
        flags: Flags of the managers besides those of the Deployment.
        managers: Number of managers; the first one leads.
        webhooks: Whether the last manager serves the webhooks.
    """
    folder = machine.directory / "koordstream"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    nats = NatsServer(NatsServerConfig(name="bench", directory=folder / "nats", sync_interval="1s"))
    await nats.start()
    plane = machine.plane
    credentials = plane.kubeconfig("manager", plane.token("koord-manager"))
    await bootstrap_bus(BusSettings(urls=(nats.url,), cluster=CLUSTER))
    installed = Installation(nats=nats, directory=folder, plane=plane, credentials=credentials)
    plane.ask("delete", "lease", "koordinator-manager", "-n", "koordinator-system", "--ignore-not-found")
    try:
        names = [f"manager-{number}" for number in range(managers)]
        for name in names:
            await installed.start_manager(name, *flags, webhooks=webhooks and name == names[-1])
            await until(lambda: installed.leader() == names[0], "the first manager leads", every=0.2)
        await installed.start_scheduler()
        for name in names:
            await installed.until_ready(name)
        await _until_quiet(installed.urls[names[0]])
        pids = {name: process.pid or 0 for name, process in installed.processes.items()}
        yield Side(
            name=OURS,
            scheduler="koord-scheduler",
            pids={"nats": nats.pid or 0, **pids},
            installed=installed,
        )
    finally:
        await installed.kill()
        await nats.kill()


async def _until_quiet(url: str) -> None:
    """Wait until a manager has mirrored all objects and has written nothing for a while."""
    last, same = -1.0, 0
    async with httpx.AsyncClient(trust_env=False, timeout=30) as client:

        async def is_quiet() -> bool:
            nonlocal last, same
            page = (await client.get(f"{url}/metrics")).text.splitlines()
            written = sum(float(line.split()[-1]) for line in page if line.startswith("koord_gateway_writes_total"))
            synced = [line for line in page if line.startswith("koord_gateway_synced{") and line.endswith(" 1.0")]
            is_synced = all(any(f'resource="{name}"' in line for line in synced) for name in ("nodes", "pods"))
            same = same + 1 if is_synced and written == last else 0
            last = written
            return same >= IDLE_LOOKS

        await until(is_quiet, "the manager is quiet", seconds=600, every=0.2)
