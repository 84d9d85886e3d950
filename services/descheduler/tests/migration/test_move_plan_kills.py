"""kill -9 at each effect of a plan: the next leader goes on with it, or gives all places back. No pod leaves alone."""

import pytest
from koordcore.events import CATALOGUE
from koordcore.events.gateway import PodEvictionRequested
from koordcore.events.migration import RepackCommitted, RepackEnded, RepackMoved
from koordcore.state import ClusterState
from koordcore.state.migrations import DONE, ROLLED_BACK, MigrationState
from support.descheduler.jobs import leave
from support.descheduler.kill import Kill
from support.descheduler.plans import MEMBER, PODS, configuration_of_plans, world_with_plan
from support.descheduler.world import World
from support.until import until

pytestmark = pytest.mark.slow

TEXT = configuration_of_plans()
EFFECTS_OF_DONE, FEWEST_OF_DONE = 11, 9
"""Effects until a plan is done. Steps that happen to fall into one look are one effect, so there may be fewer."""
EFFECTS_OF_ROLL_BACK, FEWEST_OF_ROLL_BACK = 5, 3


class Around:
    """What the scheduler, the gateway and the controllers do for the pods of a plan.

    Args:
        world: The cluster.
        unplaced: Whether the Reservation of the last job gets no node.
    """

    def __init__(self, world: World, *, unplaced: bool = False) -> None:
        self._world = world
        self._unplaced = unplaced
        self._placed: set[str] = set()
        self._left: set[str] = set()
        self._is_bound = False

    async def act(self) -> None:
        """Place Reservations, let pods leave whose eviction was requested, and bind the gang after all moves."""
        reservations = sorted(self._world.objects("Reservation"))
        for name in reservations[: 1 if self._unplaced else None]:
            if name not in self._placed:
                self._placed.add(name)
                await self._world.placed_reservation(name, "a")
        for request in await self._world.requests():
            if request.name not in self._left:
                self._left.add(request.name)
                await leave(self._world, request.name)
                await self._world.owner(f"uid-j-{request.name}", f"{request.name}-new", "a")
        have_moved = any(isinstance(each, RepackMoved) for each in await self._world.facts("repack"))
        if have_moved and not self._is_bound:
            self._is_bound = True
            await self._world.pod(MEMBER.name, "b")


async def ended(world: World) -> list[RepackEnded]:
    return [each for each in await world.facts("repack") if isinstance(each, RepackEnded)]


async def are_over(world: World) -> bool:
    """Return whether the plan and all its jobs have ended."""
    state = ClusterState()
    for stored in await world.stored("migration"):
        state.apply(stored)
    known = state.of_kind(MigrationState)
    return bool(await ended(world)) and all(
        (each := known.get(f"uid-{name}")) is not None and bool(each.ended_at)
        for name in world.objects("PodMigrationJob")
    )


async def survived(world: World, around: Around, kill: Kill) -> None:
    """Run the service until it is killed or the plan is over, and then its successor until the plan is over."""

    async def is_dead_or_over() -> bool:
        await around.act()
        return kill.is_reached or await are_over(world)

    async def is_over() -> bool:
        await around.act()
        return await are_over(world)

    async with world.service(TEXT, kill):
        await until(is_dead_or_over)
    async with world.service(TEXT):
        await until(is_over)


@pytest.mark.parametrize("is_done", [False, True])
@pytest.mark.parametrize("number", range(EFFECTS_OF_DONE))
async def test_plan_whose_leader_is_killed_at_any_effect_moves_each_pod_once(number: int, is_done: bool) -> None:
    world, kill = await world_with_plan(), Kill(number, is_done)
    await survived(world, Around(world), kill)
    assert kill.is_reached or number >= FEWEST_OF_DONE, kill.effects
    assert [each.result for each in await ended(world)] == [DONE]
    assert sorted(request.name for request in await world.requests()) == list(PODS), "each once"
    stored = [(each, CATALOGUE.read(each)) for each in await world.stored("repack", "eviction")]
    (committed,) = [each.seq for each, event in stored if isinstance(event, RepackCommitted)]
    assert min(each.seq for each, event in stored if isinstance(event, PodEvictionRequested)) > committed
    assert world.objects("Reservation").keys() == {f"uid-j-{pod}" for pod in PODS}, "each has its pod"


@pytest.mark.parametrize("is_done", [False, True])
@pytest.mark.parametrize("number", range(EFFECTS_OF_ROLL_BACK))
async def test_plan_that_lost_a_move_is_rolled_back_though_its_leader_is_killed(number: int, is_done: bool) -> None:
    world, kill = await world_with_plan(), Kill(number, is_done)
    around = Around(world, unplaced=True)

    async def are_reserved() -> bool:
        await around.act()
        return len(world.objects("Reservation")) == len(PODS)

    async with world.service(TEXT):
        await until(are_reserved)
    await world.delete("PodMigrationJob", f"j-{PODS[1]}")
    await survived(world, around, kill)
    assert kill.is_reached or number >= FEWEST_OF_ROLL_BACK, kill.effects
    assert [each.result for each in await ended(world)] == [ROLLED_BACK]
    assert await world.requests() == []
    assert f"uid-j-{PODS[0]}" not in world.objects("Reservation"), "the place is given back"
