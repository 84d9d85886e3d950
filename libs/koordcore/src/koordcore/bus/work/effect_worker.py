# pyright: reportUnknownMemberType=false
"""Workers, which carry out the requests of a work queue. Each has one durable consumer, read with FastStream.

By default, FastStream terminates a message whose handler raises, and declares streams. Here the policy is explicit:

    handled -> ack      TransientFailure, any other error -> nak with a delay, at the last delivery -> parked + term
    PermanentFailure -> parked + term                      long work -> in_progress every third of ack_wait

The effect must be idempotent or use the idempotency key `WorkItem.id`. Folds do not use workers. Agents do not either,
because importing FastStream costs 43 MiB.

Source: event-bus spec, 3.2, 3.4, 8.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable

import msgspec
from faststream import AckPolicy
from faststream.nats import JStream, NatsMessage, PullSub
from nats.aio.msg import Msg
from nats.errors import ConnectionClosedError
from nats.js import JetStreamContext

from koordcore.bus.client.connection import BusConnection, NoAnswer, NotConnected
from koordcore.bus.metrics import NO_METRICS, BusMetrics
from koordcore.bus.setup.bootstrap import ConsumerSpec
from koordcore.bus.work.broker import SharedBroker, whole_message
from koordcore.bus.work.dlq import DeadLetters
from koordcore.requests.parked import Parked

log = logging.getLogger("koordcore.bus")

FETCH_SECONDS = 5.0


class TransientFailure(Exception):
    """A handler of a `Worker` raises it if the effect failed for now. The item is delivered again after a delay."""


class PermanentFailure(Exception):
    """A handler of a `Worker` raises it if the effect can never succeed. The item becomes a dead letter."""


class WorkItem(msgspec.Struct, frozen=True):
    """One message of a work queue or stream, as a `Worker` passes it to its handler."""

    id: str  # Id that the sender gave the message, else `<stream>:<seq>`. Use it as idempotency key of the effect.
    subject: str  # Subject of the message
    headers: dict[str, str]  # Headers of the message
    body: bytes  # Encoded body
    seq: int  # Sequence in its stream
    deliveries: int  # Number of this delivery, from 1


Handler = Callable[[WorkItem], Awaitable[None]]


class Worker:
    """Handles the messages of one durable consumer with a handler, at most `workers` of them at a time. The context
    manager starts and stops it. If the handler raises, the message is delivered again after a delay. If it fails too
    often or raises `PermanentFailure`, it becomes a dead letter.

    Args:
        spec: The consumer, with its delays and its largest number of deliveries. It must exist on the server.
        handler: Carries out a message. If it returns, the message is done.
        workers: Largest number of messages that are handled at once.
        graceful_seconds: When the context ends, how long to wait for items that are being handled.
    """

    def __init__(
        self,
        connection: BusConnection,
        spec: ConsumerSpec,
        handler: Handler,
        dead_letters: DeadLetters,
        *,
        workers: int = 4,
        graceful_seconds: float = 15.0,
        metrics: BusMetrics = NO_METRICS,
    ) -> None:
        self._connection = connection
        self._spec = spec
        self._handler = handler
        self._dead_letters = dead_letters
        self._metrics = metrics
        self._broker = SharedBroker(connection, graceful_seconds)
        self._subscriber = self._broker.subscriber(
            spec.filter_subject,
            stream=JStream(spec.stream, declare=False),
            durable=spec.durable,
            pull_sub=PullSub(batch_size=1, timeout=FETCH_SECONDS),
            ack_policy=AckPolicy.MANUAL,
            inbox_prefix=f"{connection.settings.inbox_prefix}.".encode(),
            max_workers=workers,
            decoder=whole_message,
        )
        self._subscriber(self._on_message)

    async def __aenter__(self) -> "Worker":
        """Start taking messages. The bootstrap job must have created the consumer."""
        await self._broker.start()
        self._rest_when_closed()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Take no more messages. Unfinished ones are redelivered after `ack_wait`."""
        try:
            await self._broker.stop()
        except* ConnectionClosedError:
            pass

    def _rest_when_closed(self) -> None:
        """Pause fetching on a closed connection; FastStream would repeat it without a delay."""
        pull = self._subscriber.subscription
        assert isinstance(pull, JetStreamContext.PullSubscription)
        fetch = pull.fetch

        async def patient_fetch(batch: int = 1, timeout: float | None = FETCH_SECONDS) -> list[Msg]:
            if self._connection.is_closed:
                await asyncio.sleep(FETCH_SECONDS)
            return await fetch(batch=batch, timeout=timeout)

        pull.fetch = patient_fetch  # type: ignore[method-assign]

    async def _on_message(self, message: NatsMessage) -> None:
        raw = message.raw_message
        assert not isinstance(raw, list)
        place = raw.metadata
        headers = dict(raw.headers or {})
        item = WorkItem(
            id=headers.get("Nats-Msg-Id", f"{self._spec.stream}:{place.sequence.stream}"),
            subject=raw.subject,
            headers=headers,
            body=raw.data,
            seq=place.sequence.stream,
            deliveries=place.num_delivered or 1,
        )
        alive = asyncio.ensure_future(self._keep_alive(message))
        try:
            await self._handler(item)
        except PermanentFailure as error:
            await self._park(message, item, error)
        except Exception as error:  # noqa: BLE001 - the handler's own bug is tried again, too, and parked in the end
            log.warning("work_failed consumer=%s seq=%d error=%s", self._spec.durable, item.seq, error)
            if item.deliveries >= self._spec.max_deliver:
                await self._park(message, item, error)
            else:
                # nak ignores the consumer's backoff, so the delay is ours.
                await message.nack(delay=self._spec.delay_seconds(item.deliveries))
        else:
            await message.ack()
        finally:
            alive.cancel()

    async def _park(self, message: NatsMessage, item: WorkItem, error: Exception) -> None:
        """Store the item in the DLQ, then terminate its message."""
        parked = Parked(
            stream=self._spec.stream,
            seq=item.seq,
            consumer=self._spec.durable,
            subject=item.subject,
            headers=item.headers,
            body=item.body,
            deliveries=item.deliveries,
            error=f"{type(error).__name__}: {error}",
            trace_id=item.headers.get("traceparent", "")[3:35],
        )
        try:
            await self._dead_letters.park(parked)
        except (NoAnswer, NotConnected):
            log.exception("work_not_parked consumer=%s seq=%d", self._spec.durable, item.seq)
            return  # no ack: redelivered, and parked then
        log.error("work_parked consumer=%s seq=%d error=%s", self._spec.durable, item.seq, error)
        await message.reject()
        depths = await self._dead_letters.depths()
        self._metrics.dlq_depth(self._spec.durable, depths.get(self._spec.durable, 0))

    async def _keep_alive(self, message: NatsMessage) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            while True:
                await asyncio.sleep(self._spec.ack_wait_seconds / 3)
                await message.in_progress()
