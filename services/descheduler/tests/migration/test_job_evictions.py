"""Evictions that migration jobs ask for: their options, what the gateway answers, and soft ones."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from koord_descheduler.domain.jobs import effects
from koord_manager.domain.gateway.migrations import migration_events
from koordcore.events.envelope import AggregateRef
from koordcore.events.gateway import PodEvicted, PodEvictionDelayed, PodEvictionFailed
from koordcore.events.migration import MigrationEnded, MigrationHeld
from koordcore.events.objects import PodSpecDeleted
from koordcore.stories.migrations import migration_story
from koordcore.stories.modifications import AuditReader
from koordcore.values import codec
from koordcore.values.timestamps import rfc3339
from support.descheduler.jobs import asked, configuration, folded, is_told, job, leave, progress, reached
from support.descheduler.world import World
from support.until import until


async def test_a_job_without_delete_options_uses_the_default_ones(world: World) -> None:
    await world.pod("p", "b")
    await world.custom("PodMigrationJob", job("j", "p", mode="EvictDirectly"))
    async with world.service(configuration(plugins=False, defaultDeleteOptions={"gracePeriodSeconds": 5})):
        await until(world.requests)
    (request,) = await world.requests()
    assert request.grace_period_seconds == 5


async def test_a_dry_run_passes_all_options_on_and_is_tried_once(world: World) -> None:
    await world.pod("p", "b")
    options = {"gracePeriodSeconds": 3, "propagationPolicy": "Orphan", "dryRun": ["All"]}
    await world.custom("PodMigrationJob", job("j", "p", mode="EvictDirectly", ttl="1h", deleteOptions=options))
    await world.pod("q", "b")
    free: dict[str, Any] = {
        "skipEvictionGates": ["MaxMigratingPerWorkload", "MaxUnavailablePerWorkload"],
        "objectLimiters": {},
    }
    async with world.service(configuration(plugins=False, evictQPS=1000, **free)):
        (request,) = await until(world.requests)
        assert request.grace_period_seconds == 3
        assert request.delete_options == {"propagationPolicy": "Orphan", "dryRun": ["All"]}
        await world.answer("p", PodEvictionFailed(reason="DryRun"))
        await world.custom("PodMigrationJob", job("k", "q", mode="EvictDirectly", ttl="1h"))
        await asked(world, 2)
        await world.answer("q", PodEvictionFailed(reason="Forbidden"))
        await asked(world, 3)
    assert [each.name for each in await world.requests()] == ["p", "q", "q"]


async def test_the_request_for_an_eviction_expires_with_its_job(world: World) -> None:
    now = datetime.now(UTC).replace(microsecond=0)
    for name, more in (("p", {"ttl": "10m"}), ("q", {"ttl": "0s"})):
        await world.pod(name, "b")
        document = job(f"j-{name}", name, mode="EvictDirectly", **more)
        document["metadata"]["creationTimestamp"] = rfc3339(now - timedelta(minutes=4))
        await world.custom("PodMigrationJob", document)
    async with world.service(configuration(plugins=False, objectLimiters={"workload": {"duration": "0s"}})):
        await asked(world, 2)
    patience = {each.name: each.give_up_after_seconds for each in await world.requests()}
    assert 0 < patience["p"] <= 360
    assert patience["q"] == 0


async def test_eviction_that_the_gateway_gave_up_is_asked_for_again(world: World) -> None:
    await world.pod("p", "b")
    await world.custom("PodMigrationJob", job("j", "p", mode="EvictDirectly"))
    async with world.service(configuration(plugins=False)):
        await reached(world, "Running", "Eviction")
        await world.answer("p", PodEvictionFailed(reason="BudgetExceeded"))
        await asked(world, 2)


async def test_calls_of_the_eviction_api_count_by_their_outcome(world: World) -> None:
    await world.pod("p", "b")
    trigger = {"koordinator.sh/evict-trigger": "Drain"}
    wanted = job("j", "p", mode="EvictDirectly")
    await world.custom("PodMigrationJob", {**wanted, "metadata": {**wanted["metadata"], "annotations": trigger}})
    async with world.service(configuration(plugins=False)) as (shell, rounds):
        await reached(world, "Running", "Eviction")
        await world.answer("p", PodEvictionDelayed(reason="TooManyRequests", message="it needs 2 healthy pods"))
        await world.answer("p", PodEvictionDelayed(reason="ServerError"))
        await world.answer("p", PodEvictionFailed(reason="Forbidden"))
        await asked(world, 2)
        await leave(world, "p")
        await reached(world, "Succeeded", "Eviction")
        await folded(world, rounds)
        by = {"strategy": "Drain", "namespace": "d", "node": "b"}
        value = shell.metrics.registry.get_sample_value
        counted = [value("descheduler_pods_evicted_total", {"result": each, **by}) for each in ("error", "success")]
        assert counted == [3, 1]
    reader = AuditReader()
    records = [record for stored in await world.stored("eviction") for record in reader.read(stored)]
    assert [(record.action, record.decision) for record in records] == [
        ("evict_request", "allowed"),
        ("evict", "waiting"),
        ("evict", "waiting"),
        ("evict", "failed"),
        ("evict_request", "allowed"),
        ("evict", "done"),
    ]
    assert records[1].reasons == ["TooManyRequests: it needs 2 healthy pods"]
    story = migration_story("j", "uid-j", await world.stored("migration", "eviction"))
    assert story is not None
    assert [step.step for step in story.steps if step.step.startswith("eviction-")] == [
        "eviction-delayed", "eviction-delayed", "eviction-failed"
    ]  # fmt: skip


async def _held_times(world: World, code: str) -> int:
    facts = await world.facts("migration")
    return sum(code in each.limits for each in facts if isinstance(each, MigrationHeld))


async def _has_asked(world: World, name: str) -> bool:
    return name in [request.name for request in await world.requests()]


async def test_a_refused_soft_eviction_counts_as_an_error(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(effects, "FIRST_SECONDS", 0.01)
    await world.pod("p", "b")
    await world.custom("PodMigrationJob", job("j", "p", mode="EvictDirectly"))
    world.refuses = frozenset({"p"})
    async with world.service(configuration(plugins=False, evictionPolicy="SoftEviction")) as (shell, _):
        by = {"result": "error", "strategy": "", "namespace": "d", "node": "b"}
        await until(lambda: (shell.metrics.registry.get_sample_value("descheduler_pods_evicted_total", by) or 0) > 2)
    assert await progress(world) == ("Running", [])
    *_, held = [each for each in await world.facts("migration") if isinstance(each, MigrationHeld)]
    assert held.limits == ["SoftEvictionRefused"]
    assert await _held_times(world, "SoftEvictionRefused") == 1
    assert [each.reason for each in migration_events("uid-j", None, held)] == ["Evicting"]


async def test_a_job_waits_for_the_deletion_of_its_pod_after_the_eviction_succeeded(world: World) -> None:
    """The success is folded before the deletion, which the mirror of the API server brings."""
    for name in "pq":
        await world.pod(name, "b")
    await world.custom("PodMigrationJob", job("j", "p", mode="EvictDirectly"))
    free = configuration(plugins=False, objectLimiters={"workload": {"duration": "0s"}}, evictQPS=1000, evictBurst=1000)
    async with world.service(free):
        await reached(world, "Running", "Eviction")
        await world.answer("p", PodEvicted())
        await world.custom("PodMigrationJob", job("k", "q", mode="EvictDirectly"))
        await until(lambda: _has_asked(world, "q"))
        await world.write(AggregateRef("podspec", "u-p"), PodSpecDeleted(namespace="d", name="p"))
        await is_told(world, MigrationEnded)
    assert [request.name for request in await world.requests()] == ["p", "q"]


async def test_soft_eviction_annotates_the_pod(world: World) -> None:
    await world.pod("p", "b")
    await world.custom("PodMigrationJob", job("j", "p", mode="EvictDirectly"))
    async with world.service(configuration(plugins=False, evictionPolicy="SoftEviction")):
        await reached(world, "Running", "Eviction")
    assert await world.requests() == []
    (change,) = world.changes
    assert "scheduling.koordinator.sh/soft-eviction" in str(codec.encode(change))
