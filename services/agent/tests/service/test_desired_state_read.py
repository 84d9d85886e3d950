"""How the agent comes to its desired state: from the bucket, from the pushes, and later if it may not read."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from koordcore.bus.client.connection import Denied
from koordcore.bus.factory import memory_bus
from koordcore.events.envelope import AggregateRef, StoredEvent
from koordcore.events.nodestate import AgentStarted
from koordcore.ports.desired import DesiredNode, DesiredStore
from support.agent.agent_world import NODE, AwayLog, World, at, desired, pod
from support.manual_clock import ManualClock


class ClosedStore:
    """A bucket that the user of the agent may not read yet."""

    def __init__(self, store: DesiredStore) -> None:
        self.store = store
        self.is_open = False
        self.denied = 0

    async def put(self, desired: DesiredNode, check: Callable[[], None] | None = None) -> None:
        await self.store.put(desired, check)

    async def delete(self, node: str, check: Callable[[], None] | None = None) -> None:
        await self.store.delete(node, check)

    async def get(self, node: str) -> DesiredNode | None:
        if not self.is_open:
            self.denied += 1
            raise Denied(node)
        return await self.store.get(node)


async def test_an_agent_that_may_not_read_its_desired_state_goes_on_and_reads_it_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("koord_agent.shell.bus.desired_state.MISSING_SECONDS", (0.01, 0.01))
    bus = memory_bus()
    closed = ClosedStore(bus.desired)
    async with World(replace(bus, desired=closed), ManualClock(), tmp_path).running() as world:
        await bus.desired.put(desired(pod("web", "LS", 4_000)))
        await world.until(lambda: closed.denied >= 2)
        closed.is_open = True
        await world.until(lambda: NODE in world.cycle.states.views)


async def test_an_agent_that_may_not_read_its_ledger_believes_the_bucket(tmp_path: Path) -> None:
    """The users of the server were made for an older version."""

    class OldUser(AwayLog):
        async def last_of(self, ref: AggregateRef) -> StoredEvent | None:
            if ref.kind == "node":
                raise Denied(str(ref))
            return await super().last_of(ref)

    bus = memory_bus()
    world = World(bus, ManualClock(), tmp_path, log=OldUser(bus.events))
    async with world.running():
        placed = await world.place(pod("web", "LS", 4_000))
        await bus.desired.put(at(placed.seq, pod("web", "LS", 4_000)))
        await world.until(lambda: NODE in world.cycle.states.views)
        await world.round()
        assert world.cycle.agents[NODE].pods.running == {"web"}


async def test_a_missed_push_makes_it_read_the_bucket(tmp_path: Path) -> None:
    async with World(memory_bus(), ManualClock(), tmp_path).running() as world:
        await world.bus.desired.put(desired())
        await world.until(lambda: NODE in world.cycle.states.views)
        world.feed.losing = True
        first = await world.place(pod("a", "LS", 100))
        await world.until(lambda: world.feed.lost == 1)
        world.feed.losing = False
        second = await world.place(pod("b", "LS", 100))
        await world.bus.desired.put(at(first.seq, pod("a", "LS", 100)))  # the manager has not folded the second yet
        await world.until(lambda: world.cycle.states.views[NODE].as_of.get("node") == second.seq)
        assert set(world.cycle.states.views[NODE].pods) == {"a", "b"}


async def test_what_placed_pods_is_not_remembered_for_ever(tmp_path: Path) -> None:
    async with World(memory_bus(), ManualClock(), tmp_path).running() as world:
        await world.bus.desired.put(desired())
        await world.until(lambda: NODE in world.cycle.states.views)
        last = 0
        for index in range(20):
            await world.place(pod(f"p{index}", "LS", 10))
            last = (await world.release(f"p{index}")).seq
        await world.until(lambda: world.cycle.states.views[NODE].as_of.get("node", 0) == last)
        assert not any(world.cycle.states.cause_of(NODE, f"p{index}") for index in range(20))


async def test_what_happens_to_pods_before_any_desired_state_is_known_stops_nothing(tmp_path: Path) -> None:
    async with World(memory_bus(), ManualClock(), tmp_path).running() as world:
        world.cycle.changed.add(NODE)  # a pod's cgroup appeared, or the kubelet listed its pods
        world.cycle.take_changes()
        await world.round()
        assert [type(event) for event in await world.facts()] == [AgentStarted]
