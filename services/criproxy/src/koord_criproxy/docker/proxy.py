"""The HTTP proxy of Docker mode: every request goes to dockerd on a connection of its own.

A forwarded request and its answer pass in both directions at the same time, chunk by chunk. If dockerd takes the
connection over (attach, exec), the proxy copies bytes in both directions from then on, until both sides have ended.

Source: runtime spec, 6.
"""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final
from urllib.parse import parse_qs

import h11
from koordcore.ending import end_tasks
from koordcore.service.telemetry.logging import logger

from koord_criproxy.cycle import Answer
from koord_criproxy.docker.api import Handler, Route, route
from koord_criproxy.docker.calls import DockerInterceptor, DockerRequest
from koord_criproxy.docker.peer import BROKEN, LARGEST_HEAD, Peer
from koord_criproxy.hooks.asking import HookRejected
from koord_criproxy.sockets import private_socket

DRAIN_SECONDS: Final = 10.0
LARGEST_BODY: Final = 16 * 1024 * 1024
"""Largest body in bytes of an intercepted request, and of its answer."""
RAW_STREAM: Final = b"application/vnd.docker."
"""Beginning of the content type with which dockerd takes over the connection of a client that asked no upgrade."""
SWITCHING: Final = 101
NOT_MODIFIED: Final = 304
"""Status of a start or a stop that found nothing to do."""
_FRAMING: Final = (b"content-length", b"transfer-encoding", b"expect")
_log: Final = logger("criproxy.docker")

RequestObserver = Callable[[str, str, float], None]
"""Takes the kind of request, the status of the answer, and the seconds that the proxy itself added."""


class DockerProxy:
    """Serves the Docker API on a unix socket in front of dockerd."""

    def __init__(self, socket: Path, docker: Path, *, interceptor: DockerInterceptor, observe: RequestObserver) -> None:
        self._socket = socket
        self._docker = docker
        self._interceptor = interceptor
        self._observe = observe
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._in_progress: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Listen on the socket, which only its owner and group may use. A stale socket is removed.

        Raises:
            OSError: The socket or its folder cannot be made.
        """
        with private_socket(self._socket):
            self._server = await asyncio.start_unix_server(self._accept, self._socket, limit=LARGEST_HEAD)

    async def stop(self) -> None:
        """Refuse new requests, wait up to 10 s until running requests have ended, and remove the socket."""
        if self._server is None:
            return
        self._server.close()
        if self._in_progress:
            await asyncio.wait(self._in_progress, timeout=DRAIN_SECONDS)
        await end_tasks(*self._tasks)
        self._socket.unlink(missing_ok=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        client = Peer(reader, writer, h11.SERVER)
        try:
            while await self._serve_next(client, task):
                client.state.start_next_cycle()
        except (*BROKEN, h11.ProtocolError) as error:
            _log.debug("connection_ended", error=str(error))
        except asyncio.CancelledError:
            pass  # the proxy stops; this is the outermost frame of the connection's task
        finally:
            self._tasks.discard(task)
            await client.close()

    async def _serve_next(self, client: Peer, task: asyncio.Task[None]) -> bool:
        """Return whether another request may follow."""
        try:
            request = await client.next_event()
        except h11.RemoteProtocolError as error:
            await client.refuse(400, str(error))
            return False
        if not isinstance(request, h11.Request):
            return False
        self._in_progress.add(task)
        try:
            await self._serve(client, _as_sent(request))
        finally:
            self._in_progress.discard(task)
        return client.can_go_on and self._server is not None and self._server.is_serving()

    async def _serve(self, client: Peer, request: h11.Request) -> None:
        target = request.target.decode()
        found = route(target, request.method.decode())
        began, inside, status = time.monotonic(), 0.0, 0
        try:
            reader, writer = await asyncio.open_unix_connection(self._docker)
        except OSError as error:
            await client.refuse(503, f"dockerd is not reached: {error}")
            self._observe(_kind(found), "503", 0.0)
            return
        docker = Peer(reader, writer, h11.CLIENT)
        try:
            if found.handler is Handler.PASS_THROUGH:
                status = await _pass_through(client, docker, request)
                inside = time.monotonic() - began
            else:
                status, inside = await self._intercept(client, docker, request, found)
        except (*BROKEN, h11.ProtocolError) as error:
            if client.has_left:
                raise
            status = 400 if client.is_malformed else 502
            _log.warning("request_broken", request=found.handler.value, status=status, error=str(error))
            await client.refuse(status, str(error) if client.is_malformed else f"dockerd: {error}")
        except Exception as error:  # noqa: BLE001 - a client that gets no answer does not know what went wrong
            status = 500
            _log.error("request_failed", request=found.handler.value, error=repr(error), exc_info=True)
            await client.refuse(status, f"koord-criproxy: {error!r}")
        finally:
            self._observe(_kind(found), str(status), max(0.0, time.monotonic() - began - inside))
            await docker.close()

    async def _intercept(self, client: Peer, docker: Peer, request: h11.Request, found: Route) -> tuple[int, float]:
        """Return the status of the answer, and the seconds inside dockerd."""
        body = await client.read_body(LARGEST_BODY)
        if body is None:
            await client.refuse(413, f"the body has more than {LARGEST_BODY} bytes")
            return 413, 0.0
        response: h11.Response | None = None
        inside = 0.0

        async def forward(changed: bytes) -> Answer:
            nonlocal response, inside
            began = time.monotonic()
            headers = [(key, value) for key, value in request.headers.raw_items() if key.lower() not in _FRAMING]
            if changed or request.method != b"DELETE":
                headers.append((b"Content-Length", str(len(changed)).encode()))
            await docker.send(h11.Request(method=request.method, target=request.target, headers=headers))
            await docker.send(h11.Data(data=changed), h11.EndOfMessage())
            response = await docker.read_response()
            answer = await docker.read_body(LARGEST_BODY)
            inside = time.monotonic() - began
            if answer is None:
                raise h11.RemoteProtocolError(f"the answer has more than {LARGEST_BODY} bytes")
            is_ok = response.status_code < 300 or response.status_code == NOT_MODIFIED
            return Answer(body=answer, is_ok=is_ok)

        query = parse_qs(request.target.decode().partition("?")[2])
        intercepted = DockerRequest(
            handler=found.handler,
            container_id=found.container_id or "",
            name=query.get("name", [""])[0],
            body=body,
        )
        try:
            answer = await self._interceptor.call(intercepted, forward)
        except HookRejected as error:
            _log.warning("request_rejected", request=found.handler.value, error=str(error))
            await client.refuse(500, str(error), keep=True)
            return 500, inside
        assert response is not None, "dockerd has answered"
        headers = [(key, value) for key, value in response.headers.raw_items() if key.lower() not in _FRAMING]
        status = response.status_code
        has_body = status not in (204, NOT_MODIFIED)
        if has_body:
            headers.append((b"Content-Length", str(len(answer.body)).encode()))
        await client.send(h11.Response(status_code=status, reason=response.reason, headers=headers))
        await client.send(h11.Data(data=answer.body if has_body else b""), h11.EndOfMessage())
        return status, inside


async def _pass_through(client: Peer, docker: Peer, request: h11.Request) -> int:
    """Return the status of the answer."""
    await docker.send(request)
    sending = asyncio.create_task(_send_rest(client, docker))
    try:
        response = await _answer(client, docker)
    finally:
        await end_tasks(sending)
    if response.status_code == SWITCHING or _takes_over(response):
        await client.join(docker)
    return response.status_code


async def _send_rest(client: Peer, docker: Peer) -> None:
    """Send the body of a request to dockerd, then wait for the client to hang up, which ends the request."""
    try:
        while True:
            event = await client.next_event()
            if isinstance(event, h11.Data | h11.EndOfMessage):
                await docker.send(event)
            if isinstance(event, h11.EndOfMessage):
                break
            if not isinstance(event, h11.Data):
                return
        if await client.hangs_up():
            docker.abandon()
    except (*BROKEN, h11.ProtocolError):
        docker.abandon()


async def _answer(client: Peer, docker: Peer) -> h11.Response | h11.InformationalResponse:
    """Pass on the answer of dockerd, and return its head.

    If dockerd takes the connection over, only the head is passed on; the stream after it is left to the caller.
    """
    while True:
        event = await docker.next_event()
        match event:
            case h11.InformationalResponse():
                await client.send(event)
                if event.status_code == SWITCHING:
                    return event
            case h11.Response():
                break
            case _:
                raise h11.RemoteProtocolError("dockerd ended without an answer")
    if _takes_over(event):
        await client.send_raw_head(event)
        return event
    await client.send(event)
    while True:
        part = await docker.next_event()
        match part:
            case h11.Data():
                await client.send(part)
            case h11.EndOfMessage():
                await client.send(part)
                return event
            case _:
                raise h11.RemoteProtocolError("dockerd ended within its answer")


def _as_sent(request: h11.Request) -> h11.Request:
    """A request of HTTP 1.0 becomes one of HTTP 1.1."""
    if request.http_version == b"1.1":
        return request
    headers = [*request.headers.raw_items()]
    if not any(key.lower() == b"host" for key, _ in headers):
        headers.append((b"Host", b"docker"))
    return h11.Request(method=request.method, target=request.target, headers=headers)


def _takes_over(response: h11.Response | h11.InformationalResponse) -> bool:
    """Whether the bytes after the head of an answer are a stream in both directions."""
    headers = dict(response.headers)
    is_framed = b"content-length" in headers or b"transfer-encoding" in headers
    return not is_framed and headers.get(b"content-type", b"").startswith(RAW_STREAM)


def _kind(found: Route) -> str:
    return f"/docker/{found.handler.value}"
