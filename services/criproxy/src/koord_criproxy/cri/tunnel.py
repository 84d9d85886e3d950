"""A tunnel: a connection of a client and its connection to the runtime. Frames pass unchanged, except held requests.

The frames of all calls pass unchanged and in their order, also the headers of intercepted calls, because the tables of
HPACK of both ends belong together. The request of an intercepted call is held until the proxy has decided which message
is sent on. So the tunnel counts three amounts of bytes:

- `Tunnel._window`: the bytes that the runtime still accepts on the connection. A held request is paid back to the
  client at once, and sent on with another length, so that the client may believe in a larger window than there is.
- `Tunnel._paid`: updates of that window that are for bytes of the tunnel itself; the client does not get them.
- `Call.window`: the bytes that the runtime still accepts of one held request.

Source: RFC 9113, 5.2; runtime spec, 5.2.
"""

from collections import deque
from collections.abc import Callable
from typing import Final

from hpack import Decoder, HPACKError

from koord_criproxy.cri import frames as http2
from koord_criproxy.cri import grpc_calls
from koord_criproxy.cri.grpc_calls import Call, Ended, Event, Held
from koord_criproxy.hooks.servers import intercepted_call

_WINDOW: Final = 65_535
"""First size of each window in bytes."""
_FRAME: Final = 16_384
"""Largest payload of a frame that every peer takes."""
_INITIAL_WINDOW_SIZE: Final = 4
"""Identifier in SETTINGS."""
_CANCELLED: Final = "CANCELLED"


class Tunnel:
    """Passes the bytes of a client's connection to the runtime and back.

    `serves` says whether the runtime at the other end serves a path. The first call for another one ends the use of
    this connection: the client repeats it on a new one.
    """

    def __init__(self, serves: Callable[[str], bool]) -> None:
        self._serves = serves
        self._from_client, self._from_runtime = _Direction(), _Direction()
        self._preface: bytes | None = b""
        self._to_client: list[bytes] = []
        self._to_runtime: list[bytes] = []
        self._calls: dict[int, Call] = {}
        self._last = 0
        self._is_leaving = False
        self._acknowledgements = 0
        self._window = _WINDOW
        self._paid = 0
        self._initial_window = _WINDOW
        self._waiting: deque[http2.RawFrame] = deque()
        self._dropped: set[int] = set()

    @property
    def is_used_up(self) -> bool:
        """Whether the client makes its next calls on another connection and all calls of this one have ended."""
        return self._is_leaving and not self._calls

    def paths_in_progress(self) -> list[str]:
        return [call.path for call in self._calls.values()]

    def to_client(self) -> bytes:
        """The bytes that are to be sent now. Each is returned once."""
        found = b"".join(self._to_client)
        self._to_client.clear()
        return found

    def to_runtime(self) -> bytes:
        """The bytes that are to be sent now. Each is returned once."""
        found = b"".join(self._to_runtime)
        self._to_runtime.clear()
        return found

    def greet(self) -> None:
        """Send the client empty SETTINGS, so that it begins its first call before a runtime is chosen."""
        self._to_client.append(http2.empty_settings())
        self._acknowledgements += 1

    def leave(self) -> None:
        """Let the client make its next calls on another connection. Calls in progress go on."""
        if not self._is_leaving:
            self._is_leaving = True
            self._to_client.append(http2.go_away(self._last))

    def from_client(self, data: bytes) -> list[Event]:
        """Take bytes of the client. Return requests that are complete now, and calls that have ended.

        Raises:
            BrokenProtocol: They are not HTTP/2. Both connections must end.
        """
        if self._preface is not None:
            data = self._after_preface(self._preface + data)
        events: list[Event] = []
        for frame, headers in self._from_client.frames(data):
            call = self._calls.get(frame.stream)
            if frame.kind == http2.HEADERS:
                self._headers_of_client(frame, headers)
            elif frame.kind == http2.DATA:
                self._data_of_client(frame, call, events)
            elif frame.kind == http2.SETTINGS and frame.flags & http2.ACK and self._acknowledgements:
                self._acknowledgements -= 1
            elif not self._is_repeated(frame.stream):
                if frame.kind == http2.RST_STREAM:
                    self._dropped.discard(frame.stream)
                    self._end(frame.stream, _CANCELLED, events)
                self._to_runtime.append(frame.raw)
        return events

    def _after_preface(self, data: bytes) -> bytes:
        """What follows the preface in all bytes that have come; b"" while the preface is not complete."""
        if not data.startswith(http2.PREFACE):
            if not http2.PREFACE.startswith(data):
                raise http2.BrokenProtocol("the preface of HTTP/2 is missing")
            self._preface = data
            return b""
        self._preface = None
        self._to_runtime.append(http2.PREFACE)
        return data[len(http2.PREFACE) :]

    def _is_repeated(self, stream: int) -> bool:
        """Whether a stream came after the client was told to leave, so that it repeats the call elsewhere."""
        return self._is_leaving and stream > self._last

    def _headers_of_client(self, frame: http2.RawFrame, headers: grpc_calls.Headers) -> None:
        found = dict(headers)
        path = found.get(b":path", b"").decode(errors="replace")
        if frame.stream > self._last:
            if not self._is_leaving and not self._serves(path):
                self.leave()
            if self._is_leaving:
                return
            self._last = frame.stream
            self._calls[frame.stream] = Call(
                path=path,
                name=None if frame.is_last else intercepted_call(path),
                encoding=found.get(b"grpc-encoding", b""),
                seconds=grpc_calls.seconds_of(found.get(b"grpc-timeout", b"")),
                window=self._initial_window,
            )
        self._to_runtime.append(frame.raw)

    def _data_of_client(self, frame: http2.RawFrame, call: Call | None, events: list[Event]) -> None:
        if call is not None and call.name is not None:
            self._hold(frame, call, call.name, events)
        elif frame.stream in self._dropped or self._is_repeated(frame.stream):
            self._pay_back(frame)
            if frame.is_last:
                self._dropped.discard(frame.stream)
        elif self._waiting or frame.length > self._window:
            self._waiting.append(frame)
        else:
            self._window -= frame.length
            self._to_runtime.append(frame.raw)

    def _hold(self, frame: http2.RawFrame, call: Call, name: str, events: list[Event]) -> None:
        call.request += frame.payload()
        self._pay_back(frame)
        if len(call.request) > grpc_calls.LARGEST_MESSAGE + grpc_calls.PREFIX:
            details = f"grpc: received message larger than max ({len(call.request)} vs. {grpc_calls.LARGEST_MESSAGE})"
            self.refuse(frame.stream, grpc_calls.RESOURCE_EXHAUSTED, details)
            events.append(
                Ended(
                    stream=frame.stream, path=call.path, status=grpc_calls.STATUS_NAMES[grpc_calls.RESOURCE_EXHAUSTED]
                )
            )
            if not frame.is_last:
                self._dropped.add(frame.stream)
        elif frame.is_last:
            message = grpc_calls.message_in(bytes(call.request), call.encoding)
            if message is None:  # the runtime refuses it
                self._send(frame.stream, call, bytes(call.request))
            else:
                events.append(
                    Held(stream=frame.stream, path=call.path, name=name, message=message, seconds=call.seconds)
                )
        else:
            self._to_client.append(http2.window_update(frame.stream, max(1, frame.length)))

    def _pay_back(self, frame: http2.RawFrame) -> None:
        if frame.length:
            self._to_client.append(http2.window_update(0, frame.length))

    def go_on(self, stream: int, message: bytes) -> None:
        """Send the request of a held call, changed or not, to the runtime; no-op if the call has ended."""
        call = self._calls.get(stream)
        if call is not None:
            held = bytes(call.request)
            self._send(
                stream,
                call,
                held if grpc_calls.message_in(held, call.encoding) == message else grpc_calls.body_of(message),
            )

    def refuse(self, stream: int, status: int, details: str) -> None:
        """Answer a held call with a status, and cancel it at the runtime, which has not got its request.

        No-op if the call has ended.
        """
        if self._calls.pop(stream, None) is not None:
            self._to_client.append(http2.last_headers(stream, grpc_calls.refusal(status, details)))
            self._to_runtime.append(http2.reset(stream))

    def _send(self, stream: int, call: Call, body: bytes) -> None:
        call.outgoing = memoryview(body)
        self._send_more(stream, call)
        if not body:  # a call without a message, which the runtime refuses
            self._to_runtime.append(http2.data_frame(stream, b"", is_last=True))

    def _send_more(self, stream: int, call: Call) -> None:
        """Send as much of a held request as the runtime takes now."""
        while call.outgoing and not self._waiting:
            size = min(len(call.outgoing), call.window, self._window, _FRAME)
            if size <= 0:
                return
            part, call.outgoing = call.outgoing[:size], call.outgoing[size:]
            call.window -= size
            self._window -= size
            self._paid += size
            self._to_runtime.append(http2.data_frame(stream, bytes(part), is_last=not call.outgoing))

    def from_runtime(self, data: bytes) -> list[Event]:
        """Take bytes of the runtime. Return calls that have ended.

        Raises:
            BrokenProtocol: They are not HTTP/2. Both connections must end.
        """
        events: list[Event] = []
        for frame, headers in self._from_runtime.frames(data):
            call = self._calls.get(frame.stream)
            if frame.kind == http2.WINDOW_UPDATE:
                self._window_of_runtime(frame, call)
                continue
            if frame.kind == http2.PUSH_PROMISE:
                raise http2.BrokenProtocol("a runtime pushes no streams")
            if frame.kind == http2.SETTINGS:
                self._settings_of_runtime(frame)
            elif call is not None:
                self._answer(frame, headers, call, events)
            self._to_client.append(frame.raw)
        return events

    def _answer(self, frame: http2.RawFrame, headers: grpc_calls.Headers, call: Call, events: list[Event]) -> None:
        if frame.kind == http2.RST_STREAM:
            self._end(frame.stream, _CANCELLED, events)
        elif frame.kind == http2.HEADERS and frame.is_last:
            self._end(frame.stream, grpc_calls.status_of(headers), events)
        elif frame.kind == http2.HEADERS:
            call.answer_encoding = dict(headers).get(b"grpc-encoding", b"")
        elif frame.kind == http2.DATA:
            if call.name is not None and len(call.answer) <= grpc_calls.LARGEST_MESSAGE:
                call.answer += frame.payload()
            if frame.is_last:
                self._end(frame.stream, grpc_calls.status_of(()), events)

    def _settings_of_runtime(self, frame: http2.RawFrame) -> None:
        size = http2.settings_of(frame).get(_INITIAL_WINDOW_SIZE, self._initial_window)
        for call in self._calls.values():
            call.window += size - self._initial_window
        self._initial_window = size
        self._send_waiting()

    def _window_of_runtime(self, frame: http2.RawFrame, call: Call | None) -> None:
        if frame.stream == 0:
            size = http2.increment_of(frame)
            self._window += size
            paid = min(size, self._paid)
            self._paid -= paid
            if paid < size:
                self._to_client.append(http2.window_update(0, size - paid) if paid else frame.raw)
            self._send_waiting()
        elif call is not None and call.name is not None:
            call.window += http2.increment_of(frame)
            self._send_more(frame.stream, call)
        else:
            self._to_client.append(frame.raw)

    def _send_waiting(self) -> None:
        """Send frames that waited for the window of the connection, and then held requests."""
        while self._waiting and self._waiting[0].length <= self._window:
            frame = self._waiting.popleft()
            self._window -= frame.length
            self._to_runtime.append(frame.raw)
        for stream, call in self._calls.items():
            self._send_more(stream, call)

    def _end(self, stream: int, status: str, events: list[Event]) -> None:
        call = self._calls.pop(stream, None)
        if call is None:
            return
        for frame in [frame for frame in self._waiting if frame.stream == stream]:
            self._waiting.remove(frame)
            self._pay_back(frame)
        answer = grpc_calls.message_in(bytes(call.answer), call.answer_encoding) if status == grpc_calls.OK else None
        events.append(Ended(stream=stream, path=call.path, status=status, answer=answer or b""))


class _Direction:
    """The frames of one direction, with the table of HPACK that its blocks of headers change."""

    def __init__(self) -> None:
        self._reader = http2.FrameReader()
        self._decoder = Decoder(http2.LARGEST_HEADERS)
        # Both ends agree on the size of the table, and the one that writes tells each change in a block.
        self._decoder.max_allowed_table_size = http2.LARGEST_HEADERS

    def frames(self, data: bytes) -> "list[tuple[http2.RawFrame, grpc_calls.Headers]]":
        """The complete frames, with the headers of blocks of headers. They may be malformed (BrokenProtocol)."""
        return [
            (frame, self._decoded(block) if frame.kind == http2.HEADERS else ())
            for frame, block in self._reader.feed(data)
        ]

    def _decoded(self, block: bytes) -> grpc_calls.Headers:
        try:
            return [(each[0], each[1]) for each in self._decoder.decode(block, raw=True)]
        except HPACKError as error:
            raise http2.BrokenProtocol(f"headers: {error}") from error
