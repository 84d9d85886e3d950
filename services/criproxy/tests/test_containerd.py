"""The proxy in front of a real containerd: what a hook server answers is in the container before it starts."""

from pathlib import Path
from typing import Any

import pytest
from koord_criproxy.cri.recovery import check_version, recover
from koord_criproxy.records import Store
from koord_criproxy.sockets import open_channel
from koordcore.runtime_api.cri import cri_messages
from koordcore.runtime_api.hooks import messages_of_call
from koordctl.stack.containers import IMAGE, missing_program
from support.agent.cri import NODE_NAMESPACE, containerd, message
from support.criproxy import World, proxied
from support.until import until

LACKING = missing_program()
pytestmark = [
    pytest.mark.slow,
    pytest.mark.root,
    pytest.mark.skipif(LACKING != "", reason=LACKING),
]
SHOW = "echo GPU=$GPU; cat /proc/self/cgroup; sleep 1000"


async def run_pod(world: World, logs: Path) -> tuple[str, str]:
    """Run a pod of one container through the proxy, as the kubelet does; return the ids of sandbox and container."""
    messages = cri_messages()
    security = message((2, message((1, message((1, NODE_NAMESPACE))))))
    linux = message((1, "/koord-test")) + security
    config = message((1, message((1, "web"), (2, "uid-1"), (3, "default"))), (3, str(logs)), (8, linux))
    sandbox = messages["RunPodSandboxResponse"].FromString(await world.call("RunPodSandbox", message((1, config))))
    words = [(3, word) for word in ("/bin/sh", "-c", SHOW)]
    context = message((1, message((3, 50))), (2, message((3, message((1, NODE_NAMESPACE))))))
    image = (2, message((1, IMAGE)))
    container = message((1, message((1, "main"))), image, *words, (11, "main.log"), (15, context))
    create = message((1, sandbox.pod_sandbox_id), (2, container), (3, config))
    created = messages["CreateContainerResponse"].FromString(await world.call("CreateContainer", create))
    await world.call("StartContainer", messages["StartContainerRequest"](container_id=created.container_id))
    return sandbox.pod_sandbox_id, created.container_id


async def test_container_starts_with_what_the_hook_server_answered(tmp_path: Path) -> None:
    with containerd(tmp_path) as containers:
        world = World(tmp_path, runtime_socket=tmp_path / "containerd.sock")
        await world.hooks.start()
        world.register("Fail", "PreRunPodSandbox", "PreCreateContainer", "PostStopContainer")
        world.responses["PreCreateContainerHook"] = messages_of_call("PreCreateContainerHook")[1](
            container_resources={"cpu_shares": 512, "cpu_quota": 50_000, "cpu_period": 100_000},
            container_envs={"GPU": "7"},
        )
        log = tmp_path / "logs" / "main.log"
        log.parent.mkdir()
        async with proxied(world):
            sandbox, container = await run_pod(world, tmp_path / "logs")
            await until(lambda: log.exists() and "GPU=7" in log.read_text(), "the container prints its environment")
        async with proxied(world):  # a new proxy on the same runtime
            messages = cri_messages()
            await world.call("StopContainer", messages["StopContainerRequest"](container_id=container))
            await until(lambda: world.hooks.called("PostStopContainerHook"), "the hook after the answer")
            (stopped,) = world.hooks.called("PostStopContainerHook")
            request: Any = messages_of_call("PostStopContainerHook")[0].FromString(stopped)
            assert (request.pod_meta.name, request.container_meta.name) == ("web", "main")
            assert request.pod_cgroup_parent == "/koord-test"
            assert request.container_resources.cpu_shares == 512
            assert request.container_envs["GPU"] == "7"
            await world.call("RemoveContainer", messages["RemoveContainerRequest"](container_id=container))
            await world.call("StopPodSandbox", messages["StopPodSandboxRequest"](pod_sandbox_id=sandbox))
            await world.call("RemovePodSandbox", messages["RemovePodSandboxRequest"](pod_sandbox_id=sandbox))
        await world.channel.close()
        await world.hooks.stop()
        channel, store = open_channel(str(tmp_path / "containerd.sock")), Store()
        assert (await check_version(channel)).startswith("containerd")
        await recover(channel, store)
        assert (store.pods, store.containers) == ({}, {})
        await channel.close()
        assert containers is not None
