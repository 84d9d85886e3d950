"""The whole service under random interleavings of jobs, drains, preemption, kills, late answers and manual deletes.

At each position of the log the limit of the workload holds, every job goes through legal steps only, and at the end
every job has ended.
"""

import contextlib
import random
from collections.abc import Sequence
from typing import Any

import pytest
from koord_descheduler.cycle import Rounds
from koordcore.events import CATALOGUE
from koordcore.events.descheduling.migration import (
    MigrationAdvanced,
    MigrationArbitrated,
    MigrationEnded,
    MigrationForgotten,
    MigrationHeld,
)
from koordcore.events.envelope import AggregateRef, Event, StoredEvent
from koordcore.events.objects.gateway import PodEvicted, PodEvictionFailed, PodEvictionRequested
from koordcore.events.objects.mirror import PodSpecAdded, PodSpecDeleted
from koordcore.state import ClusterState
from koordcore.state.migrations import MigrationState
from support.descheduler.jobs import configuration, job
from support.descheduler.kill import Kill
from support.descheduler.world import World
from support.until import until

REPLICAS = 8
LIMIT = 2
STEPS = 40
TEXT = configuration(
    plugins=False,
    maxUnavailablePerWorkload=LIMIT,
    maxMigratingPerWorkload=REPLICAS - 1,
    maxMigratingPerNode=0,
    objectLimiters={},
    evictQPS=1000,
    evictBurst=10,
)
WEIGHTS = {
    "job": 8, "place": 8, "leave": 6, "answer late": 2, "give up": 2, "preempt": 1, "delete job": 1,
    "delete reservation": 1, "abort": 1, "kill": 3,
}  # fmt: skip


class Play:
    """The world around the service: it does what users, scheduler, gateway and controllers may do."""

    def __init__(self, world: World, rng: random.Random) -> None:
        self.world = world
        self.rng = rng
        self.pods = {f"replica-{index}" for index in range(REPLICAS)}
        self.asked: set[str] = set()
        self.late: set[str] = set()
        self.placed: set[str] = set()
        self.owned: set[str] = set()
        self.made = 0
        self._seen = 0

    async def look(self) -> None:
        """Take note of the evictions that were requested."""
        requested = await self.world.requests()
        for request in requested[self._seen :]:
            self.asked.add(request.name)
        self._seen = len(requested)

    async def step(self, what: str) -> None:
        """Do something of a kind, if there is an object for it."""
        await self.look()
        jobs, reservations = self.world.objects("PodMigrationJob"), self.world.objects("Reservation")
        match what:
            case "job":
                with_job = {each["spec"]["podRef"]["name"] for each in jobs.values()}
                for pod in self._one(self.pods - with_job):
                    await self._job(pod)
            case "place":
                for name in self._one(reservations.keys() - self.placed):
                    self.placed.add(name)
                    await self.world.placed_reservation(name, "a")
            case "leave":
                for pod in self._one(self.asked & self.pods):
                    await self._leave(pod, answered=self.rng.random() < 0.5)
            case "answer late":
                for pod in self._one(self.late):
                    self.late.discard(pod)
                    self.asked.discard(pod)
                    await self.world.answer(pod, PodEvicted())
            case "give up":
                for pod in self._one(self.asked & self.pods):
                    self.asked.discard(pod)
                    await self.world.answer(pod, PodEvictionFailed(reason="BudgetExceeded"))
            case "preempt":
                for pod in self._one(self.pods - self.asked):
                    request = PodEvictionRequested(
                        namespace="d", name=pod, node="b", initiator="scheduler", method="delete", reason="Preempted"
                    )
                    await self.world.write(AggregateRef("eviction", f"u-{pod}"), request)
            case "delete job":
                for name in self._one(jobs):
                    await self.world.delete("PodMigrationJob", name)
            case "delete reservation":
                for name in self._one(reservations):
                    await self.world.delete("Reservation", name)
            case "abort":
                for name in self._one(jobs):
                    await self.world.custom("PodMigrationJob", {**jobs[name], "status": {"phase": "Aborted"}})
            case _:
                raise AssertionError(what)

    def _one(self, names: Any) -> Sequence[str]:
        """Return one of the names, or none."""
        found = sorted(names)
        return [self.rng.choice(found)] if found else []

    async def _job(self, pod: str) -> None:
        self.made += 1
        mode: dict[str, Any] = {"mode": "EvictDirectly"} if self.rng.random() < 0.3 else {}
        document = job(f"j{self.made}", pod, **mode)
        document["metadata"]["annotations"] = {
            "koordinator.sh/evict-trigger": "Drain" if self.made % 2 else "LowNodeLoad"
        }
        await self.world.custom("PodMigrationJob", document)

    async def _leave(self, pod: str, *, answered: bool) -> None:
        """Delete a pod, whose eviction is answered now or later. Its successor takes its Reservation, if any."""
        self.pods.discard(pod)
        await self.world.write(AggregateRef("podspec", f"u-{pod}"), PodSpecDeleted(namespace="d", name=pod))
        if answered:
            self.asked.discard(pod)
            await self.world.answer(pod, PodEvicted())
        else:
            self.late.add(pod)
        self.made += 1
        successor = f"new-{self.made}"
        self.pods.add(successor)
        jobs = self.world.objects("PodMigrationJob").values()
        names = [f"uid-{each['metadata']['name']}" for each in jobs if each["spec"]["podRef"]["name"] == pod]
        reservations = self.placed & self.world.objects("Reservation").keys() & set(names)
        if reservations:
            self.owned.add(min(reservations))
            await self.world.owner(min(reservations), successor, "a")
        else:
            await self.world.pod(successor, "b")

    async def finish(self) -> None:
        """Answer everything that waits for an answer. Reservations that nobody can take are deleted."""
        for what in ("place", "leave", "answer late"):
            await self.step(what)
        for name in (self.world.objects("Reservation").keys() & self.placed) - self.owned:
            document = self.world.objects("PodMigrationJob").get(name.removeprefix("uid-"))
            if document is None or document["spec"]["podRef"]["name"] not in self.pods:
                await self.world.delete("Reservation", name)


class Checker:
    """Checks each position of the log."""

    def __init__(self) -> None:
        self.leaving: set[str] = set()
        self.steps: dict[str, list[Event]] = {}

    def check(self, events: Sequence[tuple[StoredEvent, Event]]) -> None:
        """Check all events of a log."""
        for stored, event in events:
            uid = stored.ref.id
            match event:
                case PodEvictionRequested():
                    if event.initiator == "descheduler":
                        self._check_limit(stored, events)
                    assert uid not in self.leaving, "two requests for one pod are open"
                    self.leaving.add(uid)
                case PodEvicted() | PodEvictionFailed():
                    self.leaving.discard(uid)
                case _ if stored.ref.kind == "migration":
                    self.steps.setdefault(uid, []).append(event)
                case _:
                    pass
        for steps in self.steps.values():
            _check_steps(steps)

    def _check_limit(self, stored: StoredEvent, events: Sequence[tuple[StoredEvent, Event]]) -> None:
        """Check the limit as the descheduler knew the log, with its own requests up to this one."""
        existing, leaving = set[str](), set[str]()
        for before, event in events:
            uid, is_known = before.ref.id, before.seq <= stored.based_on
            if before.seq >= stored.seq:
                break
            if isinstance(event, PodEvictionRequested) and (is_known or event.initiator == "descheduler"):
                leaving.add(uid)
            elif is_known and isinstance(event, PodSpecAdded):
                existing.add(uid)
            elif is_known and isinstance(event, PodSpecDeleted):
                existing.discard(uid)
            elif is_known and isinstance(event, PodEvicted | PodEvictionFailed):
                leaving.discard(uid)
        taken = {uid for uid in leaving if uid in existing and uid != stored.ref.id}
        assert len(taken) + max(0, REPLICAS - len(existing)) < LIMIT, f"{stored.ref} at {stored.seq}"


def _check_steps(steps: Sequence[Event]) -> None:
    """Check that a job is arbitrated once, before it advances, and that nothing follows its end."""
    arbitrated = [index for index, event in enumerate(steps) if isinstance(event, MigrationArbitrated)]
    ended = [index for index, event in enumerate(steps) if isinstance(event, MigrationEnded)]
    assert len(arbitrated) <= 1
    assert len(ended) <= 1
    for index, event in enumerate(steps):
        if isinstance(event, MigrationAdvanced):
            assert arbitrated
            assert arbitrated[0] < index
        if ended and index > ended[0]:
            assert isinstance(event, MigrationForgotten)
        assert isinstance(event, MigrationForgotten) <= (index == len(steps) - 1)
        assert isinstance(
            event, MigrationHeld | MigrationArbitrated | MigrationAdvanced | MigrationEnded | MigrationForgotten
        )


async def another_round(rounds: Rounds, kill: Kill) -> None:
    """Wait until the service has begun another round, or is dead."""
    begun = rounds.begun
    await until(lambda: kill.is_reached or rounds.begun > begun)


@pytest.mark.parametrize("seed", range(6))
async def test_every_interleaving_keeps_the_limit_and_ends_every_job(seed: int) -> None:
    rng = random.Random(seed)
    world = World()
    await world.begin()
    await world.replicas(REPLICAS)
    play = Play(world, rng)
    async with contextlib.AsyncExitStack() as stack:

        async def started(kill: Kill | None) -> Rounds:
            return (await stack.enter_async_context(world.service(TEXT, kill)))[1]

        kill = Kill(rng.randrange(12), rng.random() < 0.5)
        rounds = await started(kill)
        for _ in range(STEPS):
            what = rng.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
            if what == "kill":
                await stack.aclose()
                kill = Kill(rng.randrange(12), rng.random() < 0.5)
                rounds = await started(kill)
            else:
                await play.step(what)
            await another_round(rounds, kill)
        await stack.aclose()
        await started(None)

        async def all_ended() -> bool:
            await play.finish()
            state = ClusterState()
            for stored in await world.stored("migration"):
                state.apply(stored)
            known = state.of_kind(MigrationState)
            return all(
                each.ended_at
                if (each := known.get(f"uid-{name}"))
                else "status" in document  # aborted by a user before it had any fact
                for name, document in world.objects("PodMigrationJob").items()
            )

        await until(all_ended, every=0.05)
    kinds = ("podspec", "eviction", "migration")
    events = [(stored, event) for stored in await world.stored(*kinds) if (event := CATALOGUE.read(stored)) is not None]
    Checker().check(events)
    assert any(isinstance(event, MigrationEnded) and event.progress.phase == "Succeeded" for _, event in events)
