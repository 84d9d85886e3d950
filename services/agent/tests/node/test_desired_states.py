"""What an agent does with pushed facts that a newer manager has written."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import Any

import msgspec
from koord_agent.shell.bus.bus_link import BusLink, Ports
from koord_agent.shell.bus.desired_state import DesiredStates
from koordcore.bus.client.connection import NoAnswer
from koordcore.events.envelope import AggregateRef, Draft
from koordcore.events.nodepolicy import NodeMetricPolicyRendered
from koordcore.ports.desired import DesiredNode, Push
from koordcore.service.telemetry.logging import logger
from structlog.testing import capture_logs
from support.histories.recording import stored
from support.until import until

MANY = 5


class Bus:
    """A bucket that is behind the pushes, and a subscription that delivers what the test puts into it."""

    def __init__(self) -> None:
        self.bucket = DesiredNode(node="n", as_of={"nodepolicy": 1})
        self.items: asyncio.Queue[Push | NoAnswer | None] = asyncio.Queue()
        self.is_away = False
        self.asked = 0

    async def last_of(self, _: AggregateRef) -> None:
        return None

    async def get(self, _: str) -> DesiredNode:
        self.asked += 1
        if self.is_away:
            raise NoAnswer("the connection was closed")
        return self.bucket

    async def pushes(self, _: Sequence[str]) -> AsyncIterator[Push | None]:
        while True:
            item = await self.items.get()
            if isinstance(item, NoAnswer):
                raise item
            yield item


def ports_of(bus: Bus) -> Ports:
    port: Any = bus
    return Ports(facts=port, reports=port, desired=port, pushes=port)


def policy(seq: int, last: int, seconds: int, *, is_newer: bool = False) -> Push:
    event = NodeMetricPolicyRendered(spec={"reportIntervalSeconds": seconds})
    fact = stored(seq, Draft(AggregateRef("nodepolicy", "n"), event, last))
    headers = {**fact.headers, "Koord-Schema": "99"} if is_newer else fact.headers
    return Push(msgspec.structs.replace(fact, headers=headers), last)


@contextlib.asynccontextmanager
async def running(states: DesiredStates) -> AsyncGenerator[None]:
    """Keep the states up to date during the block. They must not have ended by themselves before its end."""
    task = asyncio.create_task(states.run())
    try:
        yield
        assert not task.done()
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def test_pushes_that_end_are_subscribed_again_over_the_newest_connection() -> None:
    first, second = Bus(), Bus()
    link = BusLink(ports_of(first))
    states = DesiredStates(("n",), link, logger=logger("t"), jitter=lambda: 0.01, changed=lambda _: None)
    async with running(states):
        first.items.put_nowait(NoAnswer("the pushes were not subscribed: nats: flush timeout"))
        first.items.put_nowait(None)
        await until(lambda: states.views)
        second.bucket = DesiredNode(node="n", metric_policy={"reportIntervalSeconds": 50}, as_of={"nodepolicy": 2})
        link.connect(ports_of(second))
        first.items.put_nowait(NoAnswer("the connection was closed"))
        second.items.put_nowait(None)
        await until(lambda: states.views["n"].collect.report_interval_seconds == 50)


async def test_an_outage_is_told_once_and_its_end_makes_the_next_one_news() -> None:
    bus = Bus()
    states = DesiredStates(
        ("n",), BusLink(ports_of(bus)), logger=logger("t"), jitter=lambda: 0.01, changed=lambda _: None
    )
    with capture_logs() as lines:

        def told(event: str) -> int:
            return [line["event"] for line in lines].count(event)

        async with running(states):
            for outage in (1, 2):
                bus.is_away = True
                asked = bus.asked
                for _ in range(3):
                    bus.items.put_nowait(NoAnswer("the connection was closed"))
                bus.items.put_nowait(None)
                await until(lambda asked=asked: bus.asked >= asked + MANY and not bus.items.qsize())
                assert (told("pushes_interrupted"), told("desired_not_read")) == (outage, outage)
                bus.is_away = False
                asked = bus.asked
                bus.items.put_nowait(None)
                await until(lambda asked=asked: bus.asked > asked and not bus.items.qsize())


async def test_a_waiting_push_that_cannot_be_read_does_not_end_the_agent() -> None:
    bus = Bus()
    states = DesiredStates(
        ("n",), BusLink(ports_of(bus)), logger=logger("t"), jitter=lambda: 0.1, changed=lambda _: None
    )
    async with running(states):
        bus.items.put_nowait(None)
        await until(lambda: states.views)
        bus.items.put_nowait(policy(6, 5, 40))  # one before it was missed, so both wait until the bucket is read
        bus.items.put_nowait(policy(7, 6, 50, is_newer=True))
        bus.bucket = DesiredNode(node="n", as_of={"nodepolicy": 5})
        await until(lambda: states.views["n"].collect.report_interval_seconds == 40)
        bus.bucket = DesiredNode(node="n", metric_policy={"reportIntervalSeconds": 50}, as_of={"nodepolicy": 7})
        bus.items.put_nowait(None)
        await until(lambda: states.views["n"].collect.report_interval_seconds == 50)
