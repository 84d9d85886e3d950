"""Migration jobs in the service: from a round or a hand-written object to their end, over restarts and aborts."""

from collections import Counter
from typing import Any

import pytest
from koord_descheduler import compose
from koord_descheduler.shell.job_control import JobControl
from koordcore.events.descheduling import RoundDecided
from koordcore.events.migration import MigrationArbitrated, MigrationEnded, MigrationForgotten, MigrationHeld
from koordcore.protocol import keys
from koordcore.stories.migrations import migration_story
from koordcore.stories.modifications import KINDS, AuditReader
from support.descheduler.jobs import (
    configuration,
    folded,
    is_told,
    job,
    leave,
    progress,
    reached,
    states,
)
from support.descheduler.world import AT, World
from support.reachable import container_sizes
from support.until import until


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
        await folded(world, rounds)
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
        await until(lambda: world.requests())
        assert list(rounds.builder.unreadable) == []
    found = (await states(world))["uid-a"]
    assert (found.progress.phase, found.progress.reason) == ("Failed", "InvalidPodMigrationJob")
    assert "template" in found.progress.message or "metadata" in found.progress.message


@pytest.mark.parametrize(("field", "value"), [("ttl", "5 minutes"), ("mode", "EvictThenMigrate")])
async def test_a_job_with_an_unreadable_value_fails_with_the_reason(world: World, field: str, value: str) -> None:
    await world.pod("p", "b")
    await world.custom("PodMigrationJob", job("j", "p", **{field: value}))
    async with world.service(configuration(plugins=False)):
        await is_told(world, MigrationEnded)
    (ended,) = [each for each in await world.facts("migration") if isinstance(each, MigrationEnded)]
    assert ended.progress.phase == "Failed"
    assert f"spec.{field}" in ended.progress.message
    assert value in ended.progress.message
    story = migration_story("j", "uid-j", await world.stored("migration"))
    assert story is not None
    assert story.steps[-1].step == "failed"


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
    assert list(await states(world)) == ["uid-k"]


async def test_two_jobs_of_one_pod_ask_for_one_eviction_and_both_end(world: World) -> None:
    await world.pod("p", "b")
    for name in ("j", "k"):
        await world.custom("PodMigrationJob", job(name, "p", mode="EvictDirectly"))
    async with world.service(configuration(plugins=False, evictBurst=10)):
        await is_told(world, MigrationHeld)
        await until(lambda: world.requests())
        await leave(world, "p")
        await is_told(world, MigrationEnded, 2)
    assert len([each for each in await world.facts("migration") if isinstance(each, MigrationArbitrated)]) == 2
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
        await folded(world, rounds)
    assert (await progress(world))[0] == "Failed"
    assert world.objects("Reservation") == {}


async def test_jobs_of_another_descheduler_that_came_and_went_leave_nothing_behind(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    controls: list[JobControl] = []

    def made(**parts: Any) -> JobControl:
        controls.append(JobControl(**parts))
        return controls[0]

    def kept() -> int:
        kinds = ("._agenda._due", "._agenda._seen", "._agenda._refused._known")
        return sum(size for path, size in container_sizes(controls[0]).items() if path in kinds)

    monkeypatch.setattr(compose, "JobControl", made)
    await world.pod("p", "a")
    async with world.service(configuration(plugins=False)):
        passed = job("j", "p")
        passed["metadata"]["annotations"] = {keys.PASSED_ARBITRATION: "true", keys.JOB_CREATED_BY: "another"}
        await world.custom("PodMigrationJob", passed)
        await until(kept)
        await world.delete("PodMigrationJob", "j")
        await until(lambda: not kept())
