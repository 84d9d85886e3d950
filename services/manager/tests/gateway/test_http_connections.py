"""The manager's own HTTP connections, against a server that answers byte by byte what a test tells it."""

import asyncio
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import uvloop
from koord_manager.shell.gateway.http_connections import HttpConnections
from koordcore.bus.setup.tls_files import ensure_tls_files
from support.until import until

Answer = Callable[[asyncio.StreamWriter], Awaitable[None]]
HEADERS = b"Content-Type: application/json\r\n"
CREATED = b"HTTP/1.1 201 Created\r\nRetry-After: 7\r\nContent-Length: 2\r\n\r\nok"


class Server:
    """A server that answers each request with the next of its scripted answers, and remembers what it got."""

    def __init__(self, *answers: bytes | Answer) -> None:
        self.answers = list(answers)
        self.requests: list[bytes] = []
        self.connections = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = head.partition(b"Content-Length: ")[2].split(b"\r\n")[0]
                self.requests.append(head + await reader.readexactly(int(length or b"0")))
                answer = self.answers.pop(0)
                if isinstance(answer, bytes):
                    writer.write(answer)
                else:
                    await answer(writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def connected(
    server: Server, tls: tuple[ssl.SSLContext, ssl.SSLContext] | None = None, path: str = ""
) -> AsyncGenerator[HttpConnections]:
    """Run a server, and connect to it; `tls` are the settings of server and client."""
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0, ssl=tls[0] if tls else None)
    port = listening.sockets[0].getsockname()[1]
    client = tls[1] if tls else ssl.create_default_context()
    connections = HttpConnections(f"{'https' if tls else 'http'}://127.0.0.1:{port}{path}", client)
    try:
        yield connections
    finally:
        connections.close()
        listening.close()


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Callable[[Coroutine[Any, Any, None]], None]:
    """Run a test on each of the event loops on which the manager runs."""
    factory = uvloop.new_event_loop if request.param == "uvloop" else asyncio.new_event_loop

    def run_it(test: Coroutine[Any, Any, None]) -> None:
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(test)

    return run_it


Run = Callable[[Coroutine[Any, Any, None]], None]


def test_requests_follow_each_other_on_one_connection(run: Run) -> None:
    async def test() -> None:
        server = Server(
            CREATED, b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nab\n\r\n2\r\ncd\r\n0\r\n\r\n"
        )
        async with connected(server, path="/prefix") as connections:
            first = await connections.request("POST", "/a?b=c", HEADERS, b"body")
            second = await connections.request("GET", "/d", HEADERS, b"")
        assert (first.status, first.body, first.headers[b"retry-after"]) == (201, b"ok", b"7")
        assert (second.status, second.body) == (200, b"ab\ncd")
        assert server.connections == 1
        assert server.requests[0].startswith(b"POST /prefix/a?b=c HTTP/1.1\r\nHost: 127.0.0.1:")
        assert server.requests[0].endswith(b"\r\nContent-Type: application/json\r\nContent-Length: 4\r\n\r\nbody")
        assert b"Content-Length" not in server.requests[1]

    run(test())


def test_the_certificate_of_the_server_is_checked(run: Run, tmp_path: Path) -> None:
    files = ensure_tls_files(tmp_path / "tls", now=datetime.now(UTC))
    serving = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    serving.load_cert_chain(files.server_certificate, files.server_key)

    async def test() -> None:
        server = Server(CREATED)
        async with connected(server, (serving, ssl.create_default_context(cafile=files.ca))) as connections:
            assert (await connections.request("POST", "/", HEADERS, b"x")).status == 201
        async with connected(Server(CREATED), (serving, ssl.create_default_context())) as connections:
            with pytest.raises(ssl.SSLCertVerificationError):
                await connections.request("POST", "/", HEADERS, b"x")

    run(test())


def test_requests_at_once_have_connections_of_their_own(run: Run) -> None:
    async def test() -> None:
        go_on = asyncio.Event()

        async def later(writer: asyncio.StreamWriter) -> None:
            await go_on.wait()
            writer.write(CREATED)

        server = Server(later, later, later)
        async with connected(server) as connections:
            asked = [asyncio.create_task(connections.request("POST", f"/{n}", HEADERS, b"x")) for n in range(3)]
            await until(lambda: len(server.requests) == 3)
            go_on.set()
            assert [answer.status for answer in await asyncio.gather(*asked)] == [201] * 3

    run(test())


def test_a_connection_that_the_server_closes_after_its_answer_is_not_used_again(run: Run) -> None:
    async def test() -> None:
        closing = b"HTTP/1.1 201 Created\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok"
        server = Server(closing, CREATED)
        async with connected(server) as connections:
            assert (await connections.request("POST", "/", HEADERS, b"x")).status == 201
            assert (await connections.request("POST", "/", HEADERS, b"x")).status == 201
        assert server.connections == 2

    run(test())


def test_a_cancelled_request_leaves_no_answer_for_the_next_one(run: Run) -> None:
    async def test() -> None:
        go_on = asyncio.Event()

        async def late(writer: asyncio.StreamWriter) -> None:
            await go_on.wait()
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nlate")

        server = Server(late, CREATED)
        async with connected(server) as connections:
            first = asyncio.create_task(connections.request("POST", "/", HEADERS, b"x"))
            await until(lambda: server.requests)
            first.cancel()
            await asyncio.wait({first})
            go_on.set()
            assert (await connections.request("POST", "/", HEADERS, b"x")).body == b"ok"

    run(test())


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf", b"no HTTP\r\n\r\n"])
def test_without_a_whole_answer_the_outcome_is_unknown(run: Run, answer: bytes) -> None:
    async def break_off(writer: asyncio.StreamWriter) -> None:
        writer.write(answer)
        raise ConnectionError

    async def test() -> None:
        server = Server(break_off, CREATED)
        async with connected(server) as connections:
            with pytest.raises(OSError):
                await connections.request("POST", "/", HEADERS, b"x")
            assert (await connections.request("POST", "/", HEADERS, b"x")).status == 201

    run(test())


def test_a_read_is_repeated_if_the_server_closes_an_idle_connection_meanwhile(run: Run) -> None:
    async def close(writer: asyncio.StreamWriter) -> None:
        raise ConnectionError

    async def test() -> None:
        server = Server(CREATED, close, CREATED)
        async with connected(server) as connections:
            for _ in range(2):
                assert (await connections.request("GET", "/", HEADERS, b"")).status == 201
        assert len(server.requests) == 3

    run(test())
