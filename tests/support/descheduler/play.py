"""What users, scheduler, gateway and controllers may do around the descheduler, at random, and what must hold then."""

import random
from collections.abc import Sequence
from typing import Any, Final

from koordcore.events.envelope import AggregateRef, Event, StoredEvent
from koordcore.events.gateway import PodEvicted, PodEvictionFailed, PodEvictionRequested, PodEvictionWithdrawn
from koordcore.events.migration import (
    MigrationAdvanced,
    MigrationArbitrated,
    MigrationEnded,
    MigrationForgotten,
    MigrationHeld,
)
from koordcore.events.objects import PodSpecAdded, PodSpecDeleted
from koordcore.protocol.drains import ConfirmState
from support.descheduler.jobs import job
from support.descheduler.world import AT, World

REPLICAS: Final = 8
LIMIT: Final = 2
"""At most so many pods of the workload may be unavailable."""


class Play:
    """The world around the service: it does what users, scheduler, gateway and controllers may do.

    Args:
        world: The cluster.
        rng: Chooses what happens to which object.
    """

    def __init__(self, world: World, rng: random.Random) -> None:
        self.world = world
        self.rng = rng
        self.pods = {f"r{index}" for index in range(REPLICAS)}
        self.asked: set[str] = set()
        self.late: set[str] = set()
        self.placed: set[str] = set()
        self.owned: set[str] = set()
        self.made = 0
        self._seen = 0

    async def begin(self) -> None:
        """Write two nodes, and a workload whose pods all run on node "b"."""
        await self.world.begin()
        for name in sorted(self.pods):
            await self.world.pod(name, "b")
        await self.world.workload(REPLICAS)

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
                for name in self._one(name for name, each in reservations.items() if _uid(each) not in self.placed):
                    self.placed.add(_uid(reservations[name]))
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
                    await self.world.patch("PodMigrationJob", name, {"status": {"phase": "Aborted"}})
            case "drain":
                await self.drain(self.rng.choice([*ConfirmState][:2]))
            case "drain group":
                self.made += 1
                policy = {"partition": self.rng.choice([0, 1, None])}
                await self._write("DrainNodeGroup", f"g{self.made}", executionPolicy=policy)
            case "confirm" | "abort drain":
                state = ConfirmState.CONFIRMED if what == "confirm" else ConfirmState.ABORTED
                for name in self._one(self.world.objects("DrainNode")):
                    await self.world.patch("DrainNode", name, {"spec": {"confirmState": str(state)}})
            case "delete drain":
                for kind in ("DrainNode", "DrainNodeGroup"):
                    for name in self._one(self.world.objects(kind)):
                        await self.world.delete(kind, name)
            case _:
                raise AssertionError(what)

    async def drain(self, state: ConfirmState) -> None:
        """Create a DrainNode for node "b", which a user has confirmed or not."""
        self.made += 1
        policy = {"mode": "MigrateDirectly"}
        await self._write("DrainNode", f"d{self.made}", nodeName="b", migrationPolicy=policy, confirmState=str(state))

    async def _write(self, kind: str, name: str, **spec: Any) -> None:
        metadata = {"name": name, "uid": f"uid-{name}", "creationTimestamp": AT}
        await self.world.custom(kind, {"kind": kind, "metadata": metadata, "spec": spec})

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
        names = {_reservation_of(each) for each in jobs if each["spec"]["podRef"]["name"] == pod}
        if found := min(names & self._placed().keys(), default=""):
            self.owned.add(self._placed()[found])
            await self.world.owner(found, successor, "a")
        else:
            await self.world.pod(successor, "b")

    async def finish(self) -> None:
        """Answer everything that waits for an answer. Reservations that nobody can take are deleted."""
        for what in ("place", "leave", "answer late"):
            await self.step(what)
        jobs = self.world.objects("PodMigrationJob").values()
        wanted = {_reservation_of(each) for each in jobs if each["spec"]["podRef"]["name"] in self.pods}
        for name, uid in self._placed().items():
            if uid not in self.owned and name not in wanted:
                await self.world.delete("Reservation", name)

    def _placed(self) -> dict[str, str]:
        """Return name -> uid of the Reservations that exist and were placed."""
        uids = {name: _uid(each) for name, each in self.world.objects("Reservation").items()}
        return {name: uid for name, uid in uids.items() if uid in self.placed}


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
                case PodEvicted() | PodEvictionFailed() | PodEvictionWithdrawn():
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
            elif is_known and isinstance(event, PodEvicted | PodEvictionFailed | PodEvictionWithdrawn):
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


def _reservation_of(job: dict[str, Any]) -> str:
    """Return the name of the Reservation of a job: the one of its drain, else the uid of the job."""
    given: dict[str, Any] = job["spec"].get("reservationOptions") or {}
    return str(given["reservationRef"]["name"] if given else _uid(job))


def _uid(document: dict[str, Any]) -> str:
    return str(document["metadata"]["uid"])
