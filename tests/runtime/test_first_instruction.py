"""What was decided for a pod is true before its first instruction: real containerd, CRI proxy and hook server.

Hook server and proxy are processes of their own, which are frozen and killed.
"""

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from koord_agent.domain.hooks.plugins import FailurePolicy
from koord_agent.domain.node.kubelet import known_after
from koordcore.events.nodestate import ContainerHookApplied
from koordcore.values import codec
from koordctl.stack.containers import missing_program
from support.agent.cri import first_text, message
from support.agent.hook_process import agent_of
from support.agent.real_node import BE, FILES, LSR, MIB, PODS, V1, Node, differences, kubelet_document, node_in
from support.until import until_blocking

LACKING = missing_program()
pytestmark = [
    pytest.mark.runtime,
    pytest.mark.root,
    pytest.mark.skipif(LACKING != "", reason=LACKING),
    pytest.mark.skipif(not os.access(V1 / "cpu" / "tasks", os.W_OK), reason="needs a writable cgroup v1"),
    pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="needs two CPUs"),
]


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    with node_in(tmp_path) as found:
        yield found


def test_first_line_of_each_container_shows_what_was_decided(node: Node) -> None:
    node.register(FailurePolicy.FAIL)
    node.start_hooks()
    node.start_proxy()
    for pod in PODS:
        container = node.start(pod, node.run_sandbox(pod))
        found = node.first_line(pod)
        print(pod.name, found)
        assert differences(found, pod.first) == {}
        assert found["kept"] == "yes"
        # containerd does not let a process have less than itself has
        assert int(found["oom"]) == max(pod.oom, int(Path("/proc/self/oom_score_adj").read_text()))
        assert found["in"] == f"/{node.directory(pod)}/{container}"
    for name, value in {"shares": "512", "quota": "50000", "memory": str(64 * MIB)}.items():
        tree, _, file = FILES[name].partition("/")
        assert (V1 / tree / node.directory(BE) / file).read_text().strip() == value, "the pod itself"


@pytest.mark.parametrize("policy", list(FailurePolicy))
def test_hook_server_that_is_killed_before_a_call(node: Node, policy: FailurePolicy) -> None:
    node.register(policy)
    hooks = node.start_hooks()
    node.start_proxy()
    sandbox = node.run_sandbox(LSR)
    hooks.kill()
    hooks.wait()
    check_without_hooks(node, policy, sandbox)


@pytest.mark.parametrize("policy", list(FailurePolicy))
def test_hook_server_that_is_killed_during_a_call(node: Node, policy: FailurePolicy) -> None:
    node.register(policy)
    hooks = node.start_hooks()
    node.start_proxy()
    sandbox = node.run_sandbox(LSR)
    hooks.send_signal(signal.SIGSTOP)
    killer = subprocess.Popen(["/bin/sh", "-c", f"sleep 0.5; kill -9 {hooks.pid}"])
    check_without_hooks(node, policy, sandbox)
    killer.wait()
    hooks.wait()


def check_without_hooks(node: Node, policy: FailurePolicy, sandbox: str) -> None:
    """The container starts as the kubelet asked and is repaired, or it is refused and starts with the next server."""
    if policy is FailurePolicy.FAIL:
        with pytest.raises(grpc.RpcError) as raised:
            node.start(LSR, sandbox)
        error: Any = raised.value
        assert error.code() is grpc.StatusCode.UNKNOWN
        assert error.details().startswith("hook server err: ")
        assert node.containers_of(sandbox) == 0
        node.start_hooks()
        until_blocking(lambda: starts(node, sandbox), "a start by a proxy that has found the next hook server")
        assert differences(node.first_line(LSR), LSR.first) == {}
        assert node.containers_of(sandbox) == 1
        return
    container = node.start(LSR, sandbox)
    without = {"cpus": "0-1", "quota": "100000", "gpu": "", "shares": "1024"}
    assert differences(node.first_line(LSR), without) == {}
    told = repaired(node, container)
    assert node.value(LSR, container, "cpus") == "1"
    assert node.value(LSR, container, "quota") == "-1"
    (fact,) = [fact for fact in told if fact.container == "main"]
    assert {value.name: (value.old, value.new) for value in fact.values} == {
        "cpuset.cpus": ("0-1", "1"),
        "cpu.cfs_quota_us": ("100000", "-1"),
    }


def starts(node: Node, sandbox: str) -> bool:
    """One more try of the kubelet; whether it succeeded."""
    try:
        node.start(LSR, sandbox)
    except grpc.RpcError:
        return False
    return True


def repaired(node: Node, container: str) -> list[ContainerHookApplied]:
    """Run a cycle of a new agent, which learns of the container from the kubelet; what it tells about hooks."""
    agent = agent_of(node.layout, node.desired)
    document = kubelet_document(LSR, container)
    now_ms = int(time.monotonic() * 1000)
    agent.known = known_after(agent.known, [codec.encode(document)], now_ms)
    done = agent.run_cycle(now_ms)
    return [fact for fact in done.facts if isinstance(fact, ContainerHookApplied)]


def test_hook_server_that_is_killed_after_a_call_changes_nothing(node: Node) -> None:
    node.register(FailurePolicy.FAIL)
    hooks = node.start_hooks()
    node.start_proxy()
    sandbox = node.run_sandbox(LSR)
    container = first_text(node.call("CreateContainer", node.create_request(LSR, sandbox)))
    hooks.kill()
    hooks.wait()
    node.call("StartContainer", message((1, container)))
    assert differences(node.first_line(LSR), LSR.first) == {}
    node.call("StopContainer", message((1, container)))
    node.call("StopPodSandbox", message((1, sandbox)))


def test_proxy_that_is_killed_between_request_and_answer_loses_nothing(node: Node) -> None:
    node.register(FailurePolicy.FAIL)
    hooks = node.start_hooks()
    proxy = node.start_proxy()
    sandbox = node.run_sandbox(BE)
    hooks.send_signal(signal.SIGSTOP)  # so the request waits in the proxy
    killer = subprocess.Popen(["/bin/sh", "-c", f"sleep 0.5; kill -9 {proxy.pid}"])
    with pytest.raises(grpc.RpcError) as raised:
        node.start(BE, sandbox)
    error: Any = raised.value
    assert error.code() is grpc.StatusCode.UNAVAILABLE
    killer.wait()
    proxy.wait()
    hooks.send_signal(signal.SIGCONT)
    assert node.containers_of(sandbox) == 0
    node.start_proxy()
    node.start(BE, sandbox)
    assert differences(node.first_line(BE), BE.first) == {}
    assert node.containers_of(sandbox) == 1
