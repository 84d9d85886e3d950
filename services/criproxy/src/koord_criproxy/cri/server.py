"""The server of the proxy on its unix socket: each client gets a connection of its own to the runtime.

All frames pass in the callbacks of the two sockets, without a task. Only an intercepted call has one.

Source: runtime spec, 5.1, 5.2.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, cast

from koordcore.service.lifecycle import notify_systemd
from koordcore.service.telemetry.logging import logger

from koord_criproxy.cri.calls import Interceptor
from koord_criproxy.cri.frames import BrokenProtocol
from koord_criproxy.cri.grpc_calls import OK, STATUS_NAMES, UNKNOWN, Ended, Event, Held
from koord_criproxy.cri.tunnel import Tunnel
from koord_criproxy.cycle import Answer
from koord_criproxy.hooks.asking import REMAINING_SECONDS, HookRejected
from koord_criproxy.sockets import private_socket

_log: Final = logger("criproxy")

_UNAVAILABLE: Final = "UNAVAILABLE"

CallObserver = Callable[[str, str, float], None]
"""Takes the method, the status of the answer, and the seconds for which the proxy held the request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    """What all connections of the proxy share."""

    runtime: Path  # Socket of the container runtime
    images: Path  # Socket for the ImageService; often the same one
    interceptor: Interceptor  # Carries out the intercepted calls
    observe: CallObserver  # Called for every call, for the metrics
    closed: "Callable[[Connection], None]"  # Called once a connection is closed
    # Intercepted calls in progress, and their hooks after the answer.
    tasks: "set[asyncio.Task[None]]" = field(default_factory=set["asyncio.Task[None]"])

    def socket_of(self, path: str) -> Path:
        return self.images if ".ImageService/" in path else self.runtime


class _Socket(asyncio.Protocol):
    """One of the two sockets. While the other one takes no more bytes, no bytes of this one are read."""

    def __init__(self, received: Callable[[bytes], None], lost: Callable[[], None]) -> None:
        self._received = received
        self._lost = lost
        self.transport: asyncio.Transport | None = None
        self.other: _Socket | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost()

    def pause_writing(self) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.resume_reading()


@dataclass(slots=True)
class _InProgress:
    task: "asyncio.Task[None]"  # Asks the hook servers
    # Becomes the answer of the runtime; None before the runtime has the request.
    answer: "asyncio.Future[Answer] | None" = None
    held_seconds: float = field(default=0.0)  # Time for which its request was held


class Connection:
    """A connection of a client, with the one to the runtime that belongs to it. If either ends, both end."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._tunnel = Tunnel(self._serves)
        self._client = _Socket(self._from_client, self.end)
        self._runtime = _Socket(self._from_runtime, self.end)
        self._client.other, self._runtime.other = self._runtime, self._client
        self._socket: Path | None = None
        self._calls: dict[int, _InProgress] = {}
        self._is_ended = False

    def accept(self) -> asyncio.Protocol:
        if self._backend.images == self._backend.runtime:
            self._dial(self._backend.runtime)
        else:
            self._tunnel.greet()
            asyncio.get_running_loop().call_soon(self._flush)
        return self._client

    def leave(self) -> None:
        """End as soon as the calls have ended. The client makes its next calls on another connection."""
        self._tunnel.leave()
        self._flush()

    def _serves(self, path: str) -> bool:
        """The first call decides which runtime the connection has."""
        socket = self._backend.socket_of(path)
        if self._socket is None:
            self._dial(socket)
        return socket == self._socket

    def _dial(self, socket: Path) -> None:
        self._socket = socket
        self._start(self._connect(socket))

    def _start(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = asyncio.get_running_loop().create_task(work)
        self._backend.tasks.add(task)
        task.add_done_callback(self._backend.tasks.discard)
        return task

    async def _connect(self, socket: Path) -> None:
        try:
            await asyncio.get_running_loop().create_unix_connection(lambda: self._runtime, str(socket))
        except OSError as error:
            _log.warning("runtime_away", socket=str(socket), error=str(error))
            self.end()
            return
        if self._is_ended:
            self._close(self._runtime)
        else:
            self._flush()

    def _from_client(self, data: bytes) -> None:
        self._take(self._tunnel.from_client, data)

    def _from_runtime(self, data: bytes) -> None:
        self._take(self._tunnel.from_runtime, data)

    def _take(self, read: Callable[[bytes], list[Event]], data: bytes) -> None:
        """Read bytes of one side, and send what follows from them.

        The answer of an intercepted call is set before its bytes are sent. So its task, which remembers the pod, runs
        before the event loop reads what the client sends next.
        """
        try:
            events = read(data)
        except BrokenProtocol as error:
            _log.warning("broken_protocol", error=str(error))
            self.end()
            return
        for event in events:
            if isinstance(event, Held):
                self._calls[event.stream] = _InProgress(self._start(self._intercept(event)))
            else:
                self._ended(event)
        self._flush()

    def _ended(self, event: Ended) -> None:
        call = self._calls.pop(event.stream, None)
        self._backend.observe(event.path, event.status, 0.0 if call is None else call.held_seconds)
        if call is None:
            return
        if call.answer is None:
            call.task.cancel()
        elif not call.answer.done():
            call.answer.set_result(Answer(body=event.answer, is_ok=event.status == OK))

    async def _intercept(self, held: Held) -> None:
        began = time.monotonic()
        REMAINING_SECONDS.set(held.seconds)
        call = self._calls[held.stream]

        async def runtime(message: bytes) -> Answer:
            call.held_seconds = time.monotonic() - began
            call.answer = asyncio.get_running_loop().create_future()
            self._tunnel.go_on(held.stream, message)
            self._flush()
            return await call.answer

        try:
            await self._backend.interceptor.call(held.name, held.message, runtime)
        except HookRejected as error:
            _log.warning("call_rejected", call=held.name, error=str(error))
            self._refuse(held, str(error), time.monotonic() - began)
        except Exception as error:  # noqa: BLE001 - a call that is not answered would hang until its deadline
            _log.error("call_failed", call=held.name, error=repr(error), exc_info=True)
            self._refuse(held, f"koord-criproxy: {error!r}", time.monotonic() - began)

    def _refuse(self, held: Held, details: str, seconds: float) -> None:
        """No-op if the call has ended."""
        self._tunnel.refuse(held.stream, UNKNOWN, details)
        if self._calls.pop(held.stream, None) is not None:
            self._backend.observe(held.path, STATUS_NAMES[UNKNOWN], seconds)
        self._flush()

    def _flush(self) -> None:
        """Send what the tunnel has for both sides, and end if nothing more will come."""
        if self._client.transport is not None:
            data = self._tunnel.to_client()
            if data:
                self._client.transport.write(data)
        if self._runtime.transport is not None:
            data = self._tunnel.to_runtime()
            if data:
                self._runtime.transport.write(data)
        if self._tunnel.is_used_up:
            self.end()

    def end(self) -> None:
        """Close both sockets. Calls that wait for the runtime fail; calls that wait for a hook are cancelled."""
        if self._is_ended:
            return
        self._is_ended = True
        for call in self._calls.values():
            if call.answer is None:
                call.task.cancel()
            elif not call.answer.done():
                call.answer.set_result(Answer(body=b"", is_ok=False))
        self._calls.clear()
        for path in self._tunnel.paths_in_progress():
            self._backend.observe(path, _UNAVAILABLE, 0.0)
        self._close(self._client)
        self._close(self._runtime)
        self._backend.closed(self)

    @staticmethod
    def _close(socket: _Socket) -> None:
        if socket.transport is not None:
            socket.transport.close()


DRAIN_SECONDS: Final = 10.0


class ProxyServer:
    """Serves CRI on a unix socket. `images`: socket of the runtime for the ImageService, often the same one."""

    def __init__(
        self, socket: Path, *, runtime: Path, images: Path, interceptor: Interceptor, observe: CallObserver
    ) -> None:
        self._socket = socket
        self._backend = Backend(
            runtime=runtime, images=images, interceptor=interceptor, observe=observe, closed=self._forget
        )
        self._server: asyncio.Server | None = None
        self._connections: set[Connection] = set()
        self._all_closed = asyncio.Event()

    async def start(self) -> None:
        """Listen on the socket, which only its owner and group may use. A stale socket is removed.

        Raises:
            OSError: The socket or its folder cannot be made.
        """
        with private_socket(self._socket):
            self._server = await asyncio.get_running_loop().create_unix_server(self._accept, str(self._socket))
        self._tell()

    async def stop(self) -> None:
        """Refuse new calls, wait up to 10 s until running calls have ended, and remove the socket."""
        if self._server is None:
            return
        self._server.close()
        for connection in list(self._connections):
            connection.leave()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(DRAIN_SECONDS):
                while self._connections:
                    self._all_closed.clear()
                    await self._all_closed.wait()
                await asyncio.gather(*self._backend.tasks, return_exceptions=True)
        for connection in list(self._connections):
            connection.end()
        self._socket.unlink(missing_ok=True)

    def _accept(self) -> asyncio.Protocol:
        connection = Connection(self._backend)
        self._connections.add(connection)
        self._tell()
        return connection.accept()

    def _forget(self, connection: Connection) -> None:
        self._connections.discard(connection)
        self._tell()
        if not self._connections:
            self._all_closed.set()

    def _tell(self) -> None:
        """Tell systemd how many clients there are. The installer does not remove a proxy that has some."""
        notify_systemd(f"STATUS={len(self._connections)} connections")
