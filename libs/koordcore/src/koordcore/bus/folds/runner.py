"""The runner that folds the log in every service: load, follow, apply, snapshot, halt.

    1. newest usable snapshot, else the first event        4. `on_batch`: what the service does with the news
    2. history up to the head -> caught up                 5. lag, snapshots every 100 k events or 15 min
    3. follow, apply one event after another

If an event cannot be read or applied, the fold halts before it. The state stays readable. The fold continues after an
operator has recorded `EventSkipped` on `fold.<name>`, or after a start with corrected code. What a node wrote on its
own aggregates halts no fold: it is passed over and told (`Catalogue.read`).

Source: event-bus spec, 3.2, 6, 8.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Generic

from koordcore.bus.client.connection import patiently
from koordcore.bus.folds.foldable import F, Folded, FoldSource, Halt
from koordcore.bus.folds.skips import recorded_skips
from koordcore.bus.folds.snapshot_keeper import (
    SNAPSHOT_EVENTS,
    SNAPSHOT_SECONDS,
    WENT_BACK_SECONDS,
    SnapshotKeeper,
    head_from,
    require_same,
)
from koordcore.bus.metrics import NO_METRICS, BusMetrics
from koordcore.bus.refusals import Refusals
from koordcore.events import CATALOGUE
from koordcore.events.envelope import WRITTEN_BY_NODES, StoredEvent
from koordcore.ports.clock import Clock
from koordcore.ports.eventlog import LOG_FAULTS, EventLog, HistoryGone
from koordcore.ports.snapshots import SnapshotStore

log = logging.getLogger("koordcore.bus")

HALTED_POLL_SECONDS = 0.5
MENDING_POLL_SECONDS = 5.0  # Seconds between two looks whether a log that had lost facts was mended
LAG_SECONDS = 1.0


class FoldRunner(Generic[F]):
    """Runs one fold in one process: loads a snapshot, applies the events of the log in order, and saves snapshots. Only
    `run` changes the state. Other tasks may read `state` while `run` waits for events.

    Args:
        name: Name of the fold in snapshots, in metrics and in the aggregate `fold.<name>`.
        snapshots: Store of snapshots. None: the fold begins at the first event.
        code_version: Version of the code that is written into snapshots.
        kinds: Aggregate kinds to fold; None: all.
        on_batch: Called with the events of each applied batch, in order. The fold waits until it returns.
        metrics: Receives lag, halts, the age of the snapshot, and the number of messages that were passed over.
        batch: Largest number of events that are applied without a pause.
        snapshot_events: Number of events after which a snapshot is due.
        snapshot_seconds: Seconds after which a snapshot is due.
        halted_poll_seconds: After a halt, seconds between two checks whether an operator ordered a skip.
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
        self.position = 0  # Sequence of the last applied or skipped event
        self.halted: Halt | None = None  # Event before which the fold stopped, and the reason; None while it runs
        self._events = events
        self._source = source
        self._clock = clock
        self._keeper = (
            None
            if snapshots is None
            else SnapshotKeeper(
                name,
                source,
                snapshots,
                clock,
                code_version=code_version,
                every_events=snapshot_events,
                every_seconds=snapshot_seconds,
            )
        )
        self._kinds = kinds
        self._on_batch = on_batch
        self._metrics = metrics
        self._batch = batch
        self._halted_poll_seconds = halted_poll_seconds
        self.refusals = Refusals(name, metrics)  # Messages of nodes that the fold has passed over
        self._caught_up = asyncio.Event()
        self._moved = asyncio.Event()
        self._skipped: set[int] = set()
        self._last: StoredEvent | None = None  # Event at `position`; None if it was not read
        self._fact_id = ""  # Without `_last`, id of the event at `position`; "" if it is not known
        self._heads: deque[tuple[int, float]] = deque()

    def trouble(self) -> str | None:
        """Return the reason why the state is not up to date, one sentence; None if it is. Readiness checks use it. The
        reason is that the fold has stopped or is still reading old events.
        """
        if self.halted is not None:
            return str(self.halted)
        return None if self.is_caught_up else "the log is not folded yet"

    @property
    def is_caught_up(self) -> bool:
        """Whether all events that were in the log at the start have been folded."""
        return self._caught_up.is_set()

    async def caught_up(self) -> None:
        """Wait until all events that were in the log at the start have been folded."""
        await self._caught_up.wait()

    async def reached(self, seq: int) -> None:
        """Wait until the event with this sequence was applied or skipped."""
        while self.position < seq:
            self._moved.clear()
            await self._moved.wait()

    async def reached_or_halted(self, seq: int) -> Halt | None:
        """Wait until the event with this sequence was applied or skipped, or the fold stops before it.

        Returns:
            The halt; None if the event was reached.
        """
        while self.position < seq:
            if self.halted is not None:
                return self.halted
            self._moved.clear()
            await self._moved.wait()
        return None

    @property
    def lag_seconds(self) -> float:
        """Age in seconds of the oldest event in the log that is not folded yet; 0 if all are folded."""
        while self._heads and self._heads[0][0] <= self.position:
            self._heads.popleft()
        return self._clock.monotonic() - self._heads[0][1] if self._heads else 0.0

    async def load(self) -> None:
        """Load the newest usable snapshot; without one, begin with the empty state. `run` calls it.

        Raises:
            LogShorter: As `SnapshotKeeper.load`, and its other errors likewise.
        """
        self._skipped = await recorded_skips(self._events, self.name)
        if self._keeper is None:
            self.state, self.position, self._fact_id = self._source.fresh(), 0, ""
        else:
            self.state, self.position, self._fact_id = await self._keeper.load(self._events)
        self._last = None

    async def run(self) -> None:
        """Load the state, then apply events until the task is cancelled. The state stays readable after that. An event
        that cannot be applied halts the fold before it, until an operator records a skip; this is no error.

        Raises:
            ExceptionGroup: It contains `HistoryGone` if the next events were trimmed from the log and no snapshot
                contains them, or the error that `on_batch` raised.
        """
        # 1. load
        while (fault := await self._try_to(self.load)) is not None:
            await self._wait_for_mending(fault)
        async with asyncio.TaskGroup() as group:
            lag = group.create_task(self._watch_lag())
            try:
                while True:
                    begun_at = self.position
                    try:
                        if (fault := await self._try_to(self._fold)) is not None:
                            await self._wait_for_mending(fault)
                    except HistoryGone:
                        log.warning("fold_history_gone fold=%s position=%d", self.name, self.position)
                        while (fault := await self._try_to(self.load)) is not None:
                            await self._wait_for_mending(fault)
                        if self.position <= begun_at:
                            raise
            finally:
                lag.cancel()
                if self._keeper is not None:
                    await self._keeper.close()

    async def _try_to(self, work: Callable[[], Awaitable[None]]) -> Exception | None:
        """Return why `work` found that the log is not what it was; None if it ended otherwise."""
        try:
            await work()
        except LOG_FAULTS as fault:
            return fault
        return None

    async def _fold(self) -> None:
        """Fold what the log has, and what comes, without end."""
        seconds = 0.0 if self.halted is not None else WENT_BACK_SECONDS
        head = await head_from(self._events, self.position, seconds=seconds)
        await require_same(self._events, head, self.position, self._fact_at_position())
        # 2. fold what the log holds already
        if head.last_seq > self.position:
            await self._consume(
                self._events.history(self.position, head.last_seq, kinds=self._kinds, batch=self._batch)
            )
            if head.last_seq > self.position:  # the last events are of other kinds
                last = await patiently(lambda: self._events.at(head.last_seq))
                self._last, self._fact_id = None, "" if last is None else last.event_id
            self._advance(head.last_seq)
        self._resume()
        self._caught_up.set()
        # 3. fold what comes
        await self._consume(self._events.follow(self.position, kinds=self._kinds, batch=self._batch))

    async def _wait_for_mending(self, fault: Exception) -> None:
        """Halt, because the log has lost facts that it had. The next attempt may find it mended, for example by another
        server that has the facts.
        """
        self._halt(Halt(self.position + 1, str(fault)))
        await asyncio.sleep(MENDING_POLL_SECONDS)

    def _halt(self, halt: Halt) -> None:
        if halt != self.halted:
            log.error("fold_halted fold=%s seq=%d reason=%s", self.name, halt.seq, halt.reason)
        self.halted = halt
        self._moved.set()  # wakes `reached_or_halted`
        self._metrics.follower_halted(self.name, halted=True)

    def _resume(self) -> None:
        if self.halted is not None:
            self.halted = None
            self._metrics.follower_halted(self.name, halted=False)
            log.warning("fold_resumed fold=%s after=%d", self.name, self.position)

    def _fact_at_position(self) -> str:
        """Return the id of the event at `position`; "" if it is not known."""
        return self._fact_id if self._last is None else self._last.event_id

    async def save_at_end(self) -> None:
        """Save a snapshot when the process stops, so that the next start reads fewer events. No-op if the fold has no
        store of snapshots, has not caught up, or has applied fewer than 5,000 events since its last snapshot.
        """
        if self._keeper is not None and self.is_caught_up:
            await self._keeper.save_at_end(self.state, self.position, self._fact_at_position())

    async def _consume(self, batches: AsyncIterator[list[StoredEvent]]) -> None:
        async for events in batches:
            at = 0
            while at < len(events):
                at = await self._apply(events, at)
            if self._keeper is not None:
                self._keeper.save_if_due(self.state, self.position, self._fact_at_position())

    async def _apply(self, events: list[StoredEvent], at: int) -> int:
        """Apply events from index `at` on and return the next index; halt before an event that fails."""
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
                if stored.ref.kind in WRITTEN_BY_NODES:  # one node stops nobody, not even by a bug of ours
                    state.skip(stored.seq)
                    self.refusals.tell(stored, f"{type(error).__name__}: {error}")
                    at += 1
                    continue
                halt = Halt(stored.seq, f"{type(error).__name__}: {error}")
                break
            if result is None and (reason := CATALOGUE.why_passed_over(stored)):
                self.refusals.tell(stored, reason)
            folded.append(Folded(stored, result))
            at += 1
        if at:
            self._last = events[at - 1]
            self._advance(self._last.seq)
        if folded and self._on_batch is not None:
            await self._on_batch(state, folded)
        if halt is not None:
            await self._wait_for_skip(halt)
        return at

    async def _wait_for_skip(self, halt: Halt) -> None:
        """Halt before an event until an operator records that it is skipped."""
        self._skipped |= await recorded_skips(self._events, self.name, halted_at=halt.seq)
        if halt.seq in self._skipped:
            return
        self._halt(halt)
        try:
            while halt.seq not in self._skipped:
                await asyncio.sleep(self._halted_poll_seconds)
                self._skipped |= await recorded_skips(self._events, self.name)
        finally:
            self._resume()

    def _advance(self, seq: int) -> None:
        self.position = max(self.position, seq)
        self._moved.set()

    async def _watch_lag(self) -> None:
        while True:
            head = await patiently(self._events.head)
            now = self._clock.monotonic()
            if head.last_seq > self.position:
                self._heads.append((head.last_seq, now))
            self._metrics.follower_lag(
                self.name, events=max(0, head.last_seq - self.position), seconds=self.lag_seconds
            )
            if self._keeper is not None:
                self._metrics.snapshot_age(self.name, self._keeper.age_seconds)
            await asyncio.sleep(LAG_SECONDS)
