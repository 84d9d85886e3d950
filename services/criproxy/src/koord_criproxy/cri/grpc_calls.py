"""gRPC calls in a tunnel: what the proxy reads and writes of them (message, deadline, status), and their ends.

Source: gRPC over HTTP/2 (grpc.io), "Length-Prefixed-Message", "Timeout", "Status-Message".
"""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import quote_from_bytes

from hpack import Encoder, NeverIndexedHeaderTuple

LARGEST_MESSAGE: Final = 16 * 1024 * 1024
"""Largest message of CRI in bytes."""
PREFIX: Final = 5
"""Bytes before a message: whether it is compressed, and its length."""
OK: Final = "OK"
STATUS_NAMES: Final = (
    OK, "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS",
    "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED",
    "INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED",
)  # fmt: skip
UNKNOWN: Final = STATUS_NAMES.index("UNKNOWN")
RESOURCE_EXHAUSTED: Final = STATUS_NAMES.index("RESOURCE_EXHAUSTED")
_UNITS: Final = {b"H": 3600.0, b"M": 60.0, b"S": 1.0, b"m": 1e-3, b"u": 1e-6, b"n": 1e-9}
_WINDOW_BITS: Final = {b"gzip": 31, b"deflate": 15}
_PLAIN: Final = bytes(each for each in range(0x20, 0x7F) if each != ord("%"))
"""Characters of a status message that are sent as they are."""
_LARGEST_DETAILS: Final = 4096

Headers = Sequence[tuple[bytes, bytes]]


def message_in(body: bytes, encoding: bytes) -> bytes | None:
    """The only message in the body of a call, decompressed. `encoding`: value of `grpc-encoding`; b"" without it.

    None if the body is not exactly one readable message, or if a compressed one has more than 16 MiB.
    """
    if len(body) < PREFIX or int.from_bytes(body[1:PREFIX], "big") != len(body) - PREFIX:
        return None
    message = body[PREFIX:]
    if not body[0]:
        return message
    bits = _WINDOW_BITS.get(encoding)
    if body[0] != 1 or bits is None:
        return None
    decompressor = zlib.decompressobj(bits)
    try:
        found = decompressor.decompress(message, LARGEST_MESSAGE + 1)
    except zlib.error:
        return None
    return found if decompressor.eof and len(found) <= LARGEST_MESSAGE else None


def body_of(message: bytes) -> bytes:
    """The message is not compressed."""
    return bytes(1) + len(message).to_bytes(4, "big") + message


def seconds_of(timeout: bytes) -> float | None:
    """The value of `grpc-timeout`: up to eight digits and a unit (b"20S"). None if it is absent or malformed."""
    digits, unit = timeout[:-1], _UNITS.get(timeout[-1:])
    return int(digits) * unit if unit is not None and digits.isdigit() else None


def status_of(headers: Headers) -> str:
    """Name of the status in the trailers of a call, such as `NOT_FOUND`; `UNKNOWN` if they have none."""
    found = dict(headers).get(b"grpc-status", b"")
    code = int(found) if found.isdigit() else UNKNOWN
    return STATUS_NAMES[code] if code < len(STATUS_NAMES) else STATUS_NAMES[UNKNOWN]


def refusal(status: int, details: str) -> bytes:
    """Encoded headers of an answer that consists of a status only. 4 KiB of `details` are sent.

    They do not use the HPACK table of headers, so they may be sent between headers of the runtime.
    """
    text = quote_from_bytes(details.encode(errors="replace")[:_LARGEST_DETAILS], safe=_PLAIN)
    headers = {":status": "200", "content-type": "application/grpc", "grpc-status": str(status), "grpc-message": text}
    encoder = Encoder()
    return encoder.encode([NeverIndexedHeaderTuple(name, value) for name, value in headers.items()], huffman=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """The request of an intercepted call is complete, and waits for `Tunnel.go_on` or `Tunnel.refuse`."""

    stream: int  # Number of the call on this connection
    path: str  # gRPC path
    name: str  # Name of the call, such as `RunPodSandbox`
    message: bytes  # The request
    seconds: float | None  # Time until the deadline that the client has set; None without deadline


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A call has ended."""

    stream: int  # Number of the call on this connection
    path: str  # gRPC path
    status: str  # Name of its status, such as `NOT_FOUND`
    answer: bytes = b""  # Message of the runtime to an intercepted call; b"" for other calls, and if the call failed


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
