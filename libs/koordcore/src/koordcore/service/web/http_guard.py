"""The guard in front of the HTTP application. It refuses invalid requests and limits the time until an answer begins.

It checks the host name, the size of the body, and whether the service is stopping. Then the gate decides whether the
sender may send the request. Then the handler of a posted document answers, or else the application. If the answer does
not begin in time, the status is 503.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import lru_cache
from typing import Final

from prometheus_client import Counter, Histogram
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from koordcore.service.access.gate import Gate
from koordcore.service.clock import SystemClock
from koordcore.service.lifecycle import Service
from koordcore.service.telemetry.logging import logger
from koordcore.service.telemetry.metrics import Metrics
from koordcore.values.invalid import InvalidInput

_log: Final = logger("service.http")

PROBES: Final = frozenset(("/healthz", "/livez", "/readyz", "/metrics"))
_JSON: Final = b"application/json"

# Function from a JSON document to the body of the answer (200). It may raise InvalidInput (400) or HTTPException.
JsonPost = Callable[[bytes], Awaitable[bytes]]


class _Limits:
    """Cancels requests whose answers do not begin in time, with one timer for all requests.

    Args:
        seconds: Time from the beginning of a request until its answer must begin.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._open: dict[_Limit, None] = {}
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> "_Limit":
        """Start the time until which the answer to the current task's request must begin; return the limit."""
        task = asyncio.current_task()
        assert task is not None
        loop = asyncio.get_running_loop()
        limit = _Limit(task, loop.time() + self._seconds)
        self._open[limit] = None
        if self._timer is None:
            self._timer = loop.call_at(limit.due, self._look, loop)
        return limit

    def end(self, limit: "_Limit") -> None:
        """Stop a time limit, because the answer has begun or the request has ended."""
        self._open.pop(limit, None)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        now = loop.time()
        for limit in list(self._open):  # in the order in which they are due
            if limit.due > now:
                self._timer = loop.call_at(limit.due, self._look, loop)
                return
            del self._open[limit]
            limit.expire()


class _Limit:
    __slots__ = ("_asked_before", "_is_over", "_task", "due")

    def __init__(self, task: "asyncio.Task[object]", due: float) -> None:
        self.due = due
        self._task = task
        self._asked_before = task.cancelling()
        self._is_over = False

    def expire(self) -> None:
        """Cancel the task that handles the request, because its time is over."""
        self._is_over = True
        self._task.cancel()

    def ended_it(self) -> bool:
        """Return whether this time limit alone cancelled the task. If so, remove the cancellation from the task."""
        return self._is_over and self._task.uncancel() <= self._asked_before


class Guard:
    """ASGI middleware that checks every request (host name, size, time limit) before the application handles it.

    Args:
        app: The application, which answers all other requests.
        posts: Path -> handler of JSON documents. The guard calls it without the application.
        service: While it is stopping, requests other than probes get status 503.
        gate: Admits or refuses requests by sender, role and rate.
        hosts: Host names, in lower case, that requests may name, else status 421; None: any.
        max_body_bytes: A request with a longer body is refused with status 413.
        answer_seconds: Real seconds until an answer must have begun, else status 503.
        most_requests: Requests in hand. More get status 503, but for probes.
    """

    def __init__(
        self,
        app: ASGIApp,
        posts: Mapping[str, JsonPost],
        *,
        service: Service,
        gate: Gate,
        metrics: Metrics,
        hosts: frozenset[str] | None,
        max_body_bytes: int,
        answer_seconds: float,
        most_requests: int,
    ) -> None:
        self._app = app
        self._posts = posts
        self._service = service
        self._gate = gate
        self._metrics = metrics
        self._counted: dict[tuple[str, object, int], tuple[Counter, Histogram]] = {}
        self._hosts = hosts
        self._max_body_bytes = max_body_bytes
        self._answer_seconds = answer_seconds
        self._most_requests = most_requests
        self._in_hand = 0
        self._limits = _Limits(answer_seconds)
        self._host_clock = SystemClock()
        self._log = _log.bind()  # the one above asks at every line whether logging has been configured by now
        self._is_served = lru_cache(maxsize=64)(self._is_served_under)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        self._in_hand += 1
        try:
            await self._serve(scope, receive, send)
        finally:
            self._in_hand -= 1

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers: dict[bytes, bytes] = dict(scope["headers"])
        refusal = self._refusal(scope, headers) or await self._gate.refusal(scope, headers)
        if refusal is not None:
            await refusal(scope, receive, send)
            self._count(scope, refusal.status_code, 0.0)
            return
        post = self._posts.get(scope["path"])
        if post is not None:
            scope["endpoint"] = post
            await self._answer_post(post, scope, receive, send)
        else:
            await self._pass_on(scope, receive, send)

    async def _answer_post(self, post: JsonPost, scope: Scope, receive: Receive, send: Send) -> None:
        began_at = self._host_clock.monotonic()
        answer = await self._answered(post, scope, receive)
        if answer is None:
            return
        if isinstance(answer, Response):
            self._count(scope, answer.status_code, self._host_clock.monotonic() - began_at)
            await answer(scope, receive, send)
            return
        self._count(scope, 200, self._host_clock.monotonic() - began_at)
        headers = [(b"content-length", b"%d" % len(answer)), (b"content-type", _JSON)]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": answer})

    async def _answered(self, post: JsonPost, scope: Scope, receive: Receive) -> bytes | Response | None:
        """Return the JSON answer, or another response; None if the client has disconnected."""
        limit = self._limits.begin()
        try:
            if scope["method"] != "POST":
                return PlainTextResponse("Method Not Allowed", 405, {"allow": "POST"})
            body = await self._whole_body(receive)
            return None if body is None else await post(body)
        except InvalidInput as error:
            return refusal_of(error)
        except HTTPException as error:
            return PlainTextResponse(error.detail, error.status_code, error.headers)
        except asyncio.CancelledError:
            if not limit.ended_it():
                raise
            return self._too_late(scope)
        except Exception as error:  # noqa: BLE001 - a bug of one handler: told with its trace, and the server goes on
            self._log.error(
                "http_post_failed", path=scope["path"], error=f"{type(error).__name__}: {error}", exc_info=error
            )
            return PlainTextResponse("Internal Server Error", 500)
        finally:
            self._limits.end(limit)

    async def _whole_body(self, receive: Receive) -> bytes | None:
        """Return the body of a request; None if the client disconnects before its end."""
        parts: list[bytes] = []
        length = 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            parts.append(message.get("body", b""))
            length += len(parts[-1])
            if length > self._max_body_bytes:
                raise HTTPException(413, self._too_long_sentence())
            if not message.get("more_body", False):
                return b"".join(parts)

    async def _pass_on(self, scope: Scope, receive: Receive, send: Send) -> None:
        began_at = self._host_clock.monotonic()
        status = 0

        async def counted_receive() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > self._max_body_bytes:
                raise HTTPException(413, self._too_long_sentence())
            return message

        async def noted_send(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                self._limits.end(limit)  # the answer has begun: a stream may go on
                self._count(scope, status, self._host_clock.monotonic() - began_at)
                await self._gate.answered(scope, status)
            await send(message)

        received = 0
        limit = self._limits.begin()
        try:
            await self._app(scope, counted_receive, noted_send)
        except asyncio.CancelledError:
            if not limit.ended_it():
                raise
            if status != 0:
                raise TimeoutError("the answer began as its time ended") from None
            await self._too_late(scope)(scope, receive, noted_send)
        finally:
            self._limits.end(limit)

    def _too_late(self, scope: Scope) -> Response:
        self._log.warning("http_request_timed_out", method=scope["method"], path=scope["path"])
        return PlainTextResponse(f"no answer within {self._answer_seconds:g} s\n", 503, {"connection": "close"})

    def _refusal(self, scope: Scope, headers: Mapping[bytes, bytes]) -> Response | None:
        if sum(name == b"host" for name, _ in scope["headers"]) > 1:
            return PlainTextResponse("a request has one Host header\n", 400)
        if not self._is_served(headers.get(b"host", b"")):
            return PlainTextResponse("this host name is not served here (http_allowed_hosts)\n", 421)
        if self._service.stopping and scope["path"] not in PROBES:
            return PlainTextResponse("stopping\n", 503, {"retry-after": "1", "connection": "close"})
        if self._in_hand > self._most_requests and scope["path"] not in PROBES:
            return PlainTextResponse("too many requests in hand\n", 503, {"retry-after": "1", "connection": "close"})
        length = headers.get(b"content-length", b"0")
        if not length.isdigit() or int(length) > self._max_body_bytes:
            # Not `connection: close`: it would reset the connection under a client that is still sending, before it
            # reads why.
            return PlainTextResponse(self._too_long_sentence(), 413)
        return None

    def _is_served_under(self, host: bytes) -> bool:
        return self._hosts is None or _host_name(host.decode("latin-1")) in self._hosts

    def _too_long_sentence(self) -> str:
        return f"the body must not be longer than {self._max_body_bytes} bytes\n"

    def _count(self, scope: Scope, status: int, seconds: float) -> None:
        method, endpoint = scope["method"], scope.get("endpoint")
        kept = self._counted.get((method, endpoint, status))
        if kept is None:
            # Never the path: it is the client's text, and each would be a new series.
            handler = _name_of(endpoint) if endpoint is not None else "none"
            metrics = self._metrics
            kept = metrics.http_requests.labels(method, handler, str(status)), metrics.http_seconds.labels(handler)
            self._counted[method, endpoint, status] = kept
        requests, time = kept
        requests.inc()
        time.observe(seconds)
        self._log.debug("http_request", method=method, path=scope["path"], status=status, seconds=round(seconds, 6))


def refusal_of(error: InvalidInput) -> Response:
    """Return the HTTP answer 400 to an invalid request, with field, rule and value of the error."""
    body = {"error": error.sentence(), "field": error.path, "rule": error.rule, "value": str(error.value)[:200]}
    return JSONResponse(body, 400)


def _name_of(endpoint: object) -> str:
    return str(getattr(endpoint, "__name__", type(endpoint).__name__)).strip("_")


def _host_name(header: str) -> str:
    if header.startswith("["):
        return header[1:].partition("]")[0].lower()
    return header.partition(":")[0].lower()
