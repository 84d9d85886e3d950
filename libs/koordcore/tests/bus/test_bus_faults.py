"""What a slow or failing NATS server does to a connection: it is waited for, and never ends the process."""

import asyncio
import contextlib
import json
import socket
import struct
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from urllib.parse import urlparse

import pytest
import uvloop
from koordcore.bus.adapters import desired
from koordcore.bus.adapters.desired import JetStreamPushFeed
from koordcore.bus.client.connection import BusConnection, ConnectionSettings, ConnectRefused, NoAnswer
from koordcore.bus.client.opening import connect
from koordcore.bus.client.wire import BusTransport
from koordcore.bus.names import BusNames
from koordcore.bus.read.stream_reader import newest_of
from koordcore.embedded.ports import LOOPBACK
from nats.errors import FlushTimeoutError
from support.until import DEADLINE_SECONDS, until

AN_HOUR = 3600.0
HELLO = {"version": "2.14.0", "server_id": "S", "proto": 1, "headers": True, "max_payload": 1 << 20}


class FakeNats:
    """Speaks the protocol of a NATS server as a test wants it.

    Attributes:
        greetings: What the server says to the first PING of each connection. The last one is repeated.
        withheld: Number of the next PINGs that get no answer until `release`.
        answer: Status and headers of the answer to each request.
        lines: Commands that were received.
    """

    def __init__(self) -> None:
        self.url = ""
        self.greetings = [b"PONG\r\n"]
        self.withheld = 0
        self.answer = b"NATS/1.0 503\r\n\r\n"
        self.lines: list[bytes] = []
        self.connections = 0
        self._writer: asyncio.StreamWriter | None = None

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writer = writer
        greeting = self.greetings.pop(0) if len(self.greetings) > 1 else self.greetings[0]
        inbox = b"1"
        writer.write(b"INFO " + json.dumps(HELLO).encode() + b"\r\n")
        while line := await reader.readline():
            self.lines.append(line.strip())
            if line.startswith(b"PING") and greeting:
                writer.write(greeting)
                greeting = b""
            elif line.startswith(b"PING"):
                if self.withheld:
                    self.withheld -= 1
                else:
                    writer.write(b"PONG\r\n")
            elif line.startswith(b"SUB"):
                inbox = line.split()[-1]
            elif line.startswith(b"PUB"):
                _, _, reply, size = line.split()
                await reader.readexactly(int(size) + 2)
                writer.write(b"HMSG %b %b %d %d\r\n%b\r\n" % (reply, inbox, *[len(self.answer)] * 2, self.answer))
        writer.close()

    def say(self, line: bytes) -> None:
        """Send a line on the newest connection."""
        assert self._writer is not None
        self._writer.write(line)


@asynccontextmanager
async def fake_nats() -> AsyncGenerator[FakeNats]:
    fake = FakeNats()
    server = await asyncio.start_server(fake.serve, LOOPBACK, 0)
    fake.url = f"nats://{LOOPBACK}:{server.sockets[0].getsockname()[1]}"
    try:
        yield fake
    finally:
        server.close()


@asynccontextmanager
async def connected_to(fake: FakeNats) -> AsyncGenerator[BusConnection]:
    settings = ConnectionSettings(
        urls=(fake.url,),
        reconnect_wait_seconds=0.01,
        connect_seconds=DEADLINE_SECONDS,
        ping_seconds=AN_HOUR,  # the client sends no other PING than those of the test
    )
    connection = await connect(settings)
    try:
        yield connection
    finally:
        await connection.drain_and_close()


async def test_a_ping_of_the_server_before_its_pong_is_answered() -> None:
    async with fake_nats() as fake:
        fake.greetings = [b"PING\r\nPONG\r\n"]
        async with connected_to(fake) as connection:
            assert connection.is_connected
            await connection.client.flush(int(DEADLINE_SECONDS))
            assert b"PONG" in fake.lines


async def test_credentials_that_came_too_late_are_sent_again() -> None:
    async with fake_nats() as fake:
        fake.greetings = [b"-ERR 'Authentication Timeout'\r\n", b"PONG\r\n"]
        async with connected_to(fake) as connection:
            assert connection.is_connected
        assert fake.connections == 2


async def test_a_user_that_is_refused_is_told_at_once() -> None:
    async with fake_nats() as fake:
        fake.greetings = [b"-ERR 'Authorization Violation'\r\n"]
        with pytest.raises(ConnectRefused, match="Authorization Violation"):
            await connect(ConnectionSettings(urls=(fake.url,)))


async def test_a_pong_for_which_nobody_waits_any_more_does_not_end_the_reading() -> None:
    async with fake_nats() as fake, connected_to(fake) as connection:
        fake.withheld = 1
        with pytest.raises(FlushTimeoutError):
            await connection.client.flush(0.01)  # type: ignore[arg-type]
        fake.say(b"PONG\r\n")
        await connection.client.flush(int(DEADLINE_SECONDS))


async def test_pushes_that_the_server_does_not_confirm_can_be_subscribed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(desired, "CONFIRM_SECONDS", 0.05)
    async with fake_nats() as fake, connected_to(fake) as connection:
        feed = JetStreamPushFeed(connection, BusNames("c"))
        fake.withheld = 1
        with pytest.raises(NoAnswer, match="the pushes were not subscribed: nats: flush timeout"):
            await anext(feed.pushes(["n"]))
        monkeypatch.setattr(desired, "CONFIRM_SECONDS", DEADLINE_SECONDS)
        fake.say(b"PONG\r\n")
        assert await anext(feed.pushes(["n"])) is None


async def test_a_revoked_user_ends_the_pushes_and_says_why() -> None:
    async with fake_nats() as fake, connected_to(fake) as connection:
        pushes = JetStreamPushFeed(connection, BusNames("c")).pushes(["n"])
        assert await anext(pushes) is None
        fake.say(b"-ERR 'User Authentication Revoked'\r\n")
        assert "revoked" in await connection.closed()
        assert await anext(pushes) is None
        with pytest.raises(NoAnswer, match="the connection was closed"):
            await anext(pushes)


async def test_an_answer_that_is_no_message_and_no_absence_is_no_answer() -> None:
    async with fake_nats() as fake, connected_to(fake) as connection:
        fake.answer = b"NATS/1.0 408 Bad Request\r\n\r\n"

        async def is_told() -> bool:
            with pytest.raises(NoAnswer) as raised:
                await newest_of(connection, "S", "s", deadline=0.01)
            return str(raised.value).endswith("s: 408 Bad Request")

        await until(is_told)
        fake.answer = b"NATS/1.0 404 Message Not Found\r\n\r\n"
        assert await newest_of(connection, "S", "s", deadline=DEADLINE_SECONDS) is None


async def reset(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Close a connection without the handshake of TCP, as the kernel does for a server that was killed."""
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_write_to_a_connection_that_was_reset_is_a_connection_error(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def write() -> None:
        server = await asyncio.start_server(reset, LOOPBACK, 0)
        transport = BusTransport()
        port = server.sockets[0].getsockname()[1]
        await transport.connect(urlparse(f"nats://{LOOPBACK}:{port}"), 1024, int(DEADLINE_SECONDS))

        with contextlib.suppress(OSError):
            await transport.read(1)

        async def send() -> None:
            transport.write(b"PING\r\n")
            transport.writelines([b"PING\r\n"])
            await transport.drain()

        with pytest.raises(ConnectionResetError):
            await send()
        server.close()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(write())
