"""One etcd and one kube-apiserver with the objects of k8s/overlays/dev, and the CPU time of processes.

No kube-controller-manager, kubelet or webhook runs: an API server with nothing but schedulers, as in scheduler_perf.
"""

import os
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from bench.kubernetes_perf.api import INITIAL_NAMESPACE, NAMESPACE, Api, Json, open_api
from bench.kubernetes_perf.objects import encoded, namespace_documents
from koordcore.embedded.ports import free_ports
from koordcore.embedded.process import NEVER_RESTART, ChildProcess
from koordctl.stack.kubernetes import control_plane as embedded
from koordctl.stack.kubernetes.programs import API_SERVER, ETCD, find_programs
from support.kubernetes.control_plane import TOOLS, ControlPlane, missing_programs
from support.kubernetes.installation import reachable, rendered
from support.servers import server_directory

WEBHOOKS: Final = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
_TICKS: Final = os.sysconf("SC_CLK_TCK")


@dataclass(kw_only=True)
class Machine:
    """The API server, and a client of its administrator.

    Attributes:
        nodes: Number of registered nodes.
    """

    plane: ControlPlane
    api: Api
    directory: Path
    nodes: int = 0
    _made: dict[str, int] = field(default_factory=dict[str, int])

    @property
    def pids(self) -> dict[str, int]:
        """Name -> process id of the API server and of etcd."""
        return {name: process.pid or 0 for name, process in self.plane.processes.items()}

    async def register(self, documents: Sequence[Json]) -> None:
        """Register exactly these nodes as kubelets do: Node objects with a status.

        Nodes that exist get the new status. Further nodes are deleted; the names of nodes follow their order.
        """
        if self.nodes > len(documents):
            names = sorted(found["metadata"]["name"] for found in (await self.api.get("/api/v1/nodes"))["items"])
            await self.api.delete([f"/api/v1/nodes/{name}" for name in names[len(documents) :]])
        new = documents[self.nodes :]
        await self.api.create("/api/v1/nodes", [encoded(document) for document in new])
        statuses = [
            (f"/api/v1/nodes/{document['metadata']['name']}/status", {"status": document["status"]})
            for document in documents
        ]
        await self.api.patch(statuses)
        # The API server gives new nodes the taint `not-ready`. The controller that removes it does not run.
        untainted = {"spec": {"taints": None}}
        await self.api.patch([(f"/api/v1/nodes/{document['metadata']['name']}", untainted) for document in new])
        self.nodes = len(documents)

    async def ensure(self, path: str, documents: Sequence[Json]) -> None:
        """Create the objects of a collection that an earlier row has not created."""
        await self.api.create(path, [encoded(document) for document in documents[self._made.get(path, 0) :]])
        self._made[path] = max(self._made.get(path, 0), len(documents))


@asynccontextmanager
async def running_machine() -> AsyncGenerator[Machine]:
    """Start etcd and kube-apiserver, and install Koordstream's objects. Both are gone afterwards.

    Raises:
        RuntimeError: Programs are missing.
    """
    reason = missing_programs()
    if reason is not None or not (TOOLS / "kube-scheduler").exists():
        raise RuntimeError(reason or "kube-scheduler not built: `make test-kubernetes` needs Go")
    with server_directory() as directory:
        ports = dict(zip(embedded.PORTS, free_ports(len(embedded.PORTS)), strict=True))
        plane = ControlPlane(embedded.prepare(directory, directory, find_programs(TOOLS, built=TOOLS), ports))
        wanted = [replace(spec, restart=NEVER_RESTART) for spec in embedded.specs(plane.files)]
        try:
            for spec in (one for one in wanted if one.name in (ETCD, API_SERVER)):
                plane.processes[spec.name] = ChildProcess(spec)
                await plane.processes[spec.name].start()
            plane.apply(*namespace_documents(INITIAL_NAMESPACE), *namespace_documents(NAMESPACE))
            plane.apply(*(item for item in reachable(rendered()) if item["kind"] not in WEBHOOKS))
            plane.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=120s")
            async with open_api(plane) as api:
                yield Machine(plane=plane, api=api, directory=directory)
        finally:
            for process in reversed(plane.processes.values()):
                await process.kill()


def cpu_seconds(pids: Mapping[str, int]) -> dict[str, float]:
    """Return name -> user and system time of a process, in seconds."""
    found: dict[str, float] = {}
    for name, pid in pids.items():
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        found[name] = (int(fields[11]) + int(fields[12])) / _TICKS
    return found


def resident_mib(pid: int) -> float:
    """Return the memory of a process in MiB."""
    return _memory_mib(pid, "VmRSS")


def most_resident_mib(pid: int) -> float:
    """Return the most memory that a process has had so far, in MiB."""
    return _memory_mib(pid, "VmHWM")


def _memory_mib(pid: int, name: str) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split(f"{name}:")[1].split()[0]) / 1024
