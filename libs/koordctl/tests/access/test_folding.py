"""The fold from zero, and what `verify` concludes from three of them."""

from pathlib import Path

import pytest
from koordcore.bus.adapters.memory import MemoryEventLog, MemoryLog
from koordcore.bus.archive.taking import take_snapshots
from koordcore.bus.factory import memory_bus, with_archive
from koordcore.events import CATALOGUE
from koordcore.events.envelope import HEADER_SCHEMA, HEADER_TYPE, AggregateRef, Draft, Origin, StoredEvent
from koordcore.events.log import EventSkipped
from koordcore.place import open_place
from koordcore.ports.eventlog import Appended
from koordcore.service.clock import SystemClock
from koordcore.state import ClusterState
from koordctl.access.folding import CLUSTER_FOLD, Folded, archived_cluster, fold_to
from koordctl.access.log import LogTrouble
from koordctl.replay.scheduler_fold import archived_folds
from koordctl.replay.verify import FoldPosition, Verification
from support.histories.history import every_kind_once, history

POISON = ({HEADER_TYPE: "NoSuchEvent", HEADER_SCHEMA: "1"}, b"{}")


def filled() -> tuple[MemoryLog, list[StoredEvent]]:
    """A log with a history in it."""
    log = MemoryLog()
    events = history(every_kind_once())
    assert len(events) > 20
    for event in events:
        log.store(event.ref, dict(event.headers), event.body)
    return log, events


async def skip(log: MemoryLog, fold: str, seq: int) -> None:
    """Record that an operator told a fold to skip an event."""
    draft = Draft(AggregateRef("fold", fold), EventSkipped(seq=seq, reason="a test", operator="me"), 0)
    origin = Origin(causation_id=fold, correlation_id=fold, actor="test", occurred_at="2026-01-01T00:00:00.000000Z")
    assert isinstance(await MemoryEventLog(log).append(CATALOGUE.seal([draft], origin)), Appended)


def expected(events: list[StoredEvent], upto: int) -> str:
    state = ClusterState()
    for event in events[:upto]:
        state.apply(event)
    return state.hash()


async def test_fold_has_the_hash_of_the_position_and_of_every_mark() -> None:
    log, events = filled()
    seen: list[int] = []
    folded = await fold_to(MemoryEventLog(log), 20, marks=(0, 7, 20), see=lambda stored, _: seen.append(stored.seq))
    assert folded.hashes == {mark: expected(events, mark) for mark in (0, 7, 20)}
    assert folded.hash == folded.hashes[20]
    assert seen == list(range(1, 21))
    assert sum(folded.by_type.values()) == folded.events == 20


async def test_empty_log_folds_to_nothing() -> None:
    folded = await fold_to(MemoryEventLog(MemoryLog()), 0)
    assert (folded.events, folded.hash) == (0, "0" * 32)


async def test_unreadable_event_is_said_unless_it_was_recorded_as_skipped() -> None:
    log, _ = filled()
    bad = log.store(AggregateRef("pod", "x"), *POISON)
    events = MemoryEventLog(log)
    with pytest.raises(LogTrouble, match=f"event {bad} .* koord bus skip"):
        await fold_to(events, bad)
    await skip(log, "scheduler", bad)
    with pytest.raises(LogTrouble, match=f"event {bad} "):
        await fold_to(events, bad)
    await skip(log, "manager", bad)
    folded = await fold_to(events, bad, marks=(bad,))
    assert folded.state.position == bad
    assert folded.hashes[bad] == folded.hash


async def test_an_event_that_the_manager_skipped_is_skipped_although_this_version_can_read_it() -> None:
    log, events = filled()
    await skip(log, "scheduler", 7)
    assert (await fold_to(MemoryEventLog(log), 20)).hash == expected(events, 20)
    await skip(log, "manager", 7)
    state = ClusterState()
    for event in events[:20]:
        if event.seq != 7:
            state.apply(event)
    folded = await fold_to(MemoryEventLog(log), 20)
    assert (folded.hash, folded.events) == (state.hash(), 19)


async def test_the_fold_from_an_archived_snapshot_has_the_same_hashes(tmp_path: Path) -> None:
    log, events = filled()
    bus = memory_bus(log=log)
    assert await archived_cluster(bus, 20) is None
    await take_snapshots(
        bus.events,
        open_place(str(tmp_path)),
        "c",
        CLUSTER_FOLD,
        archived_folds()[CLUSTER_FOLD],
        SystemClock(),
        20,
        every=8,
        dense=100,
    )
    bus = with_archive(bus, str(tmp_path))
    for upto, begin in ((7, 0), (8, 8), (15, 8), (20, 16)):
        state = await archived_cluster(bus, upto)
        marks = (begin, upto)
        folded = await fold_to(bus.events, upto, state=state, marks=marks)
        assert (folded.begin, folded.events) == (begin, upto - begin)
        assert folded.hashes == {mark: expected(events, mark) for mark in marks}


def verdict(live: FoldPosition, projector: FoldPosition, hashes: dict[int, str]) -> Verification:
    return Verification(live=live, projector=projector, folded=Folded(hashes=hashes, hash=hashes[max(hashes)]))


def test_three_equal_hashes_at_one_position_agree() -> None:
    assert verdict(FoldPosition(5, "a"), FoldPosition(5, "a"), {5: "a"}).equal


def test_moving_folds_agree_when_the_fold_from_zero_passes_through_both() -> None:
    found = verdict(FoldPosition(5, "a"), FoldPosition(7, "b"), {5: "a", 7: "b"})
    assert found.equal
    assert found.position == 7


@pytest.mark.parametrize(("live", "rows"), [("x", "b"), ("a", "x"), ("b", "a")])
def test_one_different_hash_is_a_difference(live: str, rows: str) -> None:
    assert not verdict(FoldPosition(5, live), FoldPosition(7, rows), {5: "a", 7: "b"}).equal
