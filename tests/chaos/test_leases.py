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
from koordcore.events.envelope import HEADER_ACTOR
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


class Managers(NamedTuple):
    first: httpx.AsyncClient
    second: httpx.AsyncClient
    supervisor: Supervisor
    var: Any

    def pid(self, name: str) -> int:
        process = next(each.process for each in self.supervisor.status().processes if each.name == name)
        assert process is not None
        return process.pid

    async def facts(self) -> list[tuple[int, str]]:
        """Position and actor of each fact."""
        async with open_log(StackOptions(var=self.var).var) as log:
            head = (await log.bus.events.head()).last_seq
            found: list[tuple[int, str]] = []
            async for batch in log.bus.events.follow(0):
                found += [(stored.seq, stored.headers.get(HEADER_ACTOR, "")) for stored in batch]
                if found[-1][0] >= head:
                    return found
        return []


@asynccontextmanager
async def managers(failpoint: str = "") -> AsyncGenerator[Managers]:
    """Two managers, of which the first one leads."""
    async with contextlib.AsyncExitStack() as closing:
        var = closing.enter_context(var_folder())
        options = StackOptions(var=var, flags={"manager": LEASE})
        processes = with_standbys([each for each in specs(options) if each.name in ("nats", "manager")], ["manager"])
        if failpoint:
            processes = [
                replace(each, env={**each.env, VARIABLE: failpoint}) if each.name == "manager" else each
                for each in processes
            ]
        supervisor = await closing.enter_async_context(Supervisor(processes, state_file=var / "run" / "stack.json"))
        first, second = [
            await closing.enter_async_context(
                httpx.AsyncClient(base_url=url_of(processes, name), trust_env=False, timeout=120)
            )
            for name in ("manager", "manager-2")
        ]
        yield Managers(first, second, supervisor, var)


async def leads(client: httpx.AsyncClient) -> bool:
    return bool((await client.get("/v1/leader")).json()["leads"])


async def create(client: httpx.AsyncClient, name: str) -> httpx.Response:
    document = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    return await client.post("/v1/apply", content=json.dumps(document))


async def test_work_that_blocks_the_event_loop_for_many_lease_durations_keeps_the_lease() -> None:
    async with managers(f"documents_decided_before_append:1:{BLOCKED_SECONDS}") as two:
        leader = two.first if await leads(two.first) else two.second
        if leader is two.second:
            os.kill(two.pid("manager-2"), signal.SIGTERM)
        await until(lambda: leads(two.first))
        assert (await create(two.first, "during-the-block")).status_code == 200
        assert await leads(two.first)
        log = (two.var / "log" / "manager.log").read_text()
        assert "leadership_lost" not in log


async def test_a_leader_that_stands_still_is_followed_and_writes_nothing_afterwards() -> None:
    async with managers() as two:
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
