"""One side of an HTTP connection: h11 reads and writes the messages, and this module moves the bytes."""

import asyncio
import contextlib
import select
from typing import Any, Final, cast

import h11
from koordcore.values import codec

LARGEST_HEAD: Final = 256 * 1024
"""Largest head of a message in bytes."""
CHUNK: Final = 64 * 1024
CLOSE_SECONDS: Final = 5.0
LOOK_SECONDS: Final = 1.0
"""Interval of looking whether a client that sends no more still receives."""
BROKEN: Final = (ConnectionError, asyncio.IncompleteReadError, OSError)
"""Errors that a connection raises after it has ended."""


class Peer:
    """A connection to a client (`role` is `h11.SERVER`) or to dockerd (`h11.CLIENT`).

    Methods that read raise RemoteProtocolError if the other side broke the rules of HTTP, or ended too early.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, role: Any) -> None:
        self.state = h11.Connection(role, max_incomplete_event_size=LARGEST_HEAD)
        self._reader = reader
        self._writer = writer
        self._is_stream = False

    @property
    def can_go_on(self) -> bool:
        """Whether request and answer have ended, so that the next request may follow."""
        return self.state.our_state is h11.DONE and self.state.their_state is h11.DONE

    @property
    def has_left(self) -> bool:
        """Whether the other side has ended the connection, as far as this one has read."""
        return self.state.trailing_data[1]

    @property
    def is_malformed(self) -> bool:
        """Whether the other side has broken the rules of HTTP."""
        return self.state.their_state is h11.ERROR

    async def next_event(self) -> Any:
        """The next event of h11: the head of a message, a part of its body, its end, or the end of all."""
        while True:
            event = self.state.next_event()
            if event is not h11.NEED_DATA:
                return event
            self.state.receive_data(await self._reader.read(CHUNK))

    async def send(self, *events: Any) -> None:
        """Waits while the other side does not read."""
        for event in events:
            data: bytes | None = cast("bytes | None", self.state.send(event))
            if data:
                self._writer.write(data)
        await self._writer.drain()

    async def send_raw_head(self, response: h11.Response) -> None:
        """Write the head of an answer after which the connection is a plain stream of bytes, without HTTP framing."""
        self._is_stream = True
        lines = [b"HTTP/1.1 %d %s" % (response.status_code, bytes(response.reason))]
        lines += [key + b": " + value for key, value in response.headers.raw_items()]
        self._writer.write(b"\r\n".join(lines) + b"\r\n\r\n")
        await self._writer.drain()

    async def read_response(self) -> h11.Response:
        while True:
            event = await self.next_event()
            if isinstance(event, h11.Response):
                return event
            if not isinstance(event, h11.InformationalResponse):
                raise h11.RemoteProtocolError("the connection ended without an answer")

    async def read_body(self, largest: int) -> bytes | None:
        """None if it has more than `largest` bytes."""
        if self.state.they_are_waiting_for_100_continue:
            await self.send(h11.InformationalResponse(status_code=100, headers=[]))
        found = bytearray()
        while True:
            event = await self.next_event()
            if isinstance(event, h11.EndOfMessage):
                return bytes(found)
            if not isinstance(event, h11.Data):
                raise h11.RemoteProtocolError("the connection ended within a body")
            found += event.data
            if len(found) > largest:
                return None

    async def refuse(self, status: int, message: str, *, keep: bool = False) -> None:
        """Answer with an error of dockerd's form, unless an answer has begun. `keep`: another request may follow."""
        body = codec.encode({"message": message})
        headers = [("Content-Type", "application/json"), ("Content-Length", str(len(body)))]
        if not keep:
            headers.append(("Connection", "close"))
        if self.state.our_state in (h11.IDLE, h11.SEND_RESPONSE) and not self._is_stream:
            head = h11.Response(status_code=status, reason=b"", headers=headers)
            await self.send(head, h11.Data(data=body), h11.EndOfMessage())

    async def hangs_up(self) -> bool:
        """Wait until the other side ends the connection (True) or sends more (False)."""
        data = await self._reader.read(CHUNK)
        self.state.receive_data(data)
        return not data

    async def join(self, other: "Peer") -> None:
        """Copy bytes in both directions until both sides have ended, or this side has left. An end is passed on.

        A side that has ended sends no more, and still receives. One that has left has closed its socket. The kernel
        tells the difference only to somebody who asks, or who writes. The other side may write nothing for as long as a
        container runs.
        """
        async with asyncio.TaskGroup() as group:
            back = group.create_task(other._copy_to(self))
            await self._copy_to(other)
            while not back.done() and not self._has_hung_up():
                await asyncio.wait((back,), timeout=LOOK_SECONDS)
            back.cancel()

    def _has_hung_up(self) -> bool:
        """Whether the other end is closed in both directions, so that nobody receives."""
        if self._writer.is_closing():
            return True
        poll = select.poll()
        poll.register(self._writer.get_extra_info("socket").fileno(), 0)
        return bool(poll.poll(0))

    async def _copy_to(self, other: "Peer") -> None:
        data, _ = self.state.trailing_data
        with contextlib.suppress(*BROKEN):
            while True:
                if data:
                    other._writer.write(data)
                    await other._writer.drain()
                data = await self._reader.read(CHUNK)
                if not data:
                    break
            if other._writer.can_write_eof():
                other._writer.write_eof()

    def abandon(self) -> None:
        self._writer.transport.abort()

    async def close(self) -> None:
        """Data that the other side does not read within 5 s are dropped."""
        self._writer.close()
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await self._writer.wait_closed()
        except TimeoutError:
            self.abandon()
        except BROKEN:
            pass  # the other side has closed it before
