"""A NATS client: nats-py with a faster parser and raw publishing.

nats-py spends about 25 us on each message (two regular expressions, a task switch, an e-mail style header parser).
`BusClient` keeps its connection handling (reconnects, pings, TLS, NKEYs). It replaces the parser, delivers messages to
a plain function, and sends commands that the caller has encoded. `BusTransport` is nats-py's TCP connection without the
cases in which nats-py never recovers. Next module: `connection`.
"""

import asyncio
import json
import logging
import re
from collections.abc import Callable
from typing import NamedTuple

from nats.aio.client import Client
from nats.aio.transport import TcpTransport
from nats.errors import ProtocolError, StaleConnectionError
from nats.protocol.parser import PONG, Parser

_log = logging.getLogger("koordcore.bus")
_PING = b"PING"
# Errors that asyncio with TLS (AttributeError) and uvloop (RuntimeError) raise for a write to a closed connection.
# nats-py expects an OSError. Any other error ends its attempts to connect or to reconnect, for ever.
_GONE = (AttributeError, RuntimeError)


class BusTransport(TcpTransport):
    """A TCP connection to a NATS server, with or without TLS. A write to a closed one raises `ConnectionResetError`."""

    def __bool__(self) -> bool:
        """Return True also before the connection exists, because nats-py would replace this object by its own."""
        return True

    async def readline(self) -> bytes:
        """Return the next line of the server that is no PING. Lines are only read while the connection is opened. The
        server sends a PING of its own if the client takes longer than 2 s. nats-py takes it for the answer to its PING,
        and then the connection never counts as established.
        """
        while (line := await super().readline()).startswith(_PING):
            self.write(PONG)
        return line

    def write(self, payload: bytes) -> None:
        """Write bytes. Raises `ConnectionResetError` if the connection is closed."""
        try:
            super().write(payload)
        except _GONE as error:
            raise ConnectionResetError(str(error)) from error

    def writelines(self, payload: list[bytes]) -> None:
        try:
            super().writelines(payload)
        except _GONE as error:
            raise ConnectionResetError(str(error)) from error


# pyright: reportPrivateUsage=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
# This file extends nats-py's client below its public surface; nats-py is only partly annotated.


# Function that receives (subject, reply, header block or b"", payload). It must be fast, and not raise or block.
Sink = Callable[[bytes, bytes, bytes, bytes], None]

HEADER_LINE = b"NATS/1.0\r\n"

_H, _M, _P, _PLUS, _MINUS, _I = b"HMP+-I"
_EXPIRED = "authentication expired"
_DENIED = re.compile(r'permissions violation for (publish|subscription) to "([^"]*)"', re.IGNORECASE)


def encode_headers(headers: dict[str, str]) -> bytes:
    """Encode headers as lines `Name: value`, without the version line before and the empty line after them.

    Raises:
        ValueError: A name or value contains a line break.
    """
    text = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
    if text.count("\n") != len(headers) or text.count("\r") != len(headers):
        bad = next(name for name, value in headers.items() if any(c in name + value for c in "\r\n"))
        raise ValueError(f"header {bad!r} holds a line break")
    return text.encode()


def decode_headers(block: bytes) -> dict[str, str]:
    """Decode the header block of a received message to name -> value. A status line (`NATS/1.0 408 Request Timeout`)
    becomes the headers `Status` and `Description`.
    """
    lines = block.decode("utf-8", "replace").split("\r\n")
    found: dict[str, str] = {}
    for line in lines[1:]:
        name, colon, value = line.partition(":")
        if colon:
            found[name] = value.strip(" \t")
    if len(lines[0]) > 8:
        status, _, description = lines[0][8:].strip().partition(" ")
        found["Status"] = status
        found["Description"] = description
    return found


def hpub(subject: str, reply: str, header_lines: bytes, payload: bytes) -> bytes:
    """Return the bytes of the protocol command HPUB, which publishes a message with headers. `reply`: Reply address; ""
    for none. `header_lines`: result of `encode_headers`.
    """
    header_size = len(HEADER_LINE) + len(header_lines) + 2
    return b"HPUB %b %b %d %d\r\nNATS/1.0\r\n%b\r\n%b\r\n" % (
        subject.encode(),
        reply.encode(),
        header_size,
        header_size + len(payload),
        header_lines,
        payload,
    )


def pub(subject: str, reply: str, payload: bytes) -> bytes:
    """Return the bytes of the protocol command PUB, which publishes a message without headers. `reply`: Reply address;
    "" for none.
    """
    return b"PUB %b %b %d\r\n%b\r\n" % (subject.encode(), reply.encode(), len(payload), payload)


class Reply(NamedTuple):
    """An answer to a request: raw header block (b"" without headers) and payload."""

    header: bytes
    data: bytes

    @property
    def status(self) -> str:
        """Status code of an answer without payload, for example `503` for no responders; "" for an ordinary answer."""
        return self.header[9:12].decode() if self.header[8:9] == b" " else ""


class BusClient(Client):
    """The client of nats-py, changed so that its parser passes messages directly to a function per subscription."""

    def __init__(self) -> None:
        super().__init__()
        self.sinks: dict[bytes, Sink] = {}
        self.on_denied: Callable[[str, str], None] | None = None
        self._ps = FastParser(self)
        self._transport = BusTransport()

    @property
    def is_clustered(self) -> bool:
        """Whether the server says that it belongs to a cluster of servers."""
        return bool(self._server_info.get("cluster"))

    async def subscribe_sink(self, subject: str, sink: Sink, *, queue: str = "") -> int:
        """Subscribe to a subject and call `sink` for each message. After a reconnect the subscription is repeated.
        `queue`: name of a group; each message goes to one subscriber of the group.

        Returns:
            Id of the subscription for `unsubscribe_sink`.
        """
        # The callback is never called: the parser looks into `sinks` first, so the subscription's own queue stays
        # empty. The future keeps nats-py from starting a task per subscription.
        sid = self._sid + 1
        self.sinks[b"%d" % sid] = sink
        subscription = await self.subscribe(subject, queue, future=asyncio.get_running_loop().create_future())
        assert subscription._id == sid
        return sid

    async def unsubscribe_sink(self, sid: int) -> None:
        """End a subscription. `sid` is the id that `subscribe_sink` returned."""
        self.sinks.pop(b"%d" % sid, None)
        subscription = self._subs.get(sid)
        if subscription is not None and not self.is_closed and not self.is_draining:
            await subscription.unsubscribe()

    def write(self, commands: bytes) -> None:
        """Add encoded protocol commands to the send buffer. The caller limits the size of the buffer and checks
        `is_connected`.
        """
        self._pending.append(commands)
        self._pending_data_size += len(commands)
        queue = self._flush_queue
        if queue is not None and queue.empty():
            queue.put_nowait(asyncio.get_running_loop().create_future())

    async def close(self) -> None:
        """Close the connection, also one that is gone. Buffered commands are dropped; `flush` sends them. nats-py waits
        for the end of a connection in two tasks and cancels one. With TLS, both wait for one future of asyncio, so the
        other wait is cancelled, too.
        """
        self._pending, self._pending_data_size = [], 0
        try:
            await super().close()
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise

    async def _process_pong(self) -> None:
        """Process the answer to the oldest PING, also if whoever waited for it has given up. nats-py raises then, and
        reads no more from the connection.
        """
        if self._pongs and self._pongs[0].done():
            self._pongs[0] = asyncio.get_running_loop().create_future()
        await super()._process_pong()

    async def _send_ping(self, future: "asyncio.Future[bool] | None" = None) -> None:
        """Send all waiting commands, then PING. So the answer to `flush` proves that the server knows a subscription.
        nats-py sends PING first, while the command that subscribes still waits.
        """
        if self.is_connected and self._pending and self._transport is not None:
            waiting, self._pending, self._pending_data_size = self._pending, [], 0
            self._transport.writelines(waiting)
        await super()._send_ping(future)


class FastParser(Parser):
    """Parser of the data that a NATS server sends. It uses byte positions instead of regular expressions."""

    def __init__(self, client: BusClient) -> None:
        self._client = client
        super().__init__(client)

    def reset(self) -> None:
        """Drop incomplete input. Called for a new connection."""
        super().reset()
        self._chunks: list[bytes] = []
        self._held = 0
        self._needed = 0

    async def parse(self, data: bytes = b"") -> None:
        """Add received bytes to the input and process all complete messages in it.

        Raises:
            ProtocolError: The input is not valid NATS protocol.
        """
        if self._held:
            self._chunks.append(data)
            self._held += len(data)
            if self._held < self._needed:
                return
            data = b"".join(self._chunks)
            self._chunks = []
            self._held = 0
        size = len(data)
        at = 0
        needed = 0
        sinks = self._client.sinks
        find = data.find
        while at < size:
            eol = find(b"\r\n", at)
            if eol < 0:
                break
            op = data[at]
            if op in (_H, _M):
                args = data[at:eol].split(b" ")  # other white space may be part of a subject
                # [H]MSG <subject> <sid> [reply] [header size] <total size>
                least = 5 if op == _H else 4
                if not least <= len(args) <= least + 1:
                    raise ProtocolError("nats: malformed MSG")
                try:
                    total = int(args[-1])
                    header = int(args[-2]) if op == _H else 0
                except ValueError as cause:
                    raise ProtocolError("nats: malformed MSG") from cause
                start = eol + 2
                end = start + total
                if end + 2 > size:
                    needed = end + 2 - at
                    break
                at = end + 2
                reply = args[3] if len(args) > least else b""
                block = data[start : start + header]
                payload = data[start + header : end]
                sink = sinks.get(args[2])
                if sink is not None:
                    try:
                        sink(args[1], reply, block, payload)
                    except Exception as error:
                        # nats-py would read no more, and the connection would look connected for ever.
                        _log.exception("bus_message_not_taken subject=%r", args[1][:80])
                        raise ProtocolError("nats: a message could not be taken") from error
                else:
                    # nats-py's own subscriptions (key-value, object store, FastStream). It takes subjects for text.
                    try:
                        await self._client._process_msg(int(args[2]), args[1], reply, payload, block)
                    except UnicodeDecodeError:
                        _log.warning("bus_message_dropped subject=%r", args[1][:80])
                continue
            line = data[at:eol]
            at = eol + 2
            await self._control(op, line)
        if at < size:
            rest = data[at:]
            self._chunks = [rest]
            self._held = len(rest)
            self._needed = needed

    async def _control(self, op: int, line: bytes) -> None:
        client = self._client
        if op == _P and line.startswith(b"PING"):
            await client._process_ping()
        elif op == _P and line.startswith(b"PONG"):
            await client._process_pong()
        elif op == _PLUS:
            return
        elif op == _MINUS:
            text = line[4:].strip().decode("utf-8", "replace")
            denied = _DENIED.search(text)
            if denied is not None and client.on_denied is not None:
                client.on_denied(denied.group(1).lower(), denied.group(2))
            if _EXPIRED in text.lower():
                # nats-py would close the connection for ever. The token in the file may be a newer one by now.
                await client._process_op_err(StaleConnectionError())
                return
            await client._process_err(text.lower())
        elif op == _I and line.startswith(b"INFO"):
            await client._process_info(json.loads(line[5:]))
        else:
            raise ProtocolError("nats: unknown protocol")
