"""Unary gRPC calls over a unix socket of this machine: the kubelet's pod resources, the container runtime.

Calls block and are made in threads. Each opens its own channel, because sockets are replaced when their owner restarts
and calls are rare. grpc is imported with the first call, because it takes 11 MiB.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

LARGEST_MESSAGE: Final = 16 * 1024 * 1024
"""Largest message in bytes; the kubelet has the same limit."""


class SocketAway(Exception):
    """Raised if a gRPC call failed. The message has socket, call and reason."""

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code  # gRPC status in capitals, such as UNAVAILABLE or NOT_FOUND


def call(socket: Path, method: str, request: Any, answer: Any, *, seconds: float) -> Any:
    """Make one unary gRPC call over a unix socket, and return the decoded answer.

    `method` is `/<package>.<Service>/<Method>`.

    Raises:
        SocketAway: The call failed, or its answer is malformed.
    """
    import grpc

    options: Mapping[str, int] = {"grpc.max_receive_message_length": LARGEST_MESSAGE}
    # what $http_proxy says is not about sockets of this machine
    with grpc.insecure_channel(
        f"unix://{socket}", options=[*options.items(), ("grpc.enable_http_proxy", 0)]
    ) as channel:
        unary: Any = channel.unary_unary
        send = unary(method, response_deserializer=answer.FromString)
        try:
            return send(request.SerializeToString(), timeout=seconds)
        except grpc.RpcError as error:
            status: Any = error
            raise SocketAway(f"{socket} {method}: {status.details()}", status.code().name) from error
