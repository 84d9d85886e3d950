"""An eviction ends with its migration job: a deleted, paused or aborted job evicts no pod."""

from typing import Any

import pytest
from koord_manager.domain.cluster.withdrawn_evictions import with_withdrawals
from koord_manager.domain.controller_names import EVICTION
from koord_manager.domain.controllers.standalone.evictions import BlockedByBudget, Budgets, decide_eviction
from koord_manager.domain.documents.apply import Target
from koordcore.bus.adapters.memory import MemoryLog
from koordcore.events.envelope import AggregateRef, Draft
from koordcore.events.gateway import PodEvicted, PodEvictionRequested, PodEvictionWithdrawn
from koordcore.events.migration import MigrationEnded, MigrationProgress
from koordcore.events.objects import CustomObjectDeleted, CustomObjectObserved, custom_ref
from koordcore.state.aggregates import EvictionState
from support.manager.loops import Manager, pod, running
from support.manager.world import ManagerWorld
from support.until import until

JOB = custom_ref("podmigrationjobs", "", "j")
DELETED = CustomObjectDeleted(kind="PodMigrationJob", namespace="", name="j")


def job(uid: str = "uid-j", **more: Any) -> dict[str, Any]:
    reference = {"namespace": "default", "name": "p"}
    return {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "PodMigrationJob",
        "metadata": {"name": "j", "uid": uid},
        "spec": {"podRef": reference},
        **more,
    }


def requested(uid: str = "uid-j") -> PodEvictionRequested:
    return PodEvictionRequested(
        namespace="default", name="p", initiator="descheduler", reason="Descheduled", job="j", job_uid=uid
    )


def a_world() -> ManagerWorld:
    world = ManagerWorld()
    world.pod("u", {"metadata": {"name": "p"}})
    world.custom("podmigrationjobs", job())
    world.fact(AggregateRef("eviction", "u"), requested())
    return world


def decided(world: ManagerWorld) -> list[Draft]:
    found = decide_eviction(world.view, Budgets(), "u", world.now)
    assert not isinstance(found, BlockedByBudget)
    return found


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (DELETED, "JobDeleted"),
        (CustomObjectObserved(object=job("another")), "JobDeleted"),
        (CustomObjectObserved(object=job(spec={"paused": True})), "JobPaused"),
        (CustomObjectObserved(object=job(status={"phase": "Aborted"})), "JobAborted"),
    ],
    ids=["deleted", "replaced", "paused", "aborted"],
)
def test_a_job_that_is_stopped_takes_its_eviction_back_in_the_same_batch(change: Any, reason: str) -> None:
    world = a_world()
    before = decided(world)
    _, withdrawn = with_withdrawals(world.view, [Draft(JOB, change, world.view.state.last_seq(JOB))])
    assert isinstance(withdrawn.event, PodEvictionWithdrawn)
    assert withdrawn.event.reason == reason
    assert any(draft.ref == withdrawn.ref and draft.expected_last == withdrawn.expected_last for draft in before)

    world.fact(JOB, change)  # an older manager changes the job alone
    (late,) = decided(world)
    assert late.event == withdrawn.event
    assert "u" in world.view.queue.take(EVICTION)


def test_an_eviction_stands_while_its_job_runs_and_after_another_job_ended() -> None:
    world = a_world()
    change = CustomObjectObserved(object=job(spec={"paused": False}))
    assert len(with_withdrawals(world.view, [Draft(JOB, change, 0)])) == 1
    other = Draft(custom_ref("podmigrationjobs", "", "k"), DELETED, 0)
    assert len(with_withdrawals(world.view, [other])) == 1
    assert any(isinstance(draft.event, PodEvicted) for draft in decided(world))


@pytest.mark.parametrize(("phase", "goes"), [("Failed", False), ("Aborted", False), ("Succeeded", True)])
def test_an_eviction_is_not_carried_out_after_its_job_has_failed(phase: str, *, goes: bool) -> None:
    world = a_world()
    ended = MigrationEnded(job="j", progress=MigrationProgress(phase=phase))
    world.fact(AggregateRef("migration", "uid-j"), ended)
    assert any(isinstance(draft.event, PodEvicted) for draft in decided(world)) is goes


def test_a_restart_knows_the_evictions_of_a_job() -> None:
    world = a_world()
    world.restart()
    assert world.view.evictions_of_job("j") == ["u"]


async def test_after_a_deletion_was_answered_the_pod_is_not_evicted() -> None:
    manager = Manager(MemoryLog())
    async with running(manager):
        await manager.apply(pod("p"))
        document = str(job()).replace("'", '"')
        (created,) = await manager.apply(document)
        found = manager.view.pod("default", "p")
        assert found is not None
        ref = AggregateRef("eviction", found[0])
        await manager.say(ref, requested(created.uid))
        await until(lambda: found[0] in manager.view.state.of_kind(EvictionState))
        (deleted,) = await manager.intake.submit([Target("PodMigrationJob", "", "j")], "r")
        assert deleted.action == "deleted"
        assert found[0] not in manager.view.state.of_kind(EvictionState)
        assert manager.view.pod("default", "p") is not None
