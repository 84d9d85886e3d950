"""What a client can take from an HTTP server before anybody knows who it is: bytes, time and connections.

The connections are real ones. Source: GHSA-rxc4-3w6r-4v47 (headers without limit in uvicorn with httptools).
"""

import asyncio
import contextlib
import resource
import socket
from collections.abc import AsyncGenerator, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from koordcore.service.access.needs import Role
from koordcore.service.run import Shell
from koordcore.service.web.connections import Connection, Connections, Limits, address_of
from koordcore.service.web.http import HttpServer
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from support.access import AccessFolder, GuardedSettings, bearer
from support.certificates import write_certificate
from support.running_service import running_service
from support.until import DEADLINE_SECONDS, until

MIB = 1024 * 1024
SMALL = Limits(connections=50, connections_of_address=40)
HASTY = Limits(head_seconds=0.3, keep_alive_seconds=1.0, write_seconds=0.5)
GOOD = b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n"


@contextlib.asynccontextmanager
async def served(
    limits: Limits = Limits(),  # noqa: B008  frozen
    *routes: Route,
    configure: Callable[[HttpServer], None] = lambda _: None,
    **settings: object,
) -> AsyncGenerator[HttpServer]:
    async def compose(shell: Shell[GuardedSettings]) -> None:
        shell.http.limits = limits
        shell.http.routes += routes
        configure(shell.http)

    made = GuardedSettings.model_validate({"log_format": "json", **settings})
    async with running_service(made, compose) as shell:
        yield shell.http


async def sent_until_closed(port: int, begin: bytes, piece: bytes, most: int) -> tuple[int, bytes]:
    """Send `begin`, then `piece` again and again. Return the bytes that were sent before the server closed the
    connection, and its answer.
    """
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    sent, answer = 0, b""
    with contextlib.suppress(ConnectionError):
        writer.write(begin)
        while sent < most and not reader.at_eof():
            writer.write(piece)
            await writer.drain()
            sent += len(piece)
            await asyncio.sleep(0)
    with contextlib.suppress(ConnectionError):
        answer = await asyncio.wait_for(reader.read(), DEADLINE_SECONDS)
    writer.close()
    return sent, answer


async def answer_to(port: int, request: bytes) -> bytes:
    """Send a request, and return all that the server answers until it closes the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    with contextlib.suppress(ConnectionError):
        answer = await asyncio.wait_for(reader.read(), DEADLINE_SECONDS)
        writer.close()
        return answer
    return b""


@pytest.mark.parametrize(
    ("begin", "piece"),
    [
        (b"GET /livez HTTP/1.1\r\n", b"a:\r\n" * 1024),
        (b"GET /livez HTTP/1.1\r\na: ", b"x" * 4096),
        (b"GET /livez HTTP/1.1\r\n", b"x" * 4096),
        (b"GET /", b"x" * 4096),
        (b"", b"\r\n" * 2048),
        (b"POST /livez HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n0\r\n", b"a: b\r\n" * 512),
        (b"POST /livez HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n0\r\na: ", b"x" * 4096),
        (b"POST /livez HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n5;e=", b"x" * 4096),
    ],
    ids=["headers", "value", "name", "url", "newlines", "trailers", "trailer", "extension"],
)
async def test_a_head_without_end_is_cut(begin: bytes, piece: bytes) -> None:
    """The server reads 64 KiB. The buffers of the kernel take some more."""
    async with served() as http:
        sent, _ = await sent_until_closed(http.port, begin, piece, 64 * MIB)
        assert sent < 16 * MIB
        assert (await answer_to(http.port, GOOD.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n"))).endswith(
            b"ok\n"
        )


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET /livez?%b HTTP/1.1\r\nhost: localhost\r\n\r\n" % (b"x" * 8200), b"414"),
        (b"GET /livez HTTP/1.1\r\nhost: localhost\r\n%b\r\n" % (b"a: b\r\n" * 100), b"431"),
        (b"GET /livez HTTP/1.1\r\nhost: localhost\r\na: %b\r\n\r\n" % (b"x" * 65536), b"431"),
        (b"nonsense\r\n\r\n", b"400"),
        (b"GET /livez HTTP/1.1\r\nhost: localhost\r\nhost: a\r\nconnection: close\r\n\r\n", b"400"),
        (GOOD * 100, b"200"),  # and then the connection ends
    ],
    ids=["url", "headers", "head", "nonsense", "hosts", "pipelined"],
)
async def test_a_request_beyond_a_limit_is_refused_and_told_why(request_: bytes, status: bytes) -> None:
    async with served() as http:
        answer = await answer_to(http.port, request_)
        assert answer.startswith(b"HTTP/1.1 " + status) or (status == b"200" and answer.count(b"HTTP/1.1") < 100)
        assert answer.count(b"HTTP/1.1") <= 20


async def test_requests_up_to_the_limits_are_answered() -> None:
    async with served() as http, httpx.AsyncClient(base_url=http.url, trust_env=False) as client:
        many = {f"x-{number}": "v" for number in range(90)}
        assert (await client.get("/livez", headers=many)).status_code == 200
        assert (await client.get("/livez", headers={"x": "v" * 60_000})).status_code == 200
        assert (await client.get("/livez?" + "x" * 8000)).status_code == 200


async def test_a_trailer_is_no_header() -> None:
    """uvicorn adds it to the headers of the request."""
    shown: list[list[tuple[bytes, bytes]]] = []

    async def show(request: Request) -> Response:
        await request.body()
        shown.append(list(request.scope["headers"]))
        return PlainTextResponse("shown")

    async with served(Limits(), Route("/v1/apply", show, methods=["POST"])) as http:
        head = b"POST /v1/apply HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n"
        await answer_to(http.port, head + b"2\r\n{}\r\n0\r\nauthorization: Bearer x\r\n\r\n")
    assert [name for name, _ in shown[0]] == [b"host", b"transfer-encoding", b"connection"]


@pytest.mark.parametrize("begin", [b"", b"GET /li", GOOD[:-2], GOOD + b"GET /"], ids=["silent", "line", "head", "next"])
async def test_a_request_that_does_not_become_complete_in_time_is_given_up(begin: bytes) -> None:
    async with served(HASTY) as http:
        reader, writer = await asyncio.open_connection("127.0.0.1", http.port)
        writer.write(begin)
        with contextlib.suppress(ConnectionError):
            await asyncio.wait_for(reader.read(), DEADLINE_SECONDS)
        writer.close()


async def test_a_trickle_of_bytes_does_not_prolong_the_time() -> None:
    async with served(HASTY) as http:
        reader, writer = await asyncio.open_connection("127.0.0.1", http.port)

        async def trickle() -> None:
            writer.write(GOOD)
            while not writer.is_closing():
                writer.write(b"\r\n")
                await asyncio.sleep(0.05)

        trickling = asyncio.create_task(trickle())
        with contextlib.suppress(ConnectionError):
            await asyncio.wait_for(reader.read(), DEADLINE_SECONDS)
        trickling.cancel()
        writer.close()


async def test_a_slow_body_ends_with_the_time_of_its_answer() -> None:
    async def apply(request: Request) -> Response:
        return PlainTextResponse(str(len(await request.body())))

    def hasty(http: HttpServer) -> None:
        http.answer_seconds = 0.3

    async with served(Limits(), Route("/v1/apply", apply, methods=["POST"]), configure=hasty) as http:
        answer = await answer_to(http.port, b"POST /v1/apply HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\n\r\nx")
        assert answer.startswith(b"HTTP/1.1 503 ")


async def test_a_silent_client_is_given_up_also_before_tls(tmp_path: Path) -> None:
    write_certificate(tmp_path)
    async with served(HASTY, http_cert_file=tmp_path / "tls.crt", http_key_file=tmp_path / "tls.key") as http:
        reader, writer = await asyncio.open_connection("127.0.0.1", http.port)
        with contextlib.suppress(ConnectionError):
            assert await asyncio.wait_for(reader.read(), DEADLINE_SECONDS) == b""
        writer.close()


async def test_a_client_that_does_not_read_its_answer_is_given_up() -> None:
    async def large(_: Request) -> Response:
        return PlainTextResponse("x" * 64 * MIB)

    async def settled() -> bool:
        return len(server_connections(http)) == 0

    async with served(HASTY, Route("/api/pods", large)) as http:
        held = socket.create_connection(("127.0.0.1", http.port))
        held.sendall(b"GET /api/pods HTTP/1.1\r\nhost: localhost\r\n\r\n")
        await until(lambda: len(server_connections(http)) == 1)
        await until(settled)
        held.close()


def server_connections(http: HttpServer) -> Connections:
    """Return the connections of a running server."""
    server = http._server  # pyright: ignore[reportPrivateUsage]
    assert server is not None
    return server.connections


@pytest.fixture
def many_descriptors() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 16384), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def hold(port: int, count: int, sources: int) -> list[socket.socket]:
    """Return connections from loopback addresses, which send nothing."""
    held: list[socket.socket] = []
    for number in range(count):
        connecting = socket.socket()
        connecting.bind((f"127.0.0.{1 + number % sources}", 0))
        connecting.setblocking(False)
        await asyncio.get_running_loop().sock_connect(connecting, ("127.0.0.1", port))
        held.append(connecting)
    return held


async def assert_answers_while_held(http: HttpServer, count: int, sources: int) -> None:
    held = await hold(http.port, count, sources)
    for path in ("/healthz", "/livez", "/readyz", "/metrics", "/api/pods"):
        client = httpx.AsyncClient(base_url=http.url, trust_env=False, timeout=DEADLINE_SECONDS, verify=False)
        async with client:
            assert (await client.get(path)).status_code == 200
    assert len(server_connections(http)) <= http.limits.connections
    for each in held:
        each.close()


async def pods(_: Request) -> Response:
    return PlainTextResponse("pods")


@pytest.mark.parametrize("sources", [1, 20])
@pytest.mark.usefixtures("many_descriptors")
async def test_every_request_is_answered_while_silent_connections_are_held(sources: int) -> None:
    async with served(SMALL, Route("/api/pods", pods)) as http:
        await assert_answers_while_held(http, 200, sources)


@pytest.mark.usefixtures("many_descriptors")
async def test_connections_before_the_tls_handshake_are_counted(tmp_path: Path) -> None:
    write_certificate(tmp_path)
    files: dict[str, Any] = {"http_cert_file": tmp_path / "tls.crt", "http_key_file": tmp_path / "tls.key"}
    async with served(SMALL, Route("/api/pods", pods), **files) as http:
        await assert_answers_while_held(http, 200, 1)


@pytest.mark.deep
@pytest.mark.parametrize("is_secure", [False, True], ids=["http", "https"])
@pytest.mark.parametrize("sources", [1, 200])
@pytest.mark.usefixtures("many_descriptors")
async def test_every_request_is_answered_while_2000_silent_connections_are_held(
    sources: int, is_secure: bool, tmp_path: Path
) -> None:
    write_certificate(tmp_path)
    files: dict[str, Any] = (
        {"http_cert_file": tmp_path / "tls.crt", "http_key_file": tmp_path / "tls.key"} if is_secure else {}
    )
    async with served(Limits(), Route("/api/pods", pods), **files) as http:
        await assert_answers_while_held(http, 2000, sources)


async def test_probes_are_answered_while_all_requests_are_in_hand() -> None:
    may_end, began = asyncio.Event(), asyncio.Event()

    async def late(_: Request) -> Response:
        began.set()
        await may_end.wait()
        return PlainTextResponse("late")

    def few(http: HttpServer) -> None:
        http.most_requests = 1

    async with (
        served(SMALL, Route("/api/pods", late), configure=few) as http,
        httpx.AsyncClient(base_url=http.url, trust_env=False, timeout=DEADLINE_SECONDS) as client,
    ):
        first = asyncio.create_task(client.get("/api/pods"))
        await began.wait()
        refused = await client.get("/api/pods")
        assert (refused.status_code, refused.text) == (503, "too many requests in hand\n")
        assert (await client.get("/livez")).status_code == 200
        may_end.set()
        assert (await first).text == "late"


def test_a_new_connection_takes_the_place_of_the_one_that_has_waited_longest() -> None:
    reasons: list[str] = []
    books = Connections(Limits(connections=4, connections_of_address=3), reasons.append)
    first, second, third, other, another = (
        Connection(address) for address in ("10.0.0.1", "10.0.0.1", "10.0.0.1", "10.0.0.2", "10.0.0.3")
    )
    assert all(map(books.admit, (first, second, third, other)))
    books.works(first)
    assert books.admit(another)  # in the place of `second`: its address has most that wait
    books.gone(second)  # no-op
    assert (len(books), reasons) == (4, ["connections"])
    books.works(third)
    assert books.admit(Connection("10.0.0.1"))  # the third of its address; `other` has waited longest
    books.works(another)
    busy = Connections(Limits(connections=1), reasons.append)
    assert busy.admit(first)
    busy.works(first)
    assert not busy.admit(second)
    busy.waits(first)
    assert busy.admit(second)


def test_addresses_of_one_ipv6_network_count_as_one() -> None:
    assert address_of(("2001:db8::1", 1)) == address_of(("2001:db8::ffff:2", 2)) == "2001:db8::/64"
    assert address_of(("2001:db8:0:1::1", 1)) == "2001:db8:0:1::/64"
    assert address_of(("::ffff:10.0.0.1", 1)) == address_of(("10.0.0.1", 1)) == "10.0.0.1"
    assert address_of(("fe80::1%eth0", 1, 0, 2)) == "fe80::/64"


async def test_the_limits_hold_before_credentials_are_checked(tmp_path: Path) -> None:
    access = AccessFolder(tmp_path)
    token = access.add("alice", Role.VIEW)
    async with (
        served(SMALL, Route("/api/pods", pods), http_access_file=access.write()) as http,
        httpx.AsyncClient(base_url=http.url, trust_env=False) as client,
    ):
        sent, _ = await sent_until_closed(http.port, b"GET /api/pods HTTP/1.1\r\n", b"a:\r\n" * 1024, 64 * MIB)
        assert sent < 16 * MIB
        held = await hold(http.port, 100, 1)
        assert (await client.get("/api/pods", headers=bearer(token))).status_code == 200
        page = (await client.get("/metrics")).text
        assert 'koord_http_refusals_total{reason="size"} 1.0' in page
        assert 'koord_http_refusals_total{reason="connections"}' in page
        for each in held:
            each.close()
