"""Calls pass as without the proxy: bytes, metadata, streams, deadlines, cancellation, status and its details."""

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, Final

import grpc
import grpc.aio
import pytest
from koordcore.runtime_api.cri import cri_messages
from koordcore.runtime_api.hooks import messages_of_call
from support.criproxy import RUNTIME, GrpcServer, World, answer_as_runtime, proxied, running_world
from support.until import DEADLINE_SECONDS

SERVICES: Final = {
    "/runtime.v1.RuntimeService/": (
        "Version RunPodSandbox StopPodSandbox RemovePodSandbox PodSandboxStatus ListPodSandbox CreateContainer"
        " StartContainer StopContainer RemoveContainer ListContainers ContainerStatus UpdateContainerResources"
        " ReopenContainerLog ExecSync Exec Attach PortForward ContainerStats ListContainerStats PodSandboxStats"
        " ListPodSandboxStats UpdateRuntimeConfig Status CheckpointContainer ListMetricDescriptors"
        " ListPodSandboxMetrics RuntimeConfig UpdatePodSandboxResources CheckpointPod RestorePod"
    ),
    "/runtime.v1.ImageService/": "ListImages ImageStatus PullImage RemoveImage ImageFsInfo",
    "/runtime.v1alpha2.RuntimeService/": "RunPodSandbox",
    "/runtime.v9.NewService/": "NewCall",
}
STREAMS: Final = {
    "/runtime.v1.RuntimeService/": (
        "GetContainerEvents StreamPodSandboxes StreamContainers StreamContainerStats StreamPodSandboxStats"
        " StreamPodSandboxMetrics"
    ),
    "/runtime.v1.ImageService/": "StreamImages",
}
DETAILS: Final = (("grpc-status-details-bin", b"\x08\x05\xff details"), ("why", "a text"))
SECONDS: Final = DEADLINE_SECONDS
PAIRS: Final = 100


@pytest.fixture
async def world(tmp_path: Path) -> AsyncGenerator[World]:
    async with running_world(tmp_path) as found:
        yield found


def methods(services: dict[str, str]) -> list[str]:
    return [service + name for service, names in services.items() for name in names.split()]


async def test_every_call_passes_with_its_bytes_and_metadata(world: World) -> None:
    async def echo(method: str, body: bytes, context: Any) -> bytes | None:
        sent: Any = dict(context.invocation_metadata())
        if "asked" not in sent:
            return await answer_as_runtime(method, body, context)  # the proxy's own calls at its start
        context.set_trailing_metadata((("trailer", "t"), ("raw-bin", sent["raw-bin"])))
        await context.send_initial_metadata((("header", sent["asked"]),))
        if method in methods(STREAMS):
            for number in range(3):
                await context.write(body + bytes([number]))
            return None
        return body[::-1]

    world.runtime.answer = echo
    world.register("Fail", "PreRunPodSandbox", "PreCreateContainer", "PreStartContainer", "PostStopContainer")
    metadata = (("asked", "for"), ("raw-bin", b"\x00\xff"))
    async with proxied(world):
        for path in methods(SERVICES):
            body = b"\xff not protobuf " + path.encode()
            unary: Any = world.channel.unary_unary
            call = unary(path)(body, metadata=metadata, wait_for_ready=True, timeout=SECONDS)
            assert await call == body[::-1], path
            assert world.runtime.calls[-1] == (path, body)
            assert ("header", "for") in list(await call.initial_metadata())
            trailing = list(await call.trailing_metadata())
            assert ("trailer", "t") in trailing
            assert ("raw-bin", b"\x00\xff") in trailing
        for path in methods(STREAMS):
            stream: Any = world.channel.unary_stream
            call = stream(path)(b"asked ", metadata=metadata, timeout=SECONDS)
            assert [message async for message in call] == [b"asked \x00", b"asked \x01", b"asked \x02"], path
            assert ("trailer", "t") in list(await call.trailing_metadata())


async def test_messages_above_the_limit_of_grpc_pass_in_both_directions(world: World) -> None:
    async def twice(method: str, body: bytes, context: Any) -> bytes | None:
        return (
            body + b"."
            if method.endswith("/ListContainers") and body
            else await answer_as_runtime(method, body, context)
        )

    world.runtime.answer = twice
    async with proxied(world):
        body = bytes(range(256)) * 61_440  # 15 MiB; gRPC's own limit is 4 MiB
        assert await world.call("ListContainers", body, timeout=SECONDS) == body + b"."


async def test_every_status_passes_with_its_details(world: World) -> None:
    async def refuse(method: str, body: bytes, context: Any) -> bytes | None:
        if body.decode(errors="replace") not in grpc.StatusCode.__members__:
            return await answer_as_runtime(method, body, context)
        await context.abort(grpc.StatusCode[body.decode()], "wörtlich: no such container", DETAILS)
        return None

    async def asked(kind: str, name: str, code: grpc.StatusCode) -> grpc.aio.AioRpcError:
        call: Any = getattr(world.channel, f"unary_{kind}")(RUNTIME + name)(code.name.encode(), timeout=SECONDS)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await (call if kind == "unary" else call.read())
        return caught.value

    world.runtime.answer = refuse
    world.register("Ignore", "PreRunPodSandbox")
    async with proxied(world):
        calls = (("unary", "ExecSync"), ("unary", "RunPodSandbox"), ("stream", "GetContainerEvents"))
        for code in grpc.StatusCode:
            for kind, name in calls if code is not grpc.StatusCode.OK else ():
                error = await asked(kind, name, code)
                assert (error.code(), error.details()) == (code, "wörtlich: no such container"), name
                trailing: Any = error.trailing_metadata()
                assert set(DETAILS) <= set(trailing)


async def test_the_messages_of_a_stream_pass_while_it_is_open_and_its_client_ends_it(world: World) -> None:
    go_on, ended = asyncio.Event(), asyncio.Event()

    async def events(method: str, body: bytes, context: Any) -> bytes | None:
        if not method.endswith("/GetContainerEvents"):
            return await answer_as_runtime(method, body, context)
        try:
            await context.write(b"first")
            await go_on.wait()
            await context.write(b"second")
            await asyncio.Event().wait()
        finally:
            ended.set()
        return None

    world.runtime.answer = events
    async with proxied(world), asyncio.timeout(SECONDS):
        stream: Any = world.channel.unary_stream
        call = stream(RUNTIME + "GetContainerEvents")(b"", wait_for_ready=True)
        assert await call.read() == b"first"
        assert not ended.is_set()
        go_on.set()
        assert await call.read() == b"second"
        call.cancel()
        await ended.wait()


@pytest.mark.parametrize("name", ["ExecSync", "RunPodSandbox"])
async def test_deadline_and_cancellation_reach_the_runtime(world: World, name: str) -> None:
    remaining: list[float | None] = []
    asked, ended = asyncio.Event(), asyncio.Event()

    async def waits(method: str, body: bytes, context: Any) -> bytes | None:
        if not method.endswith(f"/{name}"):
            return await answer_as_runtime(method, body, context)
        remaining.append(context.time_remaining())
        asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return None

    world.runtime.answer = waits
    async with proxied(world), asyncio.timeout(SECONDS):
        for timeout in (None, 1000.0):
            asked.clear()
            ended.clear()
            unary: Any = world.channel.unary_unary
            call = unary(RUNTIME + name)(b"", wait_for_ready=True, timeout=timeout)
            await asked.wait()
            call.cancel()
            await ended.wait()
    without, limited = remaining
    assert without is None
    assert limited is not None
    assert 1000.0 - SECONDS < limited < 1050.0  # gRPC rounds timeouts up when it sends them


async def test_large_request_of_an_intercepted_call_passes_with_the_change_of_its_hook(world: World) -> None:
    world.register("Fail", "PreCreateContainer")
    answer = messages_of_call("PreCreateContainerHook")[1]
    world.responses["PreCreateContainerHook"] = answer(container_resources={"cpu_shares": 512})
    large = {"large": "x" * (6 << 20)}
    async with proxied(world):
        await world.run_sandbox()
        for _ in range(2):
            created = await world.create(annotations=large)
            assert (dict(created.config.annotations), created.config.linux.resources.cpu_shares) == (large, 512)
        with pytest.raises(grpc.aio.AioRpcError, match="larger than max") as caught:
            await world.call("CreateContainer", bytes((16 << 20) + 1), timeout=SECONDS)
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert await world.call("Status", b"", timeout=SECONDS) == b""


async def test_compressed_request_is_changed_by_its_hook(world: World) -> None:
    world.register("Fail", "PreRunPodSandbox")
    world.responses["PreRunPodSandboxHook"] = messages_of_call("PreRunPodSandboxHook")[1](labels={"added": "1"})
    request = cri_messages()["RunPodSandboxRequest"](config={"labels": {"a": "b" * 1_000}})
    async with proxied(world):
        await world.call("RunPodSandbox", request, compression=grpc.Compression.Gzip)
        sent = cri_messages()["RunPodSandboxRequest"].FromString(world.runtime.called("RunPodSandbox")[0])
        assert dict(sent.config.labels) == {"a": "b" * 1_000, "added": "1"}


async def test_record_of_a_container_is_there_when_its_client_starts_it(world: World) -> None:
    world.register("Fail", "PreStartContainer")
    async with proxied(world):
        await world.run_sandbox()
        for _ in range(PAIRS):
            await world.create()
            await world.call("StartContainer", cri_messages()["StartContainerRequest"](container_id="c1"))
            await world.call("RemoveContainer", cri_messages()["RemoveContainerRequest"](container_id="c1"))
    assert len(world.hooks.called("PreStartContainerHook")) == PAIRS


async def test_calls_of_one_client_reach_the_sockets_of_both_services(tmp_path: Path) -> None:
    async with running_world(tmp_path) as world:
        images = GrpcServer(tmp_path / "images.sock", answer_as_runtime)
        await images.start()
        world.settings = world.settings.model_copy(update={"remote_image_service_endpoint": images.socket})
        async with proxied(world):
            for _ in range(5):
                await world.call("Status", b"", timeout=SECONDS)
                await world.call("/runtime.v1.ImageService/ListImages", b"", timeout=SECONDS)
        assert len(images.called("ListImages")) == len(world.runtime.called("Status")) == 5
        assert world.runtime.called("ListImages") == []
        await images.stop()


async def test_call_in_progress_ends_before_the_proxy_stops(world: World) -> None:
    asked, go_on = asyncio.Event(), asyncio.Event()

    async def waits(method: str, body: bytes, context: Any) -> bytes | None:
        if not method.endswith("/ExecSync"):
            return await answer_as_runtime(method, body, context)
        asked.set()
        await go_on.wait()
        return b"answer"

    world.runtime.answer = waits
    async with asyncio.timeout(SECONDS):
        async with proxied(world):
            call = asyncio.ensure_future(world.call("ExecSync", b""))
            await asked.wait()
            asyncio.get_running_loop().call_later(0.1, go_on.set)
        assert await call == b"answer"
