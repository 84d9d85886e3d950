"""Send requests to endpoints, and add requests to work queues.

It does not import FastStream, so commands start fast and agents stay small.
"""

import asyncio
import uuid
from typing import TypeVar

import msgspec

from koordcore.bus.client.connection import BusConnection, NoAnswer, NoResponders, NotConnected
from koordcore.bus.client.wire import decode_headers, encode_headers
from koordcore.bus.names import BusNames
from koordcore.bus.write.outcome import read_answer
from koordcore.requests.endpoint import ERROR, REQUEST_ID, SUBJECT, TIMEOUT, Endpoint, ErrorCode, ErrorReply, WorkQueue
from koordcore.values import codec

Q = TypeVar("Q", bound=msgspec.Struct)
A = TypeVar("A", bound=msgspec.Struct)


class RequestFailed(Exception):
    """A service answered a request with an error reply."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code  # Kind of error, for example `INVALID` or `UNAVAILABLE`


async def ask(
    connection: BusConnection,
    names: BusNames,
    endpoint: Endpoint[Q, A],
    request: Q,
    *,
    seconds: float,
    request_id: str = "",
    waits_for_service: bool = True,
) -> A:
    """Send a request to an endpoint of a service, and return the answer. Repeat it while the service is unavailable. If
    the endpoint prefers standby instances, the leader is asked only if none of them answers.

    Args:
        seconds: Real seconds after which the call fails.
        request_id: Idempotency key, sent with every attempt; empty: create a new one.
        waits_for_service: If no instance serves the endpoint, whether to repeat the request until one does.

    Raises:
        RequestFailed: The service refused the request or failed.
        NoAnswer: No instance answered in time.
        Denied: This user has no permission to call this service.
    """
    body = codec.encode(request)
    headers = {REQUEST_ID: request_id or str(uuid.uuid4()), SUBJECT: connection.settings.user}
    time = asyncio.get_running_loop().time
    end = time() + seconds

    async def once() -> A:
        *preferred, last = endpoint.addresses
        for address in preferred:
            try:
                return await at(address)
            except NoResponders:
                continue
            except RequestFailed as error:
                if error.code != ErrorCode.UNAVAILABLE:
                    raise
        return await at(last)

    async def at(address: str) -> A:
        left = max(0.05, end - time())
        header = encode_headers({**headers, TIMEOUT: f"{left:.3f}"})
        reply = await connection.request(f"{names.root}{address}", body, header=header, timeout=left)
        if reply.header and ERROR in decode_headers(reply.header):
            error = codec.decode(reply.data, ErrorReply)
            raise RequestFailed(error.code, error.message)
        return codec.decode(reply.data, endpoint.answer)

    def may_succeed_later(error: Exception) -> bool:
        if isinstance(error, RequestFailed):
            return error.code == ErrorCode.UNAVAILABLE
        if isinstance(error, NoResponders):
            return waits_for_service
        return isinstance(error, (NotConnected, NoAnswer))

    try:
        return await connection.patiently(
            once, f"{names.root}{endpoint.address}", deadline=seconds, retry_if=may_succeed_later
        )
    except NoAnswer as error:
        if isinstance(error.__cause__, RequestFailed):
            raise error.__cause__ from None
        raise


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
    `seconds`: real seconds after which the call fails. `request_id`: Idempotency key. Requests with the same key are
    stored once within two minutes. Empty: a new one.

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
