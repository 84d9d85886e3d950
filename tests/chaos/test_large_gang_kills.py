"""A gang of 2,000 members on 2,000 nodes, through a real log: placed all or none, whatever dies at which step.

Each of two scheduler processes may lead. One is killed at a step of the placement, the other one takes over and ends
it. The audit recomputes every rule from the log alone (`koordctl.demo.invariants`).
"""

import asyncio
import signal

import pytest
from koordcore.bus.factory import Bus
from koordcore.embedded.nats import NatsServer
from koordcore.events import CATALOGUE
from koordcore.events.gang import GangPlaced
from koordcore.events.pod import PodPlaced
from koordctl.demo.invariants import Audit
from support.scheduler.large_gang import MEMBERS, all_but_one_member, append
from support.scheduler.processes import LEASE, send, start
from support.until import until

pytestmark = [pytest.mark.slow, pytest.mark.nats, pytest.mark.deep]

PATIENCE_SECONDS = 240.0
KILLS = (
    "after_reserve_before_seal",
    "before_append",
    "after_append_before_confirm",
    "in the append",
)


class Reader:
    """Reads the log as a service does, and looks after each batch that it got."""

    def __init__(self, bus: Bus) -> None:
        self.audit = Audit()
        self.placed: dict[str, int] = {}
        self.gangs: list[tuple[int, GangPlaced]] = []
        self._bus = bus
        self._position = 0

    async def read(self) -> int:
        """Read what is there, and return the number of placements."""
        head = await self._bus.events.head()
        async for batch in self._bus.events.history(self._position, head.last_seq):
            for stored in batch:
                event = CATALOGUE.read(stored)
                assert event is not None
                self.audit.see(stored, event)
                self._position = stored.seq
                if isinstance(event, PodPlaced):
                    assert stored.ref.id not in self.placed, "a member is placed once"
                    self.placed[stored.ref.id] = stored.seq
                if isinstance(event, GangPlaced):
                    self.gangs.append((stored.seq, event))
        return len(self.placed)


@pytest.mark.parametrize("step", KILLS)
async def test_large_gang_is_placed_whole_by_the_successor_of_a_killed_scheduler(
    fresh_nats_server: NatsServer, step: str
) -> None:
    is_midway, name = step == "in the append", f"kill-{KILLS.index(step)}"
    async with all_but_one_member(fresh_nats_server, name) as (bus, last):
        first = await start(fresh_nats_server, name, *LEASE, failpoint="" if is_midway else step)
        second = await start(fresh_nats_server, name, *LEASE)
        reader = Reader(bus)
        try:
            assert await reader.read() == 0
            await append(bus, last)
            if is_midway:
                before = (await bus.events.head()).last_seq
                await until(lambda: _grows(bus, before), seconds=PATIENCE_SECONDS)
                send(first, signal.SIGKILL)
                await fresh_nats_server.kill()
                await fresh_nats_server.start()
            else:
                async with asyncio.timeout(PATIENCE_SECONDS):
                    await first.wait()
                assert first.returncode == -signal.SIGKILL

            async def is_placed() -> bool:
                return await reader.read() == MEMBERS

            await until(is_placed, seconds=PATIENCE_SECONDS)
        finally:
            for process in (first, second):
                send(process, signal.SIGKILL)
                await process.communicate()
        [(at, placed)] = reader.gangs
        assert placed.count == MEMBERS
        assert all(at - 2 * MEMBERS <= seq < at for seq in reader.placed.values()), "all in one append"
        assert reader.audit.findings(()).sentences() == []


async def _grows(bus: Bus, before: int) -> bool:
    return (await bus.events.head()).last_seq > before
