"""The facts of the agent: they wait for the log and for room in the outbox, and stand beside another writer."""

from pathlib import Path

import pytest
from koordcore.bus.factory import memory_bus
from koordcore.events.catalogue import CATALOGUE
from koordcore.events.envelope import AggregateRef, Draft, Origin, StoredEvent
from koordcore.events.nodestate import AgentStarted, BeCpuSuppressed, PodsStarted
from koordcore.ports.eventlog import Appended
from support.agent.agent_world import NODE, REF, World, desired, pod
from support.manual_clock import ManualClock


async def test_with_the_log_away_it_enforces_and_delivers_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("koordcore.service.outbox.PAUSE_SECONDS", 0.01)
    async with World(memory_bus(), ManualClock(), tmp_path).running() as world:
        world.log.away = True
        await world.bus.desired.put(desired(pod("web", "LS", 4_000), pod("job", "BE", 9_000)))
        await world.until(lambda: NODE in world.cycle.states.views)
        await world.round(3)
        assert world.quota() not in ("", "-1")
        assert (await world.bus.events.head()).last_seq == 0
        assert len(world.cycle.facts.outbox) == 3
        world.log.away = False
        kinds = [type(event) for event in await world.facts()]
        assert kinds == [AgentStarted, PodsStarted, BeCpuSuppressed]


async def test_a_full_outbox_keeps_the_oldest_and_says_the_start_later(tmp_path: Path) -> None:
    async with World(memory_bus(), ManualClock(), tmp_path, outbox_facts="1").running() as world:
        world.cycle.states.restore({NODE: desired(pod("web", "LS", 4_000))})
        world.cycle.take_changes()  # its room is taken by AgentStarted
        assert world.cycle.facts.outbox.dropped == 1
        assert [type(event) for event in await world.facts()] == [AgentStarted]
        await world.round()
        assert (await world.facts())[1] == PodsStarted(pods=["web"])


async def test_facts_that_found_no_room_are_said_once_there_is_some(tmp_path: Path) -> None:
    async with World(memory_bus(), ManualClock(), tmp_path, outbox_facts="1").running() as world:
        world.log.away = True
        world.cycle.states.restore({NODE: desired(pod("job", "BE", 9_000), pod("web", "LS", 4_000))})
        await world.round(3)
        quota = int(world.quota())
        assert quota > 0
        world.log.away = False
        for _ in range(4):
            await world.facts()
            await world.round()
        facts = await world.facts()
        assert PodsStarted(pods=["job", "web"]) in facts
        suppressed = [event for event in facts if isinstance(event, BeCpuSuppressed)]
        assert suppressed[0].old_quota_us == -1


async def test_another_writer_on_the_aggregate_costs_a_retry_only(tmp_path: Path) -> None:
    nodes = ("a", "b", NODE)
    async with World(memory_bus(), ManualClock(), tmp_path, nodes=nodes).running() as world:
        await world.facts()
        origin = Origin(causation_id="x", correlation_id="x", actor="other", occurred_at="2026-01-01T00:00:00.000000Z")
        last = await world.bus.events.last_of(REF)
        assert last is not None
        other = CATALOGUE.seal([Draft(REF, AgentStarted(host="linux", version="0"), last.seq)], origin)
        assert isinstance(await world.bus.events.append(other), Appended)
        world.cycle.states.restore({node: desired(pod(f"p-{node}", "LS", 100), node=node) for node in nodes})
        world.cycle.take_changes()
        assert (await world.facts())[-1] == PodsStarted(pods=[f"p-{NODE}"])
        assert isinstance(CATALOGUE.read(await _last(world, "a")), PodsStarted)


async def _last(world: World, node: str) -> StoredEvent:
    stored = await world.bus.events.last_of(AggregateRef("nodestate", node))
    assert stored is not None
    return stored
