"""State as of any position or time: fold the history up to it.

Source:
    event-bus spec, 6 (as-of query)
"""

from typing import TypeVar

from koordcore.bus.folds.foldable import Foldable, FoldSource
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
    """Return the fold's state after every event with sequence <= upto.

    Raises HistoryGone; what `apply` raises for a poison event.

    Args:
        upto: At most the head's; 0 gives the empty state.
        fold: Whose snapshots may shorten the way; "" or no store: from the first event.
        skipped: Sequences that operators told the fold to pass over.
    """
    state = source.fresh()
    position = 0
    if snapshots is not None and fold:
        snapshot = await snapshots.newest(fold, schema_fingerprint=source.fingerprint, at_most=upto)
        if snapshot is not None:
            state, position = source.restore(b"".join(snapshot.state)), snapshot.seq
    async for batch in events.history(position, upto):
        for stored in batch:
            if stored.seq in skipped:
                state.skip(stored.seq)
            else:
                state.apply(stored)
    state.skip(upto)
    return state


async def position_at_time(events: EventLog, moment: str) -> int:
    """Return the last position before the first event that occurred after `moment`: what was known then.

    Args:
        moment: RFC 3339, UTC, microseconds, as `Koord-Occurred-At` is written (equal formats compare as text).

    Returns:
        0 when the first event is later; the head when none is.

    Raises:
        HistoryGone: The beginning of the log has been trimmed.
    """
    head = await events.head()
    position = head.first_seq - 1
    async for batch in events.history(position, head.last_seq):
        for stored in batch:
            if stored.occurred_at > moment:
                return position
            position = stored.seq
    return head.last_seq
