"""Docker mode as a service, in front of a scripted dockerd: what passes unchanged, and what happens in trouble."""

import asyncio
import contextlib
import json
import select
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path

import httpx
import pytest
from koord_criproxy.docker import peer, proxy
from koord_criproxy.docker.calls import DockerInterceptor
from koordcore.runtime_api.hooks import messages_of_call
from support.criproxy import World, proxied
from support.until import DEADLINE_SECONDS, until

ID = "a" * 64
INFO = {"CgroupDriver": "systemd"}
Answer = Callable[[bytes, asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def framed(document: object, status: str = "200 OK") -> bytes:
    body = json.dumps(document).encode()
    return b"HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n%s" % (status.encode(), len(body), body)


class Dockerd:
    """Answers each connection by the script of its path; remembers the bytes that it read."""

    def __init__(self, socket: Path) -> None:
        self.socket = socket
        self.heads: list[bytes] = []
        self.bodies: list[bytes] = []
        self.scripts: dict[bytes, Answer] = {}
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        self._server = await asyncio.start_unix_server(self._serve, self.socket)

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        await self._server.wait_closed()
        self.socket.unlink(missing_ok=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        self.heads.append(head)
        path = head.split()[1].partition(b"?")[0]
        script = next((script for end, script in self.scripts.items() if path.endswith(end)), None)
        if script is not None:
            await script(head, reader, writer)
        else:
            for line in head.lower().split(b"\r\n"):
                if line.startswith(b"content-length:"):
                    self.bodies.append(await reader.readexactly(int(line.partition(b":")[2])))
            answers: dict[bytes, object] = {b"/info": INFO, b"/containers/json": [], b"/containers/create": {"Id": ID}}
            writer.write(framed(answers.get(path, {"path": path.decode()})))
        writer.close()


@pytest.fixture
async def dockerd(tmp_path: Path) -> AsyncGenerator[Dockerd]:
    found = Dockerd(tmp_path / "docker.sock")
    await found.start()
    yield found
    await found.stop()


@pytest.fixture
async def world(tmp_path: Path, dockerd: Dockerd) -> AsyncGenerator[World]:
    found = World(tmp_path, runtime_socket=dockerd.socket, mode="Docker")
    await found.hooks.start()
    yield found
    await found.channel.close()
    await found.hooks.stop()


def client_of(world: World) -> httpx.AsyncClient:
    transport = httpx.AsyncHTTPTransport(uds=str(world.settings.koord_runtimeproxy_endpoint))
    return httpx.AsyncClient(transport=transport, base_url="http://docker", timeout=DEADLINE_SECONDS)


async def test_requests_of_one_connection_keep_version_query_and_headers(world: World, dockerd: Dockerd) -> None:
    async with proxied(world), client_of(world) as client:
        for path in ("/v1.99/containers/x/json?all=1", "/_ping", "/v1.41/images/a%2Fb/json"):
            found = await client.get(path, headers={"X-Registry-Auth": "secret"})
            assert found.json() == {"path": path.partition("?")[0]}
            assert dockerd.heads[-1].split()[1] == path.encode()
            assert b"X-Registry-Auth: secret" in dockerd.heads[-1]


async def test_chunks_pass_at_once_in_both_directions(world: World, dockerd: Dockerd) -> None:
    async def echo(_head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        while (size := int(await reader.readline(), 16)) > 0:
            chunk = await reader.readexactly(size + 2)
            writer.write(b"%x\r\n%s" % (size, chunk))
        writer.write(b"0\r\n\r\n")
        await writer.drain()

    dockerd.scripts[b"/build"] = echo
    async with proxied(world):
        reader, writer = await asyncio.open_unix_connection(world.settings.koord_runtimeproxy_endpoint)
        writer.write(b"POST /build HTTP/1.1\r\nHost: d\r\nTransfer-Encoding: chunked\r\n\r\n")
        for part in (b"5\r\nfirst\r\n", b"6\r\nsecond\r\n"):
            writer.write(part)
            assert (await asyncio.wait_for(reader.readuntil(part), DEADLINE_SECONDS)).endswith(part)
        writer.write(b"0\r\n\r\n")
        assert await asyncio.wait_for(reader.readuntil(b"0\r\n\r\n"), DEADLINE_SECONDS) == b"0\r\n\r\n"
        writer.write(b"GET /_ping HTTP/1.1\r\nHost: d\r\n\r\n")
        assert (await asyncio.wait_for(reader.readuntil(b"}"), DEADLINE_SECONDS)).endswith(b'{"path": "/_ping"}')
        writer.close()


@pytest.mark.parametrize("is_upgrade", [True, False])
async def test_a_connection_that_dockerd_takes_over_is_a_stream(
    world: World, dockerd: Dockerd, is_upgrade: bool
) -> None:
    ask = b"Connection: Upgrade\r\nUpgrade: tcp\r\n" if is_upgrade else b""
    status = b"101 UPGRADED" if is_upgrade else b"200 OK"

    async def attach(_head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 %s\r\nContent-Type: application/vnd.docker.raw-stream\r\n" % status + ask)
        writer.write(b"\r\nhello ")
        writer.write((await reader.read()).upper())
        await writer.drain()

    dockerd.scripts[b"/attach"] = attach
    async with proxied(world):
        reader, writer = await asyncio.open_unix_connection(world.settings.koord_runtimeproxy_endpoint)
        writer.write(b"POST /v1.41/containers/x/attach HTTP/1.1\r\nHost: d\r\nContent-Length: 0\r\n" + ask + b"\r\n")
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 " + status)
        assert b"chunked" not in head
        writer.write(b"from the ")
        writer.write(b"client")
        writer.write_eof()
        assert await reader.read() == b"hello FROM THE CLIENT"
        writer.close()


async def test_a_client_that_hangs_up_ends_the_request_at_dockerd(world: World, dockerd: Dockerd) -> None:
    ended = asyncio.Event()

    async def events(_head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n")
        assert await reader.read() == b""
        ended.set()

    dockerd.scripts[b"/events"] = events
    async with proxied(world), client_of(world) as client:
        async with client.stream("GET", "/events") as response:
            assert await anext(response.aiter_raw()) == b"x"
        await asyncio.wait_for(ended.wait(), DEADLINE_SECONDS)


@pytest.mark.parametrize("leaves_unread", [False, True])
async def test_a_client_that_has_left_ends_a_silent_stream(
    world: World, dockerd: Dockerd, monkeypatch: pytest.MonkeyPatch, leaves_unread: bool
) -> None:
    monkeypatch.setattr(peer, "LOOK_SECONDS", 0.01, raising=False)
    ended = asyncio.Event()

    async def attach(_head: bytes, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 101 UPGRADED\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n!")
        if leaves_unread:
            writer.write(b"output" * 1_000)
        await writer.drain()
        poll = select.poll()
        poll.register(writer.get_extra_info("socket").fileno(), 0)
        await until(lambda: poll.poll(0), "the connection to dockerd is closed")
        ended.set()

    dockerd.scripts[b"/attach"] = attach
    async with proxied(world):
        reader, writer = await asyncio.open_unix_connection(world.settings.koord_runtimeproxy_endpoint, limit=16)
        ask = b"Connection: Upgrade\r\nUpgrade: tcp\r\nContent-Length: 0\r\n\r\n"
        writer.write(b"POST /v1.41/containers/x/attach HTTP/1.1\r\nHost: d\r\n" + ask)
        while b"!" not in await reader.read(16):
            pass
        writer.close()
        await asyncio.wait_for(ended.wait(), DEADLINE_SECONDS)


async def test_required_hook_that_fails_is_an_error_of_docker(world: World, dockerd: Dockerd) -> None:
    world.register("Fail", "PreRunPodSandbox")
    world.responses["PreRunPodSandboxHook"] = "refused"
    body = {"Image": "pause", "Labels": {"io.kubernetes.docker.type": "podsandbox"}}
    async with proxied(world), client_of(world) as client:
        found = await client.post("/v1.39/containers/create?name=k8s_POD_web_default_u_0", json=body)
        assert found.status_code == 500
        assert found.json()["message"].startswith("hook server err: ")
        plain = await client.post("/containers/create?name=redis", json={"Image": "redis"})
        assert plain.json() == {"Id": ID}
        assert dockerd.bodies == [b'{"Image":"redis"}']


async def test_hook_changes_the_sandbox_and_unknown_fields_stay(world: World, dockerd: Dockerd) -> None:
    world.register("Fail", "PreRunPodSandbox", "PreCreateContainer")
    world.responses["PreRunPodSandboxHook"] = messages_of_call("PreRunPodSandboxHook")[1](
        cgroup_parent="/kubepods.slice/kubepods-pod1.slice", annotations={"new": "1"}
    )
    labels = {"io.kubernetes.docker.type": "podsandbox", "app": "web", "annotation.old": "0"}
    body = {"Labels": labels, "HostConfig": {"CgroupParent": "kubepods-burstable-pod1.slice", "New": [1]}, "New": {}}
    async with proxied(world), client_of(world) as client:
        created = await client.post("/containers/create?name=k8s_POD_web_default_u_0_random", json=body)
        assert created.json() == {"Id": ID}
    asked = messages_of_call("PreRunPodSandboxHook")[0].FromString(world.hooks.called("PreRunPodSandboxHook")[0])
    assert asked.cgroup_parent == "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1.slice"
    assert (dict(asked.annotations), asked.labels["app"]) == ({"old": "0"}, "web")
    assert json.loads(dockerd.bodies[0]) == {
        "Labels": {**labels, "annotation.new": "1"},
        "HostConfig": {"CgroupParent": "kubepods-pod1.slice", "New": [1]},
        "New": {},
    }


async def test_dockerd_that_is_down_is_told_and_comes_back(world: World, dockerd: Dockerd) -> None:
    async with proxied(world), client_of(world) as client:
        await dockerd.stop()
        down = await client.get("/version")
        assert (down.status_code, "dockerd" in down.json()["message"]) == (503, True)
        await dockerd.start()

        async def answers() -> bool:
            return (await client.get("/version")).status_code == 200

        await until(answers, "dockerd is reached again")


@pytest.mark.parametrize("path", ["/version", "/containers/create"])
async def test_dockerd_that_ends_without_an_answer_is_told(world: World, dockerd: Dockerd, path: str) -> None:
    async def end(_head: bytes, _reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        """Answer nothing."""

    dockerd.scripts[path.encode()] = end
    async with proxied(world), client_of(world) as client:
        found = await client.request("POST" if path.endswith("create") else "GET", path)
        assert found.status_code == 502
        assert found.json()["message"].startswith("dockerd: ")


async def test_an_error_of_the_proxy_is_an_answer(
    world: World, dockerd: Dockerd, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def call(*_: object) -> None:
        raise KeyError("what nobody thought of")

    monkeypatch.setattr(DockerInterceptor, "call", call)
    async with proxied(world), client_of(world) as client:
        found = await client.post("/containers/create", json={"Image": "redis"})
        assert (found.status_code, "what nobody thought of" in found.json()["message"]) == (500, True)
        assert (await client.get("/version")).status_code == 200


@pytest.mark.parametrize(
    "request_bytes",
    [b"not http at all\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n", b"POST /x HTTP/1.1\r\nContent-Length: -1\r\n\r\n"],
)
async def test_a_request_that_is_not_http_is_refused(world: World, request_bytes: bytes) -> None:
    async with proxied(world), client_of(world) as client:
        reader, writer = await asyncio.open_unix_connection(world.settings.koord_runtimeproxy_endpoint)
        writer.write(request_bytes)
        assert (await reader.read()).startswith(b"HTTP/1.1 400 ")
        writer.close()
        assert (await client.get("/version")).status_code == 200


async def test_a_client_that_does_not_read_does_not_hold_the_end_of_the_proxy(
    world: World, dockerd: Dockerd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proxy, "DRAIN_SECONDS", 0.1)
    monkeypatch.setattr(peer, "CLOSE_SECONDS", 0.1)
    flooded = asyncio.Event()

    async def flood(_head: bytes, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            for number in range(1_000):
                writer.write(b"x" * 100_000)
                if number == 5:
                    flooded.set()
                await writer.drain()

    dockerd.scripts[b"/logs"] = flood
    async with proxied(world):
        _, writer = await asyncio.open_unix_connection(world.settings.koord_runtimeproxy_endpoint)
        writer.write(b"GET /containers/x/logs HTTP/1.1\r\nHost: d\r\n\r\n")
        await asyncio.wait_for(flooded.wait(), DEADLINE_SECONDS)
    writer.close()
