"""Many calls at once and many pods through the proxy, on a real containerd: all complete, and nothing is left."""

import asyncio
from pathlib import Path

import pytest
from koord_criproxy.compose import compose
from koordcore.runtime_api.cri import cri_messages
from koordcore.runtime_api.hooks import messages_of_call
from koordctl.stack.containers import missing_program
from support.agent.cri import containerd
from support.criproxy import World
from support.kubelet import Kubelet
from support.running_service import running_service
from support.until import until

LACKING = missing_program()
pytestmark = [
    pytest.mark.runtime,
    pytest.mark.root,
    pytest.mark.skipif(LACKING != "", reason=LACKING),
]
PODS = 40
AT_ONCE = 8
CALLS = 100
HOOKS = ("PreRunPodSandbox", "PreCreateContainer", "PreStartContainer", "PostStopContainer", "PostStopPodSandbox")


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def test_many_pods_start_and_stop_and_nothing_is_left(tmp_path: Path) -> None:
    with containerd(tmp_path):
        world = World(tmp_path, runtime_socket=tmp_path / "containerd.sock")
        await world.hooks.start()
        world.register("Fail", *HOOKS)
        world.responses["PreCreateContainerHook"] = messages_of_call("PreCreateContainerHook")[1](
            container_resources={"cpu_shares": 512}
        )
        limit = asyncio.Semaphore(AT_ONCE)

        async def live(number: int) -> None:
            async with limit:
                kubelet = Kubelet(world, name=f"web-{number}", uid=f"uid-{number}")
                await kubelet.run_sandbox()
                await kubelet.create()
                await kubelet.start()
                assert kubelet.shares() == "512"
                await kubelet.remove()

        async with running_service(world.settings, compose) as shell:

            def remembered(kind: str) -> float | None:
                return shell.metrics.registry.get_sample_value("koord_runtimeproxy_store_records", {"kind": kind})

            await live(PODS)
            files, tasks = open_files(), len(asyncio.all_tasks())
            await asyncio.gather(*(live(number) for number in range(PODS)))
            assert (remembered("sandbox"), remembered("container")) == (0, 0)
            counts = [PODS + 1] * len(HOOKS)
            # The hooks after a call do not delay its answer.
            await until(lambda: [len(world.hooks.called(f"{hook}Hook")) for hook in HOOKS] == counts, "all hooks")
            await until(lambda: len(asyncio.all_tasks()) <= tasks, "the tasks of the calls have ended")
            assert open_files() <= files
            lists = await asyncio.gather(
                *(world.call("ListContainers", cri_messages()["ListContainersRequest"]()) for _ in range(CALLS))
            )
            assert lists == [b""] * CALLS
        await world.channel.close()
        await world.hooks.stop()
