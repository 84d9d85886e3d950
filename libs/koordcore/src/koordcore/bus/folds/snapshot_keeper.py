"""Snapshots of one fold: load the newest usable one, and save a new one when it is due, piece by piece."""

import asyncio
import logging
from collections.abc import Iterator
from itertools import chain
from typing import Generic, NamedTuple

from koordcore.bus.client.connection import patiently
from koordcore.bus.folds.foldable import F, FoldSource, restored
from koordcore.ports.clock import Clock
from koordcore.ports.eventlog import EventLog, LogChanged, LogDamaged, LogHead, LogShorter
from koordcore.ports.snapshots import SnapshotHead, SnapshotStore

_log = logging.getLogger("koordcore.bus")

SNAPSHOT_EVENTS = 100_000
SNAPSHOT_SECONDS = 15 * 60.0
WORTH_A_SNAPSHOT_EVENTS = 5_000  # Number of events below which folding is faster than saving and loading a snapshot
WENT_BACK_SECONDS = 10.0  # Time in which a log that ends before a snapshot may reach it
_HEAD_PAUSE_SECONDS = 0.2
LAST_SNAPSHOT_SECONDS = 5.0  # Longest time that a stopping fold waits for a snapshot that is being saved


class Loaded(NamedTuple, Generic[F]):  # type: ignore[misc]  # generic named tuples are allowed since 3.11
    """A state, and where in the log it is."""

    state: F
    position: int  # Sequence of the last folded event; 0 for none
    fact_id: str  # Id of this event; "" if it is not known


class _Taken(NamedTuple):
    """State and position of a snapshot that is not encoded yet."""

    position: int
    fact_id: str
    at: str
    pieces: Iterator[bytes]  # Encoded when they are consumed


class SnapshotKeeper(Generic[F]):
    """Loads the snapshots of one fold, and saves a new one when it is due, while the fold continues.

    Args:
        clock: Clock whose monotonic time decides when a snapshot is due.
        code_version: Version of the code that is written into snapshots.
        every_events: Number of events after which a snapshot is due.
        every_seconds: Seconds after which a snapshot is due, if any event was applied.
    """

    def __init__(
        self,
        fold: str,
        source: FoldSource[F],
        store: SnapshotStore,
        clock: Clock,
        *,
        code_version: str = "",
        every_events: int = SNAPSHOT_EVENTS,
        every_seconds: float = SNAPSHOT_SECONDS,
    ) -> None:
        self._fold = fold
        self._source = source
        self._store = store
        self._clock = clock
        self._code_version = code_version
        self._every_events = every_events
        self._every_seconds = every_seconds
        self._position = 0
        self._moment = clock.monotonic()
        self._saving: asyncio.Task[None] | None = None

    @property
    def age_seconds(self) -> float:
        """Seconds since the last snapshot was saved or loaded."""
        return self._clock.monotonic() - self._moment

    async def load(self, log: EventLog) -> Loaded[F]:
        """Return state and position of the newest usable snapshot; the empty state and 0 if there is none. Waits until
        log and store answer.

        Raises:
            LogShorter: The log ends before a snapshot: it has lost its end, or it is another log.
            LogChanged: The log has another event at the position of the snapshot.
            LogDamaged: The log cannot read the event at the position of the snapshot.
        """
        newest = max(await patiently(lambda: self._store.sequences(self._fold)), default=0)
        head = await head_from(log, newest, seconds=WENT_BACK_SECONDS)
        found = await patiently(
            lambda: self._store.newest(self._fold, schema_fingerprint=self._source.fingerprint, at_most=head.last_seq)
        )
        if found is not None:
            await require_same(log, head, found.seq, found.fact_id)
        self._note(found.seq if found is not None else 0)
        if found is None:
            return Loaded(self._source.fresh(), 0, "")
        position, fact_id, state = found.seq, found.fact_id, b"".join(found.state)
        del found  # of a large cluster, its pieces take as much memory as the restored state
        return Loaded(restored(self._source.restore, (state,)), position, fact_id)

    async def save(self, state: F, position: int, fact_id: str = "") -> None:
        """Save the state at this position now. The state is captured before the first wait, so the fold may continue
        during the call. `fact_id`: id of the event at this position; "" if it is not known.
        """
        await self._save(self._taken(state, position, fact_id))

    def save_if_due(self, state: F, position: int, fact_id: str) -> None:
        """Start to save the state in the background if a snapshot is due. No-op while another one is being saved."""
        is_saving = self._saving is not None and not self._saving.done()
        if is_saving or position == self._position:
            return
        if position - self._position >= self._every_events or self.age_seconds >= self._every_seconds:
            self._saving = asyncio.create_task(self._try_to_save(self._taken(state, position, fact_id)))

    async def save_at_end(self, state: F, position: int, fact_id: str) -> None:
        """Save the state when the process stops. No-op below 5,000 events since the last snapshot."""
        if position - self._position >= WORTH_A_SNAPSHOT_EVENTS:
            await self._try_to_save(self._taken(state, position, fact_id))

    async def close(self) -> None:
        """Wait at most 5 s until a snapshot that is being saved is complete, then cancel the saving. A partial snapshot
        would stay in the store.
        """
        if self._saving is not None:
            await asyncio.wait({self._saving}, timeout=LAST_SNAPSHOT_SECONDS)
            self._saving.cancel()

    def _taken(self, state: F, position: int, fact_id: str) -> _Taken:
        pieces = state.snapshot()
        # Begun at once: a generator that was not begun does not learn that nobody wants its pieces any more.
        first = next(pieces, b"")
        return _Taken(position, fact_id, self._clock.now().isoformat(), chain((first,), pieces))

    async def _try_to_save(self, taken: _Taken) -> None:
        """Save a snapshot; log an error, because a missing snapshot only makes the next start slower."""
        try:
            await self._save(taken)
        except Exception as error:  # noqa: BLE001 - whatever the store says, the fold goes on without a snapshot
            _log.warning("snapshot_not_saved fold=%s seq=%d error=%r", self._fold, taken.position, error)
            self._note(taken.position)

    async def _save(self, taken: _Taken) -> None:
        head = SnapshotHead(
            fold=self._fold,
            seq=taken.position,
            code_version=self._code_version,
            schema_fingerprint=self._source.fingerprint,
            taken_at=taken.at,
            fact_id=taken.fact_id,
        )
        await self._store.save_pieces(head, taken.pieces)
        self._note(head.seq)

    def _note(self, position: int) -> None:
        self._position = position
        self._moment = self._clock.monotonic()


async def head_from(log: EventLog, position: int, *, seconds: float) -> LogHead:
    """Return the bounds of a log that reaches a position. `seconds`: real seconds in which it may reach it, because a
    new leader needs a while to know the newest facts.

    Raises:
        LogShorter: It ends before the position.
    """
    time = asyncio.get_running_loop().time
    end = time() + seconds
    while True:
        head = await patiently(log.head)
        if position <= head.last_seq:
            return head
        if time() >= end:
            raise LogShorter(position, head.last_seq)
        await asyncio.sleep(_HEAD_PAUSE_SECONDS)


async def require_same(log: EventLog, head: LogHead, position: int, fact_id: str) -> None:
    """Compare the event at a position of the log with the one that a fold had there. No-op if the fold does not know
    its id, or the log has trimmed it.

    Raises:
        LogChanged: The log has another event there.
        LogDamaged: The log cannot read it.
    """
    if not fact_id or not head.first_seq <= position <= head.last_seq:
        return
    found = await patiently(lambda: log.at(position))
    if found is None:
        raise LogDamaged(position, None, head.last_seq)
    if found.event_id != fact_id:
        raise LogChanged(position, fact_id, found.event_id)
