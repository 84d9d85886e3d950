"""A fact that the log never accepts is told by a small one in its place, and holds up no other fact."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from koord_agent.shell.bus.bus_link import BusLink, Ports
from koord_agent.shell.bus.fact_publisher import Fact, Outbox
from koord_agent.shell.store.local_store import LocalStore
from koordcore.bus.adapters.memory import MemoryLog
from koordcore.bus.factory import memory_bus
from koordcore.events import CATALOGUE
from koordcore.events.envelope import AggregateRef, Event, Origin
from koordcore.events.nodestate import AgentFactLeftOut, AgentStarted, PodsStarted
from koordcore.service.telemetry.logging import logger
from koordcore.values import codec
from structlog.testing import capture_logs
from support.until import until

ORIGIN = Origin(causation_id="c", correlation_id="c", actor="test", occurred_at="2026-01-01T00:00:00.000000Z")
LIMIT = 2048
LARGE = PodsStarted(pods=[f"pod-{number}" for number in range(1000)])


def outbox_of(store: LocalStore, log: MemoryLog) -> Outbox:
    bus = memory_bus(log=log)
    ports = Ports(facts=bus.events, reports=bus.observations, desired=bus.desired, pushes=bus.pushes)
    return Outbox(store, BusLink(ports), limit=100, logger=logger("test"))


@asynccontextmanager
async def sending(outbox: Outbox) -> AsyncGenerator[None]:
    task = asyncio.create_task(outbox.run())
    yield
    task.cancel()


def stored(log: MemoryLog, node: str) -> Sequence[Event | None]:
    return [CATALOGUE.read(event) for event in log.of(AggregateRef("nodestate", node), 0)]


async def test_a_fact_that_is_too_large_is_told_in_its_place_and_holds_up_no_other(tmp_path: Path) -> None:
    log, store = MemoryLog(max_payload=LIMIT), LocalStore(tmp_path)
    outbox = outbox_of(store, log)
    started = {"a": PodsStarted(pods=["p"]), "b": LARGE, "c": PodsStarted(pods=["q"])}
    after = AgentStarted(host="linux", version="1")
    with capture_logs() as lines:
        outbox.put([*(Fact(node, event, ORIGIN) for node, event in started.items()), Fact("b", after, ORIGIN)])
        async with sending(outbox):
            await until(lambda: outbox.sent == 4)

    size = len(codec.encode(LARGE))
    told, next_one = stored(log, "b")
    assert isinstance(told, AgentFactLeftOut)
    assert (told.type, told.size_bytes) == ("PodsStarted", size)
    assert f"the log takes {LIMIT - 256:,}" in told.reason
    assert next_one == after
    assert [stored(log, node) for node in "ac"] == [[started["a"]], [started["c"]]]
    assert (len(outbox), outbox.left_out, store.facts()) == (0, 1, [])
    assert [(line["node"], line["type"], line["bytes"]) for line in lines if line["event"] == "fact_left_out"] == [
        ("b", "PodsStarted", size)
    ]
    store.close()


async def test_a_fact_for_which_even_the_short_one_is_too_large_is_dropped() -> None:
    log = MemoryLog(max_payload=300)  # leaves 44 bytes, fewer than any event needs
    outbox = outbox_of(LocalStore(None), log)
    outbox.put([Fact("b", LARGE, ORIGIN), Fact("b", PodsStarted(pods=["p"]), ORIGIN)])
    async with sending(outbox):
        await until(lambda: len(outbox) == 0)
    assert (outbox.sent, log.last_seq) == (0, 0)
