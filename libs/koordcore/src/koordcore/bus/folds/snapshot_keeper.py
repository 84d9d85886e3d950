"""Snapshots of one fold: load the newest usable one, and save a new one in slices when it is due."""

import asyncio
import logging
from collections.abc import Iterator
from typing import Generic, NamedTuple

from koordcore.bus.client.connection import patiently
from koordcore.bus.folds.foldable import F, FoldSource, restored
from koordcore.ports.clock import Clock
from koordcore.ports.snapshots import Snapshot, SnapshotStore, state_digest

_log = logging.getLogger("koordcore.bus")

SNAPSHOT_EVENTS = 100_000
SNAPSHOT_SECONDS = 15 * 60.0
WORTH_A_SNAPSHOT_EVENTS = 5_000  # Number of events below which folding is faster than saving and loading a snapshot
SLICE_SECONDS = 0.004  # Longest time of encoding without yielding to other tasks, in host time
LAST_SNAPSHOT_SECONDS = 5.0  # Longest time that a stopping fold waits for a snapshot that is being saved


class _Taken(NamedTuple):
    """State and position of a snapshot that is not encoded yet."""

    position: int
    at: str
    pieces: Iterator[bytes]


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

    async def load(self, at_most: int) -> tuple[F, int]:
        """Return state and position of the newest usable snapshot; the empty state and 0 if there is none. Waits until
        the store answers. `at_most`: sequence of the newest event in the log. A snapshot behind it belongs to another
        log.
        """
        found = await patiently(
            lambda: self._store.newest(self._fold, schema_fingerprint=self._source.fingerprint, at_most=at_most)
        )
        self._note(found.seq if found is not None else 0)
        if found is None:
            return self._source.fresh(), 0
        return restored(self._source.restore, found.state), found.seq

    async def save(self, state: F, position: int) -> Snapshot:
        """Save the state at this position now, and return the snapshot. The state is captured before the first wait, so
        the fold may continue during the call.
        """
        return await self._save(self._taken(state, position))

    def save_if_due(self, state: F, position: int) -> None:
        """Start to save the state in the background if a snapshot is due. No-op while another one is being saved."""
        is_saving = self._saving is not None and not self._saving.done()
        if is_saving or position == self._position:
            return
        if position - self._position >= self._every_events or self.age_seconds >= self._every_seconds:
            self._saving = asyncio.create_task(self._try_to_save(self._taken(state, position)))

    async def save_at_end(self, state: F, position: int) -> None:
        """Save the state when the process stops. No-op below 5,000 events since the last snapshot."""
        if position - self._position >= WORTH_A_SNAPSHOT_EVENTS:
            await self._try_to_save(self._taken(state, position))

    async def close(self) -> None:
        """Wait at most 5 s until a snapshot that is being saved is complete, then cancel the saving. A partial snapshot
        would stay in the store.
        """
        if self._saving is not None:
            await asyncio.wait({self._saving}, timeout=LAST_SNAPSHOT_SECONDS)
            self._saving.cancel()

    def _taken(self, state: F, position: int) -> _Taken:
        return _Taken(position, self._clock.now().isoformat(), state.snapshot())

    async def _try_to_save(self, taken: _Taken) -> None:
        """Save a snapshot; log an error, because a missing snapshot only makes the next start slower."""
        try:
            await self._save(taken)
        except Exception as error:  # noqa: BLE001 - whatever the store says, the fold goes on without a snapshot
            _log.warning("snapshot_not_saved fold=%s seq=%d error=%r", self._fold, taken.position, error)
            self._note(taken.position)

    async def _save(self, taken: _Taken) -> Snapshot:
        state = await _in_slices(taken.pieces)
        snapshot = Snapshot(
            fold=self._fold,
            seq=taken.position,
            code_version=self._code_version,
            schema_fingerprint=self._source.fingerprint,
            taken_at=taken.at,
            state=state,
            digest=await asyncio.to_thread(state_digest, state),
        )
        await self._store.save(snapshot)
        self._note(snapshot.seq)
        return snapshot

    def _note(self, position: int) -> None:
        self._position = position
        self._moment = self._clock.monotonic()


async def _in_slices(pieces: Iterator[bytes]) -> tuple[bytes, ...]:
    """Return all pieces, and yield to other tasks between them."""
    taken: list[bytes] = []
    time = asyncio.get_running_loop().time
    until = time() + SLICE_SECONDS
    for piece in pieces:
        taken.append(piece)
        if time() >= until:
            await asyncio.sleep(0)
            until = time() + SLICE_SECONDS
    return tuple(taken)
