"""What the recommender had learned before the reports that are kept is found in its checkpoints."""

import pytest
from koord_manager.domain.recommender.settings import read_settings
from koordcore.bus.adapters.memory import MemoryEventLog, MemoryObservationLog, MemorySnapshotStore
from koordcore.events import CATALOGUE
from koordcore.events.envelope import Origin
from koordcore.ports.snapshots import Snapshot
from koordctl.commands.replay.recommendations import show_recommendations
from koordctl.what_if.manager import ManagerComparison, Question, compare
from koordctl.what_if.recommendations import container_fates, title
from support.manager.recommender_story import Story, half_an_hour

FORGOTTEN = 12


class Unreadable(MemorySnapshotStore):
    """A store that its server keeps from us."""

    async def newest(self, fold: str, *, schema_fingerprint: str, at_most: int | None = None) -> Snapshot | None:
        raise TimeoutError

    async def sequences(self, fold: str) -> list[int]:
        raise TimeoutError


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
