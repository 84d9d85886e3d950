"""Migration jobs that wait for others: limits of nodes and workloads, and the tokens of evictions."""

from typing import Any

import pytest
from koordcore.events.descheduling import Number
from koordcore.events.migration import MigrationArbitrated, MigrationEnded, MigrationHeld
from koordcore.stories.migrations import migration_story
from koordcore.stories.modifications import AuditReader
from support.descheduler.jobs import REPLICAS, asked, configuration, folded, is_told, job, leave, reached, states
from support.descheduler.world import AT, World
from support.until import until

SECOND_POD = 2
SLOW: dict[str, Any] = {"objectLimiters": {"workload": {"duration": "1h", "maxMigrating": REPLICAS}}, "evictQPS": 0.001}
"""One eviction in a quarter of an hour, whatever its workload."""


async def test_evictions_of_the_time_before_a_restart_still_delay_others(world: World) -> None:
    """The object limiter allows one eviction of the workload in an hour. The second job waits in both services."""
    text = configuration(plugins=False, objectLimiters={"workload": {"duration": "1h", "maxMigrating": 1}})
    await world.pod("p", "b")
    await world.pod("q", "b")
    await world.custom("PodMigrationJob", job("j", "p", mode="EvictDirectly"))
    async with world.service(text):
        await reached(world, "Running", "Eviction")
        await leave(world, "p")
        await reached(world, "Succeeded", "Eviction")
    await world.custom("PodMigrationJob", job("k", "q", mode="EvictDirectly"))
    async with world.service(text):
        await is_told(world, MigrationHeld)
    (held,) = [each for each in await world.facts("migration") if isinstance(each, MigrationHeld)]
    assert (held.job, held.limits) == ("k", ["object_limiter_workload"])
    assert [request.name for request in await world.requests()] == ["p"]


async def test_second_job_of_a_workload_waits_until_the_first_has_ended(world: World) -> None:
    await world.pod("p", "b")
    await world.pod("q", "b")
    for name, pod in (("j", "p"), ("k", "q")):
        await world.custom("PodMigrationJob", job(name, pod, mode="EvictDirectly"))
    async with world.service(configuration(plugins=False, maxMigratingPerNode=1)):
        await is_told(world, MigrationHeld)
        (held,) = [each for each in await world.facts("migration") if isinstance(each, MigrationHeld)]
        assert held.inputs == {"max_migrating_per_node": Number(value=1, limit=1)}
        await is_told(world, MigrationArbitrated)
        (first,) = [each.pod.name for each in await world.facts("migration") if isinstance(each, MigrationArbitrated)]
        await reached(world, "Running", "Eviction")
        await leave(world, first)
        await is_told(world, MigrationArbitrated, SECOND_POD)


async def test_job_that_waits_until_its_time_is_over_gives_its_reservation_back(world: World) -> None:
    await world.pod("p", "b")
    await world.pod("q", "b")
    await world.custom("Reservation", {"metadata": {"name": "mine", "uid": "uid-mine"}, "spec": {}})
    mine = {"reservationRef": {"name": "mine"}}
    text = configuration(plugins=False, maxMigratingPerNode=1)
    await world.custom("PodMigrationJob", job("j", "p", mode="EvictDirectly"))
    async with world.service(text) as (_, rounds):
        await reached(world, "Running", "Eviction")
        late = job("k", "q", ttl="1s", reservationOptions=mine)
        await world.custom("PodMigrationJob", late)
        await is_told(world, MigrationHeld)
        assert list(world.objects("Reservation")) == ["mine"]
        late["metadata"]["creationTimestamp"] = AT
        await world.custom("PodMigrationJob", late)
        await is_told(world, MigrationEnded)
        await folded(world, rounds)
    assert world.objects("Reservation") == {}
    assert [request.name for request in await world.requests()] == ["p"]


async def test_an_empty_token_bucket_of_evictions_is_recorded_once(world: World) -> None:
    wide: dict[str, Any] = {"maxMigratingPerNode": 0, "maxMigratingPerWorkload": 9, "maxUnavailablePerWorkload": 9}
    text = configuration(plugins=False, objectLimiters={}, evictQPS="0.001", **wide)
    jobs = {"j": "p", "k": "q", "l": "r"}
    for name, pod in jobs.items():
        await world.pod(pod, "b")
        await world.custom("PodMigrationJob", job(name, pod, mode="EvictDirectly"))
    for _ in range(2):
        async with world.service(text) as (_, rounds):
            await is_told(world, MigrationHeld, 2)
            before = rounds.begun
            await until(lambda rounds=rounds, before=before: rounds.begun > before + 10)
    held = [each for each in await world.facts("migration") if isinstance(each, MigrationHeld)]
    (asked,) = await world.requests()
    assert {each.pod.name for each in held} == {"p", "q", "r"} - {asked.name}
    assert [each.limits for each in held] == [["TooManyEvictions"]] * 2
    for each in held:
        assert each.inputs.keys() == {"TooManyEvictions", "evictQPS", "evictBurst"}
        assert each.inputs["TooManyEvictions"].value < 1
        assert (each.inputs["evictQPS"].value, each.inputs["evictBurst"].value) == (0.001, 1)
    reader = AuditReader()
    records = [record for stored in await world.stored("migration") for record in reader.read(stored)]
    waits = [each for each in records if each.decision == "waiting"]
    assert [(each.action, each.reasons) for each in waits] == [("evict_request", ["TooManyEvictions"])] * 2
    of_first = [stored for stored in await world.stored("migration") if stored.ref.id == f"uid-{held[0].job}"]
    story = migration_story(held[0].job, f"uid-{held[0].job}", of_first)
    assert story is not None
    tokens = held[0].inputs["TooManyEvictions"].value
    assert story.steps[-1].sentence == f"for TooManyEvictions ({tokens:g} of 1)"


async def test_a_job_that_waits_for_a_token_evicts_when_there_is_one(world: World) -> None:
    jobs = {"j": "p", "k": "q"}
    for name, pod in jobs.items():
        await world.pod(pod, "b")
        await world.custom("PodMigrationJob", job(name, pod, mode="EvictDirectly"))
    async with world.service(configuration(plugins=False, objectLimiters={}, evictQPS=5)):
        await is_told(world, MigrationHeld)
        await asked(world, 2)
    assert {each.limits == [] for each in (await states(world)).values()} == {True}


@pytest.mark.parametrize("limits", [{"objectLimiters": {"workload": {"duration": "1h", "maxMigrating": 1}}}, SLOW])
async def test_eviction_of_a_deleted_job_still_counts_after_a_restart(world: World, limits: dict[str, Any]) -> None:
    """One eviction in an hour is allowed. Its job is deleted, the leader changes, and the next job still waits."""
    text = configuration(plugins=False, **limits)
    for name in ("p", "q", "r"):
        await world.pod(name, "b")
    await world.custom("PodMigrationJob", job("j", "p", mode="EvictDirectly"))
    async with world.service(text) as (_, rounds):
        await reached(world, "Running", "Eviction")
        await leave(world, "p")
        await reached(world, "Succeeded", "Eviction")
        await world.delete("PodMigrationJob", "j")
        await folded(world, rounds)
    await world.custom("PodMigrationJob", job("k", "q", mode="EvictDirectly"))
    async with world.service(text) as (_, rounds):
        await is_told(world, MigrationArbitrated, SECOND_POD)
        await folded(world, rounds)
        before = rounds.begun
        await until(lambda: rounds.begun > before + 10)
    assert [request.name for request in await world.requests()] == ["p"]
