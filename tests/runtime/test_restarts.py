"""Restarts in the middle of a pod's start: the proxy, containerd, and the hook server. The kubelet's calls go on."""

import asyncio
import signal
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from koordcore.runtime_api.hooks import messages_of_call
from koordctl.stack.containers import missing_program
from support.agent.cri import Containers, containerd
from support.criproxy import World, proxied
from support.kubelet import PARENT, Kubelet
from support.until import until

LACKING = missing_program()
pytestmark = [
    pytest.mark.runtime,
    pytest.mark.root,
    pytest.mark.skipif(LACKING != "", reason=LACKING),
]
HOOKS = ("PreRunPodSandbox", "PreCreateContainer", "PreStartContainer", "PostStartContainer", "PostStopContainer")


@pytest.fixture
async def parts(tmp_path: Path) -> AsyncGenerator[tuple[World, Kubelet, Containers]]:
    with containerd(tmp_path) as containers:
        world = World(tmp_path, runtime_socket=tmp_path / "containerd.sock")
        await world.hooks.start()
        world.responses["PreCreateContainerHook"] = messages_of_call("PreCreateContainerHook")[1](
            container_resources={"cpu_shares": 512}, container_envs={"A": "1"}
        )
        yield world, Kubelet(world), containers
        await world.channel.close()
        await world.hooks.stop()


def asked(world: World, hook: str) -> Any:
    return messages_of_call(f"{hook}Hook")[0].FromString(world.hooks.called(f"{hook}Hook")[-1])


async def succeeds(step: Callable[[], Awaitable[None]], expected: grpc.StatusCode) -> bool:
    """Whether a step succeeds; it may only fail with the expected status."""
    try:
        await step()
    except grpc.aio.AioRpcError as error:
        if error.code() is not expected:
            raise
        return False
    return True


async def test_a_new_proxy_for_each_step_knows_the_pod(parts: tuple[World, Kubelet, Containers]) -> None:
    world, kubelet, _ = parts
    world.register("Fail", *HOOKS)
    for step in (kubelet.run_sandbox, kubelet.create, kubelet.start):
        async with proxied(world):
            await step()
    assert kubelet.shares() == "512"
    async with proxied(world):
        await kubelet.remove()
    for hook in HOOKS[1:]:
        request = asked(world, hook)
        assert (request.pod_meta.name, request.pod_meta.uid, dict(request.pod_labels)) == (
            "web",
            "uid-1",
            {"app": "web"},
        )
        assert request.pod_cgroup_parent == PARENT
        assert request.container_meta.name == "main"
    assert asked(world, "PostStopContainer").container_resources.cpu_shares == 512


async def test_a_killed_containerd_fails_calls_as_without_the_proxy_and_the_start_goes_on(
    parts: tuple[World, Kubelet, Containers],
) -> None:
    world, kubelet, containers = parts
    world.register("Fail", *HOOKS)
    async with proxied(world):
        await kubelet.run_sandbox()
        containers.program.end(signal.SIGKILL)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await kubelet.create()
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        await asyncio.to_thread(containers.program.start)

        await until(lambda: succeeds(kubelet.create, grpc.StatusCode.UNAVAILABLE), "containerd is reached again")
        await kubelet.start()
        assert kubelet.shares() == "512"
        containers.program.end(signal.SIGKILL)
        await asyncio.to_thread(containers.program.start)

        await until(lambda: succeeds(kubelet.remove, grpc.StatusCode.UNAVAILABLE), "containerd is reached again")
    assert asked(world, "PostStopContainer").container_meta.id == kubelet.container


@pytest.mark.parametrize("policy", ["Ignore", "Fail"])
async def test_a_hook_server_that_is_away_in_the_middle(parts: tuple[World, Kubelet, Containers], policy: str) -> None:
    world, kubelet, _ = parts
    world.register(policy, *HOOKS)
    async with proxied(world):
        await kubelet.run_sandbox()
        await world.hooks.stop()
        if policy == "Fail":
            with pytest.raises(grpc.aio.AioRpcError, match="hook server err") as caught:
                await kubelet.create()
            assert caught.value.code() is grpc.StatusCode.UNKNOWN
            await world.hooks.start()

            await until(lambda: succeeds(kubelet.create, grpc.StatusCode.UNKNOWN), "the hook server is asked again")
        else:
            await kubelet.create()
            await world.hooks.start()
        await kubelet.start()
        assert kubelet.shares() == ("512" if policy == "Fail" else "100")
        await kubelet.remove()
