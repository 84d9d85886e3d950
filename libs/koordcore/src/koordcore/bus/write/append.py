"""Append facts to the stream, and handle each kind of answer (`outcome.classify`).

    encode once -> send (one message, or an atomic batch) -> classify the answer
       stored                    -> Appended
       conflict, or id known     -> read back at the leader: our event -> Appended, another event -> Conflict
       no answer, twice, while wrong appends are refused (`silence`)            -> Full
       unknown, overload         -> the same bytes again after a delay, until the deadline -> Unavailable

The log refuses an append if the last position of an aggregate is not the expected one. In two cases, this happens to a
writer that has folded the last fact, so that its decision is not outdated (`expecting`):

- The fold has dropped the aggregate, because its object was deleted. The writer expects 0, the log has a position.
- The log has dropped the facts of the aggregate (`koord bus archive --trim`). The writer expects a position, the log 0.

Source: event-bus spec, 4.
"""

import asyncio
import random
import uuid
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import msgspec
from nats.nuid import NUID

from koordcore.bus.client.connection import BusConnection, Denied, NoAnswer, NoResponders, NotConnected
from koordcore.bus.client.wire import encode_headers, hpub
from koordcore.bus.metrics import NO_METRICS, BusMetrics
from koordcore.bus.names import BusNames, InvalidName
from koordcore.bus.read.stream_reader import StreamReader
from koordcore.bus.write.outcome import (
    BATCH_TOO_LARGE,
    NO_ANSWER,
    NO_RESPONDERS,
    Action,
    AppendReply,
    classify,
    read_answer,
)
from koordcore.bus.write.refused_batches import BATCH_REFUSED, RefusedBatches
from koordcore.bus.write.silence import STORES_NOTHING, refuses
from koordcore.events.envelope import HEADER_EXPECTED_LAST, HEADER_ID, RETURNING, AggregateRef, NewEvent, StoredEvent
from koordcore.ports import eventlog


def is_forgotten(event: NewEvent, last_seq: int) -> bool:
    """Whether the writer had folded the last fact of the event's aggregate, and its fold has dropped the aggregate.
    Only kinds of aggregates whose names return are dropped and then used again. For the other kinds, an expected
    position 0 means that the aggregate must be new. `last_seq`: sequence of the last fact of its aggregate in the log;
    0 if the log has none.
    """
    return event.expected_last == 0 < last_seq <= event.based_on and event.ref.kind in RETURNING


def is_trimmed(event: NewEvent, first_seq: int) -> bool:
    """Whether the last fact of the event's aggregate is not in the log any more, and the writer had folded it. A writer
    that had folded every trimmed fact knows the last one of the aggregate. Another writer may be behind it.
    `first_seq`: sequence of the oldest fact in the log.
    """
    return 0 < event.expected_last < first_seq <= event.based_on + 1


def known_up_to(event: NewEvent) -> int:
    """Return the position behind which facts of the event's aggregate are new to its writer, after a conflict. Of a
    name that returns, the fold may have dropped the last position. All facts up to `based_on` are folded.
    """
    return event.expected_last or (event.based_on if event.ref.kind in RETURNING else 0)


def is_folded(event: NewEvent, seq: int) -> bool:
    """Whether the writer of an event had folded a fact of its aggregate. Such a fact is never the event itself: the
    writer decided the event later. Of a name that returns, it may be a fact about an earlier object of this name.
    """
    return seq <= known_up_to(event)


def expecting(event: NewEvent, last_seq: int) -> NewEvent:
    """Return the event with another expected position; 0 means that the log must have no fact of the aggregate."""
    return msgspec.structs.replace(event, expected_last=last_seq)


MAX_BATCHES_IN_FLIGHT = 20
MAX_SINGLES_IN_FLIGHT = 1000
# Messages of a batch that are sent before the server has answered. It drops what does not fit into its queue of 10,000.
BURST: Final = eventlog.MOST_AT_ONCE
PUBLISH_SECONDS = 2.0
BACKOFF_SECONDS = (0.05, 2.0)
IN_FLIGHT_WAIT_SECONDS = (0.005, 0.05)
_EXPECTATION: Final = HEADER_EXPECTED_LAST.encode() + b": %d\r\n"
_BATCH_HEADERS_BYTES = 256  # Largest number of bytes that sending in a batch adds to the headers of a message
_SETTING: Final = "raise jetstream.limits.batch.max_msgs in the configuration of its servers"
_READS_AT_ONCE = 32
_UNEXPLAINED_DUPLICATES = 5
_SILENT_ATTEMPTS = 2  # One message may be lost with its connection


class Encoded(msgspec.Struct, frozen=True):
    """An event in the form in which it is sent to the NATS server."""

    subject: str  # Subject of its aggregate
    header: bytes  # Encoded header lines, with event id and expected position
    payload: bytes  # Encoded body


def encode_event(names: BusNames, event: NewEvent) -> Encoded:
    """Encode an event for the NATS server. Repeated attempts send these bytes unchanged.

    Raises:
        Unsendable: Subject or headers contain characters that cannot be sent.
    """
    try:
        subject = names.subject("ev", event.ref)
        header = encode_headers(event.headers)
    except (InvalidName, ValueError) as cause:
        raise eventlog.Unsendable(f"{event.ref}: {cause}") from cause
    expectation = _EXPECTATION % event.expected_last
    return Encoded(subject, header + expectation, event.body)


def too_many(events: int, most: str) -> eventlog.TooMany:
    return eventlog.TooMany(f"{events} events at once, and the log stores at most {most}")


def require_distinct(events: Sequence[NewEvent]) -> None:
    """Check that an append has 1 to 50,000 events, all with different aggregates and different ids.

    Raises:
        Unsendable: The check failed. TooMany: because there are more.
    """
    if not events:
        raise eventlog.Unsendable("an append holds at least one event, got none")
    if len(events) > eventlog.LARGEST_APPEND:
        raise too_many(len(events), str(eventlog.LARGEST_APPEND))
    if len(events) > 1 and len({event.ref for event in events}) != len(events):
        raise eventlog.Unsendable("an append holds each aggregate once")
    if len(events) > 1 and len({event.event_id for event in events}) != len(events):
        raise eventlog.Unsendable("an append holds each event id once")


def require_small(events: Sequence[NewEvent], messages: Sequence[Encoded], max_payload: int) -> None:
    """Check the size of each event. If a message were larger than the server allows, the server would close the
    connection. `messages`: the encoded events, aligned with `events`. `max_payload`: largest size of headers and body
    together, in bytes.

    Raises:
        TooLarge: An event is too large.
    """
    most = max_payload - _BATCH_HEADERS_BYTES
    sizes = (len(message.header) + len(message.payload) for message in messages)
    if large := [(event.ref, size) for event, size in zip(events, sizes, strict=True) if size > most]:
        ref, size = large[0]
        others = f", and {len(large) - 1} more such events" if len(large) > 1 else ""
        text = f"{ref}: an event of {size:,} bytes{others}; the log takes {most:,}"
        raise eventlog.TooLarge(text, frozenset(ref for ref, _ in large))


class Appender:
    """Appends events of one process to the stream of facts. Calls may be concurrent, but only one per aggregate at a
    time. `largest`: largest size of headers and body of an event in bytes; None: that of the server.
    """

    def __init__(
        self,
        connection: BusConnection,
        names: BusNames,
        reader: StreamReader,
        *,
        metrics: BusMetrics = NO_METRICS,
        publish_seconds: float = PUBLISH_SECONDS,
        largest: int | None = None,
    ) -> None:
        self._connection = connection
        self._largest = largest
        self._names = names
        self._reader = reader
        self._metrics = metrics
        self._publish_seconds = publish_seconds
        self._batches = asyncio.Semaphore(MAX_BATCHES_IN_FLIGHT)
        self._singles = asyncio.Semaphore(MAX_SINGLES_IN_FLIGHT)
        self._refused_batches = RefusedBatches(metrics)
        self._nuid = NUID()

    async def append(self, events: Sequence[NewEvent], deadline: float) -> eventlog.AppendOutcome:
        """Append all events or none, and repeat the same bytes until the outcome is known or `deadline` has passed. At
        most 1000 single events and 20 batches of this process are under way at once; further appends wait, also beyond
        the deadline. Outcome and duration are reported as metrics.

        `events`: 1 to 50,000 sealed events of different aggregates. Several are one atomic batch. `deadline`: real
        seconds from now after which nothing is sent again; the outcome is then `Unavailable`.

        Raises:
            Unsendable: The number of events, a name, an id or a size is one that the log never accepts.
            TooMany: The servers take fewer events at once. Nothing is stored.
            Misconfigured: The log refused the append for good: wrong stream, no batches, or no permission.
        """
        require_distinct(events)
        loop = asyncio.get_running_loop()
        started = loop.time()
        outcome_name = "misconfigured"
        try:
            encoded = [encode_event(self._names, event) for event in events]
            most = self._connection.max_payload
            require_small(events, encoded, most if self._largest is None else min(most, self._largest))
            # Overload keeps its slot while it backs off, which is what lowers our own concurrency.
            async with self._singles if len(events) == 1 else self._batches:
                outcome = await self._until_known(events, encoded, started + deadline)
            outcome_name = _name(outcome)
            if isinstance(outcome, eventlog.Conflict):
                for kind in {ref.kind for ref, _ in outcome.moved}:
                    self._metrics.conflict(kind)
            return outcome
        finally:
            self._metrics.append(outcome_name, loop.time() - started)

    async def _until_known(
        self, events: Sequence[NewEvent], encoded: list[Encoded], end: float
    ) -> eventlog.AppendOutcome:
        loop = asyncio.get_running_loop()
        pause = BACKOFF_SECONDS[0]
        attempt = unexplained = silent = 0
        is_renamed = False
        while True:
            attempt += 1
            answer = await self._send(encoded, end)
            action, reason = classify(answer)
            if answer.err_code in BATCH_REFUSED:
                reason = self._refused_batches.note(reason)
            outcome: eventlog.AppendOutcome | None = None
            try:
                match action:
                    case Action.STORED:
                        return _appended(answer, len(events))
                    case Action.STORED_BEFORE | Action.READ_BACK | Action.READ_BACK_ALL:
                        outcome = await self._read_back(events)
                    case Action.WAIT_AND_READ_BACK:
                        await asyncio.sleep(random.uniform(*IN_FLIGHT_WAIT_SECONDS))  # noqa: S311
                        outcome = await self._read_back(events)
                        # Nothing of ours can be in flight at the first attempt: somebody else's append is.
                        if outcome is None and attempt == 1:
                            return eventlog.Conflict()
                    case Action.FULL:
                        return eventlog.Full(reason)
                    case Action.STOP:
                        if answer.err_code == BATCH_TOO_LARGE:
                            most = answer.description.rpartition(" ")[2]
                            raise too_many(len(events), f"{most}: {_SETTING}")
                        raise eventlog.Misconfigured(f"{encoded[0].subject}: {reason}")
                    case Action.REPEAT | Action.BACK_OFF:
                        is_silent = answer.code == NO_ANSWER.code and await self._stores_nothing(encoded[0], end)
                        silent = silent + 1 if is_silent else 0
                        outcome = await self._read_back(events) if is_silent else None
                        if outcome is None and silent >= _SILENT_ATTEMPTS:
                            return eventlog.Full(STORES_NOTHING)
                if isinstance(outcome, eventlog.Conflict) and (again := await self._expecting_again(events, outcome)):
                    events, encoded = again, [encode_event(self._names, event) for event in again]
                    continue
            except NoAnswer as error:
                reason = str(error)
            if outcome is not None:
                return outcome
            if action in (Action.STORED_BEFORE, Action.READ_BACK_ALL):
                # The id is known, yet none of our aggregates holds it: the event may still be on its way through the
                # replicas; if it never shows up, the id was used for another event.
                unexplained += 1
                if unexplained >= _UNEXPLAINED_DUPLICATES:
                    if is_renamed:
                        raise eventlog.KnownId(f"{encoded[0].subject}: an event id was used before for another event")
                    # Another writer has used the id, by accident or to keep this event out of the log. What this append
                    # expects of its aggregates still keeps it from being stored twice.
                    events, is_renamed, unexplained = [_with_another_id(event) for event in events], True, 0
                    encoded = [encode_event(self._names, event) for event in events]
            elif action is Action.READ_BACK and attempt == 1:
                return eventlog.Conflict()
            if loop.time() + pause >= end or self._connection.is_closed:
                return eventlog.Unavailable(reason)
            await asyncio.sleep(random.uniform(pause / 2, pause))  # noqa: S311
            pause = min(pause * 2, BACKOFF_SECONDS[1])

    async def _send(self, encoded: list[Encoded], end: float) -> AppendReply:
        """Send once and return the answer. A failed send or a missing answer also gives an answer."""
        connection = self._connection
        left = end - asyncio.get_running_loop().time()
        if not await connection.wait_connected(max(0.0, left)):
            return AppendReply(code=503, description="not connected")
        if len(encoded) == 1:
            only = encoded[0]
            reply = await self._ask((only,), lambda to: hpub(only.subject, to, only.header, only.payload), 1, end)
            return reply if isinstance(reply, AppendReply) else read_answer(reply)
        # A fresh batch id per attempt: the server drops a batch whose id comes a second time. Ids, expectations and
        # payloads of the events stay the same, and they are what makes the repetition safe.
        batch_id = bytes(self._nuid.next())
        for begin in range(0, len(encoded), BURST):
            burst = encoded[begin : begin + BURST]
            is_last = begin + BURST >= len(encoded)
            commands = partial(_burst, burst, begin, batch_id, is_last)
            # The answer to the last one comes when all are stored.
            reply = await self._ask(burst, commands, len(encoded) / BURST if is_last else 1, end)
            if isinstance(reply, AppendReply):
                return reply
            if reply or is_last:  # the server answers a burst that it takes with an empty message
                return read_answer(reply)
        raise AssertionError("an append has events")

    async def _ask(
        self, messages: Sequence[Encoded], commands: Callable[[str], bytes], patience: float, end: float
    ) -> bytes | AppendReply:
        """Send messages, and return the bytes of the answer to the last one. `commands`: makes the commands with the
        address of the answer. `patience`: how many times as long as for one message the server may take.
        """
        connection = self._connection
        left = end - asyncio.get_running_loop().time()
        token, future = connection.expect(tuple(message.subject for message in messages))
        try:
            connection.write(commands(connection.address(token)))
            wait = max(0.05, min(self._publish_seconds * max(1.0, patience), left))
            return (await connection.answer(future, wait)).data
        except NotConnected:
            return AppendReply(code=503, description="not connected")
        except NoResponders:
            return NO_RESPONDERS
        except NoAnswer as error:
            return msgspec.structs.replace(NO_ANSWER, description=str(error))
        except Denied as error:
            raise eventlog.Misconfigured(str(error)) from error
        finally:
            connection.forget(token)

    async def _stores_nothing(self, encoded: Encoded, end: float) -> bool:
        left = end - asyncio.get_running_loop().time()
        return left > 0 and await refuses(self._connection, encoded.subject, min(self._publish_seconds, left))

    async def _read_back(self, events: Sequence[NewEvent]) -> eventlog.AppendOutcome | None:
        """Read the aggregates of our events and return whether the append was stored or refused. Returns None if no
        aggregate has a new event yet.

        Raises:
            KnownId: An id belongs to another event that the caller had already folded.
            NoAnswer: No answer came in time. It is unknown whether the server acted.
        """
        gate = asyncio.Semaphore(_READS_AT_ONCE)

        async def last_of(event: NewEvent) -> StoredEvent | None:
            async with gate:
                return await self._reader.last_of(self._names.subject("ev", event.ref))

        lasts = await asyncio.gather(*(last_of(event) for event in events))
        moved: list[tuple[AggregateRef, int]] = []
        for event, last in zip(events, lasts, strict=True):
            last_seq = last.seq if last is not None else 0
            if last_seq != event.expected_last:
                moved.append((event.ref, last_seq))
        if not moved:
            for event, last in zip(events, lasts, strict=True):
                if last is not None and last.event_id == event.event_id:
                    raise eventlog.KnownId(f"{event.ref}: id {event.event_id} is that of event {last.seq} already")
            return None
        seqs: list[int] = []
        for event, last in zip(events, lasts, strict=True):
            stored = await self._find(event, last)
            if stored is None or not is_same_event(event, stored):
                return eventlog.Conflict(tuple(moved))
            seqs.append(stored.seq)
        return eventlog.Appended(last_seq=max(seqs), seqs=tuple(seqs), duplicate=True)

    async def _expecting_again(self, events: Sequence[NewEvent], conflict: eventlog.Conflict) -> list[NewEvent]:
        """Return the events to append instead if no decision of the conflict is outdated; else an empty list.
        `expectations` describes the two cases: the fold, or the log, has dropped the aggregate.
        """
        moved = dict(conflict.moved)
        if not moved or not any(event.based_on for event in events):
            return []
        first = 0 if all(moved.values()) else (await self._reader.head()).first_seq
        again: list[NewEvent] = []
        for event in events:
            last = moved.get(event.ref)
            if last is None:
                again.append(event)
            elif is_forgotten(event, last) or (last == 0 and is_trimmed(event, first)):
                again.append(expecting(event, last))
            else:
                return []
        return again

    async def _find(self, event: NewEvent, last: StoredEvent | None) -> StoredEvent | None:
        """Return our event among those that its writer had not folded; None if it is not there."""
        if last is None or is_folded(event, last.seq):
            return None
        if last.event_id == event.event_id:
            return last
        subject = self._names.subject("ev", event.ref)
        at = known_up_to(event)
        while at < last.seq:
            found = await self._reader.next_of(subject, at + 1)
            if found is None:
                return None
            if found.event_id == event.event_id:
                return found
            at = found.seq
        return None


def _burst(messages: Sequence[Encoded], begin: int, batch_id: bytes, is_last: bool, reply_to: str) -> bytes:
    """Return the commands that send a part of a batch. The server answers the last message of each part.

    Args:
        begin: Number of the messages of the batch that were sent before.
        is_last: Whether the last message commits the batch.
    """
    commands: list[bytes] = []
    last = begin + len(messages)
    for position, message in enumerate(messages, start=begin + 1):
        header = message.header + b"Nats-Batch-Id: %b\r\nNats-Batch-Sequence: %d\r\n" % (batch_id, position)
        if position < last:
            commands.append(hpub(message.subject, "", header, message.payload))
        elif is_last:
            commands.append(hpub(message.subject, reply_to, header + b"Nats-Batch-Commit: 1\r\n", message.payload))
        else:
            commands.append(hpub(message.subject, reply_to, header, message.payload))
    return b"".join(commands)


def _with_another_id(event: NewEvent) -> NewEvent:
    return msgspec.structs.replace(event, headers={**event.headers, HEADER_ID: str(uuid.uuid4())})


def is_same_event(event: NewEvent, stored: StoredEvent) -> bool:
    """Return whether a stored event with the id of `event` also has its aggregate and body. They may differ: a process
    that was killed after an append may decide differently after its restart, with equal ids. The new event is then not
    in the log, and its append is a conflict.
    """
    return stored.event_id == event.event_id and stored.body == event.body and stored.ref == event.ref


def _appended(answer: AppendReply, events: int) -> eventlog.Appended:
    return eventlog.Appended(last_seq=answer.seq, seqs=tuple(range(answer.seq - events + 1, answer.seq + 1)))


def _name(outcome: eventlog.AppendOutcome) -> str:
    if isinstance(outcome, eventlog.Appended):
        return "duplicate" if outcome.duplicate else "appended"
    return type(outcome).__name__.lower()
