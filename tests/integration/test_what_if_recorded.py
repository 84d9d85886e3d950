"""A recorded log decided anew: preemption, gangs and quotas, scheduler and manager on a real log.

With the configuration in force every placement, nomination and victim is the recorded one.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

import httpx
import pytest
from koord_manager.compose import assemble as assemble_manager
from koord_manager.settings import ManagerSettings
from koord_scheduler.compose import assemble as assemble_scheduler
from koord_scheduler.configuration import load_configuration
from koord_scheduler.domain.config.effective import EffectiveConfiguration, effective_configuration
from koord_scheduler.settings import SchedulerSettings
from koordcore.bus.factory import Bus, BusSettings, bootstrap_bus, open_bus
from koordcore.bus.setup.streams import StreamSizes
from koordcore.embedded.nats import NatsServer
from koordcore.events import CATALOGUE
from koordcore.events.pod import PodPlaced
from koordcore.protocol import keys
from koordcore.service.leader.lease import SoleLeader
from koordcore.service.lifecycle import Component
from koordcore.service.run import Shell, serve
from koordctl.replay.scheduler_rerun import Comparison, compare
from support.scheduler.configurations import PACKED
from support.until import DEADLINE_SECONDS, until

pytestmark = [pytest.mark.nats]

URGENT, PATIENT = 100000, 10


def node(name: str) -> dict[str, Any]:
    amounts = {"cpu": "8", "memory": "32Gi", "pods": "110"}
    status = {"capacity": amounts, "allocatable": amounts}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": status}


def priority_class(name: str, value: int) -> dict[str, Any]:
    return {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value}


def quota(name: str, least: int, most: int) -> dict[str, Any]:
    spec = {"min": {"cpu": str(least)}, "max": {"cpu": str(most)}}
    kind = {"apiVersion": "scheduling.sigs.k8s.io/v1alpha1", "kind": "ElasticQuota"}
    return {**kind, "metadata": {"name": name, "namespace": "default"}, "spec": spec}


def gang(name: str, least: int) -> dict[str, Any]:
    kind = {"apiVersion": "scheduling.sigs.k8s.io/v1alpha1", "kind": "PodGroup"}
    return {**kind, "metadata": {"name": name, "namespace": "default"}, "spec": {"minMember": least}}


def pod(name: str, cpu: int, priority: str = "patient", labels: dict[str, str] | None = None) -> dict[str, Any]:
    amounts = {"cpu": str(cpu), "memory": "1Gi"}
    container = {"name": "main", "image": "x:1", "resources": {"requests": amounts, "limits": amounts}}
    spec = {"priorityClassName": priority, "containers": [container]}
    own = {"name": name, "namespace": "default", "labels": labels or {}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": own, "spec": spec}


class Recorder:
    """A manager and a scheduler at work on one log."""

    def __init__(self, bus: Bus, client: httpx.AsyncClient) -> None:
        self.bus = bus
        self._client = client

    async def apply(self, *documents: dict[str, Any]) -> None:
        for document in documents:
            answer = await self._client.post("/v1/apply", content=json.dumps(document))
            assert answer.status_code == 200, answer.text

    async def delete(self, name: str) -> None:
        document = {"kind": "Pod", "namespace": "default", "name": name}
        assert (await self._client.post("/v1/delete", content=json.dumps(document))).status_code == 200

    async def events(self) -> list[object]:
        end = (await self.bus.events.head()).last_seq
        return [CATALOGUE.read(stored) async for batch in self.bus.events.history(0, end) for stored in batch]

    async def until_placed(self, *names: str) -> None:
        async def are_placed() -> bool:
            return {event.name for event in await self.events() if isinstance(event, PodPlaced)}.issuperset(names)

        await until(are_placed, every=0.1)

    async def again(self, configuration: EffectiveConfiguration) -> Comparison:
        end = (await self.bus.events.head()).last_seq
        bus, streams = self.bus, (self.bus.events, self.bus.observations, self.bus.explanations)
        return await compare(*streams, bus.snapshots, configuration, 0, end, lambda _: None)


@contextlib.asynccontextmanager
async def recorded(server: NatsServer, story: Callable[[Recorder], Awaitable[None]]) -> AsyncGenerator[Recorder]:
    """The log of a story after its manager and scheduler have ended."""
    settings = BusSettings(urls=(server.url,), cluster="recorded")
    sizes = StreamSizes(**dict.fromkeys(StreamSizes.__dataclass_fields__, 16 * 1024 * 1024))
    await bootstrap_bus(settings, sizes=sizes)
    shells: list[Shell[Any]] = []

    async def compose_manager(shell: Shell[ManagerSettings]) -> None:
        assemble_manager(shell, bus, SoleLeader("manager"))
        await noted(shell)

    async def compose_scheduler(shell: Shell[SchedulerSettings]) -> None:
        assemble_scheduler(shell, bus, SoleLeader("scheduler"))
        await noted(shell)

    async def noted(shell: Shell[Any]) -> None:
        async def started() -> None:
            shells.append(shell)

        shell.service.add(Component(name="started", start=started))

    async with open_bus(settings) as bus:
        words = ["--log-level=error", "--cluster=recorded"]
        manager = serve(ManagerSettings.load(words, {}), compose_manager, handle_signals=False)
        scheduler = serve(SchedulerSettings.load(words, {}), compose_scheduler, handle_signals=False)
        serving = [asyncio.create_task(manager), asyncio.create_task(scheduler)]
        await until(lambda: len(shells) == 2)
        [door] = [shell.http.url for shell in shells if isinstance(shell.settings, ManagerSettings)]
        async with httpx.AsyncClient(base_url=door, trust_env=False, timeout=DEADLINE_SECONDS) as client:
            told = Recorder(bus, client)
            await story(told)
        for shell in shells:
            shell.service.stop("the story has ended")
        assert await asyncio.gather(*serving) == [0, 0]
        yield told


async def live_through(story: Recorder) -> None:
    """Pods that borrow, a gang, pods that displace others, pods that leave: three nodes of 8 cores."""
    await story.apply(priority_class("urgent", URGENT), priority_class("patient", PATIENT))
    await story.apply(
        quota("team-a", 2, 8), quota("team-b", 8, 12), gang("pair", 2), *(node(f"n{i}") for i in range(3))
    )
    await story.apply(*(pod(f"a{number}", 2, labels={keys.QUOTA_NAME: "team-a"}) for number in range(6)))
    await story.apply(*(pod(f"low{number}", 1 + number % 3) for number in range(8)))
    await story.until_placed(*(f"low{number}" for number in range(8)), "a3")
    await story.apply(pod("pair-0", 1, labels={keys.POD_GROUP: "pair"}))
    await story.apply(pod("pair-1", 2, labels={keys.POD_GROUP: "pair"}))
    await story.apply(*(pod(f"urgent{number}", 3 + number, "urgent") for number in range(3)))
    await story.until_placed("urgent0", "urgent1", "urgent2")
    await story.apply(*(pod(f"b{number}", 2, "urgent", labels={keys.QUOTA_NAME: "team-b"}) for number in range(4)))
    await story.until_placed("b0", "b1", "b2", "b3")
    for name in ("urgent0", "urgent1", "urgent2"):
        await story.delete(name)
    await story.until_placed("pair-0", "pair-1")


async def test_log_with_preemption_gangs_and_quotas_is_decided_the_same_by_the_same_configuration(
    nats_server: NatsServer,
) -> None:
    async with recorded(nats_server, live_through) as story:
        same = await story.again(load_configuration(None))
        assert same.recorded == same.decided > 15
        assert (same.elsewhere, same.not_placed, same.newly_placed) == ([], [], [])
        assert same.evicted == same.preempted
        assert len(same.evicted) >= 3
        assert same.nominated == same.nominations
        other = await story.again(effective_configuration(PACKED.encode()))
        assert other.elsewhere
