"""The agent's NRI plugin in a real containerd 2: what hooks compute is in the container before it starts."""

import asyncio
import json
from functools import partial
from pathlib import Path

import pytest
from koord_agent.compose import compose
from koord_agent.domain.hooks.allocated_devices import BindMount, CharDevice
from koord_agent.domain.hooks.call import HookValues
from koord_agent.settings import AgentSettings
from koordcore.protocol import keys
from koordctl.stack.containers import missing_program
from support.agent.cri import Containers, containerd, message
from support.agent.nri import RecordingHooks, running_plugin
from support.running_service import running_service
from support.runtime_tools import TOOLS, missing_tool
from support.until import until, until_blocking

LACKING = missing_program() or missing_tool()
pytestmark = [
    pytest.mark.runtime,
    pytest.mark.root,
    pytest.mark.skipif(LACKING != "", reason=LACKING),
]
CPU = Path("/sys/fs/cgroup/cpu")
PARENT = "/koord-nri-test"
SHOW = ("/bin/sh", "-c", "echo $GPU > /shared/seen; echo > /dev/koord-null; echo done >> /shared/seen; exec sleep 1000")


def settings(folder: Path) -> AgentSettings:
    return AgentSettings.model_validate(
        {"runtime_hooks_nri_socket_path": folder / "nri" / "nri.sock", "runtime_hooks_nri_backoff_duration": 0.05}
    )


def test_a_container_starts_with_the_values_environment_mounts_and_devices_of_the_hooks(tmp_path: Path) -> None:
    hooks = RecordingHooks()
    shared = tmp_path / "shared"
    shared.mkdir()
    hooks.values = HookValues(
        cpuset="0",
        cfs_quota_us=50_000,
        cpu_shares=300,
        memory_limit_bytes=64 << 20,
        envs={"GPU": "7"},
        mounts=(BindMount(destination="/shared", source=str(shared), options=("rbind", "rw")),),
        devices=(CharDevice(path="/dev/koord-null", major=1, minor=3),),
    )
    with containerd(tmp_path, programs=TOOLS) as containers, running_plugin(settings(tmp_path), hooks) as plugin:
        until_blocking(lambda: plugin.is_connected, "the plugin is connected")
        identity = containers.run_pod("web", PARENT, SHOW)
        seen = shared / "seen"
        until_blocking(lambda: seen.exists() and "done" in seen.read_text(), "the container wrote to its mount")
        assert seen.read_text() == "7\ndone\n"
        assert knob("cpu", identity, "cpu.shares") == "300"
        assert knob("cpu", identity, "cpu.cfs_quota_us") == "50000"
        assert knob("cpuset", identity, "cpuset.cpus") == "0"
        assert knob("memory", identity, "memory.limit_in_bytes") == str(64 << 20)
        hooks.values = HookValues(cpu_shares=400, cfs_quota_us=-1)
        update(containers, identity, shares=350)
        assert knob("cpu", identity, "cpu.shares") == "400"
        assert knob("cpu", identity, "cpu.cfs_quota_us") == "-1"
        containers.remove_pods()
        stages = ["PreRunPodSandbox", "PreCreateContainer", "PreUpdateContainerResources", "PreRemoveRunPodSandbox"]
        until_blocking(lambda: hooks.called() == stages, "the sandbox is removed")
        sandbox, created, updated, _ = hooks.calls
        assert (sandbox.pod.name, sandbox.pod.namespace, sandbox.pod.cgroup_parent) == ("web", "default", PARENT)
        assert created.container is not None
        assert updated.container is not None
        assert (created.container.name, created.container.before.envs["PATH"]) == ("main", "/bin")
        assert (updated.container.id, updated.container.before.cpu_shares) == (f"containerd://{identity}", 350)


def test_a_required_hook_that_fails_fails_the_container(tmp_path: Path) -> None:
    hooks = RecordingHooks()
    with containerd(tmp_path, programs=TOOLS) as containers, running_plugin(settings(tmp_path), hooks) as plugin:
        until_blocking(lambda: plugin.is_connected, "the plugin is connected")
        hooks.error = "refused"
        with pytest.raises(Exception, match="Hook: refused"):
            containers.run_pod("web", PARENT, SHOW)


def test_containers_start_unchanged_without_the_plugin_and_changed_after_its_return(tmp_path: Path) -> None:
    hooks = RecordingHooks()
    hooks.values = HookValues(cpu_shares=300)
    sleep = ("/bin/sleep", "1000")
    with containerd(tmp_path, programs=TOOLS) as containers:
        with running_plugin(settings(tmp_path), hooks) as plugin:
            until_blocking(lambda: plugin.is_connected, "the plugin is connected")
            assert knob("cpu", containers.run_pod("a", PARENT, sleep), "cpu.shares") == "300"
        before = len(hooks.calls)
        assert knob("cpu", containers.run_pod("b", PARENT, sleep), "cpu.shares") == "1024"
        assert len(hooks.calls) == before
        with running_plugin(settings(tmp_path), hooks) as plugin:
            until_blocking(lambda: plugin.is_connected, "the plugin is connected")
            assert knob("cpu", containers.run_pod("c", PARENT, sleep), "cpu.shares") == "300"


def knob(controller: str, container: str, file: str) -> str:
    return (CPU.parent / controller / PARENT.strip("/") / container / file).read_text().strip()


def update(containers: Containers, identity: str, *, shares: int) -> None:
    containers.call("UpdateContainerResources", message((1, identity), (2, message((3, shares)))))


async def test_the_agent_decides_as_an_nri_plugin(tmp_path: Path) -> None:
    batch = {"kubernetes.io/batch-cpu": "500", "kubernetes.io/batch-memory": "64Mi"}
    of_batch = {keys.EXTENDED_RESOURCE_SPEC: json.dumps({"containers": {"main": {"requests": batch, "limits": batch}}})}
    owned = {keys.RESOURCE_STATUS: json.dumps({"cpuset": "0"})}
    sleep = ("/bin/sleep", "1000")
    flags = AgentSettings.model_validate(
        {
            "host_mode": "linux",
            "var_run_root": tmp_path,
            "runtime_hooks_addr": tmp_path / "none" / "koordlet.sock",
            "runtime_hooks_nri_backoff_duration": 0.05,
            "nats_urls": ["nats://127.0.0.1:1"],
        }
    )
    with containerd(tmp_path, programs=TOOLS) as containers:

        async def run(name: str, qos: str, parent: str, annotations: dict[str, str]) -> str:
            labels = {keys.QOS_CLASS: qos}
            run_pod = partial(containers.run_pod, name, parent, sleep, labels=labels, annotations=annotations)
            return await asyncio.to_thread(run_pod)

        async with running_service(flags, compose):
            log = tmp_path / "containerd.log"
            await until(lambda: "connected and synchronized" in log.read_text(), "containerd knows the plugin")
            crunch = await run("crunch", "BE", f"{PARENT}/besteffort", of_batch)
            web = await run("web", "LSR", PARENT, owned)
        assert knob("cpu", f"besteffort/{crunch}", "cpu.shares") == "512"
        assert knob("cpu", f"besteffort/{crunch}", "cpu.cfs_quota_us") == "50000"
        assert knob("memory", f"besteffort/{crunch}", "memory.limit_in_bytes") == str(64 << 20)
        assert knob("cpuset", web, "cpuset.cpus") == "0"
        assert knob("cpu", web, "cpu.cfs_quota_us") == "-1"
