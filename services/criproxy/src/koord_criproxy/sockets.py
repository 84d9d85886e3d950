"""The unix sockets of the proxy, and gRPC channels over unix sockets.

The socket that the proxy serves is for its owner and group only. It and that of the runtime must answer.

Source: runtime spec, 5.1, 5.8.
"""

import contextlib
import os
import socket
from collections.abc import Generator
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import grpc.aio
from koordcore.runtime_api.cri import LARGEST_MESSAGE

SOCKET_MODE: Final = 0o660


@contextlib.contextmanager
def private_socket(path: Path) -> Generator[None]:
    """In the body, a server creates a unix socket that only its owner and group may use.

    Before the body, create the folder and remove a stale socket. After it, set the permissions of the new socket.

    Raises:
        OSError: The folder cannot be made, or the stale socket cannot be removed.
    """
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
    path.unlink(missing_ok=True)
    umask = os.umask(0o777 & ~SOCKET_MODE)
    try:
        yield
    finally:
        os.umask(umask)
    path.chmod(SOCKET_MODE)


def refusal(path: Path) -> str | None:
    """Why a unix socket does not accept connections now; None if it does. It never waits.

    A server that has too many new connections to accept counts as one that accepts them.
    """
    with socket.socket(socket.AF_UNIX) as client:
        client.setblocking(False)
        try:
            client.connect(str(path))
        except BlockingIOError:
            return None
        except OSError as error:
            return f"{path}: {error.strerror or error}"
    return None


OPTIONS: Final[list[tuple[str, Any]]] = [
    ("grpc.max_receive_message_length", LARGEST_MESSAGE),
    ("grpc.max_send_message_length", LARGEST_MESSAGE),
    ("grpc.enable_http_proxy", 0),  # $http_proxy is not about sockets of this machine
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
]


def address(socket: str) -> str:
    """gRPC decodes the path as that of a URL, so `%` and others are encoded."""
    return f"unix:{quote(socket, errors='surrogateescape')}"


def open_channel(socket: str) -> grpc.aio.Channel:
    """It reconnects by itself; a call fails at once while the socket is gone."""
    return grpc.aio.insecure_channel(address(socket), options=[*OPTIONS, ("grpc.use_local_subchannel_pool", 1)])
