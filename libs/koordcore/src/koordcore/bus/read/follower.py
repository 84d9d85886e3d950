"""Follow a stream in strict order from a checkpoint (event-bus spec, 3.2), by batches of direct gets (`feed`).

Any server that has the stream may answer, also one that is behind. So order and completeness are what positions say:
each is the one before plus one. If a server passes over a position, the leader and the other servers are asked for it.
If none has it, facts are lost, and reading ends with `LogDamaged`. It names the positions. The only gaps that are
allowed are a trimmed beginning, and what a restore to an earlier position left out (`LogRestored`).
"""

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Final

from koordcore.bus.client.connection import BusConnection, Denied, NoAnswer, NotConnected
from koordcore.bus.metrics import NO_METRICS, BusMetrics
from koordcore.bus.read.completeness import names_gap
from koordcore.bus.read.feed import DEFAULTS, Feed, FollowerSettings
from koordcore.bus.read.stream_reader import StreamReader
from koordcore.events.envelope import StoredEvent
from koordcore.ports.eventlog import HistoryGone, LogChanged, LogDamaged, LogHead, LogShorter, Misconfigured

log = logging.getLogger("koordcore.bus")

_TROUBLES_BEFORE_A_LOOK: Final = 3  # Failed attempts in a row after which the leader is asked for the next message
_OTHER_ATTEMPTS: Final = 10  # Reads at a random server. With three servers, one is missed in 2 % of the cases.
_READ_SECONDS: Final = 5.0  # Time after which a single read counts as not answered
_LOOK_PAUSE_SECONDS: Final = 0.2


class Follower:
    """Reads one stream in order and without gaps. Calls may be concurrent.

    Args:
        reader: Reads single messages of the stream at its leader, and its bounds.
        gaps_are_normal: Whether the stream drops messages by itself, such as observations. If True, missing messages
            are passed over, and `HistoryGone`, `LogDamaged` and `LogChanged` are never raised.
        pushes: Subject on which the server republishes the messages; "" if it does not.
        metrics: Receives the number of gaps.
    """

    def __init__(
        self,
        connection: BusConnection,
        *,
        stream: str,
        prefix: str,
        reader: StreamReader,
        gaps_are_normal: bool = False,
        pushes: str = "",
        metrics: BusMetrics = NO_METRICS,
        settings: FollowerSettings = DEFAULTS,
    ) -> None:
        self._connection = connection
        self._stream = stream
        self._prefix = prefix
        self._reader = reader
        self._gaps_are_normal = gaps_are_normal
        self._pushes = pushes
        self._metrics = metrics
        self._settings = settings

    async def follow(
        self, after: int, *, kinds: Sequence[str] | None = None, batch: int = 500
    ) -> AsyncIterator[list[StoredEvent]]:
        """Yield batches of later events forever, in order and without gaps. After a reconnect or silence, it continues
        behind the last event that was yielded, and first compares this event with the stream.

        Args:
            after: Sequence of the last event that the caller has; 0 for none.
            kinds: Aggregate kinds to deliver; None: all.
            batch: Largest number of events in a batch. A batch is never empty.

        Raises:
            HistoryGone: Events after `after` were deleted, or the stream ends before `after` for 10 s.
            LogDamaged: The stream has lost events after `after`, or no server can read them.
            LogChanged: The stream has another event at the position of the last one.
            Misconfigured: The stream does not exist, or the user may not read it.
        """
        async for events in self._batches(after, None, kinds, batch):
            yield events

    async def history(
        self, after: int, upto: int, *, kinds: Sequence[str] | None = None, batch: int = 500
    ) -> AsyncIterator[list[StoredEvent]]:
        """Yield batches of the events from `after` + 1 to `upto` in order, and end. If the stream does not reach `upto`
        yet, it waits until it does. Arguments and errors are those of `follow`.
        """
        async for events in self._batches(after, upto, kinds, batch):
            yield events

    async def _batches(
        self, after: int, upto: int | None, kinds: Sequence[str] | None, batch: int
    ) -> AsyncIterator[list[StoredEvent]]:
        position, last_id = after, None if after else ""
        troubles = 0
        while upto is None or position < upto:
            # 1. is the history that we need still there, and is it the one that we know?
            head = await self._require_history(position)
            if upto is not None and head.last_seq <= position:
                await asyncio.sleep(_jitter(0.05))
                continue
            feed = Feed(
                self._connection,
                self._stream,
                self._prefix,
                position,
                self._settings,
                known_to=head.last_seq,
                upto=upto,
                kinds=kinds,
                gaps_are_normal=self._gaps_are_normal,
                pushes=self._pushes if upto is None else "",
            )
            stop_listening = self._connection.on_reconnect(feed.fail_reconnected)
            try:
                last_id = await self._require_same(position, last_id)
                # 2. batches, until something is wrong
                await feed.open()
                if troubles >= _TROUBLES_BEFORE_A_LOOK:
                    await self._look(feed)
                async for events in self._until_trouble(feed, upto, batch):
                    troubles = 0
                    if events:
                        yield events
                    else:
                        await self._require_same(feed.position, feed.last_id if feed.position > position else last_id)
                if upto is not None and feed.position >= upto:
                    return
            except Denied as error:
                raise Misconfigured(str(error)) from error
            except (NoAnswer, NotConnected):
                if self._connection.is_closed:
                    raise
            finally:
                stop_listening()
                await feed.close()
            if feed.position > position:
                position, last_id = feed.position, feed.last_id
            self._metrics.gap(self._stream)
            troubles += 1
            await asyncio.sleep(_jitter(pause_after(troubles)))

    async def _until_trouble(self, feed: Feed, upto: int | None, batch: int) -> AsyncIterator[list[StoredEvent]]:
        """Yield batches until the feed has to be replaced, or has reached `upto`. A batch is empty if all events up to
        the feed's position were yielded, and it is time to compare the last one.
        """
        time = asyncio.get_running_loop().time
        quiet_until = time() + self._settings.idle_seconds
        compare_at = time() + self._settings.compare_seconds
        while (events := await feed.next_batch(batch, self._settings.idle_seconds)) is not None:
            if events:
                yield events
                quiet_until = time() + self._settings.idle_seconds
            elif upto is not None and feed.position >= upto:
                return
            elif time() >= compare_at:
                yield []
                compare_at = time() + self._settings.compare_seconds
            elif feed.gap or (feed.is_at_end and (upto is not None or time() >= quiet_until)):
                await self._look(feed)
                quiet_until = time() + self._settings.idle_seconds

    async def _look(self, feed: Feed) -> None:
        """Find out why the feed does not have the next message: read it at the leader or any other server and give it
        to the feed, or let the feed pass over what a restore left out. No-op if there is no later message.

        Raises:
            HistoryGone: The stream has dropped the message.
            LogDamaged: No server can read it.
        """
        if self._gaps_are_normal:
            return
        wanted, time = feed.position + 1, asyncio.get_running_loop().time
        end = time() + self._settings.unreadable_seconds
        while feed.position < wanted:
            head = await self._require_history(wanted - 1)
            if head.last_seq < wanted:
                break
            found = await self._read(wanted, (self._reader.at, *(self._reader.at_any_server,) * _OTHER_ATTEMPTS))
            if found is not None:
                log.warning("bus_message_read_elsewhere stream=%s seq=%d", self._stream, wanted)
                feed.accept(found)
                return
            following = await self._reader.next_of(f"{self._prefix}>", wanted)
            if following is not None and names_gap(following, wanted - 1):
                feed.pass_to(following.seq)
                return
            if time() >= end:
                raise LogDamaged(wanted, None if following is None else following.seq, head.last_seq)
            await asyncio.sleep(_LOOK_PAUSE_SECONDS)
        if feed.gap:
            feed.pass_to(wanted)

    async def at(self, seq: int) -> StoredEvent | None:
        """Return a message of the leader, else of any other server; None if none of them has it.

        Raises:
            NoAnswer: The leader does not answer.
        """
        found = await self._reader.at(seq)
        return await self._read(seq, (self._reader.at_any_server,) * _OTHER_ATTEMPTS) if found is None else found

    async def _read(
        self, seq: int, attempts: Sequence[Callable[[int], Awaitable[StoredEvent | None]]]
    ) -> StoredEvent | None:
        """Return what the first attempt finds in time; None if none finds anything."""
        for attempt in attempts:
            try:
                async with asyncio.timeout(_READ_SECONDS):
                    found = await attempt(seq)
            except (NoAnswer, NotConnected, Misconfigured, TimeoutError):
                continue
            if found is not None:
                return found
        return None

    async def _require_same(self, position: int, event_id: str | None) -> str:
        """Compare the event at the position of the reader with the stream, and return its id. `event_id`: id that it
        had; "" if it has none; None if it is not known yet.

        Raises:
            LogChanged: The stream has another one there.
        """
        if event_id == "" or self._gaps_are_normal:
            return ""
        found = await self._reader.at(position)
        if found is None:
            return event_id or ""
        if event_id is not None and found.event_id != event_id:
            raise LogChanged(position, event_id, found.event_id)
        return found.event_id

    async def _require_history(self, position: int) -> LogHead:
        """Return the bounds of the stream after checking that it contains all events after `position`.

        Raises:
            HistoryGone: Events after `position` are trimmed, or the stream ends before `position` for longer than
                `went_back_seconds`: it was replaced, or has lost its end.
        """
        loop = asyncio.get_running_loop()
        end = loop.time() + self._settings.went_back_seconds
        while True:
            try:
                head = await self._reader.head()
            except NoAnswer:
                if self._connection.is_closed:
                    raise
                continue
            if self._gaps_are_normal:
                return head
            if position + 1 < head.first_seq:
                raise HistoryGone(position, head.first_seq)
            if position <= head.last_seq:
                return head
            if loop.time() >= end:
                raise LogShorter(position, head.last_seq)
            await asyncio.sleep(0.1)


def pause_after(troubles: int) -> float:
    """Return the longest pause in seconds after so many troubles in a row; at most 1 s."""
    return min(0.02 * 2 ** min(troubles, 6), 1.0)


def _jitter(seconds: float) -> float:
    return random.uniform(seconds / 2, seconds)  # noqa: S311
