"""20,000 mutated messages, files and connections: each passes unchanged or is refused, and the proxy goes on."""

import asyncio
import json
import random
from pathlib import Path
from typing import Any

import pytest
from koord_criproxy.cri.calls import Interceptor
from koord_criproxy.cycle import Answer
from koord_criproxy.docker.api import Handler
from koord_criproxy.docker.calls import DockerInterceptor, DockerRequest
from koord_criproxy.hooks.asking import Dispatcher, HookFailed
from koord_criproxy.hooks.servers import HookServer, SkipLabel, hook_server_failed, hook_servers, registered
from koord_criproxy.records import PodRecord, Store
from koordcore.runtime_api.cri import cri_messages
from koordcore.runtime_api.hooks import messages_of_call
from support.agent.cri import message
from support.criproxy import World, proxied
from support.depth import repeats
from support.mutations import damaged, mutated
from support.until import DEADLINE_SECONDS

SERVER = HookServer(
    file="a.json",
    endpoint="/hook",
    policy="Ignore",
    hooks=("PreRunPodSandbox", "PreCreateContainer", "PreUpdateContainerResources", "PostStopContainer"),
)
HOST = {"CgroupParent": "kubepods-pod1.slice", "CpuShares": 2, "Memory": 0, "CpusetCpus": "0-1", "OomScoreAdj": 1}
DOCKER_LABELS = {"a": "b", "annotation.c": "{}"}
DOCKER = {"Image": "i", "Env": ["A=1", "B"], "HostConfig": HOST}


class FuzzedHooks:
    """A hook server that fails, or answers with bytes that were damaged."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self.is_down = True

    async def ask(self, endpoint: str, rpc: str, request: Any) -> Any:
        assert endpoint == SERVER.endpoint
        if self.is_down:
            raise HookFailed("down")
        answer = messages_of_call(rpc)[1]
        body = damaged(self._rng, message((1, message((1, "k"), (2, "v"))), (2, message((3, 512), (6, "0-3")))))
        try:
            return answer.FromString(body)
        except Exception as error:
            raise HookFailed("malformed") from error


def dispatcher(hooks: FuzzedHooks) -> Dispatcher:
    return Dispatcher(lambda: [SERVER], hooks, skip=SkipLabel(), observe=not_observed, failed=hook_server_failed)


def not_observed(_rpc: str, _policy: str, _error: str, _seconds: float) -> None:
    """Hook calls are not counted."""


def requests() -> dict[str, bytes]:
    """One valid request of each intercepted call."""
    messages = cri_messages()
    resources = {"cpu_shares": 2, "cpuset_cpus": "0-1", "unified": {"a": "b"}}
    pod = {"metadata": {"name": "web", "uid": "u"}, "labels": {"a": "b"}, "linux": {"cgroup_parent": "/x"}}
    config = {"metadata": {"name": "main"}, "envs": [{"key": "A", "value": b"1"}], "linux": {"resources": resources}}
    fields: dict[str, dict[str, Any]] = {
        "RunPodSandbox": {"config": pod},
        "CreateContainer": {"pod_sandbox_id": "s", "config": config, "sandbox_config": pod},
        "UpdateContainerResources": {"container_id": "c", "linux": resources, "annotations": {"a": "b"}},
        "StartContainer": {"container_id": "c"},
        "StopContainer": {"container_id": "c", "timeout": 3},
        "StopPodSandbox": {"pod_sandbox_id": "s"},
    }
    return {name: messages[f"{name}Request"](**given).SerializeToString() for name, given in fields.items()}


async def no_sandbox(_: str) -> PodRecord | None:
    """The runtime has no sandbox that the store lacks."""
    return None


@pytest.mark.fuzz
async def test_mutated_messages_reach_the_runtime_unchanged_if_no_hook_answers() -> None:
    rng, valid = random.Random(14), list(requests().items())
    hooks = FuzzedHooks(rng)
    for number in range(repeats(8_000)):
        store = Store()
        store.pods["s"] = PodRecord(name="web")
        interceptor = Interceptor(store, dispatcher(hooks), no_sandbox)
        seen: list[bytes] = []

        async def runtime(body: bytes, seen: list[bytes] = seen) -> Answer:
            seen.append(body)
            return Answer(body=damaged(rng, message((1, "c"))), is_ok=rng.random() < 0.9)

        hooks.is_down = number % 2 == 0
        await interceptor.call("CreateContainer", dict(valid)["CreateContainer"], runtime)
        name, body = rng.choice(valid)
        body = damaged(rng, body)
        await interceptor.call(name, body, runtime)
        assert len(seen) == 2
        if hooks.is_down:
            assert seen[1] == body


@pytest.mark.fuzz
async def test_mutated_docker_requests_reach_dockerd_unchanged_if_no_hook_answers() -> None:
    rng = random.Random(15)
    hooks = FuzzedHooks(rng)
    kinds: list[tuple[Handler, str, dict[str, str]]] = [
        (Handler.CREATE, "k8s_POD_web_default_u_0", {"io.kubernetes.docker.type": "podsandbox"}),
        (Handler.CREATE, "k8s_main_web_default_u_0", {"io.kubernetes.sandbox.id": "s"}),
        (Handler.UPDATE, "", {}),
        (Handler.STOP, "", {}),
    ]
    for number in range(repeats(5_000)):
        store = Store()
        store.pods["s"] = PodRecord(name="web")
        interceptor = DockerInterceptor(store, dispatcher(hooks))
        interceptor.cgroup_driver = rng.choice(["systemd", "cgroupfs"])
        seen: list[bytes] = []

        async def forward(body: bytes, seen: list[bytes] = seen) -> Answer:
            seen.append(body)
            return Answer(is_ok=rng.choice([201, 204, 304, 404, 500]) < 400, body=damaged(rng, b'{"Id": "c"}'))

        hooks.is_down = number % 2 == 0
        handler, name, labels = rng.choice(kinds)
        document = {**DOCKER, **HOST, "Labels": {**DOCKER_LABELS, **labels}}
        body = json.dumps(mutated(rng, document)).encode()
        body = damaged(rng, body) if rng.random() < 0.3 else body
        created = json.dumps({"Labels": kinds[1][2]}).encode()
        await interceptor.call(DockerRequest(handler=Handler.CREATE, name=kinds[1][1], body=created), forward)
        container_id = next(iter(store.containers), "c")
        await interceptor.call(DockerRequest(handler=handler, container_id=container_id, name=name, body=body), forward)
        assert len(seen) == 2
        if hooks.is_down:
            assert seen[1] == body


@pytest.mark.fuzz
def test_a_mutated_registration_keeps_the_last_good_one_or_replaces_it() -> None:
    rng = random.Random(16)
    document = {"remote-endpoint": "/s", "failure-policy": "Fail", "runtime-hooks": ["PreRunPodSandbox"]}
    good = json.dumps(document).encode()
    for _ in range(repeats(5_000)):
        files = {"a.json": good, "b.json": good}
        before, problems = hook_servers({}, files)
        assert problems == {}
        content = json.dumps(mutated(rng, document)).encode() if rng.random() < 0.5 else damaged(rng, good)
        after, problems = hook_servers(before, {**files, "b.json": content})
        assert [server.file for server in registered(after)] == ["a.json", "b.json"]
        assert after["b.json"] == before["b.json"] or not problems


@pytest.mark.fuzz
@pytest.mark.parametrize("mode", ["Containerd", "Docker"])
async def test_mutated_bytes_on_the_socket_end_their_connection_only(tmp_path: Path, mode: str) -> None:
    rng = random.Random(17)
    socket = tmp_path / "docker.sock" if mode == "Docker" else None
    world = World(tmp_path, runtime_socket=socket, mode=mode)
    await world.runtime.start()
    http = b"POST /v1.41/containers/create?name=x HTTP/1.1\r\nHost: d\r\nContent-Length: 2\r\n\r\n{}"
    settings_frame = b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"
    headers = b"\x00\x00\x0a\x01\x04\x00\x00\x00\x01\x83\x86\x44\x04/abc\x00\x00\x00"
    valid = http if mode == "Docker" else b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + settings_frame + headers
    dockerd = await asyncio.start_unix_server(answer_http, tmp_path / "docker.sock")
    async with proxied(world):
        socket = world.settings.koord_runtimeproxy_endpoint
        for _ in range(repeats(1_000)):
            reader, writer = await asyncio.open_unix_connection(socket)
            writer.write(damaged(rng, valid))
            if writer.can_write_eof():
                writer.write_eof()
            await ended(reader)
            writer.close()
        if mode == "Docker":
            reader, writer = await asyncio.open_unix_connection(socket)
            writer.write(b"GET /_ping HTTP/1.1\r\nHost: d\r\n\r\n")
            assert (await reader.readuntil(b"OK")).startswith(b"HTTP/1.1 200")
            writer.close()
        else:
            assert await world.call("Status", b"") == b""
    dockerd.close()
    await world.channel.close()
    await world.runtime.stop()


async def answer_http(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer one request, whatever it is."""
    head = await reader.read(65_536)
    body = b'{"CgroupDriver": "systemd"}' if b"/info" in head else b"[]" if b"/containers/json" in head else b"OK"
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
    writer.close()


async def ended(reader: asyncio.StreamReader) -> None:
    """Wait until the proxy ends the connection."""
    try:
        async with asyncio.timeout(DEADLINE_SECONDS):
            await reader.read()
    except ConnectionError:
        return
