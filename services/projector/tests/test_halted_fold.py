"""Facts and logs that cannot be folded: the projector says so, stays readable and goes on when it may."""

import msgspec
import pytest
from koord_projector.fold.pods import PodBook
from koordcore.events.envelope import StoredEvent
from koordcore.events.log import EventSkipped
from koordcore.protocol.objects import Pod
from koordcore.state import ClusterState
from support.depth import first_of
from support.histories.history import every_kind_once, history
from support.histories.recording import Recorder
from support.projector.refused_facts import REFUSED_UID, refused_fact
from support.projector.rows import all_rows, folded, observed_namespace, run_to_end, stored_hash
from support.projector.synthetic_cluster import small
from support.projector.world import Projector, projector
from support.until import until

pytestmark = pytest.mark.postgres


async def skipped_once_halted(
    it: Projector, events: list[StoredEvent], poison: int, *, trouble: str = ""
) -> StoredEvent:
    """Check that the fold halts before a fact, readable up to it. Skip the fact, and return the order to skip it."""
    await until(lambda: f"halted before event {poison}" in it.progress.trouble)
    assert trouble in it.progress.trouble
    assert not it.health.is_ready()
    assert await stored_hash(it) == (poison - 1, folded(events[: poison - 1]).hash())
    assert b'koord_bus_follower_halted{fold="projector"} 1.0' in (await it.metrics.render())[0]
    record = Recorder()
    record.write("fold", "projector", EventSkipped(seq=poison, reason="poison", operator="me"))
    skip = msgspec.structs.replace(record.events[0], seq=len(events) + 1)
    it.write([skip])
    await until(lambda: it.progress.position == skip.seq)
    assert it.health.is_ready()
    return skip


async def test_a_poison_event_halts_the_fold_readable_until_it_is_skipped(postgres_dsn: str) -> None:
    events = history(every_kind_once())
    poison = 9
    events[poison - 1] = StoredEvent(poison, events[poison - 1].ref, events[poison - 1].headers, b"{")
    async with projector(postgres_dsn) as it:
        it.write(events)
        async with it.running():
            skip = await skipped_once_halted(it, events, poison)
            expected = ClusterState()
            for event in [*events, skip]:
                if event.seq == poison:
                    expected.skip(event.seq)
                else:
                    expected.apply(event)
            assert await stored_hash(it) == (skip.seq, expected.hash())
        # The record is honoured by a fold from zero, too, which meets the poison before the record.
        it.progress.rebuild_wanted.set()
        async with it.running():
            await until(lambda: not it.progress.rebuild_wanted.is_set())
            await it.caught_up()
            assert await stored_hash(it) == (skip.seq, expected.hash())


@pytest.mark.parametrize("fails", first_of(["the fold", "the database"]))
async def test_a_fact_that_postgres_or_the_fold_refuses_halts_the_fold_until_it_is_skipped(
    postgres_dsn: str, fails: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def submitted(book: PodBook, uid: str, pod: Pod, at: StoredEvent) -> None:
        assert uid != REFUSED_UID, "a defect"
        own(book, uid, pod, at)

    if fails == "the fold":
        own = PodBook.submitted
        monkeypatch.setattr(PodBook, "submitted", submitted)
    events = history(every_kind_once())
    poison = 9
    events[poison - 1] = refused_fact(poison)
    async with projector(postgres_dsn) as it:
        it.write(events)
        async with it.running():
            skip = await skipped_once_halted(it, events, poison, trouble="cannot be stored: ")
            rest = folded([event for event in [*events, skip] if event.seq != poison])
            assert await stored_hash(it) == (skip.seq, rest.hash())
        async with it.running():  # another process begins behind the fact
            it.write([msgspec.structs.replace(_late_namespace(), seq=skip.seq + 1)])
            await it.caught_up()


def _late_namespace() -> StoredEvent:
    late = Recorder()
    late.write("namespace", "ns-late", observed_namespace())
    return late.events[0]


async def test_a_trimmed_log_is_said_and_not_ready(postgres_dsn: str) -> None:
    async with projector(postgres_dsn) as it:
        it.write(history(every_kind_once()))
        it.log.trim(10)
        async with it.running():
            await until(lambda: "gone" in it.progress.trouble)
            assert not it.health.is_ready()


async def test_another_log_than_the_folded_one_is_said_and_not_mixed_in(postgres_dsn: str) -> None:
    events = history(every_kind_once())
    await run_to_end(postgres_dsn, events[:12])
    before = all_rows(postgres_dsn)
    async with projector(postgres_dsn) as it:
        it.write(small())
        async with it.running():
            await until(lambda: "position 12" in it.progress.trouble)
            assert not it.health.is_ready()
            assert all_rows(postgres_dsn) == before
            it.progress.may_discard = True
            it.progress.rebuild_wanted.set()
            await it.caught_up()
            assert (await stored_hash(it))[1] == folded(small()).hash()
