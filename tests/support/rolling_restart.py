"""A rolling restart of every service of the embedded stack while clients submit pods, and what the log says about it.

Two managers, schedulers and deschedulers, a projector, and agents of simulated nodes. NATS and Postgres keep running.
"""

import asyncio
import contextlib
import json
import math
import os
import subprocess
import sys
import tarfile
import time
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from itertools import count
from pathlib import Path
from typing import Any, Final

import httpx
from koordcore.bus.names import BusNames
from koordcore.bus.setup.manifest import EMBEDDED
from koordcore.bus.setup.moving import users_of_running
from koordcore.bus.setup.principals import seed_file, shares
from koordcore.embedded.nats_config import NatsServerConfig, render
from koordcore.embedded.process import ProcessSpec
from koordcore.embedded.supervisor import Supervisor
from koordcore.events import CATALOGUE
from koordcore.events.pod import PodPlaced
from koordctl.access.log import key_folder, open_log
from koordctl.demo.invariants import Audit, Findings
from koordctl.replay.verify import Verification, verify_now
from koordctl.stack.processes import DESCHEDULER, StackOptions, specs
from support.embedded_stack import url_of, with_standbys, write_nodes
from support.until import until

REPOSITORY: Final = Path(__file__).parents[2]
TWICE: Final = ("manager", "scheduler", DESCHEDULER)
MANAGERS: Final = ("manager", "manager-2")
PER_REQUEST: Final = 20
PATIENCE_SECONDS: Final = 420.0
_RETRY_SECONDS: Final = 0.05
_EARLIER_CONFIGURATION: Final = """
import sys
from pathlib import Path
from koordcore.bus.names import BusNames
from koordcore.bus.setup.principals import nats_users
from koordcore.embedded.nats_config import NatsServerConfig, render
users = nats_users(BusNames(sys.argv[1]), Path(sys.argv[2]))
print(render(NatsServerConfig(directory=Path("/"), port=1, monitor_port=1, users=users)))
"""
_DESCHEDULER_CONFIGURATION: Final = "apiVersion: descheduler/v1alpha2\nkind: DeschedulerConfiguration\n"


def node_manifest(number: int) -> dict[str, Any]:
    """A node with room for all pods that are submitted until the slowest machine has restarted everything."""
    amounts = {"cpu": 640, "memory": "4Ti", "pods": 10_000}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"node-{number}"}, "status": {"capacity": amounts}}


def pod_manifest(number: int) -> dict[str, Any]:
    resources = {"requests": {"cpu": "50m", "memory": "64Mi"}}
    container = {"name": "main", "image": "pause", "resources": resources}
    metadata = {"name": f"pod-{number}"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container]}}


class Code:
    """The source code that services run from their next start on. It can be exchanged while they run.

    Args:
        link: Path of a symbolic link, which is created. It points to the root of a checkout.
    """

    def __init__(self, link: Path) -> None:
        self._link = link

    def use(self, checkout: Path) -> None:
        """Let every later start run the code of a checkout."""
        fresh = self._link.with_name(f"{self._link.name}.new")
        fresh.symlink_to(checkout)
        fresh.replace(self._link)

    def use_present(self) -> None:
        """Let every later start run the code that the tests belong to."""
        self.use(REPOSITORY)

    def run_by(self, spec: ProcessSpec) -> ProcessSpec:
        """Return the process of a service with its code from the link."""
        return replace(spec, env={**spec.env, "PYTHONPATH": self._path})

    @property
    def _path(self) -> str:
        packages = (path.relative_to(REPOSITORY) for path in REPOSITORY.glob("*/*/src"))
        return ":".join(str(self._link / package) for package in sorted(packages))

    def with_first_configuration(self, nats: ProcessSpec, options: StackOptions) -> ProcessSpec:
        """Return the log's server as it runs after the first reload of an upgrade from the code of the link: users keep
        the rights that they had, beside those that they will have.
        """
        assert nats.prepare is not None, "the server has a configuration file"
        prepare = nats.prepare

        async def prepared() -> None:
            await prepare()
            await asyncio.to_thread(self._keep_rights, Path(nats.argv[-1]), options)

        return replace(nats, prepare=prepared)

    def _keep_rights(self, file: Path, options: StackOptions) -> None:
        names, keys, earlier = BusNames(options.cluster), key_folder(options.var), options.var / "earlier.conf"
        words = [sys.executable, "-c", _EARLIER_CONFIGURATION, options.cluster, str(keys)]
        environment = {**os.environ, "PYTHONPATH": self._path}
        earlier.write_bytes(subprocess.run(words, env=environment, capture_output=True, check=True).stdout)
        manifests = [(manifest, seed_file(keys, manifest.name)) for manifest in EMBEDDED]
        users, moves_later = users_of_running(earlier, manifests, names)
        assert moves_later, "the earlier release has no accounts"
        first = NatsServerConfig(directory=options.var, port=1, monitor_port=1, users=users, shares=shares(names))
        document = json.loads(file.read_text()) | {"accounts": json.loads(render(first))["accounts"]}
        file.write_text(json.dumps(document))


def checkout_of(commit: str, folder: Path) -> bool:
    """Write the packages of an earlier commit to a folder. Return False if the repository does not have it."""
    archive = subprocess.run(
        ["git", "-C", str(REPOSITORY), "archive", commit, "libs", "services"],
        capture_output=True,
        check=False,
    )
    if archive.returncode:
        return False
    with tarfile.open(fileobj=BytesIO(archive.stdout)) as files:
        files.extractall(folder, filter="data")
    return True


class Submitters:
    """Clients that submit pods at a rate, whatever is restarted: a request is repeated until the leader took it.

    Attributes:
        due_ns: Name of each pod -> Unix time in ns at which its request was due, also if no manager answered then.
    """

    def __init__(self, managers: Sequence[str]) -> None:
        self._clients = [httpx.AsyncClient(base_url=url, trust_env=False, timeout=10) for url in managers]
        self._leader = 0
        self.due_ns: dict[str, int] = {}

    async def apply(self, documents: Sequence[dict[str, Any]]) -> None:
        """Repeat a request at one manager after the other until every document was taken."""
        content = json.dumps({"kind": "List", "items": [*documents]})
        while True:
            asked = self._leader
            with contextlib.suppress(httpx.HTTPError):
                response = await self._clients[asked].post("/v1/apply", content=content)
                if response.is_success:
                    return
                assert response.status_code == httpx.codes.SERVICE_UNAVAILABLE.value, response.text
            if self._leader == asked:
                self._leader = (asked + 1) % len(self._clients)
            await asyncio.sleep(_RETRY_SECONDS)

    @contextlib.asynccontextmanager
    async def submitting(self, pods_per_second: float) -> AsyncGenerator[None]:
        """Submit pods at a rate inside the block, and wait at its end until every request was taken."""
        stop = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._submit(pods_per_second, stop))
            yield
            stop.set()

    async def _submit(self, pods_per_second: float, stop: asyncio.Event) -> None:
        began, began_ns = time.monotonic(), time.time_ns()
        async with asyncio.TaskGroup() as group:
            for request in count():
                due = request * PER_REQUEST / pods_per_second
                await asyncio.sleep(max(0.0, began + due - time.monotonic()))
                if stop.is_set():
                    return
                numbers = range(request * PER_REQUEST, (request + 1) * PER_REQUEST)
                self.due_ns.update({f"default/pod-{number}": began_ns + int(due * 1e9) for number in numbers})
                group.create_task(self.apply([pod_manifest(number) for number in numbers]))

    async def close(self) -> None:
        for client in self._clients:
            await client.aclose()


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What the log says after a rolling restart.

    Attributes:
        submitted: Number of submitted pods.
        lost: Names of submitted pods that are not in the log, or not placed.
        findings: The invariants of the log.
        waits_seconds: Time from the moment at which its request was due until it was placed, of each pod; ascending.
        verification: Manager, projector and the rebuilt state.
    """

    submitted: int
    lost: tuple[str, ...]
    findings: Findings
    waits_seconds: tuple[float, ...]
    verification: Verification

    def quantile(self, share: float) -> float:
        """Return the wait in seconds that this share of the pods does not exceed."""
        return self.waits_seconds[math.ceil(share * len(self.waits_seconds)) - 1]


@contextlib.asynccontextmanager
async def doubled_stack(
    var: Path, *, nodes: int, simulators: int = 2, code: Code | None = None
) -> AsyncGenerator[tuple[Supervisor, list[ProcessSpec], Submitters]]:
    """Run two instances of the services that elect a leader, the projector, and agents of simulated nodes.

    Args:
        var: Folder of the stack.
        nodes: Number of simulated nodes.
        simulators: Number of agents that share them.
        code: Code of the services; None: the present one.
    """
    manifests = [node_manifest(number) for number in range(nodes)]
    file = write_nodes(var, manifests)
    descheduler = var / "descheduler.yaml"
    descheduler.write_text(_DESCHEDULER_CONFIGURATION)
    options = StackOptions(var=var, simulated=file, simulators=simulators, descheduler=descheduler)
    processes = with_standbys(specs(options), TWICE)
    if code is not None:
        processes = [code.run_by(spec) if "http" in spec.ports else spec for spec in processes]
        processes[0] = code.with_first_configuration(processes[0], options)
    async with Supervisor(processes, state_file=var / "run" / "stack.json") as supervisor:
        clients = Submitters([url_of(processes, name) for name in MANAGERS])
        try:
            await clients.apply(manifests)
            yield supervisor, processes, clients
        finally:
            await clients.close()


def services_of(processes: Sequence[ProcessSpec]) -> list[str]:
    """Return the names of the processes that a rolling restart restarts, in their order: all but the servers."""
    return sorted(spec.name for spec in processes if "http" in spec.ports)


async def outcome_of(var: Path, processes: Sequence[ProcessSpec], clients: Submitters) -> Outcome:
    """Wait until every submitted pod is placed, or the time is up, and judge the log."""
    audit = Audit()
    placed_ns: dict[str, int] = {}
    position = 0

    async def all_placed() -> bool:
        nonlocal position
        async with open_log(var) as log:
            head = await log.bus.events.head()
            async for batch in log.bus.events.history(position, head.last_seq):
                for stored in batch:
                    event = CATALOGUE.read(stored)
                    assert event is not None
                    audit.see(stored, event)
                    position = stored.seq
                    if isinstance(event, PodPlaced):
                        placed_ns.setdefault(audit.name_of(stored.ref.id), stored.stored_at_ns)
        return clients.due_ns.keys() <= placed_ns.keys()

    with contextlib.suppress(AssertionError):
        await until(all_placed, "every submitted pod is placed", seconds=PATIENCE_SECONDS, every=0.2)
    async with open_log(var) as log:
        verification = await verify_now(log.bus, manager=url_of(processes, "manager"), seconds=PATIENCE_SECONDS)
    waits = ((placed_ns[name] - due) / 1e9 for name, due in clients.due_ns.items() if name in placed_ns)
    return Outcome(
        submitted=len(clients.due_ns),
        lost=tuple(sorted(clients.due_ns.keys() - placed_ns.keys())),
        findings=audit.findings(()),
        waits_seconds=tuple(sorted(waits)),
        verification=verification,
    )
