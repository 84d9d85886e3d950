"""A recorded log decided anew: with the same configuration alike, with another one differently, nothing lost."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from koord_scheduler.domain.loop.folding.log import fold
from koord_scheduler.domain.loop.state.state import SchedulerState
from koord_scheduler.domain.replay.packing import packing_of
from koord_scheduler.domain.replay.recording import recording_of
from koord_scheduler.domain.replay.snapshot import Picture, load_state, may_start_what_if
from koord_scheduler.domain.replay.what_if import Fate, WhatIf
from koordcore.events import CATALOGUE
from koordcore.events.envelope import AggregateRef, Draft, Origin, StoredEvent
from koordcore.values.timestamps import unix_seconds
from support.depth import examples
from support.scheduler.configurations import PACKED
from support.scheduler.reservations import CREATED, ReservingScheduler, reservation, reserve
from support.scheduler.scheduling import Scheduler, SmallLog, frameworks, node, pod, with_metadata
from support.scheduler.stories import World, play

pytestmark = pytest.mark.slow


def rerun(log: SmallLog, begin: int = 0, configuration: str = "") -> tuple[WhatIf, list[Fate]]:
    what_if = WhatIf(SchedulerState(frameworks(configuration)))
    for stored in log.events[:begin]:
        what_if.before(stored)
    window = what_if.window(log.events[begin:])
    what_if.rerun(window, recording_of(window))
    return what_if, what_if.fates()


def recorded_log() -> SmallLog:
    log = SmallLog()
    for name in "abcd":
        log.add_node(node(name))
    scheduler = Scheduler(log)
    for number in range(8):
        log.add_pod(pod(f"p{number}", {"cpu": "1", "memory": "1Gi"}))
        scheduler.run()
    return log


def test_same_configuration_decides_the_same() -> None:
    log = recorded_log()
    for begin in (0, 4, 12):
        what_if, fates = rerun(log, begin)
        assert [fate.rerun for fate in fates] == [fate.recorded for fate in fates]
        assert what_if.decided == len(fates)


def test_packing_configuration_uses_fewer_nodes() -> None:
    log = recorded_log()
    what_if, fates = rerun(log, configuration=PACKED)
    before, after = SchedulerState(frameworks()), packing_of(what_if.state)
    for stored in log.events:
        fold(before, stored)
    assert (packing_of(before).nodes_in_use, after.nodes_in_use) == (4, 2)
    assert (after.pods, after.pending, after.cpu_in_use_percent) == (8, 0, 100.0)
    assert any(fate.recorded != fate.rerun for fate in fates)


def test_owners_use_their_reservations_in_the_re_run_and_where_another_configuration_places_them() -> None:
    log = SmallLog()
    for name in "abcd":
        log.add_node(node(name))
    scheduler = ReservingScheduler(log)
    for number in range(4):
        reserve(log, reservation(f"r{number}", {"cpu": "1", "memory": "1Gi"}, allocateOnce=number % 2 == 0))
        scheduler.live(unix_seconds(CREATED))
    for number in range(4):
        log.add_pod(with_metadata(pod(f"p{number}", {"cpu": "1", "memory": "1Gi"}), labels={"app": "web"}))
        scheduler.live(unix_seconds(CREATED))
    packed = PACKED.replace("  plugins:\n", "  plugins:\n    multiPoint: {enabled: [{name: Reservation}]}\n")
    for configuration in ("", packed):
        what_if, fates = rerun(log, configuration=configuration)
        owners = {uid for entry in what_if.state.books.reservations.entries.values() for uid in entry.owners}
        assert owners == {f"p{number}" for number in range(4)}
        assert (len({fate.rerun for fate in fates}) == 1) is bool(configuration)
        same = [fate.rerun == fate.recorded for fate in fates]
        assert all(same) is not bool(configuration)


def test_pods_that_the_api_has_bound_by_the_recorded_decision_are_free_to_go_elsewhere() -> None:
    log = SmallLog()
    log.add_node(node("a", cpu="1"))
    scheduler = Scheduler(log)
    log.add_pod(pod("p", {"cpu": "1"}))
    scheduler.run()
    log.add_pod(pod("p", {"cpu": "1"}, nodeName="a"))
    log.remove_pod("p")
    log.add_pod(pod("q", {"cpu": "1"}))
    scheduler.run(now=5.0)
    scheduler.run(now=400.0)  # its first attempt came before the release
    what_if, fates = rerun(log)
    assert fates == [Fate("default", "q", "a", "a")]
    assert packing_of(what_if.state).cpu_requested_percent == 100.0


def explanations_of(world: World) -> list[StoredEvent]:
    """The explanations as their stream has them."""
    stored: list[StoredEvent] = []
    for number, explanation in enumerate(world.scheduler.explanations, 1):
        ref = AggregateRef("pod", explanation.uid)
        origin = Origin(causation_id=explanation.cause, correlation_id=explanation.uid, actor="test", occurred_at="")
        [event] = CATALOGUE.seal([Draft(ref, explanation.event, 0)], origin)
        stored.append(StoredEvent(number, ref, event.headers, event.body))
    return stored


@pytest.mark.deep
def test_stories_of_which_every_decision_came_into_the_log_are_decided_the_same_but_for_a_rare_one() -> None:
    """All but one at most: when a node went while a placement was on its way, the log does not tell what came first."""
    told, differing = 0, 0
    for seed in range(60):
        world = play(seed)
        recording = recording_of(world.log.events, explanations_of(world))
        if world.scheduler.state.assumed.decisions != recording.decided:
            continue
        what_if = WhatIf(SchedulerState(frameworks()))
        what_if.rerun(what_if.window(world.log.events), recording, world.observed)
        is_same = all(fate.recorded == fate.rerun for fate in what_if.fates())
        told += 1
        differing += not (is_same and sorted(what_if.nominated) == sorted(recording.nominated))
    assert told > 20
    assert differing <= 1


def test_nominated_pod_that_is_on_its_way_to_its_node_does_not_hold_the_room_twice() -> None:
    log = SmallLog()
    log.add_node(node("a", cpu="4"))
    scheduler = Scheduler(log)
    log.add_pod(pod("low", {"cpu": "4"}))
    scheduler.run()
    log.add_pod(pod("high", {"cpu": "2"}, priority=10))
    log.add_pod(pod("next", {"cpu": "2"}, priority=10))
    scheduler.run()  # `low` has to go
    scheduler.run(now=400.0)
    placed = [stored.ref.id for stored in log.events if stored.type == "PodPlaced"]
    assert placed == ["low", "high", "next"]


def replayed(world: World) -> WhatIf:
    """The second half of a story, decided anew."""
    begin = len(world.log.events) // 2
    what_if = WhatIf(SchedulerState(frameworks()))
    for stored in world.log.events[:begin]:
        what_if.before(stored)
    window = what_if.window(world.log.events[begin:])
    what_if.rerun(window, recording_of(window), world.observed)
    return what_if


@settings(max_examples=examples(25))
@given(st.integers(0, 1 << 32))
def test_whatever_happened_the_ledgers_hold_what_was_placed_and_two_runs_agree(seed: int) -> None:
    world = play(seed)
    one, other = replayed(world), replayed(world)
    assert (one.placed, one.evicted) == (other.placed, other.evicted)
    nodes = one.state.nodes
    for uid, name in one.placed.items():
        row = nodes.row(name)
        assert row is None or uid in one.state.assumed.ledgers.pods(name)


def rerun_behind(world: World, begin: int, start: SchedulerState) -> WhatIf:
    """The events behind `begin`, decided anew from a state at or before it."""
    what_if = WhatIf(start)
    for stored in world.log.events[max(0, start.log.position - 1) : begin]:
        what_if.before(stored)
    window = what_if.window(world.log.events[begin:])
    what_if.rerun(window, recording_of(window, explanations_of(world)), world.observed)
    return what_if


@pytest.mark.deep
def test_a_run_from_a_snapshot_decides_as_a_run_from_the_beginning_of_the_log() -> None:
    started, with_waiting_pods, refused = 0, 0, 0
    for seed in range(40):
        world, chosen = play(seed), random.Random(seed)
        begin = chosen.randrange(1, len(world.log.events))
        saved, loaded = SchedulerState(frameworks()), SchedulerState(frameworks())
        for stored in world.log.events[: chosen.randrange(1, begin + 1)]:
            fold(saved, stored)
        load_state(loaded, b"".join(Picture(saved).pieces()))
        if not may_start_what_if(loaded, begin):
            refused += 1
            continue
        started += 1
        with_waiting_pods += any(saved.queue.get(uid) is not None for uid in saved.pods)
        short = rerun_behind(world, begin, loaded)
        whole = rerun_behind(world, begin, SchedulerState(frameworks()))
        assert short.fates() == whole.fates(), seed
        assert (short.decided, short.nominated, short.evicted) == (whole.decided, whole.nominated, whole.evicted)
        assert packing_of(short.state) == packing_of(whole.state)
    assert min(started, with_waiting_pods, refused) > 3


def test_a_snapshot_with_facts_behind_the_beginning_does_not_start_a_run() -> None:
    state = SchedulerState(frameworks())
    for stored in recorded_log().events:
        fold(state, stored)
    assert may_start_what_if(state, state.log.position)
    assert not may_start_what_if(state, state.log.position - 1)


def test_a_snapshot_without_a_pod_that_was_released_behind_the_beginning_does_not_start_a_run() -> None:
    log = SmallLog()
    log.add_node(node("n"))
    log.add_pod(pod("p", {"cpu": "1"}))
    scheduler = Scheduler(log)
    scheduler.run()
    log.remove_pod("p")
    scheduler.follow()
    begin = scheduler.state.log.position
    scheduler.state.assumed.release_due()
    scheduler.send()
    saved = Picture(scheduler.state)
    whole = b"".join(Picture(scheduler.state).pieces())
    scheduler.land()
    for data, pods, may_start in ((whole, ["p"], True), (b"".join(saved.pieces()), [], False)):
        loaded = SchedulerState(frameworks())
        load_state(loaded, data)
        assert (list(loaded.pods), may_start_what_if(loaded, begin)) == (pods, may_start)
