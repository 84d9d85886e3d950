"""The server of the proxy on its unix socket: each client gets a connection of its own to the runtime.

Source: runtime spec, 5.1, 5.2.
"""

import asyncio
import contextlib
from pathlib import Path
from typing import Final

from koordcore.service.lifecycle import notify_systemd

from koord_criproxy.shell.connection import Backend, CallObserver, Connection
from koord_criproxy.shell.interceptor import Interceptor
from koord_criproxy.shell.sockets import private_socket

DRAIN_SECONDS: Final = 10.0


class ProxyServer:
    """Serves CRI on a unix socket in front of a container runtime.

    Args:
        socket: Socket to serve.
        runtime: Socket of the container runtime.
        images: Socket for the ImageService; often the same one.
        interceptor: Carries out the intercepted calls.
        observe: Called for every call, for the metrics.
    """

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
