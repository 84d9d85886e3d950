"""Calls in progress in a tunnel, and what happens to them."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """The request of an intercepted call is complete, and waits for `Tunnel.go_on` or `Tunnel.refuse`.

    Attributes:
        stream: Number of the call on this connection.
        path: gRPC path.
        name: Name of the call, such as `RunPodSandbox`.
        message: The request.
        seconds: Time until the deadline that the client has set; None without deadline.
    """

    stream: int
    path: str
    name: str
    message: bytes
    seconds: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A call has ended.

    Attributes:
        stream: Number of the call on this connection.
        path: gRPC path.
        status: Name of its status, such as `NOT_FOUND`.
        answer: Message of the runtime to an intercepted call; b"" for other calls, and if the call failed.
    """

    stream: int
    path: str
    status: str
    answer: bytes = b""


Event = Held | Ended


@dataclass(slots=True)
class Call:
    """A call in progress.

    Attributes:
        name: Name of the call if it is intercepted; None if its frames pass.
        encoding, answer_encoding: How messages of the client and of the runtime are compressed.
        request: Body of the request as far as it has come, if it is held.
        answer: Body of the answer as far as it has come, of an intercepted call.
        window: Bytes of the request that the runtime still takes.
        outgoing: Bytes of the request that still have to be sent.
    """

    path: str
    name: str | None
    encoding: bytes
    seconds: float | None
    window: int
    answer_encoding: bytes = b""
    request: bytearray = field(default_factory=bytearray)
    answer: bytearray = field(default_factory=bytearray)
    outgoing: memoryview = field(default_factory=lambda: memoryview(b""))
