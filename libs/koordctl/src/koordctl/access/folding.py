"""Rebuilding the state of the cluster from the events of the log, and from a snapshot of the archive if one fits."""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from koordcore.bus.folds.foldable import restored
from koordcore.bus.folds.skips import recorded_skips
from koordcore.bus.read.completeness import Completeness, FactsMissing
from koordcore.events.envelope import Event, StoredEvent
from koordcore.events.registry import UnreadableEvent
from koordcore.ports.eventlog import EventLog, ObservationLog
from koordcore.ports.snapshots import SnapshotStore
from koordcore.state import ClusterState
from koordcore.state.cluster import schema_fingerprint

from koordctl.access.log import LogTrouble

if TYPE_CHECKING:
    from koordcore.bus.factory import Bus

BATCH = 1000
CLUSTER_FOLD: Final = "manager"
"""Name under which the manager saves snapshots. Its fold has every fact of the cluster."""


@dataclass(slots=True)
class Folded:
    """The rebuilt state of the cluster, and how it was rebuilt."""

    state: ClusterState = field(default_factory=ClusterState)  # The state at the last position
    begin: int = 0  # Position of the snapshot from which the fold began; 0: it began at the first event
    events: int = 0  # Number of folded events, without the positions that an operator skipped
    by_type: dict[str, int] = field(default_factory=dict[str, int])  # Event type -> number of events
    seconds: float = 0.0  # Real time for reading, folding and hashing
    hash: str = ""  # Hash of the state at the last position
    # Position -> hash of the state there, for each position in `marks` of `fold_to` and the last one.
    hashes: dict[int, str] = field(default_factory=dict[int, str])

    @property
    def events_per_second(self) -> float:
        return self.events / self.seconds if self.seconds > 0 else 0.0


async def fold_to(
    log: EventLog,
    upto: int,
    *,
    state: ClusterState | None = None,
    marks: Iterable[int] = (),
    see: Callable[[StoredEvent, Event], None] | None = None,
    progress: Callable[[int], None] | None = None,
) -> Folded:
    """Rebuild the state of the cluster from the events of the log up to position `upto`, as the manager folds it.

    The fold skips the events that the manager was told to skip. A skip of another service has no effect.

    Args:
        state: State of a snapshot, from which the fold begins; None: begin at the first event.
        marks: Positions at which the hash of the state is kept; all at most `upto`, and none before the snapshot.
        see: Called with every stored event and its decoded form, in order.
        progress: Called with the position after every batch.

    Raises:
        LogTrouble: An event cannot be decoded and the manager was not told to skip it, or the log lacks facts. The
            message names them.
    """
    folded = Folded() if state is None else Folded(state=state, begin=state.position)
    began = time.perf_counter()
    marked = frozenset(marks)
    if folded.begin in marked:
        folded.hashes[folded.begin] = folded.state.hash()
    if upto > folded.begin:
        skipped = await recorded_skips(log, CLUSTER_FOLD, halted_at=folded.begin + 1)
        complete = Completeness(folded.begin)
        async for batch in log.history(folded.begin, upto, batch=BATCH):
            for stored in batch:
                complete.see(stored)
                try:
                    event = None if stored.seq in skipped else folded.state.apply(stored)
                except UnreadableEvent as error:
                    raise LogTrouble(
                        f"{error}; a recorded skip lets the fold continue: koord bus skip --help"
                    ) from error
                folded.state.skip(stored.seq)
                if event is not None:
                    folded.events += 1
                    folded.by_type[stored.type] = folded.by_type.get(stored.type, 0) + 1
                    if see is not None:
                        see(stored, event)
                if stored.seq in marked:
                    folded.hashes[stored.seq] = folded.state.hash()
            if progress is not None:
                progress(folded.state.position)
        complete.end(upto)
        try:
            complete.require()
        except FactsMissing as error:
            raise LogTrouble(f"the log: {error}") from error
    folded.state.skip(upto)
    folded.hash = folded.hashes[upto] = folded.state.hash()
    folded.seconds = time.perf_counter() - began
    return folded


async def archived_cluster(bus: "Bus", at_most: int) -> ClusterState | None:
    """Return the state of the newest archived snapshot of the cluster up to a position; None: begin at the first fact.

    The job that archives facts has folded it. So it can be compared with what a running service has folded.
    """
    if bus.archived_snapshots is None:
        return None
    found = await bus.archived_snapshots.newest(CLUSTER_FOLD, schema_fingerprint=schema_fingerprint(), at_most=at_most)
    return None if found is None else restored(ClusterState.restore, found.state)


async def saved_cluster(snapshots: SnapshotStore, at_most: int) -> ClusterState | None:
    """Return the state of the newest snapshot of the whole cluster up to a position; None: begin at the first fact.

    Raises:
        NoAnswer: The server was set up by an earlier version, which gave this user no right to read snapshots.
    """
    found = await snapshots.newest(CLUSTER_FOLD, schema_fingerprint=schema_fingerprint(), at_most=at_most)
    return None if found is None else restored(ClusterState.restore, found.state)


async def everything_kept(stream: ObservationLog) -> list[StoredEvent]:
    """Return every message that the stream still has, in order."""
    head = await stream.head()
    found: list[StoredEvent] = []
    if head.last_seq == 0 or head.first_seq > head.last_seq:
        return found
    async for batch in stream.follow(0):
        found += batch
        if found and found[-1].seq >= head.last_seq:
            break
    return found
