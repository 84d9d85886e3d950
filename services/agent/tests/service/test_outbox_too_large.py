"""A fact that the log would not take holds up no other node of the process."""

import asyncio

from koord_agent.shell.bus.bus_link import BusLink, Ports
from koord_agent.shell.bus.outbox import Fact, Outbox
from koord_agent.shell.store.local_store import LocalStore
from koordcore.bus.adapters.memory import MemoryLog
from koordcore.bus.factory import memory_bus
from koordcore.events.agents.nodestate import PodsStarted
from koordcore.events.envelope import Origin
from koordcore.service.telemetry.logging import logger
from structlog.testing import capture_logs
from support.until import until

ORIGIN = Origin(causation_id="c", correlation_id="c", actor="test", occurred_at="2026-01-01T00:00:00.000000Z")


async def test_facts_of_other_nodes_are_sent() -> None:
    log = MemoryLog(max_payload=2048)
    bus = memory_bus(log=log)
    ports = Ports(facts=bus.events, reports=bus.observations, desired=bus.desired, pushes=bus.pushes)
    outbox = Outbox(LocalStore(None), BusLink(ports), limit=100, logger=logger("test"))
    pods = {"a": ["p"], "b": [f"pod-{number}" for number in range(1000)], "c": ["q"]}
    with capture_logs() as lines:
        outbox.put([Fact(node, PodsStarted(pods=uids), ORIGIN) for node, uids in pods.items()])
        sending = asyncio.create_task(outbox.run())
        await until(lambda: outbox.sent == 2)
        sending.cancel()

    assert [event.ref.id for event in log.between(0, 2, None, 2)] == ["a", "c"]
    assert len(outbox) == 1
    assert [line["node"] for line in lines if line["event"] == "fact_not_sent"] == ["b"]
