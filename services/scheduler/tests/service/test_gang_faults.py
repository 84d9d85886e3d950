"""Whatever happens to the append of a gang, its members are placed all or none, and a successor ends it.

Kills are seen from the log: the append was stored or not, and the process that sent it stores nothing any more.
"""

import asyncio
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from koordcore.bus.adapters.memory import MemoryLog
from koordcore.bus.factory import memory_bus
from koordcore.events.envelope import AggregateRef, NewEvent, StoredEvent
from koordcore.events.node_ledger import NodeResourcesReturned, NodeResourcesTaken, PodOnNode
from koordcore.ports.eventlog import AppendOutcome, Conflict, EventLog, TooMany, Unavailable
from support.scheduler.one_service import members_of_gang, say, scheduler, submit, where
from support.scheduler.scheduling import node, pod
from support.until import until

pytestmark = pytest.mark.slow

MEMBERS = 6
FAULTS = ("lost answer", "away", "too many", "rival", "killed before", "killed after")


class Faulty:
    """A log that does what a list says to the appends of the gang, one after the other, and then what it should."""

    def __init__(self, log: EventLog, shared: MemoryLog, faults: list[str]) -> None:
        self._log = log
        self._shared = shared
        self._faults = faults
        self.is_dead = False
        self.rivals = 0
        self.taken = AggregateRef("node", "")  # The node that a rival took

    def __getattr__(self, name: str) -> object:
        return getattr(self._log, name)

    def whole(self) -> int:
        """Return the number of members that a reader sees on nodes."""
        found = sum(uid.startswith("m") for uid in where(self._shared))
        assert found in {0, MEMBERS}, "a gang is placed all or none"
        return found

    async def append(self, events: Sequence[NewEvent], *, deadline: float = 30.0) -> AppendOutcome:
        if self.is_dead:
            return Conflict()
        is_gang = any(event.ref.kind == "gang" and event.headers["Koord-Type"] == "GangPlaced" for event in events)
        fault = self._faults.pop(0) if is_gang and self._faults else ""
        match fault:
            case "away":
                return Unavailable("away")
            case "too many":
                raise TooMany("the servers take fewer")
            case "killed before":
                self.is_dead = True
                return Conflict()
            case "rival":
                await self._rival([event.ref for event in events if event.ref.kind == "node"][-1])
            case _:
                pass
        outcome = await self._log.append(events)
        self.whole()
        if fault == "lost answer":
            return Unavailable("the answer was lost")
        if fault == "killed after":
            self.is_dead = True
            return Conflict()
        return outcome

    async def _rival(self, ref: AggregateRef) -> None:
        """Another scheduler writes to the ledger of a node that a member was to get."""
        self.rivals += 1
        await say(self._log, ref.kind, ref.id, NodeResourcesReturned(pods=[]))


class Taken(Faulty):
    """A log whose reads take a while, and of which a rival takes a node just before the first append of the gang."""

    def whole(self) -> int:
        log = self._shared
        placed = sum(stored.type == "PodPlaced" for stored in log.between(0, log.last_seq, None, log.last_seq))
        assert placed in {0, MEMBERS}, "a gang is placed all or none"
        return placed

    async def read_aggregate(self, ref: AggregateRef, *, after: int = 0) -> list[StoredEvent]:
        await asyncio.sleep(0.02)
        return await self._log.read_aggregate(ref, after=after)

    async def _rival(self, ref: AggregateRef) -> None:
        await super()._rival(ref)
        rival = PodOnNode(
            uid="rival",
            namespace="x",
            name="rival",
            requests={"cpu": 1000},
            qos="LS",
            kube_qos="Burstable",
            priority_class="koord-prod",
        )
        await say(self._log, ref.kind, ref.id, NodeResourcesTaken(pods=[rival]))
        self.taken = ref


async def test_members_of_a_refused_gang_are_taken_back_together() -> None:
    """While the refused gang is read again, other events wake the scheduler: no member may be decided alone then."""
    shared = MemoryLog()
    bus = memory_bus(log=shared)
    log = Taken(bus.events, shared, ["rival"])
    await submit(bus.events, *(node(f"n{number}", cpu="1") for number in range(MEMBERS)))
    await submit(bus.events, *members_of_gang(MEMBERS))
    async with scheduler(bus, log, "--pod-initial-backoff=100ms", "--pod-max-backoff=200ms"):  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  everything else is the log's own
        for number in range(40):
            await submit(bus.events, pod(f"w{number}", {"cpu": "50"}))
            await asyncio.sleep(0.02)
            log.whole()
        assert (log.rivals, log.whole()) == (1, 0)
        await say(bus.events, log.taken.kind, log.taken.id, NodeResourcesReturned(pods=["rival"]))
        await until(lambda: log.whole() == MEMBERS)


async def placed_despite(faults: list[str]) -> None:
    shared = MemoryLog()
    bus = memory_bus(log=shared)
    faulty = Faulty(bus.events, shared, faults)
    await submit(bus.events, *(node(f"n{number}", cpu="1") for number in range(MEMBERS)))
    await submit(bus.events, *members_of_gang(MEMBERS))
    while faulty.whole() < MEMBERS:
        faulty.is_dead = False
        quick = ("--pod-initial-backoff=100ms", "--pod-max-backoff=200ms")
        async with scheduler(bus, faulty, *quick) as running:  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  everything else is the log's own
            await until(lambda: faulty.is_dead or faulty.whole() == MEMBERS)
            if not faulty.is_dead:
                await until(lambda: not running.cycle.publisher.in_flight)
                # Nothing leaks: the state holds what the log says.
                taken = running.cycle.state.nodes.requested[1].sum()
                assert taken == len(where(shared)) * 1000


@given(st.lists(st.sampled_from(FAULTS), max_size=4))
def test_a_gang_is_placed_whole_whatever_happens_to_its_appends(faults: list[str]) -> None:
    asyncio.run(placed_despite(faults))
