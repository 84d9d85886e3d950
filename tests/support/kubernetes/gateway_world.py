"""A manager's gateway over a log and the emulated API server, with a scheduler's hand to place pods; for tests.

async with gateway_world() as world:
    await world.server.apply(pod("a"))
    uid = await world.mirrored("a")
    await world.place(uid, "node-1")
    await world.until(lambda: world.node_of("a") == "node-1")
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from koord_manager.domain.cluster.view import ManagerView
from koord_manager.domain.gateway.resources import mirrored_resources
from koord_manager.shell.gateway.api import KubernetesApi, connect_api
from koord_manager.shell.gateway.outbox import Writes
from koord_manager.shell.gateway.running import Gateway, GatewayContext, GatewaySettings
from koordcore.bus.adapters.memory import MemoryLog
from koordcore.bus.factory import Bus, memory_bus
from koordcore.bus.folds.foldable import Folded, FoldSource
from koordcore.bus.folds.runner import FoldRunner
from koordcore.events import CATALOGUE
from koordcore.events.envelope import AggregateRef, BasedOn, Draft, Event, Origin, StoredEvent, name_token
from koordcore.events.node_ledger import NodeResourcesTaken, pod_on_node
from koordcore.events.pod import PlacementExplanation, PodPlaced
from koordcore.ports.clock import Clock
from koordcore.ports.eventlog import Appended
from koordcore.ports.leadership import Leadership, OnAcquired, OnLost, Term
from koordcore.protocol.crd.catalogue import definition_texts
from koordcore.protocol.pod_resources import pod_requests
from koordcore.service.clock import SystemClock
from koordcore.service.leader.lease import SoleLeader
from koordcore.service.telemetry.logging import logger
from koordcore.service.telemetry.tracing import make_tracer
from koordcore.state import ClusterState
from koordcore.state.aggregates import PodSpecState, PodState
from koordcore.values.allocation import NOTHING, Allocation
from koordcore.values.timestamps import rfc3339
from support.kubernetes.apiserver import ApiServer, running_api_server
from support.until import until
from yaml import safe_load

Json = dict[str, Any]


def pod(name: str, *, cpu: str = "1", namespace: str = "default", **spec: Any) -> Json:
    """A pod that asks for cpu."""
    container = {"name": "main", "image": "pause", "resources": {"requests": {"cpu": cpu, "memory": "1Gi"}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"schedulerName": "koord-scheduler", "containers": [container], **spec},
    }


def node(name: str, *, cpu: int = 16) -> Json:
    """A node as its kubelet registers it."""
    amounts = {"cpu": str(cpu), "memory": f"{cpu * 4}Gi", "pods": "110"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "status": {"capacity": amounts, "allocatable": dict(amounts)},
    }


class ManagerFold:
    """The manager's fold as its runner wants it."""

    def __init__(self) -> None:
        self.view = ManagerView()

    def apply(self, stored: StoredEvent) -> Event | None:
        """See `Foldable.apply`."""
        return self.view.fold(stored)

    def skip(self, seq: int) -> None:
        """See `Foldable.skip`."""
        self.view.state.skip(seq)

    def snapshot(self) -> Iterator[bytes]:
        """See `Foldable.snapshot`."""
        return self.view.state.snapshot()

    def fresh(self) -> "ManagerFold":
        """Empty."""
        self.view.load(ClusterState())
        return self

    def restore(self, data: bytes) -> "ManagerFold":
        """From a snapshot."""
        self.view.load(ClusterState.restore(data))
        return self


@dataclass(slots=True)
class Instance:
    """One manager: its fold and its gateway, running."""

    gateway: Gateway
    view: ManagerView
    api: KubernetesApi
    tasks: list["asyncio.Task[None]"]

    async def stop(self) -> None:
        """As if the process were killed: nothing is finished."""
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        await self.api.close()


class Interrupted:
    """A leader whose term ends and begins again, as when its lease could not be renewed for a while.

    Attributes:
        is_awaited: Whether the gateway waits for its next term, after everything of the last one has ended.
    """

    def __init__(self) -> None:
        self.term: Term | None = Term("test", 1, 0.0)
        self.holder: str | None = "test"
        self.is_awaited = False

    def subscribe(self, *, acquired: OnAcquired | None = None, lost: OnLost | None = None) -> None: ...
    async def acquired(self) -> Term:
        self.is_awaited = True
        try:
            return await until(lambda: self.term)
        finally:
            self.is_awaited = False

    async def lost(self, term: Term) -> str:
        await asyncio.Event().wait()  # nobody has told it yet
        return ""

    async def campaign(self) -> None: ...
    def withdraw(self, reason: str) -> None: ...
    def stand(self) -> None: ...
    async def resign(self) -> None: ...


class World:
    """The server, the log, and one manager at a time.

    Attributes:
        pages_of_imports: Number of pages of first imports whose facts were stored.
    """

    def __init__(
        self, server: ApiServer, bus: Bus, directory: Path, settings: GatewaySettings, clock: Clock | None = None
    ) -> None:
        self.server = server
        self.bus = bus
        self.settings = settings
        self._clock = clock or SystemClock()
        self._directory = directory
        self._instance: Instance | None = None
        self.pages_of_imports = 0

    @property
    def view(self) -> ManagerView:
        """The manager's fold."""
        assert self._instance is not None
        return self._instance.view

    @property
    def gateway(self) -> Gateway:
        """The running gateway."""
        assert self._instance is not None
        return self._instance.gateway

    def _import_grew(self) -> None:
        self.pages_of_imports += 1

    async def begin(self, *, leadership: Leadership | None = None, token: str = "admin-token") -> Instance:
        """Starts a manager."""
        fold = ManagerFold()
        gateways: list[Gateway] = []

        async def news(_fold: ManagerFold, events: list[Folded]) -> None:
            for gateway in gateways:
                await gateway.news(events)

        source = FoldSource(fold.fresh, fold.restore, "test")
        runner = FoldRunner("manager", self.bus.events, source, SystemClock(), on_batch=news)
        kubeconfig = self.server.kubeconfig(self._directory / "kubeconfig", token=token)
        api = await connect_api(kubeconfig, qps=0, burst=1)
        gateway = Gateway(
            GatewayContext(
                api=api,
                view=fold.view,
                log=self.bus.events,
                observations=self.bus.observations,
                explanations=self.bus.explanations,
                leadership=leadership or SoleLeader("test"),
                clock=self._clock,
                tracer=make_tracer(
                    "test", instance="test", cluster="test", otlp_endpoint=None, trace_file=None, sample_ratio=0.0
                ),
                logger=logger("test"),
                actor="manager/test",
                instance="test",
                folded=runner.reached,
                import_grew=self._import_grew,
            ),
            self.settings,
        )
        gateways.append(gateway)
        tasks = [asyncio.create_task(runner.run()), asyncio.create_task(gateway.run())]
        self._instance = Instance(gateway, fold.view, api, tasks)
        return self._instance

    async def stop(self) -> None:
        """Kills the manager."""
        if self._instance is not None:
            await self._instance.stop()

    async def until(self, holds: Callable[[], object]) -> None:
        """Wait until something holds; fail at the deadline, or as soon as a task of the manager has failed."""
        await until(holds, check=self._require_running)

    def _require_running(self) -> None:
        assert self._instance is not None
        for task in self._instance.tasks:
            if task.done():
                task.result()

    async def drop_watches(self, plural: str) -> None:
        """Ends every open watch; one of a resource must be open, for it is what the test is about."""
        await self.until(lambda: self.server.watching[plural])
        self.server.faults.drop_watches()

    def uid(self, name: str, namespace: str = "default") -> str:
        """Uid of a pod at the API server."""
        found = self.server.object("pods", namespace, name)
        assert found is not None, f"there is no pod {name}"
        return str(found["metadata"]["uid"])

    def spec(self, uid: str) -> PodSpecState | None:
        """The mirrored pod."""
        return self.view.state.of_kind(PodSpecState).get(uid)

    async def mirrored(self, name: str, namespace: str = "default") -> str:
        """Waits until a pod is in the log; returns its uid."""
        uid = self.uid(name, namespace)
        await self.until(lambda: self.spec(uid) is not None)
        return uid

    def node_of(self, name: str, namespace: str = "default") -> str:
        """The node that the API server has a pod on; "" none."""
        found = self.server.object("pods", namespace, name)
        return str(found["spec"].get("nodeName", "")) if found is not None else ""

    async def append(self, ref: AggregateRef, event: Event) -> int:
        """One fact, as another service writes it; returns its sequence once it is folded."""
        while True:
            last = await self.bus.events.last_of(ref)
            draft = Draft(ref, event, last.seq if last is not None else 0)
            origin = Origin(
                causation_id=f"test/{ref}/{draft.expected_last}",
                correlation_id=ref.id,
                actor="scheduler/test",
                occurred_at=rfc3339(SystemClock().now()),
            )
            outcome = await self.bus.events.append(CATALOGUE.seal([draft], origin))
            if isinstance(outcome, Appended):
                stored = outcome.last_seq
                await self.until(lambda stored=stored: self.view.state.position >= stored)
                return stored

    async def place(
        self,
        uid: str,
        node_name: str,
        allocation: Allocation = NOTHING,
        annotations: dict[str, str] | None = None,
    ) -> int:
        """Places a pod, as a scheduler does; with the annotations of its plugins."""
        spec = self.spec(uid)
        assert spec is not None
        found = spec.object
        taken = NodeResourcesTaken(pods=[pod_on_node(uid, found, allocation)])
        await self.append(AggregateRef("node", name_token(node_name)), taken)
        placed = PodPlaced(
            namespace=found.metadata.namespace,
            name=found.metadata.name,
            node=node_name,
            requests=pod_requests(found),
            attempt=1,
            queued_at=spec.added_at,
            allocation=allocation,
            annotations=annotations or {},
            explanation=PlacementExplanation(
                nodes_considered=1, nodes_feasible=1, policy_version="test", based_on=BasedOn()
            ),
        )
        return await self.append(AggregateRef("pod", uid), placed)

    def placed(self, uid: str) -> PodState | None:
        """The scheduler's word on a pod."""
        return self.view.state.of_kind(PodState).get(uid)


def gateway_settings(**changed: Any) -> GatewaySettings:
    """Settings for tests: short waits, no sweep."""
    resources = mirrored_resources(
        slo_config=("koordinator-system", "slo-controller-config"),
        take_node_metrics=bool(changed.pop("take_node_metrics", False)),
    )
    defaults: Json = {"resources": resources, "sweep_seconds": 0.0, "idle_seconds": 5.0, "writes": Writes()}
    return GatewaySettings(**{**defaults, **changed})


@contextlib.asynccontextmanager
async def gateway_world(
    directory: Path,
    *,
    server: ApiServer | None = None,
    settings: GatewaySettings | None = None,
    begin: bool = True,
    clock: Clock | None = None,
) -> AsyncGenerator[World]:
    """A world with a log in memory; the manager runs unless `begin` is False, by the system's clock unless told."""
    async with running_api_server(server) as api:
        bus = memory_bus(log=MemoryLog())
        world = World(api, bus, directory, settings or gateway_settings(), clock)
        if begin:
            await world.begin()
        try:
            yield world
        finally:
            await world.stop()


async def facts_of(world: World, uid: str) -> list[str]:
    """Types of the events of `podspec.<uid>`, in order."""
    return [item.type for item in await world.bus.events.read_aggregate(AggregateRef("podspec", uid))]


def words(world: World, reason: str) -> list[Json]:
    """Kubernetes events with this reason."""
    return [event for event in world.server.objects("events", "") if event["reason"] == reason]


async def install_crds(server: ApiServer) -> None:
    """The definitions of all custom resources."""
    for text in definition_texts().values():
        await server.apply(safe_load(text))
