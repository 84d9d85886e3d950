"""Changes that the manager refuses for a lasting reason: they are tried and logged at growing intervals."""

from collections.abc import Sequence
from typing import Any

import pytest
from koord_descheduler.domain.jobs import effects as refusals
from koord_descheduler.domain.jobs.effects import FIRST_SECONDS, LONGEST_SECONDS, Refusals
from koord_descheduler.shell import drain_control, job_control, operation
from koord_descheduler.shell.leading import Leading
from koord_descheduler.shell.object_writer import NotWritten
from koord_descheduler.shell.rounds import execution
from koordcore.events.descheduling import RoundMove
from koordcore.events.envelope import AggregateRef
from koordcore.events.objects import PriorityClassObserved
from koordcore.ports.leadership import Term
from koordcore.protocol.objects import ObjectMeta, PriorityClass
from koordcore.requests.objects import ChangeOutcome, ChangeResult, CreateObject, DeleteObject, ObjectChange
from structlog.testing import capture_logs
from support.descheduler.jobs import configuration, job
from support.descheduler.world import AT, World
from support.until import until

REFUSED, DONE = (ChangeOutcome(result=result) for result in (ChangeResult.REFUSED, ChangeResult.DONE))
LOOKS = 20
REPLICAS = 20
DRAIN: dict[str, Any] = {
    "kind": "DrainNode",
    "metadata": {"name": "d", "uid": "uid-d", "creationTimestamp": AT},
    "spec": {"nodeName": "b", "confirmState": "Confirmed", "migrationPolicy": {"mode": "MigrateDirectly"}},
}


def test_each_refusal_doubles_the_pause_until_the_change_is_accepted() -> None:
    refused = Refusals()
    assert not refused.waits("a", 0.0)
    assert [refused.pause_after("a", [DONE, REFUSED], 0.0) for _ in range(9)] == [
        *(FIRST_SECONDS * factor for factor in (1, 2, 4, 8, 16)),
        *[LONGEST_SECONDS] * 4,
    ]
    assert (refused.waits("a", LONGEST_SECONDS - 1), refused.waits("a", LONGEST_SECONDS)) == (True, False)
    assert (refused.waits("a", -1.0), refused.waits("b", 0.0)) == (False, False)
    assert refused.pause_after("a", [DONE], 0.0) is None
    assert refused.pause_after("a", [REFUSED], 0.0) == FIRST_SECONDS


def test_a_change_that_nobody_wants_any_more_is_forgotten() -> None:
    refused = Refusals()
    refused.pause_after("a", [REFUSED], 0.0)
    refused.forget_old(FIRST_SECONDS + LONGEST_SECONDS - 1)
    assert refused.pause_after("a", [REFUSED], 0.0) == 2 * FIRST_SECONDS
    refused.forget_old(2 * FIRST_SECONDS + LONGEST_SECONDS)
    assert refused.pause_after("a", [REFUSED], 0.0) == FIRST_SECONDS


async def crowded(world: World) -> None:
    """Write the pod "p" on node "b", and so many others of its ReplicaSet on node "a" that it may be moved."""
    await world.begin()
    for number in range(REPLICAS - 1):
        await world.pod(f"replica-{number}", "a")
    await world.pod("p", "b")
    await world.workload(REPLICAS)


class Looks:
    """Counts how often a controller has looked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, module: Any) -> None:
        self.count = 0
        self._current = module.views_are_current
        monkeypatch.setattr(module, "views_are_current", self._look)

    async def _look(self, builder: Any) -> None:
        self.count += 1
        await self._current(builder)


def attempts(world: World, name: str) -> int:
    """How often the world was asked to create an object."""
    created = (each.document for each in world.changes if isinstance(each, CreateObject))
    return sum(document["metadata"]["name"] == name for document in created)


@pytest.mark.parametrize("kind", ["Reservation", "PodMigrationJob"])
async def test_a_drain_neither_asks_nor_logs_at_each_look(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setattr(drain_control, "LOOK_INTERVAL", 0.01)
    monkeypatch.setattr(refusals, "FIRST_SECONDS", 3600.0)
    looks = Looks(monkeypatch, drain_control)
    world, name = World(), "d-u-p"
    await crowded(world)
    async with world.service(configuration(plugins=False)):
        with capture_logs() as lines:
            if kind == "Reservation":
                world.refuses = frozenset({name})
            await world.custom("DrainNode", DRAIN)
            await until(lambda: attempts(world, name))
            if kind == "PodMigrationJob":
                await until(lambda: name in world.objects("Reservation"))
                world.refuses = frozenset({name})
                await world.placed_reservation(name, "a")
                await until(lambda: attempts(world, name) == 2)
            asked, begin = attempts(world, name), looks.count
            await until(lambda: looks.count > begin + LOOKS)
            assert attempts(world, name) == asked
    assert [line["event"] for line in lines].count("drain_change_refused") == 1


EXPIRED: dict[str, Any] = {**DRAIN, "spec": {"nodeName": "b", "ttl": "1s"}}


def deletions(world: World) -> int:
    """How often the world was asked to delete the DrainNode."""
    return sum(isinstance(each, DeleteObject) and each.kind == "DrainNode" for each in world.changes)


async def test_the_deletion_of_a_drain_is_neither_asked_for_nor_logged_at_each_look(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(drain_control, "LOOK_INTERVAL", 0.01)
    monkeypatch.setattr(refusals, "FIRST_SECONDS", 3600.0)
    looks = Looks(monkeypatch, drain_control)
    world = World()
    await world.begin()
    world.refuses = frozenset({"d"})
    async with world.service(configuration(plugins=False)):
        with capture_logs() as lines:
            await world.custom("DrainNode", EXPIRED)
            await until(lambda: deletions(world))
            begin = looks.count
            await until(lambda: looks.count > begin + LOOKS)
    assert deletions(world) == 1
    told = [line for line in lines if line["event"] == "drain_change_refused"]
    assert [(line["drain"], line["reason"]) for line in told] == [("d", "not allowed")]


async def test_a_deletion_of_a_drain_that_was_refused_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drain_control, "LOOK_INTERVAL", 0.01)
    monkeypatch.setattr(refusals, "FIRST_SECONDS", 0.01)
    world = World()
    await world.begin()
    world.refuses = frozenset({"d"})
    async with world.service(configuration(plugins=False)):
        await world.custom("DrainNode", EXPIRED)
        await until(lambda: deletions(world) > 1)
        world.refuses = frozenset()
        await until(lambda: not world.objects("DrainNode"))


async def test_a_drain_that_waits_for_finalizers_is_not_deleted_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drain_control, "LOOK_INTERVAL", 0.01)
    looks = Looks(monkeypatch, drain_control)
    world = World()
    await world.begin()
    async with world.service(configuration(plugins=False)):
        await world.custom(
            "DrainNode", {**EXPIRED, "metadata": {**EXPIRED["metadata"], "deletionTimestamp": AT, "finalizers": ["f"]}}
        )
        await until(lambda: _has_facts(world, "drain"))
        begin = looks.count
        await until(lambda: looks.count > begin + LOOKS)
    assert not deletions(world)


async def test_an_instance_that_leads_no_more_deletes_no_drain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drain_control, "LOOK_INTERVAL", 0.01)
    monkeypatch.setattr(refusals, "FIRST_SECONDS", 0.0)
    looks = Looks(monkeypatch, drain_control)

    def is_over(_: Leading, term: Term) -> bool:
        return True

    world = World()
    await world.begin()
    world.refuses = frozenset({"d"})
    async with world.service(configuration(plugins=False)):
        await world.custom("DrainNode", EXPIRED)
        await until(lambda: deletions(world))
        monkeypatch.setattr(Leading, "is_over", is_over)
        asked, begin = deletions(world), looks.count
        await until(lambda: looks.count > begin + LOOKS)
        assert deletions(world) == asked


class AwayWorld(World):
    """A cluster whose manager does not answer."""

    async def change(self, changes: Sequence[ObjectChange]) -> list[ChangeOutcome]:
        if changes:
            raise NotWritten("no answer")
        return []


async def test_a_drain_says_once_that_the_manager_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drain_control, "LOOK_INTERVAL", 0.01)
    looks = Looks(monkeypatch, drain_control)
    world = AwayWorld()
    await world.begin()
    async with world.service(configuration(plugins=False), flags=("--log-level=warning",)):
        with capture_logs() as lines:

            def told() -> int:
                return [line["event"] for line in lines].count("drain_waits")

            await world.custom("DrainNode", DRAIN)
            await until(told)
            begin = looks.count
            await until(lambda: looks.count > begin + LOOKS)
            assert told() == 1


async def test_a_drain_that_waits_is_told_once_although_a_group_of_the_same_name_does_not_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(drain_control, "LOOK_INTERVAL", 0.01)
    looks = Looks(monkeypatch, drain_control)
    world = AwayWorld()
    await world.begin()
    paused = {"nodeSelector": {"matchLabels": {"none": "none"}}, "executionPolicy": {"paused": True}}
    await world.custom("DrainNodeGroup", {**DRAIN, "kind": "DrainNodeGroup", "spec": paused})
    async with world.service(configuration(plugins=False), flags=("--log-level=warning",)):
        with capture_logs() as lines:
            await world.custom("DrainNode", DRAIN)
            begin = looks.count
            await until(lambda: looks.count > begin + LOOKS)
    assert [line["aggregate"] for line in lines if line["event"] == "drain_waits"] == ["drain.d"]


async def test_jobs_say_once_that_the_manager_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = Looks(monkeypatch, job_control)
    world = AwayWorld()
    await crowded(world)
    async with world.service(configuration(plugins=False), flags=("--log-level=warning",)):
        with capture_logs() as lines:
            await world.custom("PodMigrationJob", job("j", "p"))
            begin = looks.count
            await until(lambda: looks.count > begin + LOOKS)
    assert [line["reason"] for line in lines if line["event"] == "jobs_wait"] == ["no answer"]


async def test_jobs_and_drains_wait_for_a_priority_class_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drain_control, "LOOK_INTERVAL", 0.01)
    monkeypatch.setattr(job_control, "RETRY_SECONDS", 0.01)
    world = World()
    await crowded(world)
    await world.custom("PodMigrationJob", job("j", "p"))
    await world.custom("DrainNode", {**DRAIN, "spec": {**DRAIN["spec"], "nodeName": "a"}})
    text = configuration(plugins=False, priorityThreshold={"name": "gone"})
    async with world.service(text, flags=("--log-level=warning",)) as (shell, rounds):
        with capture_logs() as lines:
            await until(lambda: rounds.done >= LOOKS)
            assert not shell.service.stopping
            assert not await world.facts("migration")
            assert not await world.facts("drain")
            await world.write(
                AggregateRef("priorityclass", "gone"),
                PriorityClassObserved(object=PriorityClass(metadata=ObjectMeta(name="gone"), value=1000)),
            )
            await until(lambda: _has_facts(world, "migration"))
            await until(lambda: _has_facts(world, "drain"))
    missing = "priorityThreshold.name: must be the name of a PriorityClass, got 'gone'"
    told = [line for line in lines if line["event"] in ("jobs_wait", "drains_wait", "profiles_left_out")]
    assert len(told) <= 3
    assert all(missing in str(line.get("reason") or line["reasons"][0]) for line in told)


async def _has_facts(world: World, kind: str) -> bool:
    return bool(await world.facts(kind))


async def test_a_job_neither_asks_nor_logs_at_each_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refusals, "FIRST_SECONDS", 3600.0)
    looks = Looks(monkeypatch, job_control)
    world = World()
    await crowded(world)
    world.refuses = frozenset({"uid-j"})
    async with world.service(configuration(plugins=False), flags=("--log-level=warning",)):
        with capture_logs() as lines:
            await world.custom("PodMigrationJob", job("j", "p"))
            await until(lambda: attempts(world, "uid-j"))
            begin = looks.count
            await until(lambda: looks.count > begin + LOOKS)
    assert attempts(world, "uid-j") == 1
    assert [line["event"] for line in lines].count("job_change_refused") == 1


async def test_a_pass_says_once_that_old_jobs_cannot_be_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_control, "COLLECTION_SECONDS", 0.0)
    world = World()
    await crowded(world)
    world.refuses = frozenset({"j", "k"})
    async with world.service(configuration(plugins=False), flags=("--log-level=warning",)):
        with capture_logs() as lines:
            for name in "jk":
                old = job(name, "p", mode="EvictDirectly", ttl="1s")
                old["metadata"]["creationTimestamp"] = AT
                await world.custom("PodMigrationJob", old)

            def told() -> list[tuple[int, str, str]]:
                refused = [line for line in lines if line["event"] == "deletions_refused"]
                return [(line["deletions"], line["first"], line["reason"]) for line in refused]

            await until(lambda: (2, "PodMigrationJob j", "not allowed") in told())
    assert set(world.objects("PodMigrationJob")) == {"j", "k"}


async def test_the_jobs_of_a_round_wait_once_for_a_manager_that_does_not_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(execution, "_CHANGES_AT_ONCE", 1)
    asked = 0

    class CountedWorld(AwayWorld):
        async def change(self, changes: Sequence[ObjectChange]) -> list[ChangeOutcome]:
            nonlocal asked
            asked += 1
            return await super().change(changes)

    world = CountedWorld()
    await crowded(world)
    moves = [
        RoundMove(
            namespace="d", name=f"replica-{number}", uid=f"u-replica-{number}", node="a", profile="p", plugin="t",
            reason="r", job=f"j-{number}",
        )
        for number in range(3)
    ]  # fmt: skip
    async with world.service(configuration(plugins=False)) as (_, rounds):
        term = await rounds.leading.term()
        cluster = rounds.builder.view(0.0)
        refused = await rounds.execution.effects.move(moves, cluster, rounds.builder.state.position, term)
    assert (refused, asked) == ({move.uid for move in moves}, 1)


async def test_jobs_wait_while_the_log_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_control, "PAUSE_SECONDS", 3600.0)
    looks = Looks(monkeypatch, job_control)
    world = World()
    await crowded(world)
    await world.custom("PodMigrationJob", job("j", "p"))
    world.log.max_events = 0
    async with world.service(configuration(plugins=False)) as (_, rounds):
        await until(lambda: looks.count)
        await until(lambda: rounds.begun > LOOKS)
    assert looks.count == 1


@pytest.mark.parametrize("kind", ["PodMigrationJob", "DrainNode"])
async def test_a_full_log_is_told_once_and_all_goes_on_after_it(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setattr(job_control, "PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(drain_control, "LOOK_INTERVAL", 0.01)
    looks = Looks(monkeypatch, job_control if kind == "PodMigrationJob" else drain_control)
    world = World()
    await crowded(world)
    async with world.service(configuration(plugins=False), flags=("--log-level=warning",)):
        await until(lambda: _has_facts(world, "descheduler"))
        with capture_logs() as lines:
            world.log.max_events = world.log.last_seq + 1
            await world.custom(
                kind, job("j", "p") if kind == "PodMigrationJob" else {**DRAIN, "spec": {"nodeName": "x"}}
            )
            await until(lambda: lines)
            begin = looks.count
            await until(lambda: looks.count > begin + LOOKS)
        world.log.max_events = None
        await until(lambda: _has_facts(world, "migration" if kind == "PodMigrationJob" else "drain"))
    assert [line["event"] for line in lines] == ["log_full" if kind == "PodMigrationJob" else "drain_waits"]


async def test_the_configuration_is_recorded_once_a_full_log_has_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operation, "PAUSE_SECONDS", 0.01)
    world = World()
    await world.begin()
    world.log.max_events = 0
    async with world.service(configuration(plugins=False)) as (_, rounds):
        await until(lambda: rounds.done >= LOOKS)
        assert not await world.facts("descheduler")
        world.log.max_events = None
        await until(lambda: _has_facts(world, "descheduler"))
