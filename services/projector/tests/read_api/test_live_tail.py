"""The live tail of the events over HTTP."""

import asyncio
import json

import httpx
import pytest
from koord_projector.read import events as live
from koordcore.bus.adapters.memory import MemoryLog
from koordcore.bus.factory import memory_bus
from support.projector.service import serving
from support.projector.synthetic_cluster import small
from support.until import DEADLINE_SECONDS

pytestmark = [pytest.mark.postgres, pytest.mark.xdist_group("read-api")]


async def test_the_live_tail_sends_what_is_committed_and_ends_with_the_service(postgres_dsn: str) -> None:
    events, log = small(), MemoryLog()
    async with (
        serving(postgres_dsn, memory_bus(log=log)) as url,
        httpx.AsyncClient(base_url=url, timeout=DEADLINE_SECONDS) as client,
        client.stream("GET", "/api/events/stream") as response,
    ):
        lines = response.aiter_lines()
        assert await anext(lines) == "retry: 2000"
        for event in events[:3]:
            log.store(event.ref, dict(event.headers), event.body)
        seen: list[int] = []
        async with asyncio.timeout(DEADLINE_SECONDS):
            while len(seen) < 3:
                line = await anext(lines)
                if line.startswith("data: "):
                    seen += [event["seq"] for event in json.loads(line.removeprefix("data: "))]
        assert seen == [1, 2, 3]
        for event in events[3:]:
            log.store(event.ref, dict(event.headers), event.body)
        skipped = 0
        async with asyncio.timeout(DEADLINE_SECONDS):
            while not seen or seen[-1] < len(events):
                line = await anext(lines)
                if line.startswith("data: ["):
                    seen += [event["seq"] for event in json.loads(line.removeprefix("data: "))]
                elif line.startswith("data: "):
                    skipped += json.loads(line.removeprefix("data: "))["skipped"]
        assert seen == sorted(seen)
        assert len(seen) + skipped == len(events)


async def test_a_live_tail_behind_the_end_of_a_replaced_log_goes_on_at_its_newest_fact(
    postgres_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "QUIET_SECONDS", 0.1)
    events, log = small(), MemoryLog()
    for event in events[:3]:
        log.store(event.ref, dict(event.headers), event.body)
    async with (
        serving(postgres_dsn, memory_bus(log=log)) as url,
        httpx.AsyncClient(base_url=url, timeout=DEADLINE_SECONDS) as client,
        client.stream("GET", "/api/events/stream", headers={"last-event-id": "1000000"}) as response,
    ):
        lines = response.aiter_lines()
        while await anext(lines) != ": still here":
            pass
        log.store(events[3].ref, dict(events[3].headers), events[3].body)
        async with asyncio.timeout(DEADLINE_SECONDS):
            while not (line := await anext(lines)).startswith("data: "):
                pass
        assert [event["seq"] for event in json.loads(line.removeprefix("data: "))] == [4]
