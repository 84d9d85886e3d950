"""Docker mode in front of a real dockerd, driven by Docker's own command line."""

import asyncio
import subprocess
from pathlib import Path
from typing import Any

import pytest
from koordcore.runtime_api.hooks import messages_of_call
from koordctl.stack.containers import IMAGE
from support.criproxy import World, proxied
from support.dockerd import docker, dockerd, missing_docker
from support.until import until

LACKING = missing_docker()
pytestmark = [
    pytest.mark.runtime,
    pytest.mark.root,
    pytest.mark.skipif(LACKING != "", reason=LACKING),
]
CPU = Path("/sys/fs/cgroup/cpu")
SANDBOX = "k8s_POD_web_default_uid-1_0"
CONTAINER = "k8s_main_web_default_uid-1_0"
POD_LABELS = ("--label", "io.kubernetes.docker.type=podsandbox", "--label", "app=web", "--label", "annotation.a=b")


async def test_plain_containers_run_through_the_proxy_as_without_it(tmp_path: Path) -> None:
    with dockerd(tmp_path) as socket:
        world = World(tmp_path, runtime_socket=socket, mode="Docker")
        proxy = world.settings.koord_runtimeproxy_endpoint
        async with proxied(world):

            async def through(*arguments: str, stdin: str | None = None) -> str:
                return await asyncio.to_thread(docker, proxy, *arguments, stdin=stdin)

            def either_way(*arguments: str, stdin: str | None = None) -> list[str]:
                return [docker(each, *arguments, stdin=stdin) for each in (socket, proxy)]

            run = ("run", "--rm", "--interactive", "--network", "none", IMAGE, "/bin/busybox")
            direct, proxied_output = await asyncio.to_thread(either_way, *run, "cat", stdin="x" * 300_000)
            assert direct == proxied_output == "x" * 300_000
            started = await through("run", "--detach", "--network", "none", "--cpu-shares", "300", IMAGE)
            id_ = started.strip()
            assert (CPU / "docker" / id_ / "cpu.shares").read_text().strip() == "300"
            assert await through("exec", id_, "/bin/busybox", "echo", "inside") == "inside\n"
            piped = await through("exec", "--interactive", id_, "/bin/busybox", "wc", "-c", stdin="abcd")
            assert piped.strip() == "4"
            await through("update", "--cpu-shares", "400", id_)
            assert (CPU / "docker" / id_ / "cpu.shares").read_text().strip() == "400"
            direct, proxied_output = await asyncio.to_thread(either_way, "inspect", id_)
            assert direct == proxied_output
            assert world.hooks.calls == []
            await through("stop", "--time", "0", id_)
            assert await through("ps", "--quiet") == ""
            await through("rm", id_)


async def test_attach_is_a_stream_in_both_directions(tmp_path: Path) -> None:
    with dockerd(tmp_path) as socket:
        world = World(tmp_path, runtime_socket=socket, mode="Docker")
        proxy = world.settings.koord_runtimeproxy_endpoint
        async with proxied(world):
            create = ("create", "--interactive", "--name", "shell", "--network", "none", IMAGE, "/bin/sh")
            await asyncio.to_thread(docker, proxy, *create)
            await asyncio.to_thread(docker, proxy, "start", "shell")
            command = ["docker", "-H", f"unix://{proxy}", "attach", "shell"]
            attached = await asyncio.create_subprocess_exec(*command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            assert attached.stdin is not None
            assert attached.stdout is not None
            for word in ("first", "second"):
                attached.stdin.write(f"echo {word}\n".encode())
                assert await asyncio.wait_for(attached.stdout.readline(), 60) == f"{word}\n".encode()
            attached.stdin.write(b"exit 0\n")
            assert await asyncio.wait_for(attached.wait(), 60) == 0


async def test_a_container_of_kubernetes_starts_with_what_the_hook_server_answered(tmp_path: Path) -> None:
    with dockerd(tmp_path) as socket:
        world = World(tmp_path, runtime_socket=socket, mode="Docker")
        proxy = world.settings.koord_runtimeproxy_endpoint
        await world.hooks.start()
        world.register(
            "Fail",
            "PreRunPodSandbox",
            "PreCreateContainer",
            "PreUpdateContainerResources",
            "PostStopContainer",
            "PostStopPodSandbox",
        )
        answer = messages_of_call("PreCreateContainerHook")[1]
        world.responses["PreRunPodSandboxHook"] = messages_of_call("PreRunPodSandboxHook")[1](
            cgroup_parent="/koord-docker-test"
        )
        world.responses["PreCreateContainerHook"] = answer(
            container_resources={"cpu_shares": 512, "cpu_quota": 50_000, "cpu_period": 100_000},
            container_envs={"GPU": "7", "KEPT": "yes"},
            pod_cgroup_parent="/koord-docker-test",
        )

        async def through(*arguments: str) -> str:
            return (await asyncio.to_thread(docker, proxy, *arguments)).strip()

        def last_asked(rpc: str) -> Any:
            return messages_of_call(rpc)[0].FromString(world.hooks.called(rpc)[-1])

        async with proxied(world):
            sandbox = await through("create", "--name", SANDBOX, "--network", "none", *POD_LABELS, IMAGE)
            labels = (
                "--label",
                "io.kubernetes.docker.type=container",
                "--label",
                f"io.kubernetes.sandbox.id={sandbox}",
            )
            show = ("/bin/sh", "-c", "echo GPU=$GPU $KEPT; sleep 1000")
            create = ("create", "--name", CONTAINER, "--network", "none", *labels, "--env", "KEPT=no", IMAGE, *show)
            container = await through(*create)
            asked = last_asked("PreCreateContainerHook")
            assert (asked.pod_meta.name, asked.pod_meta.uid, asked.container_meta.name) == ("web", "uid-1", "main")
            assert (dict(asked.pod_annotations), asked.pod_labels["app"]) == ({"a": "b"}, "web")
            assert dict(asked.container_envs) == {"KEPT": "no"}
            await through("start", container)
            directory = CPU / "koord-docker-test" / container
            assert (directory / "cpu.shares").read_text().strip() == "512"
            assert (directory / "cpu.cfs_quota_us").read_text().strip() == "50000"

            async def printed() -> bool:
                return await through("logs", container) == "GPU=7 yes"

            await until(printed, "the container prints its environment")
        async with proxied(world):  # a new proxy on the same dockerd
            world.responses["PreUpdateContainerResourcesHook"] = answer(
                container_resources={"cpu_shares": 700, "cpu_quota": -1, "cpu_period": 100_000}
            )
            await through("update", "--cpu-shares", "600", container)
            asked = last_asked("PreUpdateContainerResourcesHook")
            assert asked.container_resources.cpu_shares == 600
            assert asked.container_resources.cpu_quota == 50_000
            assert dict(asked.pod_annotations) == {"a": "b"}
            assert (directory / "cpu.shares").read_text().strip() == "700"
            assert (directory / "cpu.cfs_quota_us").read_text().strip() == "-1"
            await through("stop", "--time", "0", container)
            assert last_asked("PostStopContainerHook").container_meta.id == container
            await through("stop", "--time", "0", sandbox)
            assert last_asked("PostStopPodSandboxHook").pod_meta.name == "web"
            await through("rm", container)
            await through("rm", sandbox)
        await world.hooks.stop()
        await world.channel.close()
