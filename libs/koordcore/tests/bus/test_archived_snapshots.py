"""Snapshots of an archive: which one serves a position, which ones stay, and that none changes a folded state."""

import asyncio
import itertools
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from koordcore.bus.adapters.memory import MemoryEventLog, MemoryLog, MemorySnapshotStore
from koordcore.bus.archive.archived_log import ArchivedEventLog, archive_facts
from koordcore.bus.archive.archived_snapshots import (
    DENSE_FACTS,
    SNAPSHOT_FACTS,
    SNAPSHOT_LIST,
    ArchivedSnapshot,
    ArchivedSnapshots,
    FoldVersion,
    SnapshotStoreWithArchive,
    kept_positions,
    next_position,
    read_snapshot_list,
    serving,
    write_snapshot_list,
)
from koordcore.bus.archive.files import InvalidArchive
from koordcore.bus.archive.taking import FoldStopped, take_snapshots
from koordcore.bus.folds.foldable import FoldSource
from koordcore.bus.folds.replay import position_at_time
from koordcore.bus.folds.runner import FoldRunner
from koordcore.events import CATALOGUE
from koordcore.events.envelope import (
    HEADER_SCHEMA,
    HEADER_TYPE,
    AggregateRef,
    Draft,
    Origin,
    StoredEvent,
)
from koordcore.events.log import EventSkipped
from koordcore.place import Place, open_place
from koordcore.ports.eventlog import EventLog
from koordcore.ports.snapshots import SnapshotStore
from koordcore.service.clock import SystemClock
from koordcore.state import ClusterState
from koordcore.state.cluster import schema_fingerprint
from support.bus.read_log import ReadLog
from support.bus.snapshots import of_the_cluster
from support.depth import examples
from support.histories.actions import Action, actions
from support.histories.history import every_kind_once, history

FOLD = "manager"
SOURCE = FoldSource(ClusterState, ClusterState.restore, schema_fingerprint())
OWN = FoldVersion("f", "1", "schema")


def entry(position: int, version: FoldVersion = OWN) -> ArchivedSnapshot:
    return ArchivedSnapshot(
        fold=version.fold,
        code_version=version.code_version,
        schema_fingerprint=version.schema_fingerprint,
        position=position,
        fact_id="",
        occurred_at="",
        taken_at="",
        file="",
        size=0,
        sha256="",
    )


# -- which snapshot serves a position -----------------------------------------------------------------------------

versions = st.builds(FoldVersion, st.sampled_from("fg"), st.sampled_from("12"), st.sampled_from(("schema", "other")))


@given(st.lists(st.builds(entry, st.integers(1, 50), versions)), st.integers(0, 60), st.integers(0, 60))
def test_the_nearest_snapshot_of_the_same_version_serves_a_position(
    snapshots: list[ArchivedSnapshot], at_most: int, after: int
) -> None:
    found = serving(snapshots, OWN, at_most, after=after)
    fitting = [each for each in snapshots if each.version == OWN and after < each.position <= at_most]
    assert sorted(map(id, found)) == sorted(map(id, fitting))
    assert all(one.position >= other.position for one, other in itertools.pairwise(found))


@given(st.integers(0, 10_000), st.integers(1, 500))
def test_the_next_snapshot_is_due_at_the_first_multiple_behind_a_position(position: int, every: int) -> None:
    due = next_position(position, every)
    assert due % every == 0
    assert position < due <= position + every


# -- which snapshots stay -----------------------------------------------------------------------------------------


@given(st.integers(1, 20), st.integers(1, 20), st.lists(st.integers(1, 300), max_size=30))
def test_a_growing_log_keeps_snapshots_at_distances_that_grow_with_their_age(
    every: int, parts: int, runs: list[int]
) -> None:
    dense, last, positions = every * parts, 0, set[int]()
    for facts in runs:
        positions |= set(range(next_position(last, every), last + facts + 1, every))
        last += facts
        positions = kept_positions(positions, last, every=every, dense=dense)
    known = [0, *sorted(positions)]
    for earlier, later in itertools.pairwise(known):
        assert later - earlier <= every << ((last - earlier) // dense).bit_length()
    assert last - known[-1] < every
    newest = [each for each in known[1:] if last - each < dense]
    assert newest == [each for each in range(every, last + 1, every) if last - each < dense]
    doublings = (last // dense).bit_length()
    assert len(positions) <= parts + doublings * (parts / 2 + 2)


def test_ten_million_facts_keep_a_snapshot_for_each_fifty_thousand() -> None:
    assert len(kept_of(10_000_000)) == 200
    assert len(kept_of(250_000_000)) < 700


def kept_of(facts: int) -> set[int]:
    """The positions that stay of a log in which no snapshot was ever dropped."""
    every = SNAPSHOT_FACTS
    return kept_positions(range(every, facts + 1, every), facts, every=every, dense=DENSE_FACTS)


# -- the fold from a snapshot is the fold from the first fact -------------------------------------------------------


def filled(events: Sequence[StoredEvent]) -> MemoryLog:
    log = MemoryLog()
    for event in events:
        log.store(event.ref, dict(event.headers), event.body)
    return log


def folded(events: Sequence[StoredEvent], upto: int, state: ClusterState | None = None) -> ClusterState:
    state = state or ClusterState()
    for event in events[state.position : upto]:
        state.apply(event)
    return state


async def taken(events: EventLog, place: Place, upto: int, *, every: int = 5, dense: int = 1000) -> list[int]:
    """Positions of the snapshots in the archive after a run."""
    found = await take_snapshots(events, place, "c", FOLD, SOURCE, SystemClock(), upto, every=every, dense=dense)
    return [each.position for each in found]


async def loaded(events: EventLog, place: Place, at_most: int, refused: Callable[[str], None]) -> ClusterState:
    found = await ArchivedSnapshots(place, events, refused).newest(
        FOLD, schema_fingerprint=schema_fingerprint(), at_most=at_most
    )
    return ClusterState() if found is None else ClusterState.restore(b"".join(found.state))


def never(sentence: str) -> None:
    raise AssertionError(sentence)


@settings(max_examples=examples(20))
@given(actions, st.integers(4, 9), st.data())
def test_any_position_has_one_state_from_a_snapshot_and_from_the_first_fact(
    steps: list[Action], every: int, data: st.DataObject
) -> None:
    events = history(steps)
    ends = sorted(data.draw(st.lists(st.integers(0, len(events)), max_size=3)))
    positions = data.draw(st.lists(st.integers(0, len(events)), min_size=1, max_size=5))

    async def compare() -> None:
        log = MemoryEventLog(filled(events))
        with tempfile.TemporaryDirectory() as folder:
            place = open_place(folder)
            for upto in [*ends, len(events)]:  # runs of several nights
                await taken(log, place, upto, every=every)
            for position in positions:
                state = await loaded(log, place, position, never)
                assert state.position == position // every * every
                assert folded(events, position, state).hash() == folded(events, position).hash()

    asyncio.run(compare())


EVENTS = history(every_kind_once())


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return open_place(str(tmp_path))


async def test_a_later_run_reads_only_the_facts_behind_the_last_snapshot(place: Place) -> None:
    log = ReadLog(filled(EVENTS))
    assert await taken(log, place, 12) == [5, 10]
    log.read_from.clear()
    assert await taken(log, place, 23) == [5, 10, 15, 20]
    assert log.read_from == [9, 10]  # the last fact of the snapshot, to know the log by; then what follows
    assert await taken(log, place, 23) == [5, 10, 15, 20]


async def test_a_changed_snapshot_is_refused_by_name_and_an_older_one_serves(place: Place) -> None:
    log = MemoryEventLog(filled(EVENTS))
    await taken(log, place, 20)
    *_, before_last, last = await place.files("snapshots")
    content = await place.read(last)
    await place.write(last, content[:-1] + bytes([content[-1] ^ 1]))
    await place.delete(before_last)
    said: list[str] = []
    assert (await loaded(log, place, 22, said.append)).hash() == folded(EVENTS, 10).hash()
    assert [sentence.startswith(place.path_of(name)) for sentence, name in zip(said, (last, before_last), strict=True)]
    assert "sha256: must be" in said[0]
    assert "no such file" in said[1]
    # The next run takes both again.
    assert await taken(log, place, 20) == [5, 10, 15, 20]
    assert (await loaded(log, place, 22, never)).position == 20


async def test_a_snapshot_of_another_version_is_passed_over_and_leaves_when_the_new_ones_are_complete(
    place: Place,
) -> None:
    log = MemoryEventLog(filled(EVENTS))
    await taken(log, place, 20)
    listed = await read_snapshot_list(place)
    assert listed is not None
    others = [msgspec.structs.replace(each, code_version="0.0.1") for each in listed.snapshots[:2]]
    others += [msgspec.structs.replace(each, schema_fingerprint="other") for each in listed.snapshots[2:]]
    await write_snapshot_list(place, msgspec.structs.replace(listed, snapshots=others))
    assert (await loaded(log, place, 20, never)).position == 0

    poison = MemoryEventLog(broken := filled(EVENTS[:13]))
    broken.store(EVENTS[0].ref, {**EVENTS[0].headers, "Koord-Schema": "99"}, b"{}")
    with pytest.raises(FoldStopped, match=r"the fold manager stops, so it has no later snapshots: .*event 14"):
        await taken(poison, place, 14)
    listed = await read_snapshot_list(place)
    assert listed is not None
    assert [each.position for each in listed.snapshots] == [5, 10, 15, 20, 5, 10]

    assert await taken(log, place, 20) == [5, 10, 15, 20]
    listed = await read_snapshot_list(place)
    assert listed is not None
    assert sorted(each.file for each in listed.snapshots) == await place.files("snapshots")


async def test_a_snapshot_of_another_log_is_refused(place: Place) -> None:
    await taken(MemoryEventLog(filled(EVENTS)), place, 20)
    other = MemoryEventLog(filled([*EVENTS[:12], *EVENTS[13:]]))
    said: list[str] = []
    assert (await loaded(other, place, 20, said.append)).position == 10
    assert ["of another log" in sentence for sentence in said] == [True, True]
    assert await taken(other, place, 20) == [5, 10, 15, 20]
    assert (await loaded(other, place, 20, never)).position == 20


async def test_no_snapshot_is_dropped_while_its_log_cannot_be_read(place: Place) -> None:
    shared = filled(EVENTS)
    log = ArchivedEventLog(MemoryEventLog(shared), place)
    await archive_facts(log, place, "c", 25, lambda position: None)
    await taken(log, place, 20)
    shared.trim(24)
    (part,) = await place.files("facts")
    content = await place.read(part)
    await place.write(part, content[:-1])
    with pytest.raises(InvalidArchive, match=part):
        await taken(log, place, 25)
    said: list[str] = []
    assert (await loaded(log, place, 20, said.append)).position == 0
    assert [part in sentence for sentence in said] == [True] * 4
    await place.write(part, content)
    assert await taken(log, place, 25) == [5, 10, 15, 20, 25]
    assert (await loaded(log, place, 25, never)).hash() == folded(EVENTS, 25).hash()


async def test_an_event_that_an_operator_skips_is_skipped(place: Place) -> None:
    log = filled(EVENTS[:3])
    bad = log.store(AggregateRef("pod", "x"), {HEADER_TYPE: "NoSuchEvent", HEADER_SCHEMA: "1"}, b"{}")
    for event in EVENTS[3:6]:
        log.store(event.ref, dict(event.headers), event.body)
    events = MemoryEventLog(log)
    with pytest.raises(FoldStopped, match=f"event {bad}"):
        await taken(events, place, 7)
    origin = Origin(causation_id="c", correlation_id="f", actor="test", occurred_at="2026-01-01T00:00:00.000000Z")
    skip = Draft(AggregateRef("fold", FOLD), EventSkipped(seq=bad, reason="a test", operator="me"), 0)
    await events.append(CATALOGUE.seal([skip], origin))
    assert await taken(events, place, 7) == [5]


async def test_files_that_no_list_names_are_deleted(place: Place) -> None:
    await place.write("snapshots/manager/000000000003-0.json.gz", b"a run ended before it listed this file")
    await place.write("archive.json", b"other files stay")
    await taken(MemoryEventLog(filled(EVENTS)), place, 10)
    assert [name.split("-")[0] for name in await place.files()] == [
        "archive.json",
        "snapshots.json",
        "snapshots/manager/000000000005",
        "snapshots/manager/000000000010",
    ]


async def test_an_archive_of_another_cluster_or_without_a_valid_list_is_refused(place: Place) -> None:
    log = MemoryEventLog(filled(EVENTS))
    await taken(log, place, 10)
    with pytest.raises(InvalidArchive, match="cluster: must be other, got c"):
        await take_snapshots(log, place, "other", FOLD, SOURCE, SystemClock(), 20, every=5, dense=10)
    await place.write(SNAPSHOT_LIST, b"{}")
    with pytest.raises(InvalidArchive, match=SNAPSHOT_LIST):
        await taken(log, place, 10)
    said: list[str] = []
    assert (await loaded(log, place, 10, said.append)).position == 0
    assert [SNAPSHOT_LIST in sentence for sentence in said] == [True]


async def test_the_nearer_one_of_store_and_archive_serves(place: Place) -> None:
    log, store = MemoryEventLog(filled(EVENTS)), MemorySnapshotStore()
    await taken(log, place, 10)
    archived = ArchivedSnapshots(place, log, never)
    both, unhurried = (SnapshotStoreWithArchive(store, archived, near=near) for near in (0, 2))

    async def nearest(at_most: int | None, of: SnapshotStore = both) -> int:
        found = await of.newest(FOLD, schema_fingerprint=schema_fingerprint(), at_most=at_most)
        return 0 if found is None else found.seq

    assert [await nearest(at_most) for at_most in (4, 7, 12, None)] == [0, 5, 10, 10]
    for position in (3, 7, 12):
        await both.save(of_the_cluster(EVENTS, position))
    assert await both.sequences(FOLD) == [3, 7, 12]
    assert [await nearest(at_most) for at_most in (2, 4, 6, 9, 11, 12, None)] == [0, 3, 5, 7, 10, 12, 12]
    assert [await nearest(at_most, unhurried) for at_most in (2, 5, 6, 9, 10, 12)] == [0, 3, 5, 7, 10, 12]


async def test_the_archive_is_not_asked_for_the_newest_snapshot_while_the_store_has_one(place: Place) -> None:
    log, store, said = MemoryEventLog(filled(EVENTS)), MemorySnapshotStore(), list[str]()
    await place.write(SNAPSHOT_LIST, b"whoever reads this list says so")
    both = SnapshotStoreWithArchive(store, ArchivedSnapshots(place, log, said.append))
    assert await both.newest(FOLD, schema_fingerprint=schema_fingerprint()) is None
    assert [SNAPSHOT_LIST in sentence for sentence in said] == [True]
    await store.save(of_the_cluster(EVENTS, 7))
    found = await both.newest(FOLD, schema_fingerprint=schema_fingerprint())
    assert found == of_the_cluster(EVENTS, 7)
    assert len(said) == 1


async def test_a_fold_without_a_snapshot_in_the_store_begins_at_the_archived_one(place: Place) -> None:
    log = ReadLog(filled(EVENTS))
    await taken(log, place, 20)
    snapshots = SnapshotStoreWithArchive(MemorySnapshotStore(), ArchivedSnapshots(place, log, never))
    runner = FoldRunner(FOLD, log, SOURCE, SystemClock(), snapshots=snapshots)
    await runner.load()
    assert (runner.position, runner.state.hash()) == (20, folded(EVENTS, 20).hash())


@pytest.mark.parametrize("ahead", [0, 6], ids=["in order", "the clock of the server was set back after fact 20"])
async def test_a_search_for_a_moment_begins_at_the_newest_known_position_before_it(place: Place, ahead: int) -> None:
    memory = MemoryLog()
    memory.time_of_storing = lambda _: memory.last_seq + (ahead if memory.last_seq == 20 else 0)
    for event in EVENTS[:30]:
        memory.store(event.ref, dict(event.headers), event.body)
    log = ReadLog(memory)
    archived = ArchivedSnapshots(place, log, never)
    assert await archived.position_before(100) == 0
    await taken(log, place, 20)
    await taken(log, place, 30)
    await archive_facts(log, place, "c", 8, lambda position: None)
    for moment, begin in ((4, 0), (6, 5), (9, 8), (10, 10), (11, 10), (19, 15), (23, 15 if ahead else 20), (90, 30)):
        after = await archived.position_before(moment)
        assert after == begin
        expected = 19 if ahead and 20 <= moment < 26 else min(moment, 30)
        assert await position_at_time(log, moment, after=after) == expected
        assert await position_at_time(log, moment) == expected
