"""Unary gRPC calls over a unix socket of this machine: the kubelet's pod resources, the container runtime.

Blocking, made in threads. A call opens its own channel: these sockets are replaced when their owner restarts, calls
are rare, and nothing stays open between them. grpc is imported with the first call, because it takes 11 MiB.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

LARGEST_MESSAGE: Final = 16 * 1024 * 1024
"""The kubelet's own limit for these interfaces."""


class SocketAway(Exception):
    """The call has no answer. The message says which socket, which call and why.

    Attributes:
        code: GRPC status in capitals, such as UNAVAILABLE, NOT_FOUND.
    """

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code


def call(socket: Path, method: str, request: Any, answer: Any, *, seconds: float) -> Any:
    """Return one call.

    Args:
        socket: Path of the socket.
        method: `/<package>.<Service>/<Method>`.
        request: A message of `protobuf.message_classes`, and the class of its answer.
        answer: A message of `protobuf.message_classes`, and the class of its answer.
        seconds: How long it may take.

    Raises:
        SocketAway: Everything that can go wrong, a broken answer among it.
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
