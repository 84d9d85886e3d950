"""The log, streams, desired states and snapshots in memory, without a server: for tests, what-if runs and tools.

Several `MemoryEventLog` handles share one `MemoryLog`, as services share a server. The contract tests of the adapters
cover this module too.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence

import msgspec

from koordcore.bus.client.wire import encode_headers
from koordcore.bus.names import BusNames
from koordcore.bus.write.append import (
    encode_event,
    expecting,
    is_folded,
    is_forgotten,
    is_same_event,
    is_trimmed,
    require_distinct,
    require_small,
    too_many,
)
from koordcore.events import CATALOGUE, envelope
from koordcore.ports import eventlog
from koordcore.ports.desired import DesiredNode, Push
from koordcore.ports.snapshots import KEPT_SNAPSHOTS, Snapshot, SnapshotHead, is_usable, state_digest

_NAMES = BusNames("memory")


class MemoryLog:
    """A stream of facts in the memory of this process. Several `MemoryEventLog` share it as services share a server.

    Args:
        max_events: Refuse appends that would exceed this number of events; None: no limit.
        max_payload: Largest size of an event with its headers, in bytes. The default is that of a NATS server.
        max_batch: Largest number of events in one append.
    """

    def __init__(
        self,
        *,
        max_events: int | None = None,
        max_payload: int = 1024**2,
        max_batch: int = eventlog.LARGEST_APPEND,
    ) -> None:
        self.max_events = max_events
        self.max_batch = max_batch
        self.max_payload = max_payload
        self.first_seq = 1
        self.last_seq = 0
        self._events: dict[int, envelope.StoredEvent] = {}
        self._of: dict[envelope.AggregateRef, list[int]] = defaultdict(list)
        self._ids: dict[str, int] = {}
        self._changed: list[asyncio.Future[None]] = []
        self._pushes: list[asyncio.Queue[Push | None]] = []
        # Headers of an event -> when it is stored, in nanoseconds since 1970. Tests may tell another time than now.
        self.time_of_storing: Callable[[Mapping[str, str]], int] = lambda _: time.time_ns()

    def trim(self, upto: int) -> None:
        """Delete the events with sequence <= upto, as the retention job does on a server."""
        for seq in range(self.first_seq, min(upto, self.last_seq) + 1):
            event = self._events.pop(seq)
            self._of[event.ref].remove(seq)
        self.first_seq = max(self.first_seq, min(upto, self.last_seq) + 1)

    def last_of(self, ref: envelope.AggregateRef) -> envelope.StoredEvent | None:
        seqs = self._of.get(ref)
        return self._events[seqs[-1]] if seqs else None

    def of(self, ref: envelope.AggregateRef, after: int) -> list[envelope.StoredEvent]:
        """Return the stored events of an aggregate with a sequence above `after`, in order."""
        return [self._events[seq] for seq in self._of.get(ref, ()) if seq > after]

    def by_id(self, event_id: str) -> envelope.StoredEvent | None:
        seq = self._ids.get(event_id)
        return self._events.get(seq) if seq is not None else None

    def between(self, after: int, upto: int, kinds: frozenset[str] | None, limit: int) -> list[envelope.StoredEvent]:
        """Return stored events with sequences from `after` + 1 to `upto`, in order, at most `limit`. `after`: sequence
        before the first wanted event. `kinds`: Aggregate kinds of the events; None: all.
        """
        found: list[envelope.StoredEvent] = []
        for seq in range(max(after + 1, self.first_seq), upto + 1):
            event = self._events[seq]
            if kinds is None or event.ref.kind in kinds:
                found.append(event)
                if len(found) == limit:
                    break
        return found

    def store(self, ref: envelope.AggregateRef, headers: dict[str, str], body: bytes) -> int:
        """Append an event without checking an expected position, and return its sequence."""
        previous = self.last_of(ref)
        self.last_seq += 1
        event = envelope.StoredEvent(self.last_seq, ref, dict(headers), body, self.time_of_storing(headers))
        self._events[self.last_seq] = event
        self._of[ref].append(self.last_seq)
        self._ids[event.event_id] = self.last_seq
        push = Push(event, previous.seq if previous is not None else 0)
        for queue in self._pushes:
            queue.put_nowait(push)
        changed, self._changed = self._changed, []
        for future in changed:
            if not future.done():
                future.set_result(None)
        return self.last_seq

    async def wait_beyond(self, seq: int) -> None:
        """Wait until an event with a sequence above `seq` is stored. Return at once if there is one already."""
        while self.last_seq <= seq:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._changed.append(future)
            await future

    def subscribe(self) -> asyncio.Queue[Push | None]:
        queue: asyncio.Queue[Push | None] = asyncio.Queue()
        self._pushes.append(queue)
        return queue

    def unsubscribe(self, queue: asyncio.Queue[Push | None]) -> None:
        self._pushes.remove(queue)


class MemoryEventLog:
    """The port `EventLog` on a `MemoryLog`. The port describes the methods."""

    def __init__(self, log: MemoryLog) -> None:
        self.log = log

    async def append(self, events: Sequence[envelope.NewEvent], *, deadline: float = 30.0) -> eventlog.AppendOutcome:
        """Append all events or none, with the answers of a server: conflict, duplicate, full. It lets other tasks run
        once before it looks, as they do between the call and the answer of a server.
        """
        require_distinct(events)
        require_small(events, [encode_event(_NAMES, event) for event in events], self.log.max_payload)
        await asyncio.sleep(0)  # as on a server, others may run between call and answer
        log = self.log
        if len(events) > log.max_batch:
            raise too_many(len(events), str(log.max_batch))
        moved: list[tuple[envelope.AggregateRef, int]] = []
        expected: list[envelope.NewEvent] = []
        for event in events:
            last = log.last_of(event.ref)
            last_seq = last.seq if last is not None else 0
            expected.append(expecting(event, last_seq))
            is_known = is_forgotten(event, last_seq) or (last_seq == 0 and is_trimmed(event, log.first_seq))
            if last_seq != event.expected_last and not is_known:
                moved.append((event.ref, last_seq))
        known = [log.by_id(event.event_id) for event in events]
        if moved:
            if all(
                stored is not None and not is_folded(event, stored.seq) and is_same_event(event, stored)
                for event, stored in zip(events, known, strict=True)
            ):
                seqs = tuple(stored.seq for stored in known if stored is not None)
                return eventlog.Appended(last_seq=max(seqs), seqs=seqs, duplicate=True)
            return eventlog.Conflict(tuple(moved))
        if any(stored is not None for stored in known):
            raise eventlog.KnownId(f"{events[0].ref}: an event id was used before for another event")
        if log.max_events is not None and log.last_seq - log.first_seq + 1 + len(events) > log.max_events:
            return eventlog.Full(f"{log.max_events} events")
        seqs = tuple(
            log.store(event.ref, {**event.headers, envelope.HEADER_EXPECTED_LAST: str(event.expected_last)}, event.body)
            for event in expected
        )
        return eventlog.Appended(last_seq=seqs[-1], seqs=seqs)

    async def read_aggregate(self, ref: envelope.AggregateRef, *, after: int = 0) -> list[envelope.StoredEvent]:
        return self.log.of(ref, after)

    async def last_of(self, ref: envelope.AggregateRef) -> envelope.StoredEvent | None:
        return self.log.last_of(ref)

    async def at(self, seq: int) -> envelope.StoredEvent | None:
        return next(iter(self.log.between(seq - 1, min(seq, self.log.last_seq), None, 1)), None)

    async def head(self) -> eventlog.LogHead:
        return eventlog.LogHead(self.log.first_seq, self.log.last_seq)

    async def follow(
        self, after: int, *, kinds: Sequence[str] | None = None, batch: int = 500
    ) -> AsyncIterator[list[envelope.StoredEvent]]:
        wanted = frozenset(kinds) if kinds is not None else None
        position = after
        while True:
            self._require(position)
            await self.log.wait_beyond(position)
            upto = self.log.last_seq
            events = self.log.between(position, upto, wanted, batch)
            position = events[-1].seq if len(events) == batch else upto
            if events:
                yield events

    async def history(
        self, after: int, upto: int, *, kinds: Sequence[str] | None = None, batch: int = 500
    ) -> AsyncIterator[list[envelope.StoredEvent]]:
        wanted = frozenset(kinds) if kinds is not None else None
        position = after
        while position < upto:
            self._require(position)
            await self.log.wait_beyond(position)
            reach = min(upto, self.log.last_seq)
            events = self.log.between(position, reach, wanted, batch)
            position = events[-1].seq if len(events) == batch else reach
            if events:
                yield events

    def _require(self, position: int) -> None:
        if position + 1 < self.log.first_seq:
            raise eventlog.HistoryGone(position, self.log.first_seq)
        if position > self.log.last_seq:
            raise eventlog.LogShorter(position, self.log.last_seq)


class MemoryObservationLog:
    """The port `ObservationLog` in the memory of this process.

    Args:
        keep: Largest number of messages in memory; older messages are dropped.
    """

    def __init__(self, *, keep: int = 1_000_000) -> None:
        self.log = MemoryLog()
        self._keep = keep
        self._count = 0

    async def publish(self, ref: envelope.AggregateRef, event: envelope.Event, origin: envelope.Origin) -> None:
        """Store one observation. Drop it if it is too large; drop the oldest ones above the limit of the log."""
        new = CATALOGUE.seal([envelope.Draft(ref, event, 0)], origin)[0]
        if len(encode_headers(new.headers)) + len(new.body) > self.log.max_payload:
            return
        self.log.store(ref, new.headers, new.body)
        if self.log.last_seq - self.log.first_seq >= self._keep:
            self.log.trim(self.log.last_seq - self._keep)

    async def head(self) -> eventlog.LogHead:
        return eventlog.LogHead(self.log.first_seq, self.log.last_seq)

    async def follow(self, after: int, *, batch: int = 500) -> AsyncIterator[list[envelope.StoredEvent]]:
        """Yield batches of later observations forever. Dropped ones are left out without an error."""
        position = after
        while True:
            await self.log.wait_beyond(position)
            upto = self.log.last_seq
            events = self.log.between(position, upto, None, batch)
            position = events[-1].seq if events else upto
            if events:
                yield events

    async def latest(self, refs: Sequence[envelope.AggregateRef]) -> list[envelope.StoredEvent]:
        return [event for ref in refs if (event := self.log.last_of(ref)) is not None]


class MemoryDesiredStore:
    """Desired states of nodes in a dictionary. Readers see each write at once."""

    def __init__(self) -> None:
        self._desired: dict[str, DesiredNode] = {}

    async def put(self, desired: DesiredNode, check: Callable[[], None] | None = None) -> None:
        if check is not None:
            check()
        self._desired[desired.node] = desired

    async def get(self, node: str) -> DesiredNode | None:
        return self._desired.get(node)

    async def delete(self, node: str, check: Callable[[], None] | None = None) -> None:
        if check is not None:
            check()
        self._desired.pop(node, None)


class MemoryPushFeed:
    """Delivers the facts that are appended to the given in-memory log."""

    def __init__(self, log: MemoryLog) -> None:
        self.log = log

    async def pushes(
        self, nodes: Sequence[str], kinds: Sequence[str] = ("node", "nodepolicy")
    ) -> AsyncIterator[Push | None]:
        """Yield None once, and then each fact of these nodes and kinds from its append on."""
        wanted = {node.replace(".", "_") for node in nodes}
        queue = self.log.subscribe()
        try:
            yield None
            while True:
                push = await queue.get()
                if push is None or (push.event.ref.kind in kinds and push.event.ref.id in wanted):
                    yield push
        finally:
            self.log.unsubscribe(queue)


class MemorySnapshotStore:
    """Snapshots in a dictionary: the last five of each fold."""

    def __init__(self) -> None:
        self._of: dict[str, dict[int, Snapshot]] = defaultdict(dict)

    async def save_pieces(self, head: SnapshotHead, pieces: Iterator[bytes]) -> None:
        state: list[bytes] = []
        for piece in pieces:
            state.append(piece)
            await asyncio.sleep(0)
        await self.save(Snapshot(**msgspec.structs.asdict(head), state=tuple(state), digest=state_digest(state)))

    async def save(self, snapshot: Snapshot) -> None:
        kept = self._of[snapshot.fold]
        kept[snapshot.seq] = snapshot
        for seq in sorted(kept)[:-KEPT_SNAPSHOTS]:
            del kept[seq]

    async def newest(self, fold: str, *, schema_fingerprint: str, at_most: int | None = None) -> Snapshot | None:
        for seq in sorted(self._of[fold], reverse=True):
            snapshot = self._of[fold][seq]
            if (at_most is None or seq <= at_most) and is_usable(snapshot, schema_fingerprint):
                return snapshot
        return None

    async def sequences(self, fold: str) -> list[int]:
        return sorted(self._of[fold])
