"""The hook server on a real socket: bytes as the reference writes them, the pod's files, failures, registration."""

import asyncio
import json
import stat
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import grpc
import pytest
from google.protobuf import descriptor_pool
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
from koord_agent.domain.hooks.call import HookOptions, HookRules, HookValues, Stage
from koord_agent.domain.hooks.plugins import FailurePolicy, enabled_plugins
from koord_agent.domain.kernel.cgroup_layout import CgroupLayout, Driver
from koord_agent.domain.node.cpu_pools import SharedPool
from koord_agent.domain.node.pods import agent_pod_from_json
from koord_agent.domain.reporting.audit import AuditEvent
from koord_agent.domain.strategies.cpuset import CpusetRule
from koord_agent.domain.strategies.group_identity import BvtKernel, bvt_rule
from koord_agent.shell.grpc import unix_server
from koord_agent.shell.hooks.answering import HookAnswers
from koord_agent.shell.hooks.hook_server import HookServer, write_registration
from koord_agent.shell.hooks.pod_files import LinuxPodFiles
from koord_agent.shell.hooks.pod_groups import PodGroups
from koord_agent.shell.host.linux import LinuxHost
from koord_agent.shell.host.probe import HostRoots
from koordcore.events.nodestate import ContainerHookApplied, ContainerHookFailed
from koordcore.protocol import keys
from koordcore.runtime_api.hooks import CONTAINER_CALLS, POD_CALLS
from koordcore.service.telemetry.logging import logger
from structlog.testing import capture_logs
from support.agent.cri import message
from support.until import DEADLINE_SECONDS, until

LAYOUT = CgroupLayout(Driver.CGROUPFS)
POD = "kubepods/besteffort/podu1"
QUARTER = {"kubernetes.io/batch-cpu": "250", "kubernetes.io/batch-memory": "64Mi"}
BATCH = json.dumps({"containers": {"main": {"requests": QUARTER, "limits": QUARTER}}})
STRATEGY = {"beClass": {"cpuQOS": {"enable": True, "groupIdentity": -1}}}


class Runs:
    """The observed runs of plug-ins."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str, bool]] = []

    def observe(self, hook: str, stage: Stage, *, is_ok: bool, seconds: float) -> None:
        assert seconds >= 0
        self.seen.append((hook, stage, is_ok))


class Agent:
    """A hook server with a folder in place of the cgroup file system (version 1)."""

    def __init__(self, folder: Path, policy: FailurePolicy) -> None:
        self.cgroup, self.socket = folder / "cgroup", folder / "koordlet.sock"
        self.audited: list[AuditEvent] = []
        self.runs = Runs()
        self.rules = HookRules(
            bvt=bvt_rule(STRATEGY),
            bvt_kernel=BvtKernel(has_file=True),
            cpuset=CpusetRule(shared=(SharedPool(0, 0, "0-3"), SharedPool(1, 1, "4-7"))),
            options=HookOptions(),
        )
        roots = HostRoots(cgroup=self.cgroup, sys=folder / "sys")
        host = LinuxHost(monotonic_ns=time.monotonic_ns, roots=roots, layout=LAYOUT, version=1)
        self.files = LinuxPodFiles(host, roots, audit=self.audit, now_ms=lambda: 1_000_000)
        self.answers = HookAnswers(
            plugins=enabled_plugins(lambda name: name in {"BatchResource", "CPUSetAllocator", "GroupIdentity"}),
            policy=policy,
            look=lambda: None,
            machine=lambda: self.rules,
            files=self.files,
            observe=self.runs.observe,
        )
        self.server = HookServer(self.socket, self.answers, runtime="containerd")

    def audit(self, event: AuditEvent, verbosity: int) -> None:
        assert verbosity == 1
        self.audited.append(event)

    def make_pod_directory(self) -> None:
        for tree, name, text in (
            ("cpu", "cpu.shares", "2"),
            ("cpu", "cpu.cfs_quota_us", "-1"),
            ("cpu", "cpu.bvt_warp_ns", "0"),
            ("memory", "memory.limit_in_bytes", "9223372036854771712"),
        ):
            directory = self.cgroup / tree / POD
            directory.mkdir(parents=True, exist_ok=True)
            (directory / name).write_text(text)

    def value(self, tree: str, name: str) -> str:
        return (self.cgroup / tree / POD / name).read_text()

    def call(self, rpc: str, request: bytes) -> bytes:
        with grpc.insecure_channel(f"unix://{self.socket}", options=[("grpc.enable_http_proxy", 0)]) as channel:
            unary: Any = channel.unary_unary
            return unary(f"/runtime.v1alpha1.RuntimeHookService/{rpc}")(
                request, timeout=DEADLINE_SECONDS, wait_for_ready=True
            )


@pytest.fixture(params=[FailurePolicy.IGNORE])
def agent(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Agent]:
    served = Agent(tmp_path, request.param)
    served.server.start()
    yield served
    served.server.stop()


def entry(key: str, value: str) -> bytes:
    return message((1, key), (2, value))


def container_request(label: str, *annotations: tuple[str, str], name: str = "main") -> bytes:
    """ContainerResourceHookRequest by the field numbers of the specification."""
    return message(
        (1, message((1, "p"), (2, "u1"), (3, "d"))),
        (2, message((1, name), (3, "c1"))),
        (3, entry("of", "container")),
        (4, message((1, 100_000), (3, 2), (5, 1000))),
        *((6, entry(key, value)) for key, value in annotations),
        (7, entry(keys.QOS_CLASS, label)),
        (8, f"/{POD}"),
        (9, entry("PATH", "/bin")),
    )


@pytest.mark.parametrize("folder", ["", ".", "kept", "{tmp}/containers/../kept"])
def test_only_a_plain_absolute_path_is_created_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str
) -> None:
    monkeypatch.chdir(tmp_path)
    kept = tmp_path / "kept" / "file"
    kept.parent.mkdir()
    kept.touch()
    files = Agent(tmp_path, FailurePolicy.IGNORE).files
    files.prepare(HookValues(host_dir=folder.format(tmp=tmp_path)))
    assert kept.exists()
    files.prepare(HookValues(host_dir=str(kept.parent)))
    assert (kept.exists(), kept.parent.stat().st_mode & 0o777) == (False, 0o777)


def test_answer_echoes_the_request_and_has_the_computed_values_byte_by_byte(agent: Agent) -> None:
    answered = agent.call("PreCreateContainerHook", container_request("BE", (keys.EXTENDED_RESOURCE_SPEC, BATCH)))
    resources = message((1, 100_000), (2, 25_000), (3, 256), (4, 64 << 20), (5, 1000))
    assert answered == message(
        (1, entry("of", "container")), (2, resources), (3, f"/{POD}"), (4, entry("PATH", "/bin"))
    )


def test_sidecar_that_the_annotation_lacks_has_the_values_of_the_listed_pod_and_facts_name_its_mirror(
    agent: Agent,
) -> None:
    side = {"name": "side", "restartPolicy": "Always", "resources": {"requests": QUARTER, "limits": QUARTER}}
    listed = agent_pod_from_json({"metadata": {"uid": "u1"}, "spec": {"initContainers": [side]}})
    agent.rules = replace(agent.rules, pods={"u1": replace(listed, uid="mirror", static_uid="u1")})
    answered = agent.call("PreCreateContainerHook", container_request("BE", name="side"))
    assert message((2, message((1, 100_000), (2, 25_000), (3, 256), (4, 64 << 20), (5, 1000)))) in answered
    (fact,) = agent.answers.facts.take()
    assert isinstance(fact, ContainerHookApplied)
    assert (fact.uid, fact.container) == ("mirror", "side")


def test_container_of_a_pod_that_owns_cpus_gets_them_without_a_quota(agent: Agent) -> None:
    request = container_request("LSR", (keys.RESOURCE_STATUS, '{"cpuset":"2-3"}'))
    resources = message((1, 100_000), (2, (1 << 64) - 1), (3, 2), (5, 1000), (6, "2-3"))
    assert message((2, resources)) in agent.call("PreCreateContainerHook", request)
    told = [fact for fact in agent.answers.facts.take() if isinstance(fact, ContainerHookApplied)]
    values = {value.name: (value.plugin, value.old, value.new) for value in told[0].values}
    assert values == {
        "cfs_quota_us": ("CPUSetAllocator", "", "-1"),
        "cpuset": ("CPUSetAllocator", "", "2-3"),
    }
    assert (told[0].pod, told[0].container, told[0].stage, told[0].mode) == (
        "p",
        "main",
        "PreCreateContainer",
        "Proxy",
    )


def test_stage_without_hooks_answers_with_an_echo(agent: Agent) -> None:
    answered = agent.call("PostStartContainerHook", container_request("LS"))
    resources = message((1, 100_000), (3, 2), (5, 1000))
    assert answered == message(
        (1, entry("of", "container")), (2, resources), (3, f"/{POD}"), (4, entry("PATH", "/bin"))
    )
    assert agent.answers.facts.take() == []


def pod_request(cgroup_parent: str = f"/{POD}") -> bytes:
    return message(
        (1, message((1, "p"), (2, "u1"), (3, "d"))),
        (3, entry(keys.QOS_CLASS, "BE")),
        (4, entry(keys.EXTENDED_RESOURCE_SPEC, BATCH)),
        (5, cgroup_parent),
    )


def test_pod_gets_its_values_before_its_sandbox_starts(agent: Agent) -> None:
    agent.make_pod_directory()
    answered = agent.call("PreRunPodSandboxHook", pod_request())
    assert agent.value("cpu", "cpu.shares") == "256"
    assert agent.value("cpu", "cpu.cfs_quota_us") == "25000"
    assert agent.value("cpu", "cpu.bvt_warp_ns") == "-1"
    assert agent.value("memory", "memory.limit_in_bytes") == str(64 << 20)
    assert message((3, f"/{POD}")) in answered
    assert {event.name for event in agent.audited} == {"p"}
    assert len(agent.audited) == 4
    assert {hook for hook, _, _ in agent.runs.seen} == {"BatchResource", "CPUSetAllocator", "GroupIdentity"}


def test_pod_whose_directory_is_missing_or_foreign_is_answered_and_nothing_is_written(agent: Agent) -> None:
    agent.call("PreRunPodSandboxHook", pod_request())
    foreign = agent.cgroup / "cpu" / "system.slice"
    foreign.mkdir(parents=True)
    (foreign / "cpu.shares").write_text("1024")
    for directory in ("/system.slice", "/kubepods/../system.slice", "../../system.slice", ""):
        agent.call("PreRunPodSandboxHook", pod_request(directory))
    assert (foreign / "cpu.shares").read_text() == "1024"
    assert agent.audited == []
    assert not (agent.cgroup / "cpu" / POD).exists()


def test_failed_plugin_is_told_and_the_call_succeeds_under_ignore(agent: Agent) -> None:
    agent.call("PreCreateContainerHook", container_request("LS", (keys.RESOURCE_STATUS, "{")))
    (failed,) = agent.answers.facts.take()
    assert isinstance(failed, ContainerHookFailed)
    assert (failed.plugin, failed.policy, failed.stage) == ("CPUSetAllocator", "Ignore", "PreCreateContainer")


@pytest.mark.parametrize("agent", [FailurePolicy.FAIL], indirect=True)
def test_failed_plugin_is_the_status_of_the_call_under_fail(agent: Agent) -> None:
    with pytest.raises(grpc.RpcError) as raised:
        agent.call("PreCreateContainerHook", container_request("LS", (keys.RESOURCE_STATUS, "{")))
    error: Any = raised.value
    assert error.code() is grpc.StatusCode.UNKNOWN
    assert error.details().startswith("CPUSetAllocator: ")


def test_only_owner_and_group_may_use_the_socket_and_a_stale_one_is_replaced(agent: Agent, tmp_path: Path) -> None:
    assert stat.S_IMODE(agent.socket.stat().st_mode) == 0o660
    agent.server.stop()
    second = Agent(tmp_path, FailurePolicy.IGNORE)
    agent.socket.unlink(missing_ok=True)
    agent.socket.write_text("stale")
    second.server.start()
    assert second.call("PreCreateContainerHook", container_request("LS"))
    second.server.stop()


async def test_a_socket_that_is_removed_or_cannot_be_created_is_served_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unix_server, "LOOK_SECONDS", 0.01)
    before, agent = Agent(tmp_path, FailurePolicy.IGNORE), Agent(tmp_path, FailurePolicy.IGNORE)
    agent.socket.mkdir()
    with capture_logs() as lines:
        serving = asyncio.create_task(agent.server.keep_serving(logger("t")))
        await until(lambda: any(line["event"] == "socket_not_served" for line in lines))
        agent.socket.rmdir()
        await until(lambda: agent.server.is_serving)
    before.server.start()
    before.server.stop()  # the library removes the socket, whose path is that of the other agent
    await until(lambda: agent.server.is_serving)
    assert await asyncio.to_thread(agent.call, "PreCreateContainerHook", container_request("LS"))
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)
    agent.server.stop()
    assert [line["event"] for line in lines] == ["socket_not_served", "socket_served"]


async def test_a_server_without_a_thread_is_started_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_room(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(unix_server, "LOOK_SECONDS", 0.01)
    agent, whole = Agent(tmp_path, FailurePolicy.IGNORE), threading.Thread.start
    make, made = cast("Callable[..., grpc.Server]", grpc.server), list[grpc.Server]()

    def counted(*args: object, **options: object) -> grpc.Server:
        made.append(make(*args, **options))
        return made[-1]

    monkeypatch.setattr(grpc, "server", counted)
    await asyncio.to_thread(agent.server.stop)  # the event loop has its thread
    with capture_logs() as lines:
        monkeypatch.setattr(threading.Thread, "start", no_room)
        serving = asyncio.create_task(agent.server.keep_serving(logger("t")))
        await until(lambda: bool(lines), check=lambda: serving.done() and serving.result())
        assert made == [], "a server that cannot start would never end"
        monkeypatch.setattr(threading.Thread, "start", whole)
        await until(lambda: agent.server.is_serving, check=lambda: serving.done() and serving.result())
    assert await asyncio.to_thread(agent.call, "PreCreateContainerHook", container_request("LS"))
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)
    agent.server.stop()
    assert [line["event"] for line in lines] == ["socket_not_served", "socket_served"]


def test_files_that_cannot_be_written_do_not_fail_the_call(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("what nobody thought of")

    monkeypatch.setattr(agent.files, "prepare", broken)
    assert agent.call("PreCreateContainerHook", container_request("LS"))


def test_registration_is_written_once_and_again_when_it_changed(tmp_path: Path) -> None:
    assert write_registration(tmp_path, "{}")
    assert not write_registration(tmp_path, "{}")
    (tmp_path / "koordlet.json").write_text("{")
    assert write_registration(tmp_path, "{}")
    (tmp_path / "koordlet.json").write_bytes(b"\xff")
    assert write_registration(tmp_path, "{}")
    assert [path.name for path in tmp_path.iterdir()] == ["koordlet.json"]
    with pytest.raises(OSError, match="No such file"):
        write_registration(tmp_path / "missing", "{}")


def test_resctrl_group_of_a_pod_is_created_with_its_schemata_and_removed(tmp_path: Path) -> None:
    groups = PodGroups(tmp_path)
    groups.create("koordlet-u1", "")
    (tmp_path / "koordlet-u1" / "schemata").write_text("")
    groups.create("koordlet-u1", "L3:0=3f;\n")
    assert (tmp_path / "koordlet-u1" / "schemata").read_text() == "L3:0=3f;\n"
    assert groups.names() == {"koordlet-u1"}
    (tmp_path / "koordlet-u1" / "schemata").unlink()
    groups.remove("koordlet-u1")
    groups.remove("koordlet-u1")
    assert groups.names() == frozenset()


def test_client_that_knows_no_message_learns_them_from_the_server(tmp_path: Path) -> None:
    agent = Agent(tmp_path, FailurePolicy.IGNORE)
    agent.server.start()
    try:
        with grpc.insecure_channel(f"unix://{agent.socket}") as channel:
            database: Any = ProtoReflectionDescriptorDatabase(channel)
            pool = descriptor_pool.DescriptorPool(database)
            service: Any = pool.FindServiceByName("runtime.v1alpha1.RuntimeHookService")
    finally:
        agent.server.stop()
    assert {method.name for method in service.methods} == {*POD_CALLS, *CONTAINER_CALLS}
    request = service.FindMethodByName("PreCreateContainerHook").input_type
    assert request.fields_by_name["container_envs"].number == 9
