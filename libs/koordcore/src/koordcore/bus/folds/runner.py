"""The runner that folds the log, shared by all services: load, follow, apply, snapshot, halt before a poison event.

    1. newest usable snapshot, else the first event        4. `on_batch`: what the service does with the news
    2. history up to the head -> caught up                 5. lag, snapshots every 100 k events or 15 min
    3. follow, apply one event after another

An event that cannot be read or applied stops the fold before it. The state stays readable; the fold goes on when an
operator records `EventSkipped` on `fold.<name>` (or a fixed version of the code is started).

source    event-bus spec, 3.2, 6, 8
"""

import asyncio
import gc
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from typing import Generic, NamedTuple, Protocol, TypeVar

from koordcore.bus.adapters.memory import state_digest
from koordcore.bus.client.connection import NoAnswer
from koordcore.bus.metrics import NO_METRICS, BusMetrics
from koordcore.events import CATALOGUE
from koordcore.events.control import EventSkipped
from koordcore.events.envelope import AggregateRef, StoredEvent
from koordcore.ports.clock import Clock
from koordcore.ports.eventlog import EventLog, HistoryGone
from koordcore.ports.snapshots import Snapshot, SnapshotStore

log = logging.getLogger("koordcore.bus")

SNAPSHOT_EVENTS = 100_000
SNAPSHOT_SECONDS = 15 * 60.0
WORTH_A_SNAPSHOT_EVENTS = 5_000
"""Fewer events than these are folded sooner than a snapshot is saved and loaded."""
HALTED_POLL_SECONDS = 0.5
LAG_SECONDS = 1.0
UNANSWERED_PAUSE_SECONDS = 0.5
SLICE_SECONDS = 0.004
"""A snapshot is encoded for so long at a time, in the host's time."""
LAST_SNAPSHOT_SECONDS = 5.0
"""A fold that ends waits so long for a snapshot that is on its way."""


class Foldable(Protocol):
    """State that is a fold of the log, e.g. `koordcore.state.ClusterState`."""

    def apply(self, stored: StoredEvent) -> object:
        """Fold one event; what it gives is handed to `on_batch`. Raises with the state unchanged."""
        ...

    def skip(self, seq: int) -> None:
        """Pass over one event."""
        ...

    def snapshot(self) -> Iterator[bytes]:
        """The state as it is now, as bytes in pieces; it may move on before they are taken."""
        ...


F = TypeVar("F", bound=Foldable)


class Folded(NamedTuple):
    """An event that was applied, with what the state's `apply` gave for it."""

    stored: StoredEvent
    result: object


class Halt(NamedTuple):
    """Why a fold stands still."""

    seq: int
    reason: str


class FoldSource(NamedTuple, Generic[F]):  # type: ignore[misc]  # generic named tuples are allowed since 3.11
    """How a fold's state begins.

    fresh           the empty state
    restore         state of a snapshot's bytes, joined
    fingerprint     digest of the state's schema
    """

    fresh: Callable[[], F]
    restore: Callable[[bytes], F]
    fingerprint: str


class _Taken(NamedTuple):
    """A snapshot that is not encoded yet: the state at a position."""

    position: int
    at: str
    pieces: Iterator[bytes]


class FoldRunner(Generic[F]):
    """One fold of one process. `run` is its only writer; others read `state` between batches.

    name        of the fold: its snapshots, its metrics, its `fold.<name>` aggregate
    kinds       aggregate kinds that it folds; None: all
    on_batch    called after each applied batch, in order; the fold waits for it
    """

    def __init__(
        self,
        name: str,
        events: EventLog,
        source: FoldSource[F],
        clock: Clock,
        *,
        snapshots: SnapshotStore | None = None,
        code_version: str = "",
        kinds: Sequence[str] | None = None,
        on_batch: Callable[[F, list[Folded]], Awaitable[None]] | None = None,
        metrics: BusMetrics = NO_METRICS,
        batch: int = 500,
        snapshot_events: int = SNAPSHOT_EVENTS,
        snapshot_seconds: float = SNAPSHOT_SECONDS,
        halted_poll_seconds: float = HALTED_POLL_SECONDS,
    ) -> None:
        self.name = name
        self.state = source.fresh()
        self.position = 0
        self.halted: Halt | None = None
        self._events = events
        self._source = source
        self._clock = clock
        self._snapshots = snapshots
        self._code_version = code_version
        self._kinds = kinds
        self._on_batch = on_batch
        self._metrics = metrics
        self._batch = batch
        self._snapshot_events = snapshot_events
        self._snapshot_seconds = snapshot_seconds
        self._halted_poll_seconds = halted_poll_seconds
        self._caught_up = asyncio.Event()
        self._moved = asyncio.Event()
        self._skipped: set[int] = set()
        self._snapshot_position = 0
        self._snapshot_moment = clock.monotonic()
        self._saving: asyncio.Task[None] | None = None
        self._heads: deque[tuple[int, float]] = deque()

    @property
    def is_caught_up(self) -> bool:
        """Whether everything that was in the log at the start has been folded."""
        return self._caught_up.is_set()

    async def caught_up(self) -> None:
        """Wait for `is_caught_up`."""
        await self._caught_up.wait()

    async def reached(self, seq: int) -> None:
        """Wait until the event at `seq` was folded (or passed over)."""
        while self.position < seq:
            self._moved.clear()
            await self._moved.wait()

    async def reached_or_halted(self, seq: int) -> Halt | None:
        """Wait until the event at `seq` was folded (None), or until the fold stands still before it: why."""
        while self.position < seq:
            if self.halted is not None:
                return self.halted
            self._moved.clear()
            await self._moved.wait()
        return None

    @property
    def lag_seconds(self) -> float:
        """How long the oldest event that is not folded yet has been seen waiting; 0 when nothing waits."""
        while self._heads and self._heads[0][0] <= self.position:
            self._heads.popleft()
        return self._clock.monotonic() - self._heads[0][1] if self._heads else 0.0

    async def load(self) -> None:
        """Begin at the newest usable snapshot, else at the first event. Called by `run`; separately by tools."""
        self._skipped = await self._recorded_skips()
        snapshot = None
        if self._snapshots is not None:
            head = await _patiently(self._events.head)
            snapshot = await self._snapshots.newest(
                self.name, schema_fingerprint=self._source.fingerprint, at_most=head.last_seq
            )
        if snapshot is None:
            self.state, self.position = self._source.fresh(), 0
        else:
            self.state, self.position = _restored(self._source.restore, b"".join(snapshot.state)), snapshot.seq
        self._snapshot_position = self.position
        self._snapshot_moment = self._clock.monotonic()

    async def run(self) -> None:
        """Fold for ever. Cancel to stop; the state then stands after the last applied event.

        raises    HistoryGone when events that are needed are trimmed and no snapshot covers them
        """
        # 1. where we begin
        await self.load()
        async with asyncio.TaskGroup() as group:
            lag = group.create_task(self._watch_lag())
            try:
                while True:
                    begun_at = self.position
                    try:
                        # 2. everything that was there before us
                        head = await _patiently(self._events.head)
                        if head.last_seq > self.position:
                            await self._consume(
                                self._events.history(self.position, head.last_seq, kinds=self._kinds, batch=self._batch)
                            )
                            self._advance(head.last_seq)
                        self._caught_up.set()
                        # 3. everything that comes
                        await self._consume(self._events.follow(self.position, kinds=self._kinds, batch=self._batch))
                    except HistoryGone:
                        log.warning("fold_history_gone fold=%s position=%d", self.name, self.position)
                        await self.load()
                        if self.position <= begun_at:
                            raise
            finally:
                lag.cancel()
                await self._end_saving()

    async def save_snapshot(self) -> Snapshot | None:
        """Save the state as it stands; None without a store. Meanwhile the fold may go on."""
        return None if self._snapshots is None else await self._save(self._snapshots, self._taken())

    def _taken(self) -> _Taken:
        return _Taken(self.position, self._clock.now().isoformat(), self.state.snapshot())

    async def _save(self, store: SnapshotStore, taken: _Taken) -> Snapshot:
        state = await _in_slices(taken.pieces)
        snapshot = Snapshot(
            fold=self.name,
            seq=taken.position,
            code_version=self._code_version,
            schema_fingerprint=self._source.fingerprint,
            taken_at=taken.at,
            state=state,
            digest=await asyncio.to_thread(state_digest, state),
        )
        await store.save(snapshot)
        self._snapshot_position = snapshot.seq
        self._snapshot_moment = self._clock.monotonic()
        return snapshot

    async def save_at_end(self) -> None:
        """For a process that stops: its successor begins here and need not fold what came since the last snapshot."""
        news = self.position - self._snapshot_position
        if self._snapshots is not None and self.is_caught_up and news >= WORTH_A_SNAPSHOT_EVENTS:
            await self._try_to_save(self._snapshots, self._taken())

    async def _try_to_save(self, store: SnapshotStore, taken: _Taken) -> None:
        """Save a snapshot; one that cannot be saved costs time at the next start and nothing else."""
        try:
            await self._save(store, taken)
        except Exception as error:  # noqa: BLE001 - whatever the store says, the fold goes on without a snapshot
            log.warning("snapshot_not_saved fold=%s seq=%d error=%r", self.name, taken.position, error)
            self._snapshot_position = taken.position
            self._snapshot_moment = self._clock.monotonic()

    async def _end_saving(self) -> None:
        """A snapshot on its way to the store may arrive: half of one would stay there for ever."""
        if self._saving is not None:
            await asyncio.wait({self._saving}, timeout=LAST_SNAPSHOT_SECONDS)
            self._saving.cancel()

    async def _consume(self, batches: AsyncIterator[list[StoredEvent]]) -> None:
        async for events in batches:
            at = 0
            while at < len(events):
                at = await self._apply(events, at)
            if self._snapshots is not None and self._is_snapshot_due():
                self._saving = asyncio.create_task(self._try_to_save(self._snapshots, self._taken()))

    async def _apply(self, events: list[StoredEvent], at: int) -> int:
        """Apply events from index `at` to the end, or to a poison event that is waited for; gives the next index."""
        state = self.state
        folded: list[Folded] = []
        halt: Halt | None = None
        for stored in events[at:]:
            if stored.seq in self._skipped:
                state.skip(stored.seq)
                at += 1
                continue
            try:
                result = state.apply(stored)
            except Exception as error:  # noqa: BLE001 - the fold's own bug or a poison event: both halt it, loudly
                halt = Halt(stored.seq, f"{type(error).__name__}: {error}")
                break
            folded.append(Folded(stored, result))
            at += 1
        if at:
            self._advance(events[at - 1].seq)
        if folded and self._on_batch is not None:
            await self._on_batch(state, folded)
        if halt is not None:
            await self._wait_for_skip(halt)
        return at

    async def _wait_for_skip(self, halt: Halt) -> None:
        """Stand still before an event until an operator's record names it."""
        self._skipped |= await self._recorded_skips()
        if halt.seq in self._skipped:
            return
        self.halted = halt
        self._moved.set()  # who waits for a later position has to hear of it
        self._metrics.follower_halted(self.name, halted=True)
        log.error("fold_halted fold=%s seq=%d reason=%s", self.name, halt.seq, halt.reason)
        try:
            while halt.seq not in self._skipped:
                await asyncio.sleep(self._halted_poll_seconds)
                self._skipped |= await self._recorded_skips()
        finally:
            self.halted = None
            self._metrics.follower_halted(self.name, halted=False)
        log.warning("fold_resumed fold=%s after=%d", self.name, halt.seq)

    async def _recorded_skips(self) -> set[int]:
        """Sequences that operators told this fold to pass over."""
        skips: set[int] = set()
        ref = AggregateRef("fold", self.name)
        for stored in await _patiently(lambda: self._events.read_aggregate(ref)):
            event = CATALOGUE.read(stored)
            if isinstance(event, EventSkipped):
                skips.add(event.seq)
        return skips

    def _advance(self, seq: int) -> None:
        self.position = max(self.position, seq)
        self._moved.set()

    def _is_snapshot_due(self) -> bool:
        is_under_way = self._saving is not None and not self._saving.done()
        if is_under_way or self.position == self._snapshot_position:
            return False
        return (
            self.position - self._snapshot_position >= self._snapshot_events
            or self._clock.monotonic() - self._snapshot_moment >= self._snapshot_seconds
        )

    async def _watch_lag(self) -> None:
        while True:
            head = await _patiently(self._events.head)
            now = self._clock.monotonic()
            if head.last_seq > self.position:
                self._heads.append((head.last_seq, now))
            self._metrics.follower_lag(
                self.name, events=max(0, head.last_seq - self.position), seconds=self.lag_seconds
            )
            if self._snapshots is not None:
                self._metrics.snapshot_age(self.name, now - self._snapshot_moment)
            await asyncio.sleep(LAG_SECONDS)


async def _in_slices(pieces: Iterator[bytes]) -> tuple[bytes, ...]:
    """All pieces; whoever else has something to do is let in between."""
    taken: list[bytes] = []
    time = asyncio.get_running_loop().time
    until = time() + SLICE_SECONDS
    for piece in pieces:
        taken.append(piece)
        if time() >= until:
            await asyncio.sleep(0)
            until = time() + SLICE_SECONDS
    return tuple(taken)


T = TypeVar("T")


def _restored(restore: Callable[[bytes], F], state: bytes) -> F:
    """The fold of a snapshot: millions of objects that stay, among which nobody need look for cycles, now or later."""
    collects = gc.isenabled()
    gc.disable()
    try:
        return restore(state)
    finally:
        gc.freeze()
        if collects:
            gc.enable()


async def _patiently(read: Callable[[], Awaitable[T]]) -> T:
    """The answer of a read, however long the bus is away: a fold waits and keeps its state."""
    while True:
        try:
            return await read()
        except NoAnswer as error:
            log.warning("bus_read_repeated reason=%s", error)
            await asyncio.sleep(UNANSWERED_PAUSE_SECONDS)
