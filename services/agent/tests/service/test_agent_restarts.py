"""An agent that starts again: what it keeps, what it does not start, and what it does not say twice."""

import sqlite3
from pathlib import Path

import pytest
from koordcore.bus.adapters.memory import MemoryLog
from koordcore.bus.factory import memory_bus
from koordcore.events.envelope import Event
from koordcore.events.nodestate import AgentStarted, PodsStarted, PodsStopped
from support.agent.agent_world import NODE, World, at, desired, pod
from support.manual_clock import ManualClock


async def test_a_restart_without_the_bus_goes_on_and_repeats_nothing(tmp_path: Path) -> None:
    """Killed with facts in its outbox: the next process enforces what was wanted last and says each start once."""
    log, clock = MemoryLog(), ManualClock()
    first = World(memory_bus(log=log), clock, tmp_path)
    first.log.away = True
    async with first.running():
        await first.bus.desired.put(desired(pod("web", "LS", 4_000), pod("job", "BE", 9_000)))
        await first.until(lambda: NODE in first.cycle.states.views)
        await first.round(3)
    bus = memory_bus(log=log)
    second = World(bus, clock, tmp_path)  # its bucket is empty: what it knows, it knows from disk
    async with second.running():
        await second.round(3)
        assert second.quota() not in ("", "-1")
        assert second.cycle.agents[NODE].pods.running == {"web", "job"}
        facts = await second.facts()
        assert [event for event in facts if isinstance(event, PodsStarted)] == [PodsStarted(pods=["job", "web"])]
        assert sum(isinstance(event, AgentStarted) for event in facts) == 2


async def run_until_killed(world: World, *, leaves: bool = False) -> None:
    """Run an agent with the pod web until it is killed.

    leaves    whether the pod leaves before; the manager is gone by then, and the bucket keeps the pod
    """
    async with world.running():
        placed = await world.place(pod("web", "LS", 4_000))
        await world.bus.desired.put(at(placed.seq, pod("web", "LS", 4_000)))
        await world.until(lambda: NODE in world.cycle.states.views)
        await world.round()
        if leaves:
            await world.release("web")
            await world.until(lambda: not world.cycle.states.views[NODE].pods)
            await world.round()


async def starts(world: World) -> list[Event]:
    """What the log holds about starts and ends of pods."""
    return [event for event in await world.facts() if isinstance(event, PodsStarted | PodsStopped)]


@pytest.mark.parametrize("leaves_before", [True, False], ids=["before the kill", "while it is down"])
async def test_a_pod_that_left_does_not_start_again_with_a_killed_agent_and_no_manager(
    tmp_path: Path, leaves_before: bool
) -> None:
    bus, clock = memory_bus(), ManualClock()
    first = World(bus, clock, tmp_path)
    await run_until_killed(first, leaves=leaves_before)
    if not leaves_before:
        await first.release("web")
    async with World(bus, clock, tmp_path).running() as second:
        await second.until(lambda: NODE in second.cycle.states.read_once)
        await second.round(2)
        assert second.cycle.agents[NODE].pods.running == set()
        assert await starts(second) == [PodsStarted(pods=["web"]), PodsStopped(pods=["web"])]


async def test_nothing_starts_from_a_bucket_that_misses_facts_until_it_is_written(tmp_path: Path) -> None:
    """The pod gone left before the agent saw it. Who ran before runs on, as containers do beside a kubelet."""
    bus, clock = memory_bus(), ManualClock()
    first = World(bus, clock, tmp_path)
    await run_until_killed(first)
    placed = await first.place(pod("gone", "LS", 100))
    await bus.desired.put(at(placed.seq, pod("web", "LS", 4_000), pod("gone", "LS", 100)))
    await first.release("gone")
    last = await first.place(pod("job", "BE", 500))
    async with World(bus, clock, tmp_path).running() as second:
        await second.until(lambda: NODE in second.cycle.states.read_once)
        await second.round(2)
        assert second.cycle.states.views[NODE].misses_facts
        assert second.cycle.agents[NODE].pods.running == {"web"}
        assert await starts(second) == [PodsStarted(pods=["web"])]

        await bus.desired.put(at(last.seq, pod("web", "LS", 4_000), pod("job", "BE", 500)))
        await second.until(lambda: not second.cycle.states.views[NODE].misses_facts)
        await second.round()
        assert second.cycle.agents[NODE].pods.running == {"web", "job"}
        assert await starts(second) == [PodsStarted(pods=["web"]), PodsStarted(pods=["job"])]


async def test_a_kept_desired_state_that_is_too_old_or_damaged_is_not_used(tmp_path: Path) -> None:
    clock = ManualClock()
    async with World(memory_bus(), clock, tmp_path).running() as first:
        await first.bus.desired.put(desired(pod("web", "LS", 4_000)))
        await first.until(lambda: NODE in first.cycle.states.views)
        await first.round()
    clock.jump(3600)
    assert NODE in World(memory_bus(), clock, tmp_path).cycle.states.views
    assert NODE not in World(memory_bus(), clock, tmp_path, desired_max_age="1000s").cycle.states.views
    with sqlite3.connect(tmp_path / "state" / "agent.sqlite") as file:
        file.execute("update desired set body = replace(cast(body as text), 'web', 'wob')")
    file.close()
    assert NODE not in World(memory_bus(), clock, tmp_path).cycle.states.views
    (tmp_path / "state" / "agent.sqlite").write_bytes(b"not a database" * 1000)
    assert World(memory_bus(), clock, tmp_path).cycle.saver.store.set_aside == tmp_path / "state" / "agent.damaged"
