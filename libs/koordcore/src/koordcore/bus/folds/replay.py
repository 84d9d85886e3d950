"""Compute the state as of a position or time by folding the history up to it.

A time means the server's time of storing, everywhere (`--as-of`, `--to`, `at=`). A fact belongs to a moment if it and
all facts before it were stored until then. So a later time never means an earlier position, also if the clock of the
server was set back, and no clock of a writer counts. The projector keeps the greatest time of storing up to each fact
(`events.reached_ns`), which gives the same position.

Source: event-bus spec, 6 (as-of query).
"""

from typing import TypeVar

from koordcore.bus.folds.foldable import Foldable, FoldSource, restored
from koordcore.ports.eventlog import EventLog
from koordcore.ports.snapshots import SnapshotStore

F = TypeVar("F", bound=Foldable)


async def state_at(
    events: EventLog,
    source: FoldSource[F],
    upto: int,
    *,
    fold: str = "",
    snapshots: SnapshotStore | None = None,
    skipped: frozenset[int] = frozenset(),
) -> F:
    """Return the state of a fold after every event with sequence <= upto.

    Args:
        upto: Position, at most that of the newest event; 0 gives the empty state.
        fold: Name of the fold whose snapshots may be used; "" to begin at the first event.
        snapshots: Store of snapshots; None: begin at the first event.
        skipped: Sequences that an operator told the fold to skip.

    Raises:
        HistoryGone: Events that are needed were deleted from the log.
        Exception: The error of `apply`, if an event cannot be applied.
    """
    state = source.fresh()
    position = 0
    if snapshots is not None and fold:
        snapshot = await snapshots.newest(fold, schema_fingerprint=source.fingerprint, at_most=upto)
        if snapshot is not None:
            state, position = restored(source.restore, snapshot.state), snapshot.seq
    async for batch in events.history(position, upto):
        for stored in batch:
            if stored.seq in skipped:
                state.skip(stored.seq)
            else:
                state.apply(stored)
    state.skip(upto)
    return state


async def position_at_time(events: EventLog, host_nanos: int, *, after: int | None = None) -> int:
    """Return the position of the last fact of a moment: the one before the first fact that was stored later.

    Args:
        host_nanos: The moment, by the clock of the server: nanoseconds since 1970 (`values.timestamps.unix_nanos`).
        after: Position from which on the facts are read, because all earlier ones are known to have been stored until
            the moment; None: that before the first one of the stream.

    Returns:
        The position. 0 if all facts are later; the newest position if no fact is later.

    Raises:
        HistoryGone: The beginning of the log was deleted.
    """
    head = await events.head()
    position = head.first_seq - 1 if after is None else after
    async for batch in events.history(position, head.last_seq):
        for stored in batch:
            if stored.stored_at_ns > host_nanos:
                return position
            position = stored.seq
    return head.last_seq
