"""Follow a stream in strict order from a checkpoint (event-bus spec, 3.2), with an ephemeral pull consumer (`feed`).

The consumer acknowledges nothing, is kept in memory by one replica, and is deleted 60 s after its last request. After
a gap in its sequences, silence, a reconnect or its loss, a new consumer begins after the last delivered event.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Sequence

import msgspec
from nats.nuid import NUID

from koordcore.bus.client.connection import BusConnection, Denied, NoAnswer, NotConnected
from koordcore.bus.metrics import NO_METRICS, BusMetrics
from koordcore.bus.read.feed import DEFAULTS, Feed, FollowerSettings
from koordcore.bus.read.stream_reader import ApiError, StreamReader, patient_api
from koordcore.events.envelope import StoredEvent
from koordcore.ports.eventlog import HistoryGone, LogHead, Misconfigured

_SECOND = 1_000_000_000


class _ConsumerConfig(msgspec.Struct, omit_defaults=True):
    name: str
    deliver_policy: str
    opt_start_seq: int
    filter_subjects: list[str]
    inactive_threshold: int
    ack_policy: str = ""
    replay_policy: str = ""
    mem_storage: bool = False
    num_replicas: int = 0
    max_waiting: int = 0


class _CreateConsumer(msgspec.Struct):
    stream_name: str
    config: _ConsumerConfig
    action: str = "create"


class _Created(msgspec.Struct):
    num_pending: int = 0


_encode = msgspec.json.Encoder().encode
_decode_created = msgspec.json.Decoder(_Created).decode


class Follower:
    """Reads one stream in order and without gaps, over an ephemeral consumer. Each call of `follow` or `history` has
    its own consumer. Calls may be concurrent.

    Args:
        reader: Reads the bounds of the stream at its leader.
        gaps_are_normal: Whether the stream drops messages by itself, such as observations. If True, missing messages
            are passed over, and `HistoryGone` is never raised.
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
        metrics: BusMetrics = NO_METRICS,
        settings: FollowerSettings = DEFAULTS,
    ) -> None:
        self._connection = connection
        self._stream = stream
        self._prefix = prefix
        self._reader = reader
        self._gaps_are_normal = gaps_are_normal
        self._metrics = metrics
        self._settings = settings
        self._nuid = NUID()

    async def follow(
        self, after: int, *, kinds: Sequence[str] | None = None, batch: int = 500
    ) -> AsyncIterator[list[StoredEvent]]:
        """Yield batches of later events forever, in order and without gaps. After a gap, a reconnect or a missed
        heartbeat, a new consumer continues behind the last event that was yielded.

        Args:
            after: Sequence of the last event that the caller has; 0 for none.
            kinds: Aggregate kinds to deliver; None: all.
            batch: Largest number of events in a batch. A batch is never empty.

        Raises:
            HistoryGone: Events after `after` were deleted, or the stream ends before `after` for 10 s.
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
        position = after
        reconnects = 0
        while upto is None or position < upto:
            # 1. is the history that we need still there?
            head = await self._require_history(position)
            if upto is not None and head.last_seq <= position:
                await asyncio.sleep(_jitter(0.05))
                continue
            # 2. a consumer of our own at the next position
            feed = Feed(self._connection, self._stream, self._prefix, position, self._settings)
            stop_listening = self._connection.on_reconnect(feed.fail_reconnected)
            try:
                try:
                    await feed.subscribe()
                    pending = await self._create_consumer(feed, position, kinds)
                except (NoAnswer, NotConnected):
                    await asyncio.sleep(_jitter(0.1))
                    continue
                # 3. batches, until something is wrong with the consumer
                if upto is not None and pending == 0:
                    position = await self._passed(position, upto, head, kinds)
                    continue
                while True:
                    events = await feed.next_batch(batch)
                    if events is None:
                        break
                    reconnects = 0
                    if upto is not None and events[-1].seq >= upto:
                        wanted = [event for event in events if event.seq <= upto]
                        if wanted:
                            yield wanted
                        return
                    yield events
                    position = events[-1].seq
                    if upto is not None and feed.drained:
                        position = await self._passed(position, upto, head, kinds)
                        break
            finally:
                stop_listening()
                await feed.close()
            if feed.trouble:
                self._metrics.gap(self._stream)
                reconnects += 1
                await asyncio.sleep(_jitter(pause_after(reconnects)))

    async def _passed(self, position: int, upto: int, head: LogHead, kinds: Sequence[str] | None) -> int:
        """Return the position at which a history continues after its consumer had no more messages. This is `upto` if
        no events are left. The consumer may be on a server that is behind (event-bus spec, 13), so this asks the leader
        for the next event.
        """
        try:
            following = await self._following(position, kinds)
        except NoAnswer:
            if self._connection.is_closed:
                raise
            return position
        if following is not None and following <= upto:
            await asyncio.sleep(_jitter(0.05))
            return position
        if following is not None or head.last_seq >= upto:
            return upto
        await asyncio.sleep(_jitter(0.05))
        return max(position, head.last_seq)

    async def _following(self, position: int, kinds: Sequence[str] | None) -> int | None:
        """Return the sequence of the next event of these kinds, read at the leader; None if there is none."""
        found = [await self._reader.next_of(subject, position + 1) for subject in self._filters(kinds)]
        return min((event.seq for event in found if event is not None), default=None)

    def _filters(self, kinds: Sequence[str] | None) -> list[str]:
        return [f"{self._prefix}>"] if kinds is None else [f"{self._prefix}{kind}.*" for kind in kinds]

    async def _require_history(self, position: int) -> LogHead:
        """Return the bounds of the stream after checking that it contains all events after `position`.

        Raises:
            HistoryGone: Events after `position` are trimmed, or the stream ends before `position` for longer than
                `went_back_seconds`, because it was replaced.
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
                raise HistoryGone(position, head.last_seq + 1)
            await asyncio.sleep(0.1)

    async def _create_consumer(self, feed: Feed, position: int, kinds: Sequence[str] | None) -> int:
        """Create the consumer, send the first pull requests, and return its number of pending messages."""
        name = f"f-{bytes(self._nuid.next()).decode()}"
        request = _CreateConsumer(
            self._stream,
            _ConsumerConfig(
                name=name,
                deliver_policy="by_start_sequence",
                opt_start_seq=position + 1,
                filter_subjects=self._filters(kinds),
                inactive_threshold=int(self._settings.inactive_seconds * _SECOND),
                ack_policy="none",
                replay_policy="instant",
                mem_storage=True,
                num_replicas=1,
                max_waiting=64,
            ),
        )
        try:
            data = await patient_api(
                self._connection, f"$JS.API.CONSUMER.CREATE.{self._stream}.{name}", _encode(request), deadline=5
            )
        except ApiError as error:
            # 10148: an attempt whose answer was lost made it; the next round takes a new name.
            if error.err_code in (10148, 10013):
                raise NoAnswer(str(error)) from error
            raise Misconfigured(f"{self._stream}: {error}") from error
        except Denied as error:
            raise Misconfigured(str(error)) from error
        feed.open(name)
        return _decode_created(data).num_pending


def pause_after(troubles: int) -> float:
    """Return the longest pause in seconds after so many troubles in a row with a consumer; at most 1 s."""
    return min(0.02 * 2 ** min(troubles, 6), 1.0)


def _jitter(seconds: float) -> float:
    return random.uniform(seconds / 2, seconds)  # noqa: S311
