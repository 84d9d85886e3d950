"""Add requests to work queues. It does not import FastStream, so commands start fast."""

import uuid
from typing import TypeVar

import msgspec

from koordcore.bus.client.connection import BusConnection, NoAnswer, NotConnected
from koordcore.bus.client.wire import encode_headers
from koordcore.bus.names import BusNames
from koordcore.bus.write.outcome import read_answer
from koordcore.requests.endpoint import SUBJECT, WorkQueue
from koordcore.values import codec

Q = TypeVar("Q", bound=msgspec.Struct)


async def submit(
    connection: BusConnection,
    names: BusNames,
    queue: WorkQueue[Q],
    request: Q,
    *,
    seconds: float,
    request_id: str = "",
) -> int:
    """Add a request to a work queue, and return its position there. A worker of the service carries it out later.

    Args:
        connection: The connection of the process.
        names: Names of the cluster's streams and subjects.
        queue: The work queue.
        request: Body of the request.
        seconds: Real seconds after which the call fails.
        request_id: Idempotency key. Requests with the same key are stored once within two minutes. Empty: a new one.

    Raises:
        NoAnswer: The log did not confirm the request in time. It may be stored.
        Denied: This user has no permission to use the queue.
    """
    header = encode_headers({"Nats-Msg-Id": request_id or str(uuid.uuid4()), SUBJECT: connection.settings.user})
    subject, body = f"{names.root}{queue.address}", codec.encode(request)

    async def once() -> int:
        reply = await connection.request(subject, body, header=header, timeout=seconds)
        answer = read_answer(reply.data)
        if answer.code:
            raise NoAnswer(f"{subject}: {answer.description or answer.code}")
        return answer.seq

    return await connection.patiently(
        once, subject, deadline=seconds, retry_if=lambda error: isinstance(error, NotConnected | NoAnswer)
    )
