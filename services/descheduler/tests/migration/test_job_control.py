"""Migration jobs in the service: from a round or a hand-written object to the eviction, over kills and aborts."""

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from koord_descheduler import compose
from koord_descheduler.cycle import Rounds
from koord_descheduler.shell import refusals
from koord_descheduler.shell.job_control import JobControl
from koord_manager.domain.gateway.descheduler_events import migration_events
from koordcore.events.descheduling.decisions import RoundDecided
from koordcore.events.descheduling.inputs import Number
from koordcore.events.descheduling.migration import (
    MigrationArbitrated,
    MigrationEnded,
    MigrationForgotten,
    MigrationHeld,
)
from koordcore.events.envelope import AggregateRef
from koordcore.events.objects.gateway import PodEvicted, PodEvictionDelayed, PodEvictionFailed
from koordcore.events.objects.mirror import PodSpecDeleted
from koordcore.protocol import keys
from koordcore.state import ClusterState
from koordcore.state.migrations import MigrationState
from koordcore.stories.migrations import migration_story
from koordcore.stories.modifications import KINDS, AuditReader
from koordcore.values import codec
from koordcore.values.timestamps import rfc3339
from support.descheduler.jobs import configuration, is_told, job, leave, progress, reached
from support.descheduler.world import AT, World
from support.reachable import container_sizes
from support.until import until

SECOND_POD = 2
REPLICAS = 20
SLOW: dict[str, Any] = {"objectLimiters": {"workload": {"duration": "1h", "maxMigrating": REPLICAS}}, "evictQPS": 0.001}
"""One eviction in a quarter of an hour, whatever its workload."""


@pytest.fixture
async def world() -> World:
    """Return a cluster whose workload has so many replicas that two of them may be unavailable."""
    world = World()
    await world.begin()
    await world.replicas(REPLICAS)
    return world


async def test_pod_moves_onto_its_reservation_though_the_service_is_restarted_at_each_step(world: World) -> None:
    await world.pod("p", "a")
    text = configuration()

    async with world.service(text):
        await reached(world, "Running", "ReservationCreated")
        (name,) = world.objects("Reservation")
        assert await world.requests() == []
    await world.placed_reservation(name, "b")
    async with world.service(text):
        await reached(world, "Running", "ReservationCreated", "ReservationScheduled", "Eviction")
    async with world.service(text):
        await leave(world, "p")
        await reached(world, "Running", "ReservationCreated", "ReservationScheduled", "Eviction", "PodBoundReservation")
    await world.owner(name, "q", "b")
    async with world.service(text):
        await is_told(world, MigrationEnded)

    (end,) = [each for each in await world.facts("migration") if isinstance(each, MigrationEnded)]
    assert (end.progress.phase, end.progress.status, end.progress.node) == ("Succeeded", "Complete", "b")
    assert end.progress.bound_pod is not None
    assert end.progress.bound_pod.name == "q"
    assert [request.name for request in await world.requests()] == ["p"]
    (made,) = world.objects("PodMigrationJob")
    assert len(world.objects("Reservation")) == 1
    story = migration_story(made, f"uid-{made}", await world.stored("migration", "eviction"))
    assert story is not None
    assert [step.step for step in story.steps] == [
        "arbitrated", "began", "ReservationCreated", "ReservationScheduled", "Eviction?", "evicted", "Eviction",
        "PodBoundReservation?", "PodBoundReservation", "ReservationBound", "BoundPodReady", "succeeded",
    ]  # fmt: skip
    assert "RemovePodsViolatingNodeTaints asked for it" in story.steps[0].sentence
    assert story.unavailable_seconds is not None


async def test_audit_has_each_decision_and_its_outcome(world: World) -> None:
    await world.pod("p", "a")
    async with world.service(configuration("EvictDirectly")):
        await reached(world, "Running", "Eviction")
        await leave(world, "p")
        await reached(world, "Succeeded", "Eviction")
    reader = AuditReader()
    found = [record for stored in await world.stored(*KINDS) for record in reader.read(stored)]
    records = [record for record in found if record.action != "config_change"]
    assert [(record.action, record.decision) for record in records] == [
        ("job_create", "allowed"),
        ("job_create", "done"),
        ("job_arbitrate", "allowed"),
        ("evict_request", "allowed"),
        ("job_update", "done"),
        ("evict", "done"),
        ("job_update", "done"),
    ]
    (decided,) = [each for each in await world.facts("descheduling") if isinstance(each, RoundDecided)]
    (move,) = decided.moves
    assert {(record.round, record.profile, record.job) for record in records} == {(move.round, move.profile, move.job)}
    assert {record.job_uid for record in records[1:]} == {f"uid-{move.job}"}
    assert {(record.plugin, record.pod, record.uid) for record in records} == {
        ("RemovePodsViolatingNodeTaints", "p", "u-p")
    }
    assert {record.job for record in records} == {records[0].job}
    assert len({record.id for record in records}) == len(records)
    assert all(record.epoch and record.cause and record.based_on for record in records if record.action == "job_update")
    assert records[3].reasons == [f"pod does not tolerate the taints of node a (migration job {records[0].job})"]


async def test_the_end_of_a_refused_job_names_the_rules(world: World) -> None:
    await world.pod("p", "a")
    await world.replicas(1)
    await world.custom("PodMigrationJob", job("j", "p"))
    async with world.service(configuration(plugins=False)):
        await is_told(world, MigrationEnded)
    (end,) = [each for each in await world.facts("migration") if isinstance(each, MigrationEnded)]
    assert (end.progress.reason, end.refusals) == ("ForbiddenMigratePod", ["expected_replicas"])
    facts = await world.stored("migration", "customspec")
    story = migration_story("j", "uid-j", facts)
    assert story is not None
    assert story.steps[-1].sentence.endswith("does not meet the requirements (rules: expected_replicas)")
    reader = AuditReader()
    records = [record for stored in facts for record in reader.read(stored)]
    (refused,) = [record for record in records if record.decision == "refused"]
    assert (refused.action, refused.reasons) == ("job_arbitrate", ["expected_replicas", "ForbiddenMigratePod"])


async def test_reservation_on_the_same_node_ends_the_job_without_an_eviction(world: World) -> None:
    await world.pod("p", "b")
    await world.custom("PodMigrationJob", job("j", "p"))
    async with world.service(configuration(plugins=False)):
        await reached(world, "Running", "ReservationCreated")
        await world.placed_reservation("uid-j", "b")
        await is_told(world, MigrationEnded)
    assert await progress(world) == ("Failed", ["ReservationCreated"])
    assert await world.requests() == []


async def test_direct_job_written_by_hand_evicts_and_succeeds(world: World) -> None:
    await world.pod("p", "b")
    await world.custom("PodMigrationJob", job("j", "p", mode="EvictDirectly", deleteOptions={"gracePeriodSeconds": 7}))
    begun = (await world.bus.events.head()).last_seq
    async with world.service(configuration(plugins=False)) as (shell, rounds):
        await reached(world, "Running", "Eviction")
        await leave(world, "p")
        await reached(world, "Succeeded", "Eviction")
        await _folded(world, rounds)
        value = shell.metrics.registry.get_sample_value
        assert value("descheduler_migration_jobs", {"phase": "Succeeded"}) == 1
        assert value("descheduler_arbitration_waiting") == 0
        by = {"result": "success", "strategy": "", "namespace": "d", "node": "b"}
        assert value("descheduler_pods_evicted_total", by) == 1
        reader = AuditReader()
        records = [record for stored in await world.stored(*KINDS) for record in reader.read(stored)]
        told = Counter((each.action, each.decision) for each in records if each.position > begun)
        assert {("job_arbitrate", "allowed"), ("evict", "done"), ("config_change", "done")} <= told.keys()
        for (action, decision), number in told.items():
            by = {"action": action, "decision": decision}
            assert value("descheduler_audit_records_total", by) == number, by
        assert value("descheduler_audit_records_total", {"action": "job_create", "decision": "done"}) is None, (
            "the job is older than the term"
        )
    (request,) = await world.requests()
    assert (request.name, request.grace_period_seconds, request.initiator) == ("p", 7, "descheduler")


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
        await _asked(world, 2)
        await world.answer("q", PodEvictionFailed(reason="Forbidden"))
        await _asked(world, 3)
    assert [each.name for each in await world.requests()] == ["p", "q", "q"]


async def test_the_request_for_an_eviction_expires_with_its_job(world: World) -> None:
    now = datetime.now(UTC).replace(microsecond=0)
    for name, more in (("p", {"ttl": "10m"}), ("q", {"ttl": "0s"})):
        await world.pod(name, "b")
        document = job(f"j-{name}", name, mode="EvictDirectly", **more)
        document["metadata"]["creationTimestamp"] = rfc3339(now - timedelta(minutes=4))
        await world.custom("PodMigrationJob", document)
    async with world.service(configuration(plugins=False, objectLimiters={"workload": {"duration": "0s"}})):
        await _asked(world, 2)
    patience = {each.name: each.give_up_after_seconds for each in await world.requests()}
    assert 0 < patience["p"] <= 360
    assert patience["q"] == 0


async def test_eviction_that_the_gateway_gave_up_is_asked_for_again(world: World) -> None:
    await world.pod("p", "b")
    await world.custom("PodMigrationJob", job("j", "p", mode="EvictDirectly"))
    async with world.service(configuration(plugins=False)):
        await reached(world, "Running", "Eviction")
        await world.answer("p", PodEvictionFailed(reason="BudgetExceeded"))
        await _asked(world, 2)


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
        await _asked(world, 2)
        await leave(world, "p")
        await reached(world, "Succeeded", "Eviction")
        await _folded(world, rounds)
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
    monkeypatch.setattr(refusals, "FIRST_SECONDS", 0.01)
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


async def test_soft_eviction_annotates_the_pod(world: World) -> None:
    await world.pod("p", "b")
    await world.custom("PodMigrationJob", job("j", "p", mode="EvictDirectly"))
    async with world.service(configuration(plugins=False, evictionPolicy="SoftEviction")):
        await reached(world, "Running", "Eviction")
    assert await world.requests() == []
    (change,) = world.changes
    assert "scheduling.koordinator.sh/soft-eviction" in str(codec.encode(change))


@pytest.mark.parametrize(
    "template",
    [{"spec": "all"}, {"spec": {"template": []}}, {"spec": {"template": {"spec": {"affinity": 1}}}}, {"metadata": "m"}],
)
async def test_a_job_with_a_malformed_template_holds_up_no_other_job(world: World, template: dict[str, Any]) -> None:
    await world.pod("p", "b")
    await world.pod("q", "b")
    await world.custom("PodMigrationJob", job("a", "p", reservationOptions={"template": template}))
    await world.custom("PodMigrationJob", job("k", "q", mode="EvictDirectly"))
    async with world.service(configuration(plugins=False)) as (_, rounds):
        await reached(world, "Running", "Eviction")
        assert list(rounds.builder.unreadable) == ["customspec.podmigrationjobs=a"]
    assert list(await _states(world)) == ["uid-k"]


async def test_a_job_fails_if_the_reservation_that_it_names_is_malformed(world: World) -> None:
    await world.pod("p", "b")
    await world.custom("Reservation", {"metadata": {"name": "mine", "uid": "uid-mine"}, "spec": {"template": "all"}})
    mine = {"reservationRef": {"name": "mine"}}
    await world.custom("PodMigrationJob", job("j", "p", reservationOptions=mine))
    async with world.service(configuration(plugins=False)):
        await is_told(world, MigrationEnded)
    (ended,) = [each for each in await world.facts("migration") if isinstance(each, MigrationEnded)]
    assert ended.progress.reason == "MissingReservation"


async def test_paused_and_foreign_jobs_are_left_alone(world: World) -> None:
    await world.pod("p", "b")
    await world.pod("q", "b")
    await world.pod("r", "b")
    foreign = job("f", "q", mode="EvictDirectly")
    foreign["metadata"]["annotations"] = {keys.JOB_CREATED_BY: "somebody"}
    await world.custom("PodMigrationJob", job("j", "p", mode="EvictDirectly", paused=True))
    await world.custom("PodMigrationJob", foreign)
    await world.custom("PodMigrationJob", job("k", "r", mode="EvictDirectly"))
    async with world.service(configuration(plugins=False)):
        await reached(world, "Running", "Eviction")
    assert [request.name for request in await world.requests()] == ["r"]
    assert list(await _states(world)) == ["uid-k"]


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


async def test_two_jobs_of_one_pod_ask_for_one_eviction_and_both_end(world: World) -> None:
    await world.pod("p", "b")
    for name in ("j", "k"):
        await world.custom("PodMigrationJob", job(name, "p", mode="EvictDirectly"))
    async with world.service(configuration(plugins=False, evictBurst=10)):
        await is_told(world, MigrationArbitrated, 2)
        await until(lambda: world.requests())
        await leave(world, "p")
        await is_told(world, MigrationEnded, 2)
    assert [request.name for request in await world.requests()] == ["p"]


async def test_deleted_job_is_forgotten_and_its_reservation_survives_no_abort(world: World) -> None:
    await world.pod("p", "b")
    await world.custom("PodMigrationJob", job("j", "p"))
    async with world.service(configuration(plugins=False)):
        await reached(world, "Running", "ReservationCreated")
        aborted = job("j", "p")
        aborted["status"] = {"phase": "Aborted"}
        await world.custom("PodMigrationJob", aborted)
        await is_told(world, MigrationEnded)
        await world.placed_reservation("uid-j", "a")
        await world.delete("PodMigrationJob", "j")
        await is_told(world, MigrationForgotten)
    assert (await progress(world))[0] == "Aborted"
    assert await world.requests() == []


async def test_job_over_its_time_takes_its_reservation_back(world: World) -> None:
    await world.pod("p", "b")
    old = job("j", "p", ttl="1s")
    async with world.service(configuration(plugins=False)) as (_, rounds):
        await world.custom("PodMigrationJob", job("j", "p"))
        await reached(world, "Running", "ReservationCreated")
        old["metadata"]["creationTimestamp"] = AT
        await world.custom("PodMigrationJob", old)
        await is_told(world, MigrationEnded)
        await _folded(world, rounds)
    assert (await progress(world))[0] == "Failed"
    assert world.objects("Reservation") == {}


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
        await _folded(world, rounds)
    assert world.objects("Reservation") == {}
    assert [request.name for request in await world.requests()] == ["p"]


async def _asked(world: World, times: int) -> None:
    """Wait until so many evictions are requested."""

    async def are_requested() -> bool:
        return len(await world.requests()) == times

    await until(are_requested)


async def _states(world: World) -> dict[str, MigrationState]:
    """Return uid -> state of each migration, folded from the facts."""
    state = ClusterState()
    for stored in await world.stored("migration"):
        state.apply(stored)
    return dict(state.of_kind(MigrationState).items())


async def _folded(world: World, rounds: Rounds) -> None:
    await rounds.runner.reached((await world.bus.events.head()).last_seq)


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
        await _asked(world, 2)
    assert {each.limits == [] for each in (await _states(world)).values()} == {True}


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
        await _folded(world, rounds)
    await world.custom("PodMigrationJob", job("k", "q", mode="EvictDirectly"))
    async with world.service(text) as (_, rounds):
        await is_told(world, MigrationArbitrated, SECOND_POD)
        await _folded(world, rounds)
        before = rounds.begun
        await until(lambda: rounds.begun > before + 10)
    assert [request.name for request in await world.requests()] == ["p"]


async def test_jobs_of_another_descheduler_that_came_and_went_leave_nothing_behind(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    controls: list[JobControl] = []

    def made(**parts: Any) -> JobControl:
        controls.append(JobControl(**parts))
        return controls[0]

    def kept() -> int:
        sizes = container_sizes(controls[0])
        return sum(size for path, size in sizes.items() if path in ("._due", "._seen", "._refused._known"))

    monkeypatch.setattr(compose, "JobControl", made)
    await world.pod("p", "a")
    async with world.service(configuration(plugins=False)):
        passed = job("j", "p")
        passed["metadata"]["annotations"] = {keys.PASSED_ARBITRATION: "true", keys.JOB_CREATED_BY: "another"}
        await world.custom("PodMigrationJob", passed)
        await until(kept)
        await world.delete("PodMigrationJob", "j")
        await until(lambda: not kept())
