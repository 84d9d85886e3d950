"""Two schedulers on one log, in any interleaving: no pod is placed twice, and no node holds too much."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from random import Random
from typing import Final

from hypothesis import event, example, given, settings
from hypothesis import strategies as st
from koord_scheduler.domain.loop.folding.log import fold
from koord_scheduler.domain.loop.state.state import SchedulerState
from koord_scheduler.domain.replay.snapshot import Picture, load_state
from koord_scheduler.domain.replay.state_hash import state_hash
from koordcore.events import CATALOGUE
from koordcore.events.node_ledger import NodeResourcesReturned, NodeResourcesTaken
from koordcore.state.aggregates import NodeLedger
from support.depth import examples
from support.scheduler.placements import picture, placements
from support.scheduler.reservations import fold_of
from support.scheduler.scheduling import Scheduler, SmallLog, frameworks, node, pod


@dataclass(frozen=True)
class Op:
    """One step of a random history; numbers choose among what exists."""

    what: str
    who: int
    number: int


STEPS: Final = (
    *("add_node", "remove_node", "add_pod", "add_pod", "add_pod", "remove_pod", "shrink", "grow", "release"),
    *("follow", "follow", "follow_some", "decide", "decide", "decide", "send", "send", "land", "land", "land_last"),
)


def some_history(seed: int) -> list[Op]:
    """Steps of two schedulers and their surroundings, enough of them that pods are placed, refused and released."""
    random = Random(seed)
    history = [Op("add_node", 0, 0), Op("add_node", 0, 1)]
    return history + [Op(random.choice(STEPS), random.randrange(2), random.randrange(8)) for _ in range(150)]


def check_ledgers(log: SmallLog, allocatable: dict[str, dict[str, int]], pods_cpu: dict[str, int]) -> None:
    """No node holds more than it ever had (allocatable only grows and pods only shrink here), and no pod is on two
    nodes. A resize that is decided between the two facts of an append by the other scheduler is told twice, with the
    same amounts. `pods_cpu`: uid -> cpu that the pod requests now.
    """
    held: dict[str, dict[str, dict[str, int]]] = {}
    for stored in log.events:
        match CATALOGUE.read(stored):
            case NodeResourcesTaken(pods=pods):
                on_node = held.setdefault(stored.ref.id, {})
                for item in pods:
                    assert item.uid not in on_node or item.requests["cpu"] <= on_node[item.uid]["cpu"]
                    on_node[item.uid] = item.requests
            case NodeResourcesReturned(pods=uids):
                for uid in uids:
                    del held[stored.ref.id][uid]
            case _:
                pass
    for name, pods in held.items():
        for resource, most in allocatable[name].items():
            total = len(pods) if resource == "pods" else sum(pods_cpu[uid] for uid in pods)
            assert total <= most, f"{name}: {resource} {total} > {most}"
    everywhere = [uid for pods in held.values() for uid in pods]
    assert sorted(everywhere) == sorted(set(everywhere))
    assert {uid: name for name, pods in held.items() for uid in pods} == placements(log)


def held_by_log(log: SmallLog) -> dict[str, int]:
    """Uid -> cpu, for the pods in the ledgers."""
    return {
        uid: entry.requests["cpu"]
        for ledger in fold_of(log).of_kind(NodeLedger).values()
        for uid, entry in ledger.pods.items()
    }


class Painted(Scheduler):
    """Pictures of its state are taken down while it works, a piece at each step."""

    def __init__(self, log: SmallLog) -> None:
        super().__init__(log)
        self._pictures: list[tuple[Picture, Iterator[bytes], list[bytes]]] = []

    def begin_picture(self) -> None:
        taken = Picture(self.state)
        self._pictures.append((taken, taken.pieces(), []))

    def paint(self) -> None:
        for _, coming, pieces in self._pictures:
            pieces += islice(coming, 1)

    def painted(self) -> list[bytes]:
        return [b"".join((*pieces, *coming)) for _, coming, pieces in self._pictures]

    def follow(self, most: int | None = None) -> None:
        for stored in self.log.events[self.state.log.position :][:most]:
            for taken, _, _ in self._pictures:
                taken.keep(stored.ref)
            fold(self.state, stored)
        self.state.hints.wake()


@settings(max_examples=examples(150))
@given(st.integers(0, 2**32).map(some_history))
@example(some_history(290_081))  # a node comes back while the resize of a pod on it is on its way
def test_two_schedulers_in_any_interleaving(ops: list[Op]) -> None:
    log = SmallLog()
    schedulers = [Painted(log), Painted(log)]
    allocatable: dict[str, dict[str, int]] = {}
    alive: set[str] = set()
    pods: set[str] = set()
    pods_cpu: dict[str, int] = {}
    submitted, now = 0, 0.0
    for step, op in enumerate(ops):
        scheduler = schedulers[op.who]
        name = f"n{op.number % 3}"
        match op.what:
            case "add_node" | "grow":
                known = allocatable.setdefault(name, {"cpu": 1000, "pods": 2})
                if op.what == "grow":
                    known["cpu"] += 1000
                log.add_node(node(name, cpu=f"{known['cpu']}m", pods=str(known["pods"])))
                alive.add(name)
            case "remove_node":
                if name in alive:
                    alive.remove(name)
                    log.remove_node(name)
            case "add_pod":
                uid = f"p{submitted}"
                submitted += 1
                pods.add(uid)
                pods_cpu[uid] = 300 * (1 + op.number % 3)
                log.add_pod(pod(uid, {"cpu": f"{pods_cpu[uid]}m"}, priority=int(uid[1:]) % 2))
            case "shrink":
                if present := sorted(filter(log.knows_pod, pods)):
                    uid = present[op.number % len(present)]
                    pods_cpu[uid] = max(100, pods_cpu[uid] - 200)
                    log.add_pod(pod(uid, {"cpu": f"{pods_cpu[uid]}m"}, priority=int(uid[1:]) % 2))
            case "remove_pod":
                if pods:
                    uid = sorted(pods)[op.number % len(pods)]
                    pods.remove(uid)
                    log.remove_pod(uid)
            case "follow":
                scheduler.follow()
            case "follow_some":
                scheduler.follow(op.number)
            case "decide":
                now += 1.0
                scheduler.decide(now)
            case "release":
                scheduler.state.assumed.release_due()
                scheduler.state.assumed.resize_due()
            case "send":
                scheduler.send(1 + op.number)
            case "land" | "land_last":
                if scheduler.in_flight:
                    scheduler.land(0 if op.what == "land" else -1, now)
            case _:
                raise AssertionError(op)
        if step % 7 == 0:
            check_ledgers(log, allocatable, pods_cpu)
        for each in schedulers:
            each.paint()
        if step % 31 == 0:
            scheduler.begin_picture()
    event(f"placed and refused some: {bool(placements(log)) and any(one.conflicts for one in schedulers)}")
    for scheduler in schedulers:
        scheduler.send()
        while scheduler.in_flight:
            scheduler.land(now=now)
    for scheduler in schedulers * 6:  # preemption makes room only for the next round
        now += 400.0
        scheduler.run(now)
    check_ledgers(log, allocatable, pods_cpu)
    assert set(placements(log).values()) <= alive
    fresh = SchedulerState(frameworks())
    for stored in log.events:
        fold(fresh, stored)
    for data in [data for scheduler in schedulers for data in scheduler.painted()]:
        restored = SchedulerState(frameworks())
        load_state(restored, data)
        for stored in log.events[restored.log.position :]:
            fold(restored, stored)
        assert picture(restored) == picture(fresh)
        assert state_hash(restored) == state_hash(fresh)
    ledgers = held_by_log(log)
    assert {uid: pods_cpu[uid] for uid in ledgers} == ledgers, "every resize is told"
    for scheduler in schedulers:
        scheduler.follow()
        assert picture(scheduler.state) == picture(fresh)
        assert state_hash(scheduler.state) == state_hash(fresh)
        for uid in (pods & scheduler.state.pods.keys()) - placements(log).keys():
            subject = scheduler.state.pods[uid].subject
            assert subject is not None
            assert not scheduler.state.has_room(subject), f"{uid} fits and was left waiting"
