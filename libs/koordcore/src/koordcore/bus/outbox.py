"""An agent's facts on their way to the log: a bounded queue on disk that outlives the agent and the bus.

The agent is the only writer of its aggregate, so the expectation is filled in here, when a fact is sent: the sequence
of the last one that is known to be stored. After a restart or a lost acknowledgement a direct get of the aggregate's
newest event tells where it stands; agents have no right to read at the leader.

    put -> file (`queue_file`) -> one sender task, one fact per aggregate in flight -> log

When the queue is full, new facts are refused and the oldest are kept: they explain everything after them.

source    event-bus spec, 3.3, 4.3, 10
"""

import asyncio
import logging
import random
from collections import deque
from pathlib import Path

import msgspec

from koordcore.bus.append import BACKOFF_SECONDS, PUBLISH_SECONDS, encode_event
from koordcore.bus.connection import BusConnection, Denied, NoAnswer, NoResponders, NotConnected
from koordcore.bus.metrics import NO_METRICS, BusMetrics
from koordcore.bus.names import BusNames
from koordcore.bus.outcome import NO_ANSWER, NO_RESPONDERS, Action, classify, read_answer
from koordcore.bus.queue_file import QueueFile
from koordcore.bus.wire import decode_headers, hpub
from koordcore.events import CATALOGUE
from koordcore.events.envelope import AggregateRef, Draft, Event, NewEvent, Origin

log = logging.getLogger("koordcore.bus")

BOUND = 10_000
SENDERS = 64
_FULL_PAUSE_SECONDS = 5.0


class _Waiting(msgspec.Struct, frozen=True, array_like=True):
    """A fact in the file."""

    kind: str
    id: str
    headers: dict[str, str]
    body: bytes


class Outbox:
    """The queue of one agent process. `put` from any task; `run` in one.

    bound   facts kept at most
    """

    def __init__(
        self,
        file: Path,
        connection: BusConnection,
        names: BusNames,
        *,
        bound: int = BOUND,
        metrics: BusMetrics = NO_METRICS,
        publish_seconds: float = PUBLISH_SECONDS,
    ) -> None:
        self._file = QueueFile(file)
        self._connection = connection
        self._names = names
        self._bound = bound
        self._metrics = metrics
        self._publish_seconds = publish_seconds
        self._queues: dict[AggregateRef, deque[tuple[int, _Waiting]]] = {}
        self._last_seq: dict[AggregateRef, int] = {}
        self._ready: asyncio.Queue[AggregateRef] = asyncio.Queue()
        self._empty = asyncio.Event()
        self._depth = 0
        self.refused = 0
        for number, data in self._file.items():
            waiting = msgspec.msgpack.decode(data, type=_Waiting)
            self._enqueue(number, waiting)
        if not self._depth:
            self._empty.set()

    @property
    def depth(self) -> int:
        """Facts that are not known to be stored."""
        return self._depth

    def put(self, ref: AggregateRef, event: Event, origin: Origin, *, index: int = 0) -> bool:
        """Keep a fact until it is stored; False when the queue is full. It is on disk when this returns.

        index   of the fact among those of the same cause and aggregate: together they make its id
        """
        if self._depth >= self._bound:
            self.refused += 1
            log.error("outbox_full refused=%d type=%s", self.refused, type(event).__name__)
            return False
        new = CATALOGUE.seal([Draft(ref, event, 0)] * (index + 1), origin)[index]
        waiting = _Waiting(ref.kind, ref.id, new.headers, new.body)
        self._enqueue(self._file.add(msgspec.msgpack.encode(waiting)), waiting)
        return True

    async def flushed(self) -> None:
        """Wait until everything is stored."""
        await self._empty.wait()

    async def run(self) -> None:
        """Send for ever; cancel to stop. What is not stored stays on disk.

        raises    Denied when the user may not write an aggregate: a misconfiguration
        """
        async with asyncio.TaskGroup() as group:
            for _ in range(SENDERS):
                group.create_task(self._send_ready())

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _enqueue(self, number: int, waiting: _Waiting) -> None:
        ref = AggregateRef(waiting.kind, waiting.id)
        queue = self._queues.get(ref)
        if queue is None:
            queue = self._queues[ref] = deque()
        queue.append((number, waiting))
        self._depth += 1
        self._empty.clear()
        if len(queue) == 1:
            self._ready.put_nowait(ref)

    async def _send_ready(self) -> None:
        while True:
            ref = await self._ready.get()
            queue = self._queues[ref]
            while queue:
                number, waiting = queue[0]
                await self._store(ref, waiting)
                queue.popleft()
                self._file.remove(number)
                self._depth -= 1
            del self._queues[ref]
            if not self._depth:
                self._empty.set()

    async def _store(self, ref: AggregateRef, waiting: _Waiting) -> None:
        """Repeat one fact until the log has it."""
        started = asyncio.get_running_loop().time()
        pause = BACKOFF_SECONDS[0]
        while True:
            if ref not in self._last_seq:
                # First fact of this process for the aggregate, or its position is in doubt.
                newest = await self._newest(ref)
                if newest is not None:
                    seq, event_id = newest
                    self._last_seq[ref] = seq
                    if event_id == waiting.headers["Nats-Msg-Id"]:
                        self._done(started, "duplicate")
                        return
            if ref in self._last_seq:
                action, reason, seq = await self._attempt(ref, waiting, self._last_seq[ref])
                match action:
                    case Action.STORED | Action.STORED_BEFORE:
                        self._last_seq[ref] = max(seq, self._last_seq[ref])
                        self._done(started, "appended" if action is Action.STORED else "duplicate")
                        return
                    case Action.READ_BACK | Action.READ_BACK_ALL | Action.WAIT_AND_READ_BACK:
                        del self._last_seq[ref]
                    case Action.STOP:
                        # Kept on disk: a fixed configuration sends it.
                        log.error("outbox_refused aggregate=%s reason=%s", ref, reason)
                        pause = _FULL_PAUSE_SECONDS
                    case Action.FULL:
                        log.error("outbox_log_full reason=%s", reason)
                        pause = _FULL_PAUSE_SECONDS
                    case Action.REPEAT | Action.BACK_OFF:
                        pass
            await asyncio.sleep(random.uniform(pause / 2, pause))  # noqa: S311
            pause = min(pause * 2, BACKOFF_SECONDS[1])
            await self._connection.wait_connected(BACKOFF_SECONDS[1])

    def _done(self, started: float, outcome: str) -> None:
        self._metrics.append(outcome, asyncio.get_running_loop().time() - started)

    async def _attempt(self, ref: AggregateRef, waiting: _Waiting, expected: int) -> tuple[Action, str, int]:
        encoded = encode_event(self._names, NewEvent(ref, waiting.headers, waiting.body, expected))
        token, future = self._connection.expect((encoded.subject,))
        try:
            self._connection.write(
                hpub(encoded.subject, self._connection.address(token), encoded.header, encoded.payload)
            )
            answer = read_answer((await self._connection.answer(future, self._publish_seconds)).data)
        except (NotConnected, NoResponders):
            answer = NO_RESPONDERS
        except NoAnswer:
            answer = NO_ANSWER
        finally:
            self._connection.forget(token)
        action, reason = classify(answer)
        return action, reason, answer.seq

    async def _newest(self, ref: AggregateRef) -> tuple[int, str] | None:
        """(sequence, id) of the aggregate's newest event, (0, "") when it has none; None when nobody answers.

        A replica that lags may give an older one: the append is then refused and this is asked again.
        """
        subject = self._names.subject("ev", ref)
        try:
            reply = await self._connection.request(f"$JS.API.DIRECT.GET.{self._names.ev}.{subject}")
        except Denied:
            raise
        except (NotConnected, NoAnswer):
            return None
        headers = decode_headers(reply.header)
        if headers.get("Status") == "404":
            return 0, ""
        if "Nats-Sequence" not in headers:
            return None
        return int(headers["Nats-Sequence"]), headers.get("Nats-Msg-Id", "")
