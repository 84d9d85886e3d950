"""Plans in the service and step by step: all their pods move, or none."""

from dataclasses import replace
from datetime import UTC, datetime

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from koord_descheduler.domain.jobs.job import Condition, MigrationJob, Phase, PodRef
from koord_descheduler.domain.jobs.plan_steps import HELD_SECONDS, next_step, reservations_of
from koord_descheduler.domain.jobs.state_machine import created, evicted, look
from koord_descheduler.domain.jobs.world import CreateReservation, DeleteReservation, Evict, JobPolicy, ReservationView
from koord_descheduler.domain.view.pods import PodView
from koordcore.events.migration import MigratedPod, RepackCommitted, RepackEnded, RepackMove, RepackMoved, RepackPlanned
from koordcore.protocol import keys
from koordcore.state.migrations import DONE, ROLLED_BACK, RepackState
from koordcore.values.timestamps import rfc3339, unix_seconds
from support.descheduler.jobs import leave
from support.descheduler.plans import MEMBER, PLAN, PODS, configuration_of_plans, world_with_plan
from support.descheduler.views import pod_view_from_json
from support.descheduler.world import World
from support.until import until

TEXT = configuration_of_plans()


@pytest.fixture
async def world() -> World:
    """Return a cluster with a plan."""
    return await world_with_plan()


async def ended(world: World) -> list[RepackEnded]:
    return [each for each in await world.facts("repack") if isinstance(each, RepackEnded)]


async def test_no_pod_leaves_before_all_places_are_reserved_and_then_all_leave(world: World) -> None:
    async with world.service(TEXT):
        await until(lambda: len(world.objects("Reservation")) == len(PODS))
    first, second = sorted(world.objects("Reservation"))
    terms = world.objects("Reservation")[first]["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]
    (term,) = terms["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert [each["values"] for each in term["matchFields"]] == [["b"], ["c"]], "the nodes where room is made"
    await world.placed_reservation(first, "a")

    async def is_scheduled() -> bool:
        found = [each for each in await world.facts("migration") if "ReservationScheduled" in repr(each)]
        return bool(found)

    async with world.service(TEXT):
        await until(is_scheduled)
        assert await world.requests() == []
    await world.placed_reservation(second, "a")

    async def are_asked() -> bool:
        return len(await world.requests()) == len(PODS)

    async with world.service(TEXT):
        await until(are_asked)
    committed = [each for each in await world.facts("repack") if isinstance(each, RepackCommitted)]
    assert [each.reservations for each in committed] == [{f"j-{pod}": "a" for pod in PODS}]
    assert sorted(request.name for request in await world.requests()) == list(PODS)
    for pod, reservation in zip(PODS, (first, second), strict=True):
        await leave(world, pod)
        await world.owner(reservation, f"{pod}-new", "a")

    async def have_moved() -> bool:
        return any(isinstance(each, RepackMoved) for each in await world.facts("repack"))

    async with world.service(TEXT):
        await until(have_moved)
        assert await ended(world) == [], "the GPUs are held while the gang waits"
        await world.pod(MEMBER.name, "b")

        async def is_ended() -> bool:
            return bool(await ended(world))

        await until(is_ended)
    assert [each.result for each in await ended(world)] == [DONE]


async def test_one_move_that_is_lost_gives_all_places_back_and_no_pod_leaves(world: World) -> None:
    async with world.service(TEXT):
        await until(lambda: len(world.objects("Reservation")) == len(PODS))
        (first, _) = sorted(world.objects("Reservation"))
        await world.placed_reservation(first, "a")
        await world.delete("PodMigrationJob", f"j-{PODS[1]}")
        await until(lambda: first not in world.objects("Reservation"))
    assert await world.requests() == []
    (end,) = await ended(world)
    assert end.result == ROLLED_BACK
    assert f"j-{PODS[1]}" in end.reason


HAPPENINGS = st.tuples(
    st.integers(0, 2),
    st.sampled_from(
        [
            *("placed", "placed", "no node", "reservation goes", "pod goes", "owner", "aborted"),
            *("job goes", "late", "gang is bound", "plan looks", "job looks", "job looks"),
        ]
    ),
)


class Story:
    """A plan of three moves, and what happens to its jobs, Reservations and pods, in any order."""

    def __init__(self) -> None:
        moves = [
            RepackMove(job=f"j{i}", pod=MigratedPod(namespace="d", name=f"p{i}", uid=f"u{i}"), source="n1")
            for i in range(3)
        ]
        planned = RepackPlanned(gang="d/gang", members=[], nodes=["n1"], moves=moves)
        self.state = RepackState(seq=1, plan=planned, planned_at="2026-01-01T00:00:00Z")
        self.now = 1_767_225_600.0
        self.pods: dict[str, PodView] = {f"p{i}": running(f"p{i}", f"u{i}") for i in range(3)}
        self.jobs: dict[str, MigrationJob] = {
            f"j{i}": MigrationJob(
                name=f"j{i}", uid=f"j{i}", created=self.now, ttl=300.0, pod=PodRef("d", f"p{i}", f"u{i}"),
                annotations={keys.MOVE_PLAN: PLAN}, phase=Phase.RUNNING,
            )
            for i in range(3)
        }  # fmt: skip
        self.reservations: dict[str, ReservationView] = {}
        self.evicted: list[str] = []
        self.is_waiting = True

    def pod(self, namespace: str, name: str) -> PodView | None:
        return self.pods.get(name)

    def reservation(self, name: str) -> ReservationView | None:
        return self.reservations.get(name)

    def pod_scheduled(self, pod: PodView) -> Condition | None:
        return Condition(bool(pod.node))

    def is_limited(self, pod: PodView) -> bool:
        return False

    def plan(self, name: str) -> RepackState | None:
        return self.state if name == PLAN else None

    def happen(self, index: int, what: str) -> None:
        name = f"j{index}"
        known = self.reservations.get(name)
        match what:
            case "placed" if known is not None and not known.node:
                scheduled = {"Scheduled": Condition(True, "Scheduled")}
                self.reservations[name] = replace(known, phase="Available", node="n2", conditions=scheduled)
            case "no node" if known is not None and not known.node:
                self.reservations[name] = replace(known, phase="Failed")
            case "owner" if known is not None and known.node:
                owner = (PodRef("d", f"p{index}", f"new{index}"),)
                self.reservations[name] = replace(known, phase="Succeeded", current_owners=owner)
            case "reservation goes":
                self.reservations.pop(name, None)
            case "pod goes":
                self.pods.pop(f"p{index}", None)
            case "aborted" if name in self.jobs and self.jobs[name].is_in_flight:
                self.jobs[name] = self.jobs[name].aborted("a user")
            case "job goes":
                self.jobs.pop(name, None)
            case "late":
                self.now += 200
            case "gang is bound":
                self.is_waiting = False
            case "plan looks":
                self.look_at_plan()
            case "job looks" if name in self.jobs:
                self.look_at_job(name)
            case _:
                pass

    def look_at_plan(self) -> None:
        if self.state.ended_at:
            return
        available = {each.name: each.node for each in self.reservations.values() if each.phase == "Available"}
        event = next_step(self.state, self.jobs, available, is_waiting=self.is_waiting, now=self.now)
        match event:
            case RepackCommitted():
                assert set(event.reservations) == {"j0", "j1", "j2"}
                self.state = msgspec.structs.replace(self.state, committed_at="2026-01-01T00:00:01Z")
            case RepackMoved():
                assert self.is_waiting
                assert all(job.phase is Phase.SUCCEEDED for job in self.jobs.values())
                self.state = msgspec.structs.replace(
                    self.state, moved_at=rfc3339(datetime.fromtimestamp(self.now, UTC))
                )
            case RepackEnded():
                assert not self.state.moved_at or not self.is_waiting or self.has_held_long(), "the gang has its time"
                if event.result == ROLLED_BACK:
                    assert not self.evicted
                    for name in reservations_of(self.state, self.jobs):
                        self.reservations.pop(name, None)
                self.state = msgspec.structs.replace(
                    self.state, ended_at="2026-01-01T00:00:02Z", result=event.result, reason=event.reason
                )
            case _:
                pass

    def has_held_long(self) -> bool:
        return self.now - unix_seconds(self.state.moved_at) >= HELD_SECONDS

    def look_at_job(self, name: str) -> None:
        looked = look(self.jobs[name], self, JobPolicy(), self.now)
        self.jobs[name] = looked.job
        for effect in looked.effects:
            match effect:
                case CreateReservation(avoided=avoided):
                    assert avoided == {"n1"}
                    self.reservations.setdefault(name, ReservationView(name=name))
                    self.jobs[name] = created(self.jobs[name], "").job
                case DeleteReservation(name=reservation):
                    self.reservations.pop(reservation, None)
                case Evict(pod=pod):
                    assert self.state.committed_at, "no pod leaves before the plan is committed"
                    self.evicted.append(pod.uid)
                    self.jobs[name] = evicted(self.jobs[name], pod, "").job
                case _:
                    pass


def running(name: str, uid: str) -> PodView:
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "r", "controller": True}
    return pod_view_from_json(
        {
            "metadata": {"name": name, "namespace": "d", "uid": uid, "ownerReferences": [owner]},
            "spec": {"nodeName": "n1", "containers": [{"name": "c"}]},
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
        }
    )


@given(st.lists(HAPPENINGS, max_size=60))
def test_in_any_order_of_events_no_pod_leaves_alone_and_every_plan_ends(happenings: list[tuple[int, str]]) -> None:
    story = Story()
    for index, what in happenings:
        story.happen(index, what)
    story.now += 10_000  # at the latest, the time of all jobs is over
    for _ in range(3):
        story.look_at_plan()
        for name in story.jobs:
            story.look_at_job(name)
    story.look_at_plan()
    story.now += HELD_SECONDS  # for a gang that waits after all moves
    story.look_at_plan()
    assert story.state.ended_at
    assert len(set(story.evicted)) == len(story.evicted)
    if story.state.result == ROLLED_BACK:
        assert not story.evicted
        assert all(not each.is_in_flight for each in story.jobs.values())
        assert not story.jobs.keys() & story.reservations.keys(), "all places are given back"
