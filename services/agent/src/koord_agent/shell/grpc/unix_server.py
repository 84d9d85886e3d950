"""A gRPC server on a unix socket of this machine, with threads of its own."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import grpc

from koord_agent.shell.grpc.unix_grpc import LARGEST_MESSAGE

THREADS: Final = 4
SOCKET_MODE: Final = 0o660
GRACE_SECONDS: Final = 2.0
_OPTIONS: Final = (
    ("grpc.max_receive_message_length", LARGEST_MESSAGE),
    ("grpc.max_send_message_length", LARGEST_MESSAGE),
)


class UnixServer:
    """Serves gRPC calls on a unix socket.

    Args:
        socket: Path of the socket.
        handler: Finds the handler of a call.
        name: Beginning of the names of its threads.
        extend: Adds further services to the gRPC server before it starts; None for none.
    """

    def __init__(
        self,
        socket: Path,
        handler: grpc.GenericRpcHandler,
        *,
        name: str,
        extend: Callable[[Any], None] | None = None,
    ) -> None:
        self._socket = socket
        self._handler = handler
        self._name = name
        self._extend = extend
        self._server: Any = None

    @property
    def is_serving(self) -> bool:
        """Whether the socket accepts calls."""
        return self._server is not None

    def start(self) -> None:
        """Remove a socket that an earlier process left, listen, and serve.

        Only the owner and the group of the process may use the socket.

        Raises:
            OSError: The socket cannot be created.
        """
        self._socket.unlink(missing_ok=True)
        make: Any = grpc.server
        server = make(ThreadPoolExecutor(THREADS, thread_name_prefix=self._name), options=_OPTIONS)
        server.add_generic_rpc_handlers((self._handler,))
        if self._extend is not None:
            self._extend(server)
        before = os.umask(0o777 & ~SOCKET_MODE)
        try:
            server.add_insecure_port(f"unix://{self._socket}")
        except RuntimeError as error:
            raise OSError(f"{self._socket}: {error}") from error
        finally:
            os.umask(before)
        server.start()
        self._server = server

    def stop(self) -> None:
        """Refuse new calls, and wait for a short time until the running calls have ended."""
        server, self._server = self._server, None
        if server is not None:
            server.stop(GRACE_SECONDS).wait()
