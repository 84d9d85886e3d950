"""Durable NATS consumers of work queues, as values. `bootstrap_consumers` creates them; services only bind to them.

Source:
    event-bus spec, 2 (rules), 3.2
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, cast

from koordcore.bus.client.connection import BusConnection
from koordcore.bus.names import BusNames
from koordcore.bus.read.stream_reader import ApiError, patient_api
from koordcore.bus.setup.bootstrap import Change, StreamDiffers
from koordcore.requests.catalogue import WORK_QUEUES
from koordcore.requests.endpoint import WorkQueue

_SECOND = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSpec:
    """Configuration of one durable pull consumer, which a worker reads.

    Attributes:
        stream: Name of the stream.
        durable: Name of the consumer.
        filter_subject: Subject of the messages to deliver; may contain wildcards.
        ack_wait_seconds: Time after which the server delivers a message again that was not acknowledged.
        max_deliver: Largest number of deliveries of one message.
        max_ack_pending: Largest number of delivered messages without acknowledgement.
        backoff_seconds: Delays of the worker after failed deliveries. The consumer's own `backoff` is not used, because
            it replaces `ack_wait`: work that takes longer than its first value would be delivered twice.
    """

    stream: str
    durable: str
    filter_subject: str
    ack_wait_seconds: float = 60.0
    max_deliver: int = 8
    max_ack_pending: int = 64
    backoff_seconds: tuple[float, ...] = (1.0, 5.0, 30.0, 120.0)

    def delay_seconds(self, deliveries: int) -> float:
        """Return the delay in seconds before a failed message is delivered again.

        Args:
            deliveries: Number of failed deliveries so far, from 1. Beyond the length of `backoff_seconds`, the last
                delay applies.
        """
        return self.backoff_seconds[min(deliveries, len(self.backoff_seconds)) - 1]

    def config(self) -> dict[str, Any]:
        """Return the configuration as JSON value of the JetStream API, which has times in nanoseconds."""
        return {
            "durable_name": self.durable,
            "filter_subject": self.filter_subject,
            "ack_policy": "explicit",
            "deliver_policy": "all",
            "replay_policy": "instant",
            "ack_wait": int(self.ack_wait_seconds * _SECOND),
            "max_deliver": self.max_deliver,
            "max_ack_pending": self.max_ack_pending,
        }


def consumer_of(queue: WorkQueue[Any], names: BusNames) -> ConsumerSpec:
    """Return the durable consumer of a work queue. It is named `<service>-<verb>`.

    Args:
        queue: The work queue.
        names: Names of the cluster's streams and subjects.
    """
    return ConsumerSpec(
        stream=names.cmd,
        durable=f"{queue.service}-{queue.verb}",
        filter_subject=f"{names.root}{queue.address}",
        ack_wait_seconds=queue.ack_wait_seconds,
        max_deliver=queue.max_deliver,
    )


def consumers(names: BusNames) -> list[ConsumerSpec]:
    """Return the durable consumers of all work queues."""
    return [consumer_of(queue, names) for queue in WORK_QUEUES]


async def bootstrap_consumers(connection: BusConnection, specs: Iterable[ConsumerSpec]) -> dict[str, Change]:
    """Create the given consumers on the server if they do not exist.

    Returns:
        Durable name -> change.

    Raises:
        StreamDiffers: A consumer exists with another configuration.
        ApiError: The JetStream API answered with an error.
        NoAnswer: No answer came in time. It is unknown whether the server acted.
    """
    return {spec.durable: await _ensure(connection, spec) for spec in specs}


async def _ensure(connection: BusConnection, spec: ConsumerSpec) -> Change:
    wanted = spec.config()
    try:
        data = await patient_api(connection, f"$JS.API.CONSUMER.INFO.{spec.stream}.{spec.durable}", b"")
    except ApiError as error:
        if error.err_code != 10014:  # consumer not found
            raise
        request = {"stream_name": spec.stream, "config": wanted, "action": "create"}
        await patient_api(
            connection, f"$JS.API.CONSUMER.DURABLE.CREATE.{spec.stream}.{spec.durable}", json.dumps(request).encode()
        )
        return Change.CREATED
    found = cast("dict[str, Any]", json.loads(data)["config"])
    differences = {field: (found.get(field), want) for field, want in wanted.items() if found.get(field) != want}
    if differences:
        raise StreamDiffers(f"{spec.stream}/{spec.durable}", differences)
    return Change.UNCHANGED
