"""uvicorn as a part of a process: without its own signal handlers, and with limits on connections.

`HttpServer` and `koord nightly` serve with it, so all HTTP servers have the same limits.
"""

import asyncio
import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Generator
from typing import Final

import uvicorn
from starlette.types import ASGIApp

from koordcore.service.web.connections import BACKLOG, Connection, Connections, Limits, accept_forever
from koordcore.service.web.http_protocol import LimitedProtocol
from koordcore.values.override import override

_DATE_SECONDS: Final = 1.0


class WebServer(uvicorn.Server):
    """Serves an ASGI application on one listening socket; `serve` runs until `end` is called.

    Args:
        grace_seconds: Time in which requests in hand must end after `end`.
        tls: None: without TLS.
        refused: Called with a reason for each connection that is closed because of a limit.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        grace_seconds: float,
        tls: ssl.SSLContext | None,
        limits: Limits,
        refused: Callable[[str], None],
    ) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http="httptools",
                ws="none",
                loop="none",
                lifespan="off",
                interface="asgi3",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_keep_alive=int(limits.keep_alive_seconds),
                timeout_graceful_shutdown=max(1, int(grace_seconds)),
            )
        )
        self.began = asyncio.Event()
        self.connections = Connections(limits, refused)
        self._tls = tls
        self._accepting: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ending = asyncio.Event()

    def end(self) -> None:
        """Let `serve` end. Any thread may call it."""
        self.should_exit = True
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._ending.set)

    @override
    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Leave the process's signal handlers unchanged. uvicorn would install its own."""
        yield

    @override
    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to accept connections, then set `began`. uvicorn would accept them itself, without limits."""
        assert sockets, "the server has a listening socket"
        self._loop = asyncio.get_running_loop()
        listener = sockets[0]
        await self.lifespan.startup()
        self.servers = []
        listener.listen(BACKLOG)
        accepting = accept_forever(listener, self.connections, self._protocol, self._tls)
        self._accepting = asyncio.create_task(accepting, name="http-accept")
        self.started = True
        self.began.set()

    @override
    async def main_loop(self) -> None:
        """Make the header `Date` once a second, until the end. uvicorn would wake the process ten times a second."""
        while not await self.on_tick(0):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_DATE_SECONDS):
                    await self._ending.wait()

    @override
    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept no more connections, close idle ones without waiting for clients, and finish requests in hand."""
        if self._accepting is not None:
            self._accepting.cancel()
            await asyncio.wait((self._accepting,))
        self.connections.drop_idle()
        await super().shutdown(sockets)

    def _protocol(self, connection: Connection) -> LimitedProtocol:
        return LimitedProtocol(
            self.config,
            self.server_state,
            self.lifespan.state,
            connections=self.connections,
            connection=connection,
        )


def bind_to(host: str, port: int) -> socket.socket:
    """Return a socket at an address, which does not listen yet.

    Raises:
        OSError: The address is in use, or is not one of this machine.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # The protocol is named, since asyncio sends small answers at once (TCP_NODELAY) only on sockets that say TCP.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise OSError(error.errno, f"cannot serve on {host}:{port}: {error.strerror}") from error
    listener.setblocking(False)
    return listener


@contextlib.contextmanager
def served_in_thread(app: ASGIApp, listener: socket.socket, tls: ssl.SSLContext | None) -> Generator[None]:
    """Serve an application inside the block, with an event loop of its own: for commands, which have none."""
    has_begun, servers = threading.Event(), list[WebServer]()

    async def serve() -> None:
        server = WebServer(app, grace_seconds=1.0, tls=tls, limits=Limits(), refused=lambda _: None)
        servers.append(server)
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        await server.began.wait()
        has_begun.set()
        await serving

    thread = threading.Thread(target=lambda: asyncio.run(serve()), name="http", daemon=True)
    thread.start()
    has_begun.wait()
    try:
        yield
    finally:
        servers[0].end()
        thread.join()
