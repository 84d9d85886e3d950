# pyright: reportUnknownMemberType=false
"""Endpoints: requests that a service answers at once, carried by FastStream over core NATS.

    request, typed body -> once per request id -> handler, within the caller's timeout -> answer or error reply

If a request or answer is lost, the caller sends the request again with the same id (`koordcore.bus.work.requests`). A
request that was already carried out gets the same answer again. Agents do not use this module, because importing
FastStream costs 43 MiB.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple, TypeVar

import msgspec
from faststream import AckPolicy
from faststream.nats import NatsMessage
from faststream.nats.response import NatsResponse

from koordcore.bus.client.connection import BusConnection
from koordcore.bus.names import BusNames
from koordcore.bus.work.broker import SharedBroker, whole_message
from koordcore.events.admission import RequestAudited
from koordcore.requests.endpoint import ERROR, REQUEST_ID, SUBJECT, TIMEOUT, Endpoint, ErrorCode, ErrorReply
from koordcore.values import codec
from koordcore.values.text_limits import decode_within_limits

log = logging.getLogger("koordcore.bus")

Q = TypeVar("Q", bound=msgspec.Struct)
A = TypeVar("A", bound=msgspec.Struct)

MOST_SECONDS: Final = 60.0  # Longest time for a request, even if the caller allows more
REMEMBERED: Final = 256  # Number of answers that are kept for repeated requests
# Room in a reply for its headers, which count against the largest message that the server accepts.
_REPLY_HEADERS_BYTES: Final = 1024


Audit = Callable[[RequestAudited], Awaitable[None]]  # Takes the audit record of a request

# Error code of a reply -> the HTTP status that its audit record has.
_STATUS: Final = {
    "": 200,
    ErrorCode.INVALID: 400,
    ErrorCode.UNAVAILABLE: 503,
    ErrorCode.DEADLINE: 504,
    ErrorCode.INTERNAL: 500,
}


class Refusal(Exception):
    """A handler of an endpoint raises it to send an error reply instead of an answer.

    Args:
        code: Kind of error: `INVALID` or `UNAVAILABLE`.
    """

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


class _Reply(NamedTuple):
    body: bytes
    error: str = ""


class EndpointServer:
    """Answers the requests to the endpoints of one service. If it has several instances, each request goes to one of
    them. A request with the id of one of the last 256 is not carried out again, but gets the same answer. If the
    handler does not end within the caller's timeout (60 s at most), or raises, the caller gets an error reply.

    Args:
        workers: Largest number of requests per endpoint that are handled at once.
        graceful_seconds: When `run` is cancelled, how long to wait for requests that are being handled.
        audit: Takes the audit records of requests to endpoints with `is_audited`; None: there is no audit.
    """

    def __init__(
        self,
        connection: BusConnection,
        names: BusNames,
        *,
        workers: int = 4,
        graceful_seconds: float = 5.0,
        audit: Audit | None = None,
    ) -> None:
        self._connection = connection
        self._audit = audit
        self._names = names
        self._workers = workers
        self._broker = SharedBroker(connection, graceful_seconds)
        self._remembered: OrderedDict[tuple[str, str], asyncio.Future[_Reply]] = OrderedDict()

    def serve(
        self, endpoint: Endpoint[Q, A], handler: Callable[[Q], Awaitable[A]], *, as_standby: bool = False
    ) -> None:
        """Register the handler of an endpoint. Call it before `run`. `handler`: returns the answer to a request, or
        raises `Refusal`. `as_standby`: whether to serve the address for instances that do not lead, for an endpoint
        that prefers them.
        """
        subscriber = self._broker.subscriber(
            f"{self._names.root}{endpoint.standby_address if as_standby else endpoint.address}",
            queue=endpoint.service,
            ack_policy=AckPolicy.MANUAL,
            max_workers=self._workers,
            decoder=whole_message,
        )

        async def on_message(message: NatsMessage) -> NatsResponse:
            reply = await self._once(endpoint, handler, message)
            return NatsResponse(reply.body, headers={ERROR: reply.error} if reply.error else {})

        subscriber(on_message)

    async def run(self) -> None:
        await self._broker.start()
        try:
            await asyncio.Event().wait()
        finally:
            await self._broker.stop()

    async def run_until(self, end: Awaitable[object]) -> None:
        """Answer until the end, for example until the leadership is lost, or until the task is cancelled."""
        serving, ended = asyncio.ensure_future(self.run()), asyncio.ensure_future(end)
        try:
            await asyncio.wait({serving, ended}, return_when=asyncio.FIRST_COMPLETED)
            if serving.done():
                serving.result()
        finally:
            ended.cancel()
            serving.cancel()
            await asyncio.wait({serving})

    async def _once(
        self, endpoint: Endpoint[Q, A], handler: Callable[[Q], Awaitable[A]], message: NatsMessage
    ) -> _Reply:
        """Return the reply. Of requests with the same id, only the first one is carried out."""
        key = (endpoint.verb, message.headers.get(REQUEST_ID, ""))
        carrying_out = self._remembered.get(key)
        if carrying_out is None:
            carrying_out = asyncio.ensure_future(self._carry_out(endpoint, handler, message))
            if key[1]:
                self._remembered[key] = carrying_out
                if len(self._remembered) > REMEMBERED:
                    self._remembered.popitem(last=False)
        reply = await asyncio.shield(carrying_out)
        most = self._connection.max_payload - _REPLY_HEADERS_BYTES
        if len(reply.body) > most:
            reply = _error(ErrorCode.INVALID, f"the answer has {len(reply.body)} bytes, more than {most}: ask for less")
        if reply.error and reply.error != ErrorCode.INVALID:
            self._remembered.pop(key, None)  # another try may succeed
        return reply

    async def _carry_out(
        self, endpoint: Endpoint[Q, A], handler: Callable[[Q], Awaitable[A]], message: NatsMessage
    ) -> _Reply:
        reply = await _carry_out(endpoint, handler, message)
        if endpoint.is_audited and self._audit is not None:
            user = message.headers.get(SUBJECT, "unknown")
            route = f"{endpoint.service}.{endpoint.verb}"
            record = RequestAudited(
                subject=f"bus:{user}",
                method="ask",
                route=route,
                dry_run=endpoint.is_dry_run,
                status=_STATUS[reply.error],
            )
            await self._audit(record)
        return reply


async def _carry_out(endpoint: Endpoint[Q, A], handler: Callable[[Q], Awaitable[A]], message: NatsMessage) -> _Reply:
    try:
        request = decode_within_limits(message.body, endpoint.request)
        seconds = float(message.headers.get(TIMEOUT, MOST_SECONDS))
    except (msgspec.MsgspecError, ValueError) as error:
        return _error(ErrorCode.INVALID, f"the request cannot be read: {error}")
    try:
        async with asyncio.timeout(min(seconds, MOST_SECONDS)):
            return _Reply(codec.encode(await handler(request)))
    except Refusal as refusal:
        return _error(refusal.code, str(refusal))
    except TimeoutError:
        return _error(ErrorCode.DEADLINE, f"{endpoint.verb} did not finish within {seconds:g} s")
    except Exception:
        log.exception("request_failed service=%s verb=%s", endpoint.service, endpoint.verb)
        return _error(ErrorCode.INTERNAL, f"{endpoint.verb} failed; the log of {endpoint.service} has the details")


def _error(code: ErrorCode, message: str) -> _Reply:
    return _Reply(codec.encode(ErrorReply(code, message)), code)
