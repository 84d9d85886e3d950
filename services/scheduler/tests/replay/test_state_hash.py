"""The hash of the state that places pods: equal live, from zero and from a snapshot, whatever is under way."""

import random
from typing import Any

import pytest
from koord_scheduler.domain.loop.folding.log import fold, fold_early
from koord_scheduler.domain.loop.state.state import SchedulerState
from koord_scheduler.domain.replay.snapshot import Picture, load_state
from koord_scheduler.domain.replay.state_hash import newest_fact, state_hash
from koord_scheduler.shell.forking import in_fork_and_wait
from support.depth import seeds
from support.scheduler.scheduling import Scheduler, SmallLog, frameworks, node, pod
from support.scheduler.stories import play


class Hashing(Scheduler):
    """Notes its hash wherever its state is exact: the log has confirmed nothing that the fold has not reached."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.hashes: dict[int, str] = {}
        self.saved: list[bytes] = []

    def follow(self, *args: Any, **more: Any) -> None:
        super().follow(*args, **more)
        log = self.state.log
        if newest_fact(self.state) == log.position >= max(log.acknowledged, log.read_ahead):
            self.hashes[log.position] = in_fork_and_wait(self.hashed).decode()
        if random.Random(log.position).random() < 0.2:
            self.saved.append(b"".join(Picture(self.state).pieces()))

    def hashed(self) -> bytes:
        fold_early(self.state)  # as a service does it in a fork, because the live state must wait for the answers
        return state_hash(self.state).encode()


def agree(state: SchedulerState, log: SmallLog, hashes: dict[int, str]) -> int:
    """Fold the rest of the log. Return how many positions were compared."""
    compared = 0
    for stored in log.events[state.log.position :]:
        fold(state, stored)
        if stored.seq in hashes and newest_fact(state) == stored.seq:
            assert state_hash(state) == hashes[stored.seq], f"at {stored.seq}"
            compared += 1
    return compared


@pytest.mark.parametrize("seed", seeds(12, few=3))
def test_live_from_zero_and_from_a_snapshot_agree_wherever_all_facts_are_folded(seed: int) -> None:
    world = play(seed, kind=Hashing)
    scheduler = world.scheduler
    assert isinstance(scheduler, Hashing)
    assert agree(SchedulerState(frameworks()), world.log, scheduler.hashes) >= 3
    for data in scheduler.saved:
        state = SchedulerState(frameworks())
        load_state(state, data)
        agree(state, world.log, scheduler.hashes)
    whole = SchedulerState(frameworks())
    agree(whole, world.log, scheduler.hashes)
    assert state_hash(whole) == state_hash(scheduler.state)


def test_the_hash_does_not_depend_on_the_order_of_facts_but_on_each_of_them() -> None:
    hashes: set[str] = set()
    for names in ("abc", "cba"):
        log = SmallLog()
        for name in names:
            log.add_node(node(name))
            log.add_pod(pod(f"pod-{name}", {"cpu": "1"}))
        state = SchedulerState(frameworks())
        seen = {state_hash(state)}
        for stored in log.events:
            fold(state, stored)
            seen.add(state_hash(state))
        assert len(seen) == 7, "each fact changes it"
        hashes.add(state_hash(state))
    assert len(hashes) == 1
