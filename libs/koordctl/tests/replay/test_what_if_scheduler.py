"""A recorded log decided anew through the ports: nothing is written, and what would differ is counted."""

from dataclasses import replace
from pathlib import Path

import pytest
from koord_scheduler.configuration import shipped_configuration
from koord_scheduler.domain.config.effective import effective_configuration
from koordcore.bus.adapters.memory import MemoryEventLog, MemoryLog, MemoryObservationLog, MemorySnapshotStore
from koordcore.events import CATALOGUE
from koordcore.events.envelope import AggregateRef, Draft, Origin
from koordcore.events.log import EventSkipped
from koordctl.replay.scheduler_rerun import Comparison, compare
from koordctl.scheduler import compared_with_force, scheduler_configuration
from support.bus.read_log import ReadLog
from support.bus.snapshots import of_a_scheduler
from support.scheduler.configurations import PACKED
from support.scheduler.scheduling import Scheduler, SmallLog, node, pod


def recorded() -> MemoryLog:
    small, log = SmallLog(), MemoryLog()
    for name in "abcd":
        small.add_node(node(name))
    scheduler = Scheduler(small)
    for number in range(8):
        small.add_pod(pod(f"p{number}", {"cpu": "1", "memory": "1Gi"}))
        scheduler.run()
    for stored in small.events:
        log.store(stored.ref, dict(stored.headers), stored.body)
    return log


async def saved_at(log: MemoryLog, configuration: bytes, position: int) -> MemorySnapshotStore:
    """The snapshot that a scheduler of this configuration saves at a position."""
    store, events = MemorySnapshotStore(), log.between(0, log.last_seq, None, log.last_seq)
    await store.save(of_a_scheduler(effective_configuration(configuration), events, position))
    return store


async def rerun(
    log: MemoryLog,
    configuration: bytes,
    begin: int = 0,
    snapshots: MemorySnapshotStore | None = None,
    events: MemoryEventLog | None = None,
) -> Comparison:
    events, seen = events or MemoryEventLog(log), list[int]()
    head = await events.head()
    found = await compare(
        events,
        observations=MemoryObservationLog(),
        explanations=MemoryObservationLog(),
        snapshots=snapshots or MemorySnapshotStore(),
        configuration=effective_configuration(configuration),
        begin=begin,
        end=head.last_seq,
        progress=seen.append,
    )
    assert seen == sorted(seen)
    assert seen[-1] == 2 * head.last_seq
    assert (await events.head()).last_seq == head.last_seq
    return found


async def test_the_recorded_configuration_changes_nothing() -> None:
    found = await rerun(recorded(), shipped_configuration())
    assert (found.recorded, found.decided, found.elsewhere, found.not_placed) == (8, 8, [], [])
    assert found.before == found.after


async def test_a_skip_of_another_fold_changes_nothing() -> None:
    log = recorded()
    for fold, placed in (("manager", 8), ("scheduler", 7)):
        added = log.between(0, log.last_seq, frozenset({"podspec"}), 1)[0]
        skip = Draft(AggregateRef("fold", fold), EventSkipped(seq=added.seq, reason="r", operator="o"), 0)
        origin = Origin(causation_id=fold, correlation_id=fold, actor="test", occurred_at="2026-01-01T00:00:00.000000Z")
        await MemoryEventLog(log).append(CATALOGUE.seal([skip], origin))
        assert (await rerun(log, shipped_configuration())).decided == placed


async def test_packing_is_told_with_every_pod_that_moves() -> None:
    found = await rerun(recorded(), PACKED.encode(), begin=10)
    assert (found.recorded, found.decided) == (6, 6)
    assert found.after.nodes_in_use < found.before.nodes_in_use == 4
    document = found.document()
    assert len(document["elsewhere"]) == len(found.elsewhere) > 0
    assert {"namespace", "name", "recorded", "rerun"} == set(document["elsewhere"][0])
    assert (document["before"]["pods"], document["after"]["pods"]) == (8, 8)


async def test_a_configuration_that_serves_nobody_of_the_recording_says_so() -> None:
    other = shipped_configuration().replace(b"schedulerName: koord-scheduler", b"schedulerName: my-scheduler")
    found = await rerun(recorded(), other, begin=10)
    assert found.decided == 0
    assert found.warnings == ("no profile serves the pods of scheduler koord-scheduler: 6 pods",)
    assert found.document()["warnings"] == list(found.warnings)
    assert (await rerun(recorded(), shipped_configuration())).warnings == ()


async def test_a_window_starts_at_the_snapshot_before_it_and_gives_the_same_comparison(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("koordctl.replay.scheduler_rerun.BATCH", 2)
    log, shipped = recorded(), shipped_configuration()
    other = shipped.replace(b"schedulerName: koord-scheduler", b"schedulerName: my-scheduler")
    for tried in (shipped, PACKED.encode(), other):
        for position in (12, 20):
            events = ReadLog(log)
            short = await rerun(log, tried, 20, await saved_at(log, tried, position), events)
            assert events.read_from == [position - 2]
            assert short.started == position
            assert replace(short, started=0) == await rerun(log, tried, 20)


async def test_a_snapshot_of_the_default_configuration_fits_a_configuration_with_fewer_of_its_plugins() -> None:
    log, shipped = recorded(), shipped_configuration()
    for position in (12, 20):
        short = await rerun(log, PACKED.encode(), 20, await saved_at(log, shipped, position))
        assert short.started == position
        assert replace(short, started=0) == await rerun(log, PACKED.encode(), 20)


async def test_a_snapshot_of_other_plugins_or_behind_the_beginning_is_not_used() -> None:
    log, shipped = recorded(), shipped_configuration()
    for store in (await saved_at(log, PACKED.encode(), 12), await saved_at(log, shipped, 21)):
        events = ReadLog(log)
        await rerun(log, shipped, 20, store, events)
        assert events.read_from == [0]


def test_what_is_tried_is_compared_with_the_shipped_configuration_where_no_scheduler_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KOORD_SCHEDULER", raising=False)
    monkeypatch.setenv("KOORD_VAR", str(tmp_path))
    file = tmp_path / "packed.yaml"
    file.write_text(PACKED)
    tried = compared_with_force(file, scheduler_configuration(file))
    assert (tried.name, tried.other) == (str(file), "the default one")
    assert any(line.startswith("off: ") and "LoadAwareScheduling" in line for line in tried.differences)
    assert compared_with_force(None, scheduler_configuration(None)).differences == []
