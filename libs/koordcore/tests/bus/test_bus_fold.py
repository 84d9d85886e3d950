"""The fold runner and replay, over the log in memory."""

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager

import pytest
from koordcore.bus.adapters.memory import MemoryEventLog, MemoryLog, MemorySnapshotStore
from koordcore.bus.client.connection import NoAnswer
from koordcore.bus.folds.foldable import Folded, FoldSource
from koordcore.bus.folds.replay import position_at_time, state_at
from koordcore.bus.folds.runner import FoldRunner
from koordcore.bus.metrics import BusMetrics
from koordcore.events import CATALOGUE
from koordcore.events.envelope import AggregateRef, Draft, NewEvent, Origin, StoredEvent
from koordcore.events.log import EventSkipped
from koordcore.events.nodestate import PodsStarted
from koordcore.ports.eventlog import Appended, HistoryGone
from koordcore.ports.snapshots import Snapshot
from koordcore.service.clock import SystemClock
from support.until import DEADLINE_SECONDS, until


class Counting:
    """A fold that keeps the ids in order; a body with "boom" is its bug."""

    def __init__(self, seen: list[str] | None = None) -> None:
        self.seen = seen or []

    def apply(self, stored: StoredEvent) -> object:
        if b"boom" in stored.body:
            raise KeyError("boom")
        self.seen.append(stored.ref.id)
        return stored.ref.id

    def skip(self, seq: int) -> None:
        return

    def snapshot(self) -> Iterator[bytes]:
        return iter([",".join(self.seen).encode()])


def restored(data: bytes) -> Counting:
    return Counting(data.decode().split(","))


SOURCE = FoldSource(Counting, restored, "v1")


class Slow(Counting):
    """Its snapshot takes until it may end."""

    def __init__(self) -> None:
        super().__init__()
        self.may_encode = asyncio.Event()

    def snapshot(self) -> Iterator[bytes]:
        taken = ",".join(self.seen).encode()
        return self._pieces(taken)

    def _pieces(self, taken: bytes) -> Iterator[bytes]:
        while not self.may_encode.is_set():
            yield b""
        yield taken


def slow(_: bytes) -> Slow:
    return Slow()


class Recorded(BusMetrics):
    def __init__(self) -> None:
        self.halts: list[bool] = []
        self.lags: list[tuple[int, float]] = []

    def follower_halted(self, fold: str, *, halted: bool) -> None:
        self.halts.append(halted)

    def follower_lag(self, fold: str, *, events: int, seconds: float) -> None:
        self.lags.append((events, seconds))


def event(id_: str, *, pod: str = "p", second: int = 0, kind: str = "podspec") -> NewEvent:
    origin = Origin(
        causation_id=id_, correlation_id="", actor="t", occurred_at=f"2026-01-01T00:00:{second:02d}.000000Z"
    )
    return CATALOGUE.seal([Draft(AggregateRef(kind, id_), PodsStarted(pods=[pod]), 0)], origin)[0]


async def filled(*events: NewEvent) -> tuple[MemoryLog, MemoryEventLog]:
    log = MemoryLog()
    handle = MemoryEventLog(log)
    for one in events:
        assert isinstance(await handle.append([one]), Appended)
    return log, handle


@asynccontextmanager
async def running(runner: FoldRunner[Counting] | FoldRunner[Slow]) -> AsyncGenerator[None]:
    task = asyncio.ensure_future(runner.run())
    try:
        async with asyncio.timeout(DEADLINE_SECONDS):
            yield
    finally:
        task.cancel()
        await asyncio.wait({task})


async def saved(store: MemorySnapshotStore, seq: int) -> None:
    """Wait for the snapshot at a position, which is saved beside the fold."""

    async def is_saved() -> bool:
        return seq in await store.sequences("f")

    await until(is_saved, every=0)


async def test_it_folds_what_is_there_and_what_comes():
    _, log = await filled(event("a"), event("b"))
    batches: list[list[Folded]] = []

    async def on_batch(state: Counting, folded: list[Folded]) -> None:
        assert state.seen[-1] == folded[-1].result
        batches.append(folded)

    runner = FoldRunner("f", log, SOURCE, SystemClock(), on_batch=on_batch)
    async with running(runner):
        await runner.caught_up()
        assert (runner.state.seen, runner.position) == (["a", "b"], 2)
        await log.append([event("c")])
        await runner.reached(3)
    assert runner.state.seen == ["a", "b", "c"]
    assert [folded.stored.seq for batch in batches for folded in batch] == [1, 2, 3]


async def test_who_waits_for_a_position_behind_a_poison_event_is_told_of_the_halt():
    _, log = await filled(event("a"))
    runner = FoldRunner("f", log, SOURCE, SystemClock(), halted_poll_seconds=0.01)
    async with running(runner):
        await runner.caught_up()
        assert await runner.reached_or_halted(1) is None
        waiting = asyncio.create_task(runner.reached_or_halted(2))
        await asyncio.sleep(0)
        await log.append([event("b", pod="boom")])
        halt = await waiting
        assert halt is not None
        assert halt.seq == 2


async def test_a_fold_of_some_kinds_is_caught_up_at_the_head_of_the_log():
    _, log = await filled(event("a"), event("x", kind="fold"), event("y", kind="fold"))
    runner = FoldRunner("f", log, SOURCE, SystemClock(), kinds=["podspec"])
    async with running(runner):
        await runner.caught_up()
    assert (runner.state.seen, runner.position) == (["a"], 3)


async def test_a_restart_begins_at_the_newest_snapshot():
    _, log = await filled(*(event(f"n{i}") for i in range(5)))
    store = MemorySnapshotStore()
    first = FoldRunner("f", log, SOURCE, SystemClock(), snapshots=store, snapshot_events=2, batch=2)
    async with running(first):
        await first.caught_up()
        await saved(store, 2)
        await log.append([event("n5"), event("n6")])
        await saved(store, 7)
        await log.append([event("n7")])
        await first.reached(8)
    assert await store.sequences("f") == [2, 7]
    folded: list[int] = []

    async def on_batch(_: Counting, batch: list[Folded]) -> None:
        folded.extend(one.stored.seq for one in batch)

    again = FoldRunner("f", log, SOURCE, SystemClock(), snapshots=store, on_batch=on_batch)
    async with running(again):
        await again.caught_up()
    assert folded == [8]
    assert again.state.seen == first.state.seen


class AwayStore(MemorySnapshotStore):
    """A store that does not answer the first calls."""

    away = 2

    async def newest(self, fold: str, *, schema_fingerprint: str, at_most: int | None = None) -> Snapshot | None:
        if self.away:
            self.away -= 1
            raise NoAnswer("the store is away")
        return await super().newest(fold, schema_fingerprint=schema_fingerprint, at_most=at_most)


async def test_a_store_of_snapshots_that_is_away_is_waited_for():
    _, log = await filled(event("a"), event("b"))
    store = AwayStore()
    runner = FoldRunner("f", log, SOURCE, SystemClock(), snapshots=store)
    async with running(runner):
        await runner.caught_up()
    assert (runner.state.seen, store.away) == (["a", "b"], 0)


async def test_a_fold_that_stops_leaves_its_successor_a_snapshot_if_that_is_worth_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("koordcore.bus.folds.snapshot_keeper.WORTH_A_SNAPSHOT_EVENTS", 3)
    _, log = await filled(event("a"), event("b"))
    store = MemorySnapshotStore()
    runner = FoldRunner("f", log, SOURCE, SystemClock(), snapshots=store)
    async with running(runner):
        await runner.caught_up()
        await runner.save_at_end()
        assert await store.sequences("f") == []
        await log.append([event("c")])
        await runner.reached(3)
        await runner.save_at_end()
    assert await store.sequences("f") == [3]


async def test_trimmed_history_is_bridged_by_a_snapshot():
    memory, log = await filled(*(event(f"n{i}") for i in range(6)))
    store = MemorySnapshotStore()
    saver = FoldRunner("f", log, SOURCE, SystemClock(), snapshots=store, snapshot_events=4, batch=4)
    async with running(saver):
        await saver.caught_up()
        await saved(store, 4)
    memory.trim(3)
    runner = FoldRunner("f", log, SOURCE, SystemClock(), snapshots=store)
    async with running(runner):
        await runner.caught_up()
    assert runner.state.seen == [f"n{i}" for i in range(6)]
    bare = FoldRunner("f", log, SOURCE, SystemClock())
    with pytest.raises(BaseExceptionGroup) as failure:
        await bare.run()
    assert failure.group_contains(HistoryGone)


async def test_a_bug_in_the_fold_halts_it_with_the_state_readable_and_tells():
    _, log = await filled(event("a"), event("b", pod="boom"), event("c"))
    metrics = Recorded()
    applied: list[int] = []

    async def on_batch(_: Counting, batch: list[Folded]) -> None:
        applied.extend(one.stored.seq for one in batch)

    runner = FoldRunner("f", log, SOURCE, SystemClock(), metrics=metrics, on_batch=on_batch, halted_poll_seconds=0.01)
    async with running(runner):
        await until(lambda: runner.halted is not None)
        assert runner.halted is not None
        assert (runner.halted.seq, "boom" in runner.halted.reason) == (2, True)
        assert (runner.state.seen, runner.position, applied) == (["a"], 1, [1])
        skip = Draft(AggregateRef("fold", "f"), EventSkipped(seq=2, reason="bug", operator="me"), 0)
        origin = Origin(causation_id="s", correlation_id="", actor="", occurred_at="")
        await log.append(CATALOGUE.seal([skip], origin))
        await runner.reached(4)
    assert runner.state.seen == ["a", "c", "f"]
    assert metrics.halts == [True, False]
    assert applied == [1, 3, 4]


async def test_a_skip_for_another_fold_helps_nobody():
    _, log = await filled(event("b", pod="boom"))
    skip = Draft(AggregateRef("fold", "other"), EventSkipped(seq=1, reason="bug", operator="me"), 0)
    await log.append(CATALOGUE.seal([skip], Origin(causation_id="s", correlation_id="", actor="", occurred_at="")))
    looks = 0
    read_aggregate = log.read_aggregate

    async def counted(ref: AggregateRef, *, after: int = 0) -> list[StoredEvent]:
        nonlocal looks
        looks += 1
        return await read_aggregate(ref, after=after)

    log.read_aggregate = counted
    runner = FoldRunner("f", log, SOURCE, SystemClock(), halted_poll_seconds=0.001)
    async with running(runner):
        await until(lambda: runner.halted is not None)
        seen = looks
        await until(lambda: looks > seen + 1)
        assert runner.halted is not None


async def test_lag_is_reported():
    _, log = await filled(event("a", pod="boom"), event("b"))
    metrics = Recorded()
    runner = FoldRunner("f", log, SOURCE, SystemClock(), metrics=metrics)
    async with running(runner):
        await until(lambda: bool(metrics.lags) and runner.halted is not None)
        assert metrics.lags[-1][0] == 2
        assert runner.lag_seconds > 0


async def test_state_at_any_position_is_the_fold_of_its_prefix():
    _, log = await filled(*(event(f"n{i}") for i in range(6)))
    store = MemorySnapshotStore()
    runner = FoldRunner("f", log, SOURCE, SystemClock(), snapshots=store, snapshot_events=3, batch=3)
    async with running(runner):
        await runner.caught_up()
        await saved(store, 3)
    for upto in range(7):
        wanted = [f"n{i}" for i in range(upto)]
        assert (await state_at(log, SOURCE, upto)).seen == wanted
        if upto:
            assert (await state_at(log, SOURCE, upto, fold="f", snapshots=store)).seen == wanted


@pytest.mark.parametrize(
    ("stored", "positions"),
    [
        ([0, 10, 20, 30], {-1: 0, 0: 1, 5: 1, 10: 2, 29: 3, 59: 4}),
        # The clock of the server was set back by 25 s after the third fact, and forward again after the fourth one.
        ([0, 10, 20, -5, 30], {-5: 0, 0: 1, 15: 2, 20: 4, 29: 4, 30: 5}),
        ([20, 0, 10, 20, 30], {0: 0, 19: 0, 20: 4, 30: 5}),
    ],
)
async def test_a_moment_is_the_position_before_the_first_fact_that_was_stored_later(
    stored: list[int], positions: dict[int, int]
) -> None:
    memory = MemoryLog()
    times = iter(stored)
    memory.time_of_storing = lambda _: next(times)
    for number in range(len(stored)):
        written = event(f"n{number}", second=40 - number)  # what the writers say has no effect
        memory.store(written.ref, dict(written.headers), written.body)
    log = MemoryEventLog(memory)
    assert {moment: await position_at_time(log, moment) for moment in positions} == positions


async def test_the_fold_goes_on_while_a_snapshot_is_encoded_and_the_snapshot_is_of_its_position():
    _, log = await filled(event("a"), event("b"))
    store = MemorySnapshotStore()
    runner = FoldRunner("f", log, FoldSource(Slow, slow, "v1"), SystemClock(), snapshots=store, snapshot_events=2)
    async with running(runner):
        await runner.caught_up()
        await log.append([event("c")])
        await runner.reached(3)
        assert await store.sequences("f") == []
        runner.state.may_encode.set()
        await saved(store, 2)
    kept = await store.newest("f", schema_fingerprint="v1")
    assert kept is not None
    assert (kept.seq, b"".join(kept.state)) == (2, b"a,b")
    assert runner.state.seen == ["a", "b", "c"]


async def test_what_a_node_wrote_halts_no_fold_even_by_a_bug() -> None:
    _, log = await filled(event("a"), event("n1", pod="boom", kind="nodestate"), event("b"))
    runner = FoldRunner("f", log, SOURCE, SystemClock())
    async with running(runner):
        await runner.reached(3)
    assert runner.state.seen == ["a", "b"]
    assert runner.refusals.of_node["n1"].position == 2
    assert "boom" in runner.refusals.of_node["n1"].reason
