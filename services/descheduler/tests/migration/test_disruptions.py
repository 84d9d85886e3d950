"""One ledger of disruption: whoever takes a pod of a workload, its migrations wait at the limit."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from koordcore.events.envelope import AggregateRef
from koordcore.events.gateway import PodEvicted, PodEvictionFailed, PodEvictionRequested
from koordcore.events.migration import MigrationArbitrated, MigrationHeld
from koordcore.events.nodestate import EvictedPod, PodsEvictedByAgent
from koordcore.events.objects import NodeSpecDeleted, PodSpecDeleted
from support.descheduler.jobs import configuration, is_told, job, reached
from support.descheduler.world import World
from support.until import until

ONE_UNAVAILABLE = configuration(plugins=False, maxUnavailablePerWorkload=1)


async def preempted(world: World) -> None:
    request = PodEvictionRequested(
        namespace="d", name="replica-0", node="b", initiator="scheduler", method="delete", reason="Preempted"
    )
    await world.write(AggregateRef("eviction", "u-replica-0"), request)


async def evicted_by_the_agent(world: World) -> None:
    pods = [EvictedPod(uid="u-replica-0", namespace="d", name="replica-0")]
    await world.write(
        AggregateRef("nodestate", "b"), PodsEvictedByAgent(feature="MemoryEvict", pods=pods, reason="full")
    )


async def on_a_lost_node(world: World) -> None:
    await world.pod("lost", "a")
    await world.write(AggregateRef("nodespec", "a"), NodeSpecDeleted(name="a"))


async def deleted_without_a_successor(world: World) -> None:
    await world.write(AggregateRef("podspec", "u-replica-0"), PodSpecDeleted(namespace="d", name="replica-0"))


async def not_ready(world: World) -> None:
    await world.pod("replica-x", "b", ready=False)


TAKEN: list[Callable[[World], Awaitable[None]]] = [
    preempted,
    evicted_by_the_agent,
    on_a_lost_node,
    deleted_without_a_successor,
    not_ready,
]


async def held(world: World) -> list[list[str]]:
    return [each.limits for each in await world.facts("migration") if isinstance(each, MigrationHeld)]


@pytest.mark.parametrize("taken", TAKEN, ids=lambda taken: taken.__name__)
async def test_migration_waits_while_somebody_else_takes_a_pod(
    world: World, taken: Callable[[World], Awaitable[None]]
) -> None:
    await taken(world)
    await world.custom("PodMigrationJob", job("j", "replica-1"))
    async with world.service(ONE_UNAVAILABLE):
        await is_told(world, MigrationHeld)
    assert await held(world) == [["max_unavailable_per_workload"]]
    assert not any(isinstance(each, MigrationArbitrated) for each in await world.facts("migration"))


async def test_pod_lost_after_arbitration_delays_the_eviction_until_it_is_replaced(world: World) -> None:
    await world.custom("PodMigrationJob", job("j", "replica-1"))
    async with world.service(ONE_UNAVAILABLE):
        await reached(world, "Running", "ReservationCreated")
        await preempted(world)
        await world.placed_reservation("uid-j", "a")
        await is_told(world, MigrationHeld)
        assert [request.initiator for request in await world.requests()] == ["scheduler"]
        await world.answer("replica-0", PodEvictionFailed(reason="BudgetExceeded"))
        await reached(world, "Running", "ReservationCreated", "ReservationScheduled", "Eviction")
    (request,) = [each for each in await world.requests() if each.initiator == "descheduler"]
    assert (request.name, request.job) == ("replica-1", "j")


async def test_no_interleaving_takes_more_pods_than_the_limit(world: World) -> None:
    """Eight jobs of one workload, of a plugin and of a drain, with one pod lost meanwhile: one leaves at a time."""
    numbers = range(1, 9)
    async with world.service(
        configuration(
            plugins=False,
            maxUnavailablePerWorkload=2,
            maxMigratingPerWorkload=8,
            maxMigratingPerNode=0,
            objectLimiters={},
            evictQPS=1000,
        )
    ):
        for index in numbers:
            asked: dict[str, Any] = job(f"j{index}", f"replica-{index}", mode="EvictDirectly")
            asked["metadata"]["annotations"] = {"koordinator.sh/evict-trigger": "Drain" if index % 2 else "LowNodeLoad"}
            await world.custom("PodMigrationJob", asked)
        await preempted(world)
        for done in numbers:

            async def is_next(count: int = done) -> bool:
                return sum(each.initiator == "descheduler" for each in await world.requests()) >= count

            await until(is_next)
            open_ = [each for each in await world.requests() if each.initiator == "descheduler"]
            assert len(open_) == done, "a second pod left before the first was replaced"
            gone = open_[-1].name
            await world.pod(f"new-{done}", "b")
            await world.answer(gone, PodEvicted())
            await world.write(AggregateRef("podspec", f"u-{gone}"), PodSpecDeleted(namespace="d", name=gone))
    assert {each.name for each in await world.requests()} == {f"replica-{index}" for index in range(9)}
