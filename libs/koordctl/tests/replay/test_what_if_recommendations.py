"""What the recommender had learned before the reports that are kept is found in its checkpoints."""

from datetime import datetime

import pytest
from koord_manager.domain.controllers.recommender.book import CHECKPOINT_FOLD, book_fingerprint
from koord_manager.domain.controllers.recommender.settings import read_settings
from koordcore.bus.adapters.memory import MemoryEventLog, MemoryObservationLog, MemorySnapshotStore
from koordcore.bus.client.connection import NoAnswer
from koordcore.events import CATALOGUE
from koordcore.events.envelope import Origin
from koordcore.ports.snapshots import Snapshot
from koordctl.replay.manager_rerun import REMEMBERED, ManagerComparison, Question, compare
from koordctl.replay.recommendations import container_fates, show_recommendations, title
from support.bus.read_log import ReadLog
from support.bus.snapshots import of_the_cluster
from support.manager.recommender_story import Story, half_an_hour

FORGOTTEN = 12


class Unreadable(MemorySnapshotStore):
    """A store that its server keeps from us."""

    async def newest(self, fold: str, *, schema_fingerprint: str, at_most: int | None = None) -> Snapshot | None:
        raise NoAnswer("snapshots: no answer within 15 s")

    async def sequences(self, fold: str) -> list[int]:
        raise NoAnswer("snapshots: no answer within 15 s")


async def kept(story: Story) -> MemoryObservationLog:
    """The reports of a story but for the oldest."""
    reports = await story.reports()
    log = MemoryObservationLog(keep=len(reports) - FORGOTTEN)
    for stored in reports:
        event = CATALOGUE.read(stored)
        assert event is not None
        origin = Origin(causation_id=str(stored.seq), correlation_id="n", actor="a", occurred_at=stored.occurred_at)
        await log.publish(stored.ref, event, origin)
    assert (await log.head()).first_seq == FORGOTTEN + 1
    return log


async def again(
    story: Story, observations: MemoryObservationLog, snapshots: MemorySnapshotStore | None, text: str | None = None
) -> ManagerComparison:
    settings = read_settings(text) if text is not None else None
    asked = Question(begin=0, end=story.log.last_seq, settings=settings)
    return await compare(MemoryEventLog(story.log), observations, snapshots, asked, lambda _: None)


async def with_snapshot(story: Story, position: int) -> MemorySnapshotStore:
    """The checkpoint of a story, and the snapshot that a manager saves at a position."""
    store = MemorySnapshotStore()
    checkpoint = await story.snapshots.newest(CHECKPOINT_FOLD, schema_fingerprint=book_fingerprint())
    assert checkpoint is not None
    await store.save(checkpoint)
    await store.save(of_the_cluster(story.events(), position))
    return store


async def test_a_window_starts_at_a_snapshot_before_it_and_gives_the_same_comparison() -> None:
    story = await half_an_hour()
    observations, last = await kept(story), story.log.last_seq
    starts: set[tuple[int, int]] = set()
    for begin in range(last // 4, last, 9):
        asked = Question(begin=begin, end=last, settings=None)
        whole = await compare(MemoryEventLog(story.log), observations, story.snapshots, asked, lambda _: None)
        for position in range(3, begin + 9, 9):
            log = ReadLog(story.log)
            store = await with_snapshot(story, position)
            found = await compare(log, observations, store, asked, lambda _: None)
            assert found.document() == {**whole.document(), "startedAt": log.read_from[-1]}, (position, begin)
            starts.add((log.read_from[-1], begin))
    assert {0} < {position for position, _ in starts}, "some windows start at a snapshot, and some do not"
    times = [datetime.fromisoformat(stored.occurred_at) for stored in story.events()]
    assert all(not start or times[start] + REMEMBERED <= times[begin] for start, begin in starts)


async def test_a_snapshot_is_not_used_if_reports_before_it_are_not_learned_yet() -> None:
    story = await half_an_hour()
    asked, log, store = (
        Question(begin=story.log.last_seq - 1, end=story.log.last_seq),
        ReadLog(story.log),
        MemorySnapshotStore(),
    )
    await store.save(of_the_cluster(story.events(), story.log.last_seq // 2))
    await compare(log, story.observations, store, asked, lambda _: None)
    assert log.read_from[-1] == 0, "a report is learned with the pods of its time"
    await compare(log, MemoryObservationLog(), store, asked, lambda _: None)
    assert log.read_from[-1] == story.log.last_seq // 2


async def test_checkpoint_stands_for_the_reports_that_are_gone() -> None:
    story = await half_an_hour()
    observations = await kept(story)
    everything = (await again(story, story.observations, None)).recommendations.tally
    assert (everything.recorded, everything.not_retained) == (everything.same, 0)

    found = await again(story, observations, story.snapshots)
    tally = found.recommendations.tally
    assert tally.explained
    assert 0 < tally.not_retained < tally.recorded - 1
    assert (found.recommendations.fates, found.notes) == ([], ())

    for snapshots, notes in ((MemorySnapshotStore(), 0), (Unreadable(), 1), (None, 0)):
        without = await again(story, observations, snapshots)
        assert without.recommendations.tally.not_retained == tally.recorded - 1
        assert len(without.notes) == notes


async def test_what_is_tried_is_told_with_its_terms(capsys: pytest.CaptureFixture[str]) -> None:
    story = await half_an_hour()
    found = await again(story, story.observations, None, "safetyMarginFraction=0.5")
    [fate] = found.recommendations.fates
    assert title(fate) == "shop/web"
    [container] = container_fates(fate)
    assert container.recorded is not None
    assert container.rerun is not None
    show_recommendations(found.recommendations)
    told = capsys.readouterr().out
    for part in ("shop/web", "+ 15 %", "+ 50 %", "before the policy's caps"):
        assert part in told
    document = found.document()["recommendations"]
    assert document["settings"]["rerun"]["safetyMarginFraction"] == 0.5
    assert document["settings"]["recorded"]["safetyMarginFraction"] == 0.15
    [differing] = document["differing"]
    assert differing["rerun"]["containers"][0]["samples"] == container.rerun.samples
