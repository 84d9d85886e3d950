"""A group of drains whose DrainNodes are refused or deleted: it says why, and goes on or ends."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import pytest
from koord_descheduler.shell import drain_control
from koordcore.events.drain import DrainGroupChanged, DrainGroupNodeJudged, DrainGroupNodePlanned
from koordcore.requests.objects import ChangeOutcome, ChangeResult, CreateObject, ObjectChange, PatchObject
from support.descheduler.jobs import configuration
from support.descheduler.world import AT, World
from support.until import until

MESSAGE = "denied by policy"


class RefusingWorld(World):
    """A cluster whose API server refuses the changes that a test names."""

    def __init__(self, refuses: Callable[[ObjectChange], bool]) -> None:
        super().__init__()
        self._refuses = refuses

    async def change(self, changes: Sequence[ObjectChange]) -> list[ChangeOutcome]:
        found: list[ChangeOutcome] = []
        for change in changes:
            if self._refuses(change):
                found.append(ChangeOutcome(result=ChangeResult.REFUSED, message=MESSAGE))
            else:
                found += await super().change([change])
        return found


class KilledWorld(World):
    """A cluster whose leader is killed after it has created the first DrainNode of a group, before the fact."""

    def __init__(self) -> None:
        super().__init__()
        self.killed_at = ""

    async def change(self, changes: Sequence[ObjectChange]) -> list[ChangeOutcome]:
        found = await super().change(changes)
        created = [each.document for each in changes if isinstance(each, CreateObject)]
        if not self.killed_at and any(each["kind"] == "DrainNode" for each in created):
            self.killed_at = str(created[0]["metadata"]["name"])
            await asyncio.Event().wait()
        return found


@pytest.fixture(autouse=True)
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drain_control, "LOOK_INTERVAL", 0.02)


async def with_group(world: World, *, paused: bool = False) -> None:
    """Write the two nodes, a pod on each, and the group of both."""
    await world.begin()
    await world.workload(4)
    for node in ("a", "b"):
        await world.pod(node, node)
    metadata = {"name": "g", "uid": "uid-g", "creationTimestamp": AT}
    spec = {"nodeSelector": {}, "executionPolicy": {"paused": paused}}
    await world.custom("DrainNodeGroup", {"kind": "DrainNodeGroup", "metadata": metadata, "spec": spec})


async def placed(world: World, node: str) -> None:
    """Wait for the Reservation of the pod of a node, and place it."""
    name = f"g-{node}-u-{node}"
    await until(lambda: name in world.objects("Reservation"))
    await world.placed_reservation(name, "b" if node == "a" else "a")


async def judged(world: World) -> dict[str, DrainGroupNodeJudged]:
    return {each.node: each for each in await world.facts("draingroup") if isinstance(each, DrainGroupNodeJudged)}


def confirmed(world: World, *nodes: str) -> Callable[[], bool]:
    return lambda: all(world.objects("DrainNode")[f"g-{n}"]["spec"].get("confirmState") == "Confirmed" for n in nodes)


def has_ended(world: World, phase: str) -> Callable[[], Awaitable[str | None]]:
    """Return the condition that the newest phase of the group is `phase`. Its value is the message."""

    async def ended() -> str | None:
        found = [each for each in await world.facts("draingroup") if isinstance(each, DrainGroupChanged)]
        return found[-1].message if found and found[-1].phase == phase else None

    return ended


async def places(world: World) -> None:
    """Place the Reservations of both nodes in the order in which the group plans them."""
    for _ in range(2):
        done = {each.node for each in (await judged(world)).values()}

        async def planned(done: set[str] = done) -> list[str]:
            return [n for n in ("a", "b") if n not in done and f"g-{n}-u-{n}" in world.objects("Reservation")]

        node = (await until(planned))[0]
        await placed(world, node)

        async def is_judged(node: str = node) -> bool:
            return node in await judged(world)

        await until(is_judged)


async def test_a_node_whose_drain_cannot_be_created_is_out_and_the_group_fails_if_none_is_left() -> None:
    world = RefusingWorld(lambda change: isinstance(change, CreateObject) and change.document["kind"] == "DrainNode")
    await with_group(world)
    async with world.service(configuration(plugins=False)):
        assert MESSAGE in await until(has_ended(world, "Failed"))
    assert {node: each.available for node, each in (await judged(world)).items()} == {"a": False, "b": False}


async def test_a_confirmation_that_is_refused_fails_the_group() -> None:
    world = RefusingWorld(lambda change: isinstance(change, PatchObject) and change.kind == "DrainNode")
    await with_group(world)
    async with world.service(configuration(plugins=False)):
        await places(world)
        assert MESSAGE in await until(has_ended(world, "Failed"))


async def test_confirmed_drains_that_are_deleted_one_after_the_other_fail_the_group() -> None:
    world = World()
    await with_group(world)
    async with world.service(configuration(plugins=False)):
        await places(world)
        await until(confirmed(world, "a", "b"))
        await world.delete("DrainNode", "g-a")

        async def is_forgotten() -> bool:
            return any(type(each).__name__ == "DrainForgotten" for each in await world.facts("drain"))

        await until(is_forgotten)
        await world.delete("DrainNode", "g-b")
        assert "deleted" in await until(has_ended(world, "Failed"))


async def test_an_unconfirmed_drain_that_is_deleted_leaves_the_group() -> None:
    world = World()
    await with_group(world, paused=True)
    async with world.service(configuration(plugins=False)):
        await places(world)
        await world.delete("DrainNode", "g-a")

        async def is_out() -> bool:
            return not (await judged(world))["a"].available

        await until(is_out)
        await world.patch("DrainNodeGroup", "g", {"spec": {"executionPolicy": {"paused": False}}})
        await until(confirmed(world, "b"))


async def killed_between_object_and_fact() -> KilledWorld:
    """Return the cluster with a DrainNode that no fact of its group names."""
    world = KilledWorld()
    await with_group(world)
    async with world.service(configuration(plugins=False)):
        await until(lambda: world.killed_at)
    assert not any(isinstance(each, DrainGroupNodePlanned) for each in await world.facts("draingroup"))
    return world


async def test_whoever_leads_next_adopts_the_drain_whose_creation_was_not_recorded() -> None:
    world = await killed_between_object_and_fact()
    async with world.service(configuration(plugins=False)):
        await places(world)
        await until(confirmed(world, "a", "b"))
    planned = [each.node for each in await world.facts("draingroup") if isinstance(each, DrainGroupNodePlanned)]
    assert f"g-{planned[0]}" == world.killed_at
    assert sorted(planned) == ["a", "b"]


async def test_a_drain_of_another_owner_is_not_adopted() -> None:
    world = World()
    await with_group(world)
    metadata = {"name": "g-a", "uid": "uid-g-a", "creationTimestamp": AT}
    await world.custom("DrainNode", {"kind": "DrainNode", "metadata": metadata, "spec": {"nodeName": "a"}})
    async with world.service(configuration(plugins=False)):

        async def is_waiting() -> bool:
            found = [each for each in await world.facts("draingroup") if isinstance(each, DrainGroupChanged)]
            return any(each.phase == "Waiting" for each in found)

        await placed(world, "b")
        await until(is_waiting)
    assert set(await judged(world)) == {"b"}


async def test_a_drain_whose_creation_was_not_recorded_is_taken_back_with_its_group() -> None:
    world = await killed_between_object_and_fact()
    await world.delete("DrainNodeGroup", "g")
    async with world.service(configuration(plugins=False)):
        await until(has_ended(world, "Aborted"))
    assert world.objects("DrainNode")[world.killed_at]["spec"]["confirmState"] == "Aborted"
