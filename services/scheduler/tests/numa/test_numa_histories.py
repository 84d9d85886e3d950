"""Over random histories: no CPU and no zone is given twice, a restart knows the same, and equal logs decide equally."""

import random

import numpy as np
import pytest
from koord_scheduler.domain.loop.state.state import SchedulerState
from koord_scheduler.domain.replay.snapshot import Picture, load_state
from koordcore.protocol import keys
from koordcore.state.allocation_rules import violations
from koordcore.values.allocation import Allocation
from support.depth import seeds
from support.scheduler.numa import add_numa_node, lsr_pod
from support.scheduler.scheduling import Scheduler, SmallLog, frameworks, pod, with_metadata


def random_history(seed: int) -> tuple[SmallLog, Scheduler]:
    """Nodes of several kinds, pods that come and go, and a scheduler that decides in between."""
    chance, log = random.Random(seed), SmallLog()
    for index in range(3):
        labels = {
            keys.NUMA_TOPOLOGY_POLICY: chance.choice(["", "", "Restricted", "SingleNUMANode", "BestEffort"]),
            keys.CPU_BIND_POLICY: chance.choice(["None", "None", "FullPCPUsOnly"]),
        }
        offline = chance.sample(range(8), chance.choice([0, 0, 0, 1, 2]))
        add_numa_node(log, f"n{index}", labels=labels, cores_per_zone=chance.choice([2, 4]), offline=offline)
    scheduler, alive = Scheduler(log), list[str]()
    for step in range(40):
        if alive and chance.random() < 0.35:
            log.remove_pod(alive.pop(chance.randrange(len(alive))))
        else:
            uid = f"p{step}"
            alive.append(uid)
            if chance.random() < 0.3:
                log.add_pod(pod(uid, {"cpu": str(chance.choice([1, 2])), "memory": "1Gi"}))
            else:
                wanted = lsr_pod(
                    uid,
                    chance.choice([1, 2, 4, 6]),
                    bind=chance.choice(["", "SpreadByPCPUs"]),
                    required=chance.choice(["", "FullPCPUs"]),
                    policy=chance.choice(["", "", "SingleNUMANode", "Restricted"]),
                )
                log.add_pod(wanted)
        if chance.random() < 0.5:
            scheduler.run(now=30.0 * step)
    scheduler.run(now=5000.0)
    return log, scheduler


def allocations_of(state: SchedulerState) -> dict[str, Allocation]:
    """What every pod on a node has."""
    return {
        uid: info.allocation for index in range(3) for uid, info in state.assumed.ledgers.holders(f"n{index}").items()
    }


def assert_same_books(one: SchedulerState, other: SchedulerState) -> None:
    """Books and arrays agree node by node."""
    for index in range(3):
        row, again = one.nodes.row(f"n{index}"), other.nodes.row(f"n{index}")
        assert row is not None
        assert again is not None
        mine, theirs = one.books.numa.book(row), other.books.numa.book(again)
        assert (mine.pods, mine.bound, mine.allocated) == (theirs.pods, theirs.bound, theirs.allocated)
        for name in ("free", "full", "open", "spanning", "single", "exists"):
            left: np.ndarray = getattr(one.books.numa.columns, name)
            right: np.ndarray = getattr(other.books.numa.columns, name)
            assert left[:, row].tolist() == right[:, again].tolist()


@pytest.mark.parametrize("seed", seeds(25, few=3))
def test_nothing_is_given_twice_and_a_restart_and_a_replay_know_the_same(seed: int) -> None:
    log, scheduler = random_history(seed)
    state = scheduler.state
    for index in range(3):
        assert violations(state.assumed.ledgers.holders(f"n{index}")) == []
        row = state.nodes.row(f"n{index}")
        assert row is not None
        book = state.books.numa.book(row)
        for zone, amounts in book.allocated.items():
            for resource, amount in amounts.items():
                assert amount <= book.hardware.zones[zone][resource], "a zone gives no more than it has"
    folded = Scheduler(log)
    folded.follow()
    assert allocations_of(folded.state) == allocations_of(state)
    assert_same_books(folded.state, state)
    restored = SchedulerState(frameworks())
    load_state(restored, b"".join(Picture(state).pieces()))
    assert allocations_of(restored) == allocations_of(state)
    assert_same_books(restored, state)
    again, _ = random_history(seed)
    assert [stored.body for stored in again.events] == [stored.body for stored in log.events]


@pytest.mark.parametrize("seed", seeds(8))
def test_when_all_pods_are_gone_the_books_are_those_of_empty_nodes(seed: int) -> None:
    log, scheduler = random_history(seed)
    for uid in list(scheduler.state.pods):
        log.remove_pod(uid)
    scheduler.run(now=9000.0)
    for index in range(3):
        row = scheduler.state.nodes.row(f"n{index}")
        assert row is not None
        book = scheduler.state.books.numa.book(row)
        assert (book.pods, book.bound, book.allocated, book.counts()) == ({}, 0, {}, {})
        before = scheduler.state.books.numa.columns.free[:, row].tolist()
        scheduler.state.books.numa.columns.put(row, book)
        assert scheduler.state.books.numa.columns.free[:, row].tolist() == before


@pytest.mark.parametrize("seed", seeds(8))
def test_overlapping_pods_of_other_schedulers_are_kept_and_never_made_worse(seed: int) -> None:
    chance, log = random.Random(seed), SmallLog()
    add_numa_node(log, "n0")
    for index in range(4):
        start = chance.randrange(8)
        status = f'{{"cpuset":"{start}-{start + chance.randrange(4)}"}}'
        bound = pod(f"foreign{index}", {"cpu": "1"}, nodeName="n0")
        log.add_pod(with_metadata(bound, annotations={keys.RESOURCE_STATUS: status}))
    scheduler = Scheduler(log)
    scheduler.run()
    before = {each.subject for each in violations(scheduler.state.assumed.ledgers.holders("n0"))}
    for index in range(4):
        log.add_pod(lsr_pod(f"p{index}", 2))
    scheduler.run(now=60.0)
    holders = scheduler.state.assumed.ledgers.holders("n0")
    after = violations(holders)
    assert {each.subject for each in after} <= before
    assert not any(uid.startswith("p") for each in after for uid in each.holders)
    assert any(uid.startswith("p") for uid in holders)
