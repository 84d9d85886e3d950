"""The NRI plugin against a runtime that speaks ttrpc: registration, events, answers, trouble."""

import os
import socket
import struct
import sys
import threading
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from koord_agent.domain.hooks.allocated_devices import BindMount, CharDevice
from koord_agent.domain.hooks.call import HookedContainer, HookedPod, HookValues
from koord_agent.settings import AgentSettings
from koord_agent.shell.hooks import ttrpc
from koord_agent.shell.hooks.nri_messages import envs_of, nri_messages
from koord_agent.shell.hooks.nri_plugin import NriPlugin
from support.agent.cri import message
from support.agent.nri import NriRuntime, RecordingHooks, fields_of, running_plugin
from support.until import DEADLINE_SECONDS, until_blocking

POD = message(
    (1, "s1"), (2, "web"), (3, "uid-1"), (4, "default"), (5, message((1, "koordinator.sh/qosClass"), (2, "LSR"))),
    (8, message((3, "/kubepods/poduid-1"))),
)  # fmt: skip
RESOURCES = message(
    (2, message((1, message((1, 1024))), (2, message((1, 100_000))))), (1, message((1, message((1, 99)))))
)
CONTAINER = message((1, "c1"), (2, "s1"), (3, "main"), (8, "A=1"), (8, "EMPTY="), (11, message((3, RESOURCES))))


@pytest.fixture
def runtime(tmp_path: Path) -> Generator[NriRuntime]:
    found = NriRuntime(tmp_path / "nri.sock")
    yield found
    found.close()


@pytest.fixture
def settings(tmp_path: Path) -> AgentSettings:
    return AgentSettings.model_validate(
        {
            "runtime_hooks_nri_socket_path": tmp_path / "nri.sock",
            "runtime_hooks_nri_connect_timeout": 30.0,
            "runtime_hooks_nri_backoff_duration": 0.01,
        }
    )


def test_a_plugin_that_is_stopped_while_it_connects_ends(
    runtime: NriRuntime, settings: AgentSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    connects, go_on = threading.Event(), threading.Event()

    class SlowSocket(socket.socket):
        def connect(self, address: Any, /) -> None:
            connects.set()
            go_on.wait(DEADLINE_SECONDS)
            super().connect(address)

    monkeypatch.setattr(socket, "socket", SlowSocket)
    plugin = NriPlugin(settings, RecordingHooks().answer)
    plugin.start()
    connects.wait(DEADLINE_SECONDS)
    stopping = threading.Thread(target=plugin.stop, daemon=True)
    stopping.start()

    def is_waiting() -> bool:
        frame = sys._current_frames().get(stopping.ident or 0)  # pyright: ignore[reportPrivateUsage]
        return frame is not None and frame.f_code.co_name in ("join", "_wait_for_tstate_lock")

    until_blocking(is_waiting, "the plugin's thread is waited for")
    go_on.set()
    stopping.join(DEADLINE_SECONDS)
    assert not stopping.is_alive()
    assert runtime is not None


def test_a_container_gets_what_the_hooks_computed(runtime: NriRuntime, settings: AgentSettings) -> None:
    hooks = RecordingHooks()
    hooks.values = HookValues(
        cpuset="0-3",
        cfs_quota_us=-1,
        cpu_shares=2,
        memory_limit_bytes=4096,
        resctrl_group="koordlet-uid-1",
        envs={"GPU": "7"},
        mounts=(BindMount(destination="/in", source="/out"),),
        devices=(CharDevice(path="/dev/x", major=10, minor=58),),
    )
    with running_plugin(settings, hooks) as plugin:
        assert runtime.accept() == ("koordlet_nri", "00")
        assert runtime.start_up() == 141
        until_blocking(lambda: plugin.is_connected, "the plugin is connected")
        request = message((1, POD), (2, CONTAINER))
        created = nri_messages()["CreateContainerResponse"].FromString(runtime.call("CreateContainer", request))
        updated = nri_messages()["UpdateContainerResponse"].FromString(
            runtime.call("UpdateContainer", message((1, POD), (2, CONTAINER), (3, RESOURCES)), chunk=7)
        )
        for event in (1, 2, 4, 99):
            assert runtime.call("StateChange", message((1, event), (2, POD))) == b""
    resources = created.adjust.linux.resources
    assert (resources.cpu.shares.value, resources.cpu.quota.value, resources.cpu.cpus) == (2, -1, "0-3")
    assert (resources.memory.limit.value, resources.rdt_class.value) == (4096, "koordlet-uid-1")
    assert [(each.key, each.value) for each in created.adjust.env] == [("GPU", "7")]
    (mount,), (device,) = created.adjust.mounts, created.adjust.linux.devices
    assert (mount.source, mount.destination, list(mount.options)) == ("/out", "/in", ["rbind"])
    assert (device.path, device.major, device.minor, device.file_mode.value) == ("/dev/x", 10, 58, 0o666)
    (update,) = updated.update
    assert (update.container_id, update.linux.resources.cpu.quota.value) == ("c1", -1)
    assert hooks.called() == ["PreCreateContainer", "PreUpdateContainerResources", "PreRunPodSandbox"]
    assert hooks.calls[0].pod == HookedPod(
        name="web",
        uid="uid-1",
        namespace="default",
        labels={"koordinator.sh/qosClass": "LSR"},
        cgroup_parent="/kubepods/poduid-1",
    )
    before = HookValues(envs={"A": "1"}, cpu_shares=1024, cfs_quota_us=100_000, memory_limit_bytes=99)
    assert hooks.calls[0].container == HookedContainer(name="main", id="containerd://c1", before=before)


def test_quotas_are_in_the_cfs_period_of_the_container(runtime: NriRuntime, settings: AgentSettings) -> None:
    hooks = RecordingHooks()
    hooks.values = HookValues(cfs_quota_us=160_000)
    resources = nri_messages()["LinuxResources"]()
    resources.cpu.quota.value, resources.cpu.period.value = 20_000, 10_000
    with running_plugin(settings, hooks):
        runtime.accept()
        runtime.start_up()
        request = message((1, POD), (2, CONTAINER), (3, resources.SerializeToString()))
        answer = nri_messages()["UpdateContainerResponse"].FromString(runtime.call("UpdateContainer", request))
    assert hooks.calls[0].container is not None
    assert hooks.calls[0].container.before.cfs_quota_us == 200_000, "per 100 ms"
    assert answer.update[0].linux.resources.cpu.quota.value == 16_000


def test_nothing_computed_is_an_empty_answer(runtime: NriRuntime, settings: AgentSettings) -> None:
    with running_plugin(settings, RecordingHooks()):
        runtime.accept()
        runtime.start_up()
        assert fields_of(runtime.call("CreateContainer", message((1, POD), (2, CONTAINER)))).get(1, b"") == b""
        assert runtime.call("UpdateContainer", message((1, POD), (2, CONTAINER))) == b""


def test_the_runtime_chooses_the_events(runtime: NriRuntime, settings: AgentSettings) -> None:
    hooks = RecordingHooks()
    with running_plugin(settings, hooks):
        runtime.accept()
        assert runtime.start_up("events: ['runpodsandbox, RemovePodSandbox']", more=True) == 5
        runtime.call("CreateContainer", message((1, POD), (2, CONTAINER)))
        runtime.call("StateChange", message((1, 3), (2, POD)))
        assert hooks.called() == ["PreRemoveRunPodSandbox"]
        for config in ("events: [Foo]", "events: 5", "- a", "{"):
            with pytest.raises(RuntimeError, match=r"^3: Configure: "):
                runtime.call("Configure", message((1, config)))


def test_the_error_of_a_required_hook_goes_to_the_runtime(runtime: NriRuntime, settings: AgentSettings) -> None:
    hooks = RecordingHooks()
    hooks.error = "refused"
    with running_plugin(settings, hooks):
        runtime.accept()
        runtime.start_up()
        with pytest.raises(RuntimeError, match="2: Hook: refused"):
            runtime.call("CreateContainer", message((1, POD), (2, CONTAINER)))


@pytest.mark.parametrize("error", [KeyError("what nobody thought of"), OSError("disk full")])
def test_an_error_that_nobody_expected_ends_neither_thread_nor_connection(
    runtime: NriRuntime, settings: AgentSettings, error: Exception
) -> None:
    hooks = RecordingHooks()
    with running_plugin(settings, hooks):
        runtime.accept()
        runtime.start_up()
        hooks.raises = error
        with pytest.raises(RuntimeError, match=f"2: CreateContainer: {type(error).__name__}: "):
            runtime.call("CreateContainer", message((1, POD), (2, CONTAINER)))
        hooks.raises = None
        assert fields_of(runtime.call("CreateContainer", message((1, POD), (2, CONTAINER)))).get(1, b"") == b""


@pytest.mark.parametrize("raises", [True, False])
def test_an_error_with_the_name_of_a_file_in_any_bytes_goes_to_the_runtime(
    runtime: NriRuntime, settings: AgentSettings, raises: bool
) -> None:
    hooks, name = RecordingHooks(), os.fsdecode(b"/x/\xff")
    with running_plugin(settings, hooks):
        runtime.accept()
        runtime.start_up()
        hooks.error, hooks.raises = (name, None) if not raises else ("", OSError(2, "No such file", name))
        with pytest.raises(RuntimeError, match="2: "):
            runtime.call("CreateContainer", message((1, POD), (2, CONTAINER)))


def test_an_error_of_the_plugin_itself_ends_the_connection_and_not_the_thread(
    runtime: NriRuntime, settings: AgentSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    decode, failures = ttrpc.decode_request, [MemoryError(), KeyError("what nobody thought of")]

    def failing(body: bytes) -> ttrpc.TtrpcRequest:
        if failures:
            raise failures.pop()
        return decode(body)

    monkeypatch.setattr(ttrpc, "decode_request", failing)
    with running_plugin(settings, RecordingHooks()):
        for _ in range(2):
            runtime.accept()
            with pytest.raises(ConnectionError):
                runtime.start_up()
        runtime.accept()
        assert runtime.start_up() == 141


def test_methods_of_newer_runtimes_are_not_implemented(runtime: NriRuntime, settings: AgentSettings) -> None:
    with running_plugin(settings, RecordingHooks()):
        runtime.accept()
        runtime.start_up()
        with pytest.raises(RuntimeError, match="12: "):
            runtime.call("RunPodSandbox", message((2, POD)))
        assert runtime.call("Shutdown", b"") == b""


def test_the_plugin_registers_again_after_the_runtime_hung_up_or_refused_it(
    runtime: NriRuntime, settings: AgentSettings
) -> None:
    with running_plugin(settings, RecordingHooks()) as plugin:
        runtime.accept(refuse="no room")
        for _ in range(2):
            runtime.accept()
            runtime.start_up()
            until_blocking(lambda: plugin.is_connected, "the plugin is connected")
            runtime.hang_up()


@pytest.mark.parametrize(
    "junk",
    [
        struct.pack(">II", 1, 1 << 30),
        struct.pack(">II", 1, 10) + struct.pack(">IIBB", 1 << 30, 1, 1, 0),
        struct.pack(">II", 1, 12) + struct.pack(">IIBB", 2, 1, 1, 0) + b"\xff\xff",
    ],
)
def test_a_broken_connection_is_replaced(runtime: NriRuntime, settings: AgentSettings, junk: bytes) -> None:
    with running_plugin(settings, RecordingHooks()):
        runtime.accept()
        runtime.start_up()
        runtime.send(junk)
        assert runtime.is_dropped()
        runtime.accept()
        assert runtime.start_up() == 141


def test_a_plugin_without_a_runtime_starts_and_stops(tmp_path: Path) -> None:
    with running_plugin(
        AgentSettings.model_validate({"runtime_hooks_nri_socket_path": tmp_path / "none.sock"}), RecordingHooks()
    ) as plugin:
        assert not plugin.is_connected


def test_environment_lines_need_a_name_and_a_value() -> None:
    assert envs_of(["A=1", "B=x=y", "C=", "=d", "E"]) == {"A": "1", "B": "x=y"}
