"""Access to the log for a process on a node: it appends to its own aggregates, and reads the last event of each.

It uses direct gets. The permission for reads at the leader would cover every fact of the cluster, so such a process
does not have it. A direct get may be old. Then the append conflicts, and the queue of facts reads again.

Source: event-bus spec, 10 (agent of node n).
"""

from collections.abc import Sequence
from typing import Protocol

from koordcore.bus.client.connection import BusConnection
from koordcore.bus.metrics import NO_METRICS, BusMetrics
from koordcore.bus.names import BusNames
from koordcore.bus.read.stream_reader import StreamReader, newest_of
from koordcore.bus.setup.streams import LARGEST_NODE_FACT
from koordcore.bus.write.append import Appender
from koordcore.events.envelope import HEADER_COPIED, AggregateRef, NewEvent, StoredEvent, with_id
from koordcore.ports.eventlog import AppendOutcome
from koordcore.values.override import override


class OwnFacts(Protocol):
    """The methods of `EventLog` that a process on a node may use: append to its aggregates, read their last events."""

    async def append(self, events: Sequence[NewEvent], *, deadline: float = 30.0) -> AppendOutcome:
        """Append all events or none. Each names the expected last sequence of its aggregate, as for
        `EventLog.append`.
        """
        ...

    async def last_of(self, ref: AggregateRef) -> StoredEvent | None:
        """Return the newest event of an aggregate; None if it has none. The answer may be old."""
        ...


class _LastOnlyReader(StreamReader):
    """Reads the newest message of a subject by direct get, and no older ones."""

    def __init__(self, connection: BusConnection, stream: str, prefix: str, *, deadline: float = 30.0) -> None:
        super().__init__(connection, stream, prefix, deadline=deadline)
        self._own_connection = connection
        self._own_stream = stream
        self._own_prefix = prefix
        self._own_deadline = deadline

    async def last_of(self, subject: str) -> StoredEvent | None:
        """Return the newest message of one subject; None if there is none.

        Raises:
            NoAnswer: The deadline has passed.
            Denied: The user may not read the subject.
        """
        found = await newest_of(self._own_connection, self._own_stream, subject, deadline=self._own_deadline)
        if found is None:
            return None
        headers, body = found
        seq = int(headers.pop("Nats-Sequence"))
        # The server adds where the message is stored. With such a header, a message in the log would be no fact.
        for name in ("Nats-Stream", HEADER_COPIED, "Nats-Time-Stamp"):
            headers.pop(name, None)
        kind, _, id_ = subject.removeprefix(self._own_prefix).partition(".")
        return StoredEvent(seq, AggregateRef(kind, id_), with_id(headers), body)

    @override
    async def next_of(self, subject: str, seq: int) -> StoredEvent | None:
        last = await self.last_of(subject)
        return last if last is not None and last.seq >= seq else None


class OwnFactLog:
    """Access to the log for a process on a node: it appends to its own aggregates. Implements `OwnFacts`."""

    def __init__(self, connection: BusConnection, names: BusNames, *, metrics: BusMetrics = NO_METRICS) -> None:
        self._names = names
        self._reader = _LastOnlyReader(connection, names.ev, names.prefix("ev"))
        self._appender = Appender(connection, names, self._reader, metrics=metrics, largest=LARGEST_NODE_FACT)

    async def append(self, events: Sequence[NewEvent], *, deadline: float = 30.0) -> AppendOutcome:
        """Append all events or none. A lost acknowledgement is found by reading the aggregate's last event."""
        return await self._appender.append(events, deadline)

    async def last_of(self, ref: AggregateRef) -> StoredEvent | None:
        """Return the newest event of an aggregate; None if it has none. The answer may be older than the stream,
        because any replica may give it.
        """
        return await self._reader.last_of(self._names.subject("ev", ref))
