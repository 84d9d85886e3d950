"""ttrpc over one multiplexed connection, as NRI uses it: a stream of frames for each of two services.

No library exists for it in Python. A frame has 8 bytes of header: id of the service's connection and length of the
payload. The payloads of one id form a stream of ttrpc messages, with 10 bytes of header each: length, id of the call,
type and flags. All numbers are big-endian.

Source: runtime spec, 7.2.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final, NamedTuple

from koordcore.runtime_api.hooks import Fields, message_classes

PLUGIN_CONNECTION: Final = 1
"""Connection on which the runtime calls the plugin."""
RUNTIME_CONNECTION: Final = 2
"""Connection on which the plugin calls the runtime."""
LARGEST_MESSAGE: Final = 4 * 1024 * 1024
REQUEST: Final = 1
RESPONSE: Final = 2
OK: Final = 0
UNKNOWN: Final = 2
INVALID_ARGUMENT: Final = 3
UNIMPLEMENTED: Final = 12
"""Statuses have the numbers of gRPC."""

_FRAME: Final = struct.Struct(">II")
_HEADER: Final = struct.Struct(">IIBB")
_LARGEST_FRAME: Final = LARGEST_MESSAGE + _HEADER.size
_MESSAGES: Final[dict[str, Fields]] = {
    "Request": {
        "service": (1, "string"),
        "method": (2, "string"),
        "payload": (3, "bytes"),
        "timeout_nano": (4, "int64"),
    },
    "Status": {"code": (1, "int32"), "message": (2, "string")},
    "Response": {"status": (1, "Status"), "payload": (2, "bytes")},
}


class ProtocolBroken(Exception):
    """Raised if the other side sends a message that the protocol forbids. The connection cannot be used any more."""


class TtrpcMessage(NamedTuple):
    connection: int
    stream: int
    kind: int  # REQUEST, RESPONSE, or another type, which NRI does not use
    body: bytes


@dataclass(slots=True)
class MessageReader:
    """Cuts the bytes of a multiplexed connection into ttrpc messages."""

    _frames: bytearray = field(default_factory=bytearray)
    _streams: dict[int, bytearray] = field(default_factory=dict[int, bytearray])

    def feed(self, data: bytes) -> Iterator[TtrpcMessage]:
        """Take more bytes, and return the messages that are complete now.

        Raises:
            ProtocolBroken: A frame or a message is too long.
        """
        self._frames += data
        while len(self._frames) >= _FRAME.size:
            connection, length = _FRAME.unpack_from(self._frames)
            if length > _LARGEST_FRAME:
                raise ProtocolBroken(f"a frame has {length} bytes, more than {_LARGEST_FRAME}")
            end = _FRAME.size + length
            if len(self._frames) < end:
                return
            stream = self._streams.setdefault(connection, bytearray())
            stream += self._frames[_FRAME.size : end]
            del self._frames[:end]
            yield from _cut(connection, stream)


def _cut(connection: int, stream: bytearray) -> Iterator[TtrpcMessage]:
    while len(stream) >= _HEADER.size:
        length, call, kind, _flags = _HEADER.unpack_from(stream)
        if length > LARGEST_MESSAGE:
            raise ProtocolBroken(f"a message has {length} bytes, more than {LARGEST_MESSAGE}")
        end = _HEADER.size + length
        if len(stream) < end:
            return
        body = bytes(stream[_HEADER.size : end])
        del stream[:end]
        yield TtrpcMessage(connection, call, kind, body)


def encode_message(message: TtrpcMessage) -> bytes:
    length = _HEADER.size + len(message.body)
    header = _HEADER.pack(len(message.body), message.stream, message.kind, 0)
    return _FRAME.pack(message.connection, length) + header + message.body


@cache
def _classes() -> dict[str, Any]:
    return dict(message_classes("ttrpc", _MESSAGES))


def encode_request(service: str, method: str, payload: bytes) -> bytes:
    body: bytes = _classes()["Request"](service=service, method=method, payload=payload).SerializeToString()
    return body


class TtrpcRequest(NamedTuple):
    service: str
    method: str
    payload: bytes


def decode_request(body: bytes) -> TtrpcRequest:
    """Raises ProtocolBroken: The body is not a request."""
    found = _decode("Request", body)
    return TtrpcRequest(found.service, found.method, found.payload)


def encode_response(payload: bytes, *, code: int = OK, message: str = "") -> bytes:
    response = _classes()["Response"](payload=payload)
    if code != OK:
        # The name of a file may have bytes that are not UTF-8.
        response.status.code, response.status.message = code, message.encode(errors="backslashreplace").decode()
    body: bytes = response.SerializeToString()
    return body


def response_error(body: bytes) -> str:
    """Empty for success.

    Raises:
        ProtocolBroken: The body is not a response.
    """
    status = _decode("Response", body).status
    return "" if status.code == OK else f"status {status.code}: {status.message}"


def _decode(kind: str, body: bytes) -> Any:
    from google.protobuf.message import DecodeError

    try:
        return _classes()[kind].FromString(body)
    except DecodeError as error:
        raise ProtocolBroken(f"a body is not a ttrpc {kind.lower()}") from error
