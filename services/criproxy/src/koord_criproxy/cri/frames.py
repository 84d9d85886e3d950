"""Frames of HTTP/2: the bounds of each frame, and the content of the frames that the proxy reads.

Most frames pass unread, so only the nine bytes of their header are looked at. hyperframe reads the others.

Source: RFC 9113, 4 and 6.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from hyperframe.exceptions import HyperframeError
from hyperframe.frame import DataFrame, Frame, GoAwayFrame, HeadersFrame, RstStreamFrame, SettingsFrame
from hyperframe.frame import WindowUpdateFrame as WindowUpdate

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
"""What a client sends first."""
DATA: Final = 0x0
HEADERS: Final = 0x1
RST_STREAM: Final = 0x3
SETTINGS: Final = 0x4
PUSH_PROMISE: Final = 0x5
GOAWAY: Final = 0x7
WINDOW_UPDATE: Final = 0x8
CONTINUATION: Final = 0x9
END_STREAM: Final = 0x1
"""Flag: the sender sends nothing more on this stream. In SETTINGS the same bit means an acknowledgement."""
ACK: Final = 0x1
END_HEADERS: Final = 0x4
CANCEL: Final = 0x8
"""Error code of RST_STREAM: nobody needs the stream any more."""
LARGEST_HEADERS: Final = 16 * 1024 * 1024
"""Largest block of headers in bytes, far above the limits of gRPC's clients and servers."""
_HEADER: Final = 9
_PADDED, _PRIORITY = 0x8, 0x20


class BrokenProtocol(Exception):
    """The bytes are not HTTP/2 between a gRPC client and a server. The connection must end."""


@dataclass(slots=True)
class RawFrame:
    """A frame as it came, or a block of headers: HEADERS with the CONTINUATION frames that belong to it."""

    kind: int  # Type of the frame
    flags: int  # Flags of the frame; for a block of headers, flags of its HEADERS frame
    stream: int  # Number of the stream; 0 for the connection
    raw: bytes  # All bytes, with the header of the frame

    @property
    def length(self) -> int:
        """Bytes of the payload, which count against windows if it is DATA."""
        return len(self.raw) - _HEADER

    @property
    def is_last(self) -> bool:
        """Whether a HEADERS or DATA frame is the last one of its sender on the stream."""
        return bool(self.flags & END_STREAM)

    def payload(self) -> bytes:
        """The payload of a DATA or HEADERS frame, without padding and priority.

        Raises:
            BrokenProtocol: The padding is longer than the frame.
        """
        if not self.flags & (_PADDED | _PRIORITY):
            return self.raw[_HEADER:]
        frame = _parsed(self.raw)
        assert isinstance(frame, DataFrame | HeadersFrame)
        return frame.data


def _parsed(raw: bytes) -> Frame:
    view = memoryview(raw)
    try:
        frame, _ = Frame.parse_frame_header(view[:_HEADER])
        frame.parse_body(view[_HEADER:])
    except HyperframeError as error:
        raise BrokenProtocol(str(error)) from error
    return frame


class FrameReader:
    """Cuts the bytes of one direction of a connection into frames, and joins blocks of headers."""

    def __init__(self) -> None:
        self._rest = b""
        self._block: RawFrame | None = None
        self._fragments = b""

    def feed(self, data: bytes) -> "Iterator[tuple[RawFrame, bytes]]":
        """Yield each frame that is complete now; for a block of headers also the block itself, else b"".

        Raises:
            BrokenProtocol: A block of headers is interrupted or too large, or its padding is wrong.
        """
        data = self._rest + data if self._rest else data
        position, end = 0, len(data)
        while end - position >= _HEADER:
            after = position + _HEADER + int.from_bytes(data[position : position + 3], "big")
            if after > end:
                break
            stream = int.from_bytes(data[position + 5 : position + _HEADER], "big") & 0x7FFF_FFFF
            frame = RawFrame(data[position + 3], data[position + 4], stream, data[position:after])
            position = after
            if self._block is None and frame.kind not in (HEADERS, CONTINUATION):
                yield frame, b""
                continue
            block = self._with_block(frame)
            if block is not None:
                yield block
        self._rest = data[position:]

    def _with_block(self, frame: RawFrame) -> tuple[RawFrame, bytes] | None:
        """Add a frame to the block of headers. Return the block if the frame completes it."""
        block = self._block
        if block is None and frame.kind == HEADERS:
            block, self._fragments = frame, frame.payload()
        elif block is not None and frame.kind == CONTINUATION and frame.stream == block.stream:
            block.raw += frame.raw
            self._fragments += frame.raw[_HEADER:]
        else:
            raise BrokenProtocol(f"frame of type {frame.kind} where a block of headers goes on")
        if len(self._fragments) > LARGEST_HEADERS:
            raise BrokenProtocol(f"block of headers of more than {LARGEST_HEADERS} bytes")
        is_whole = frame.flags & END_HEADERS
        self._block = None if is_whole else block
        return (block, self._fragments) if is_whole else None


def increment_of(frame: RawFrame) -> int:
    """Bytes by which a WINDOW_UPDATE enlarges a window. It may be malformed (BrokenProtocol)."""
    parsed = _parsed(frame.raw)
    assert isinstance(parsed, WindowUpdate)
    return parsed.window_increment


def settings_of(frame: RawFrame) -> dict[int, int]:
    """Identifier -> value of SETTINGS; empty for an acknowledgement. They may be malformed (BrokenProtocol)."""
    parsed = _parsed(frame.raw)
    assert isinstance(parsed, SettingsFrame)
    return parsed.settings


def window_update(stream: int, size: int) -> bytes:
    """`stream` 0 is the connection. `size`: at least 1."""
    return WindowUpdate(stream, window_increment=size).serialize()


def data_frame(stream: int, payload: bytes, *, is_last: bool) -> bytes:
    return DataFrame(stream, payload, flags=["END_STREAM"] if is_last else []).serialize()


def reset(stream: int) -> bytes:
    return RstStreamFrame(stream, error_code=CANCEL).serialize()


def last_headers(stream: int, block: bytes) -> bytes:
    """The frame of headers that end a stream. `block`: encoded, at most 16 KiB."""
    return HeadersFrame(stream, block, flags=["END_STREAM", "END_HEADERS"]).serialize()


def go_away(last_stream: int) -> bytes:
    """Clients repeat the calls of streams after `last_stream` on another connection."""
    return GoAwayFrame(0, last_stream_id=last_stream).serialize()


def empty_settings() -> bytes:
    """The SETTINGS of a server that changes no value."""
    return SettingsFrame(0).serialize()
