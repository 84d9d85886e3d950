"""A group of drains whose DrainNodes are refused or deleted: it says why, and goes on or ends."""

from collections.abc import Awaitable, Callable, Sequence

import pytest
from koord_descheduler.shell import drain_control
from koordcore.events.descheduling.drain import DrainGroupChanged, DrainGroupNodeJudged
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
