"""Many drains, most of which have ended: a look at all lets other tasks run, and one drain of a node runs at a time."""

import asyncio
from typing import Any

import pytest
from koord_descheduler.shell import drain_control
from koord_descheduler.shell.drain_control import DrainControl
from koordcore.events.drain import DrainAborted, DrainCompleted, DrainStarted, DrainWaiting
from support.descheduler.jobs import configuration
from support.descheduler.world import AT, World
from support.until import until

DRAINS = 20


@pytest.fixture(autouse=True)
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drain_control, "LOOK_INTERVAL", 0.01)


async def write_drains(world: World, count: int, **spec: Any) -> None:
    for number in range(count):
        metadata = {"name": f"d-{number:02}", "uid": f"uid-{number}", "creationTimestamp": AT}
        await world.custom("DrainNode", {"kind": "DrainNode", "metadata": metadata, "spec": spec})


async def number_of(world: World, kind: type) -> int:
    return sum(isinstance(event, kind) for event in await world.facts("drain"))


async def test_other_tasks_run_between_looks_at_drains_that_have_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    turns, in_looks = 0, list[int]()
    look_at_all = DrainControl.look_at_all

    async def counted(*args: Any) -> None:
        before = turns
        await look_at_all(*args)
        in_looks.append(turns - before)

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    monkeypatch.setattr(DrainControl, "look_at_all", counted)
    world = World()
    await world.begin()
    await write_drains(world, DRAINS, nodeName="none")

    async def have_ended() -> bool:
        return await number_of(world, DrainAborted) == DRAINS

    async with world.service(configuration(plugins=False)):
        await until(have_ended)
        task = asyncio.ensure_future(other())
        in_looks.clear()
        await until(lambda: len(in_looks) > 2)
        task.cancel()
    assert min(in_looks[1:]) >= DRAINS


async def test_drains_of_one_node_run_one_after_the_other() -> None:
    world = World()
    await world.begin()
    await world.pod("p", "b")
    await world.workload(1)
    async with world.service(configuration(plugins=False)):
        await write_drains(world, 3, nodeName="b", migrationPolicy={"mode": "MigrateDirectly"})

        async def wait() -> bool:
            return await number_of(world, DrainWaiting) == 2

        await until(wait)
        assert await number_of(world, DrainStarted) == 1
        await world.patch("DrainNode", "d-00", {"spec": {"confirmState": "Rejected"}})

        async def next_runs() -> bool:
            return await number_of(world, DrainStarted) == 2

        await until(next_runs)
    assert await number_of(world, DrainAborted) == 1
    assert not await number_of(world, DrainCompleted)
