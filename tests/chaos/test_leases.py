"""A lease outlives work that blocks the event loop, and does not outlive a process that stands still."""

import contextlib
import json
import os
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, Final, NamedTuple

import httpx
import pytest
from koordcore.embedded.supervisor import Supervisor
from koordcore.events.envelope import HEADER_ACTOR, StoredEvent
from koordcore.events.pod import PodPlaced
from koordcore.service.failpoints import VARIABLE
from koordctl.access.log import open_log
from koordctl.stack.processes import StackOptions, specs
from support.embedded_stack import url_of, var_folder, with_standbys
from support.until import until

pytestmark = [pytest.mark.deep, pytest.mark.slow, pytest.mark.nats]

LEASE: Final = (
    "--leader-elect-lease-duration=3s",
    "--leader-elect-renew-deadline=2s",
    "--leader-elect-retry-period=300ms",
)
BLOCKED_SECONDS: Final = 15


class Pair(NamedTuple):
    """Two instances of one service, of which one leads."""

    first: httpx.AsyncClient
    second: httpx.AsyncClient
    supervisor: Supervisor
    var: Any
    manager: str  # URL of a manager

    def pid(self, name: str) -> int:
        process = next(each.process for each in self.supervisor.status().processes if each.name == name)
        assert process is not None
        return process.pid

    def led(self, name: str) -> int:
        """How often an instance of the scheduler has begun to lead."""
        log = self.var / "log" / f"{name}.log"
        return sum(" leading " in line or '"leading"' in line for line in log.read_text().splitlines())

    async def stored(self) -> list[StoredEvent]:
        async with open_log(StackOptions(var=self.var).var) as log:
            head = (await log.bus.events.head()).last_seq
            return [stored async for batch in log.bus.events.history(0, head) for stored in batch]

    async def facts(self) -> list[tuple[int, str]]:
        """Position and actor of each fact."""
        return [(stored.seq, stored.headers.get(HEADER_ACTOR, "")) for stored in await self.stored()]


@asynccontextmanager
async def pair(service: str, failpoint: str = "") -> AsyncGenerator[Pair]:
    """Two instances of a service. The failpoint is in the first one."""
    async with contextlib.AsyncExitStack() as closing:
        var = closing.enter_context(var_folder())
        options = StackOptions(var=var, flags={service: LEASE})
        names = ("nats", "manager", service)
        processes = with_standbys([each for each in specs(options) if each.name in names], [service])
        if failpoint:
            processes = [
                replace(each, env={**each.env, VARIABLE: failpoint}) if each.name == service else each
                for each in processes
            ]
        supervisor = await closing.enter_async_context(Supervisor(processes, state_file=var / "run" / "stack.json"))
        first, second = [
            await closing.enter_async_context(
                httpx.AsyncClient(base_url=url_of(processes, name), trust_env=False, timeout=120)
            )
            for name in (service, f"{service}-2")
        ]
        yield Pair(first, second, supervisor, var, url_of(processes, "manager"))


async def leads(client: httpx.AsyncClient) -> bool:
    return bool((await client.get("/v1/leader")).json()["leads"])


async def create(client: httpx.AsyncClient, name: str) -> httpx.Response:
    document = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    return await client.post("/v1/apply", content=json.dumps(document))


async def test_work_that_blocks_the_event_loop_for_many_lease_durations_keeps_the_lease() -> None:
    async with pair("manager", f"documents_decided_before_append:1:{BLOCKED_SECONDS}") as two:
        leader = two.first if await leads(two.first) else two.second
        if leader is two.second:
            os.kill(two.pid("manager-2"), signal.SIGTERM)
        await until(lambda: leads(two.first))
        assert (await create(two.first, "during-the-block")).status_code == 200
        assert await leads(two.first)
        log = (two.var / "log" / "manager.log").read_text()
        assert "leadership_lost" not in log


async def test_a_leader_that_stands_still_is_followed_and_writes_nothing_afterwards() -> None:
    async with pair("manager") as two:
        is_first = await leads(two.first)
        old, new = (two.first, two.second) if is_first else (two.second, two.first)
        name = "manager" if is_first else "manager-2"
        assert (await create(old, "before")).status_code == 200
        os.kill(two.pid(name), signal.SIGSTOP)
        try:
            await until(lambda: leads(new))
            assert (await create(new, "meanwhile")).status_code == 200
            position = (await two.facts())[-1][0]
        finally:
            os.kill(two.pid(name), signal.SIGCONT)
        assert (await create(old, "afterwards")).status_code == 503
        assert (await create(new, "at-the-end")).status_code == 200
        actors = {actor for seq, actor in await two.facts() if seq > position}
        assert not any(actor == f"manager/{name}" for actor in actors), actors


async def apply(manager: str, *documents: dict[str, Any]) -> None:
    async with httpx.AsyncClient(base_url=manager, trust_env=False, timeout=120) as client:
        for document in documents:
            assert (await client.post("/v1/apply", content=json.dumps(document))).status_code == 200


def node(name: str) -> dict[str, Any]:
    room = {"cpu": "8", "memory": "16Gi", "pods": "20"}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": {"allocatable": room}}


def pod(name: str) -> dict[str, Any]:
    container = {"name": "main", "image": "image", "resources": {"requests": {"cpu": "1"}}}
    spec = {"schedulerName": "koord-scheduler", "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}, "spec": spec}


async def test_a_scheduler_that_stands_still_with_a_decision_in_hand_places_no_pod_a_second_time() -> None:
    """It is stopped between the decision and its append. The other instance leads and places the pod, and then it goes
    on, without an API server that would refuse a second binding.
    """
    async with pair("scheduler", f"before_append:1:{BLOCKED_SECONDS}") as two:
        await until(lambda: two.led("scheduler") or two.led("scheduler-2"), "a scheduler leads")
        if not two.led("scheduler"):
            os.kill(two.pid("scheduler-2"), signal.SIGTERM)
        await until(lambda: two.led("scheduler"), "the first scheduler leads")
        terms = two.led("scheduler-2")
        pods = [f"p{number}" for number in range(5)]
        await apply(two.manager, node("n1"), node("n2"), *map(pod, pods))

        async def is_placed() -> bool:
            return len(await placements()) >= len(pods)

        async def placements() -> list[StoredEvent]:
            return [stored for stored in await two.stored() if stored.type == PodPlaced.__name__]

        async def is_stuck() -> bool:
            try:
                await two.first.get("/healthz", timeout=3)
            except httpx.TimeoutException:
                return True
            return False

        await until(is_stuck, "the first scheduler has decided")
        assert await placements() == []
        os.kill(two.pid("scheduler"), signal.SIGSTOP)
        try:
            await until(lambda: two.led("scheduler-2") > terms, "the second scheduler leads")
            await until(is_placed, "it places the pods")
            position = (await two.stored())[-1].seq
        finally:
            os.kill(two.pid("scheduler"), signal.SIGCONT)
        await apply(two.manager, pod("later"))

        async def is_later_placed() -> bool:
            return len(await placements()) > len(pods)

        await until(is_later_placed, "the later pod is placed")
        found = await placements()
        assert len({str(stored.ref) for stored in found}) == len(found) == len(pods) + 1
        late = [stored for stored in await two.stored() if stored.seq > position]
        assert not [each for each in late if each.headers.get(HEADER_ACTOR) == "scheduler/scheduler"]
