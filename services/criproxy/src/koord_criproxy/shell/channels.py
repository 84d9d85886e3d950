"""gRPC channels over unix sockets, with the limits of CRI."""

from typing import Any, Final
from urllib.parse import quote

import grpc.aio
from koordcore.runtime_api.cri import LARGEST_MESSAGE

OPTIONS: Final[list[tuple[str, Any]]] = [
    ("grpc.max_receive_message_length", LARGEST_MESSAGE),
    ("grpc.max_send_message_length", LARGEST_MESSAGE),
    ("grpc.enable_http_proxy", 0),  # $http_proxy is not about sockets of this machine
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
]


def address(socket: str) -> str:
    """Return gRPC's address of a unix socket. gRPC decodes the path as that of a URL, so `%` and others are encoded."""
    return f"unix:{quote(socket, errors='surrogateescape')}"


def open_channel(socket: str) -> grpc.aio.Channel:
    """Return a channel to a unix socket. It reconnects by itself; a call fails at once while the socket is gone."""
    return grpc.aio.insecure_channel(address(socket), options=[*OPTIONS, ("grpc.use_local_subchannel_pool", 1)])
