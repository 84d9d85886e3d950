"""A CRI proxy between a client, a runtime and a hook server that all speak real gRPC; for tests."""

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
from koord_agent.shell.bus.bus_link import BusLink, Ports
from koord_agent.shell.bus.proxy_facts import ProxyFactServer
from koord_criproxy.compose import compose
from koord_criproxy.settings import CriProxySettings
from koord_criproxy.sockets import OPTIONS, address, open_channel
from koordcore.bus.adapters.memory import MemoryLog
from koordcore.bus.factory import memory_bus
from koordcore.runtime_api.cri import cri_messages
from koordcore.runtime_api.hooks import messages_of_call
from support.running_service import running_service
from support.until import DEADLINE_SECONDS

RUNTIME = "/runtime.v1.RuntimeService/"
Handler = Callable[[str, bytes, Any], Awaitable[bytes | None]]
"""Takes method, request and context; returns the answer, or None if it has written the messages itself."""


class GrpcServer(grpc.GenericRpcHandler):
    """A server of every method on a unix socket; it remembers what it was asked."""

    def __init__(self, socket: Path, answer: Handler) -> None:
        self.socket = socket
        self.answer = answer
        self.calls: list[tuple[str, bytes]] = []
        self._server: Any = None

    def service(self, handler_call_details: Any) -> Any:
        method: str = handler_call_details.method

        async def handle(requests: AsyncIterator[bytes], context: Any) -> None:
            messages = [message async for message in requests]
            if not messages:
                return  # cancelled before its request came
            body = b"".join(messages)
            self.calls.append((method, body))
            found = await self.answer(method, body, context)
            if found is not None:
                await context.write(found)

        make: Any = grpc.stream_stream_rpc_method_handler
        return make(handle)

    async def start(self) -> None:
        self.socket.unlink(missing_ok=True)
        self._server = grpc.aio.server(options=OPTIONS)
        self._server.add_generic_rpc_handlers((self,))
        self._server.add_insecure_port(address(str(self.socket)))
        await self._server.start()

    async def stop(self) -> None:
        await self._server.stop(0)

    def called(self, name: str) -> list[bytes]:
        return [body for method, body in self.calls if method.endswith(f"/{name}")]


async def answer_as_runtime(method: str, body: bytes, context: Any) -> bytes | None:
    """A runtime with one sandbox and one container."""
    messages = cri_messages()
    match method.removeprefix(RUNTIME):
        case "Version":
            return messages["VersionResponse"](runtime_name="fake", runtime_version="1").SerializeToString()
        case "RunPodSandbox":
            return messages["RunPodSandboxResponse"](pod_sandbox_id="s1").SerializeToString()
        case "CreateContainer":
            return messages["CreateContainerResponse"](container_id="c1").SerializeToString()
        case _:
            pass
    return b""


class World:
    """Runtime, hook server and proxy below one folder."""

    def __init__(self, folder: Path, *, runtime_socket: Path | None = None, mode: str = "Containerd") -> None:
        self.folder = folder
        self.hooks_dir = folder / "hookserver.d"
        self.runtime = GrpcServer(folder / "runtime.sock", answer_as_runtime)
        self.hooks = GrpcServer(folder / "hooks.sock", self._hook)
        self.responses: dict[str, Any] = {}
        self.settings = CriProxySettings.model_validate(
            {
                "koord_runtimeproxy_endpoint": folder / "proxy.sock",
                "remote_runtime_service_endpoint": runtime_socket or self.runtime.socket,
                "backend_runtime_mode": mode,
                "hook_server_dir": self.hooks_dir,
                "runtime_start_timeout": DEADLINE_SECONDS,
                "state_dir": folder / "state",
                "node_name": "node-a",
                "nats_urls": ["nats://127.0.0.1:1"],
            }
        )
        self.channel = open_channel(str(self.settings.koord_runtimeproxy_endpoint))

    async def _hook(self, method: str, _body: bytes, context: Any) -> bytes | None:
        rpc = method.rpartition("/")[2]
        found: Any = self.responses.get(rpc, messages_of_call(rpc)[1]())
        if isinstance(found, str):
            await context.abort(grpc.StatusCode.INTERNAL, found)
            return None
        if isinstance(found, float):
            await asyncio.sleep(found)
            return b""
        answer: bytes = found.SerializeToString()
        return answer

    def register(self, policy: str, *hooks: str, file: str = "agent.json", endpoint: str | None = None) -> None:
        self.hooks_dir.mkdir(exist_ok=True)
        socket = str(self.hooks.socket) if endpoint is None else endpoint
        document = {"remote-endpoint": socket, "failure-policy": policy, "runtime-hooks": hooks}
        fresh = self.hooks_dir / ".new"
        fresh.write_text(json.dumps(document))
        fresh.rename(self.hooks_dir / file)

    async def call(self, name: str, request: Any, **options: Any) -> bytes:
        body: bytes = request if isinstance(request, bytes) else request.SerializeToString()
        path = name if name.startswith("/") else RUNTIME + name
        unary: Any = self.channel.unary_unary
        return await unary(path)(body, **{"wait_for_ready": True, **options})

    async def create(self, **config: Any) -> Any:
        """Create a container in the sandbox s1, and return the request that reached the runtime."""
        messages = cri_messages()
        request = messages["CreateContainerRequest"](pod_sandbox_id="s1", config=config)
        request.config.linux.resources.cpu_shares = 2
        await self.call("CreateContainer", request)
        return messages["CreateContainerRequest"].FromString(self.runtime.called("CreateContainer")[-1])

    async def run_sandbox(self, **config: Any) -> Any:
        messages = cri_messages()
        request = messages["RunPodSandboxRequest"](config={"linux": {"cgroup_parent": "/kubepods/x"}, **config})
        await self.call("RunPodSandbox", request)
        return messages["RunPodSandboxRequest"].FromString(self.runtime.called("RunPodSandbox")[-1])


def link_to(log: MemoryLog) -> BusLink:
    """Return the connection of an agent to a log in memory."""
    bus = memory_bus(log=log)
    return BusLink(Ports(facts=bus.events, reports=bus.observations, desired=bus.desired, pushes=bus.pushes))


@contextlib.asynccontextmanager
async def agent_for_facts(socket: Path, node: str, link: BusLink) -> AsyncGenerator[None]:
    """Serve the socket at which the agent of a node takes the facts of its proxy."""
    server = ProxyFactServer(socket, node, link)
    server.start()
    yield
    await asyncio.to_thread(server.stop)


@contextlib.asynccontextmanager
async def running_world(folder: Path) -> AsyncGenerator[World]:
    """Start a runtime and a hook server below a folder; the proxy is not started."""
    world = World(folder)
    await world.runtime.start()
    await world.hooks.start()
    yield world
    await world.channel.close()
    await world.hooks.stop()
    await world.runtime.stop()


@contextlib.asynccontextmanager
async def proxied(world: World) -> AsyncGenerator[World]:
    async with running_service(world.settings, compose):
        yield world
