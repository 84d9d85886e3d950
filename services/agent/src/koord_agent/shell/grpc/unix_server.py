"""A gRPC server on a unix socket of this machine, with threads of its own."""

import asyncio
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import grpc
from koordcore.service.telemetry.logging import Logger

from koord_agent.shell.grpc.unix_grpc import LARGEST_MESSAGE

THREADS: Final = 4
SOCKET_MODE: Final = 0o660
GRACE_SECONDS: Final = 2.0
LOOK_SECONDS: Final = 10.0
"""Interval of looking whether the socket is still there."""


class UnixServer:
    """Serves gRPC calls on a unix socket.

    Args:
        extend: Adds further services to the gRPC server before it starts; None for none.
        mode: Permissions of the socket. By default, the owner and the group of the process may use it.
        largest_request: Size in bytes above which a request is refused.
    """

    def __init__(
        self,
        socket: Path,
        handler: grpc.GenericRpcHandler,
        *,
        name: str,
        extend: Callable[[Any], None] | None = None,
        mode: int = SOCKET_MODE,
        largest_request: int = LARGEST_MESSAGE,
    ) -> None:
        self._socket = socket
        self._handler = handler
        self._name = name
        self._extend = extend
        self._mode = mode
        self._largest_request = largest_request
        self._server: Any = None

    @property
    def is_serving(self) -> bool:
        """Whether the socket accepts calls. It does not if somebody has removed it."""
        return self._server is not None and self._socket.is_socket()

    def start(self) -> None:
        """Create the folder of the socket, remove a socket that an earlier process left, listen, and serve.

        Raises:
            OSError: The socket cannot be created.
            RuntimeError: The machine has no room for the thread of the server.
        """
        # A server that is half started needs another thread to stop. So a thread is tried before.
        threading.Thread(target=lambda: None, name=self._name).start()
        self._socket.parent.mkdir(parents=True, exist_ok=True)
        self._socket.unlink(missing_ok=True)
        make: Any = grpc.server
        options = [
            ("grpc.max_receive_message_length", self._largest_request),
            ("grpc.max_send_message_length", LARGEST_MESSAGE),
        ]
        server = make(ThreadPoolExecutor(THREADS, thread_name_prefix=self._name), options=options)
        server.add_generic_rpc_handlers((self._handler,))
        if self._extend is not None:
            self._extend(server)
        before = os.umask(0o777 & ~self._mode)
        try:
            server.add_insecure_port(f"unix://{self._socket}")
        except RuntimeError as error:
            raise OSError(f"{self._socket}: {error}") from error
        finally:
            os.umask(before)
        try:
            server.start()
        except RuntimeError:
            server.stop(0)  # else the library hangs when it drops a server that is half started
            raise
        self._server = server

    async def keep_serving(self, logger: Logger) -> None:
        """Serve until cancelled: try again if the socket cannot be created, and create it again if it is removed.

        The gRPC library removes the socket of a server that stops, also if another process has replaced it meanwhile.
        So an agent that ends removes the socket of an agent that was started before that.
        """
        problem = ""
        while True:
            if not self.is_serving:
                try:
                    await asyncio.to_thread(self.stop)
                    self.start()
                    problem = ""
                    logger.info("socket_served", socket=str(self._socket))
                except (OSError, RuntimeError) as error:  # the machine has no room for another thread
                    if str(error) != problem:
                        problem = str(error)
                        logger.warning("socket_not_served", socket=str(self._socket), reason=problem)
            await asyncio.sleep(LOOK_SECONDS)

    def stop(self) -> None:
        """Refuse new calls, and wait for a short time until the running calls have ended."""
        server, self._server = self._server, None
        if server is not None:
            server.stop(GRACE_SECONDS).wait()
