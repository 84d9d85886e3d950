"""The whole agent is killed in the middle of a pod's start, and started again: nothing is lost.

The agent is a process with its log, its kubelet and its own state on disk, on a real containerd behind a real proxy.
"""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import grpc
import pytest
from koord_agent.domain.hooks.call import Mode
from koord_agent.domain.hooks.plugins import FailurePolicy
from koordcore.bus.factory import Bus, BusSettings, bootstrap_bus, open_bus
from koordcore.embedded.nats import NatsServer
from koordcore.events.catalogue import CATALOGUE
from koordcore.events.envelope import AggregateRef, Event
from koordcore.events.nodestate import AgentStarted, ContainerHookApplied
from koordctl.stack.containers import missing_program
from support.agent.cri import message
from support.agent.fake_kubelet import FakeKubelet
from support.agent.real_node import BE, LSR, V1, Node, Wanted, differences, kubelet_document, node_in
from support.until import until

LACKING = missing_program()
pytestmark = [
    pytest.mark.runtime,
    pytest.mark.root,
    pytest.mark.nats,
    pytest.mark.skipif(LACKING != "", reason=LACKING),
    pytest.mark.skipif(not os.access(V1 / "cpu" / "tasks", os.W_OK), reason="needs a writable cgroup v1"),
    pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="needs two CPUs"),
]
KUBEPODS = "kubepods"
"""The kubelet's own name, by which an agent finds the pods of its machine."""


class Machine:
    """A node whose agent is a process of its own, and the log that the agent writes to."""

    def __init__(self, node: Node, bus: Bus, nats: str, kubelet: FakeKubelet) -> None:
        self.node, self.bus, self.kubelet = node, bus, kubelet
        self._nats = nats

    def start_agent(self, policy: FailurePolicy) -> "subprocess.Popen[bytes]":
        """Start the agent; it registers its hooks with the proxy."""
        folder = self.node.folder
        flags = {
            "host-mode": "linux",
            "node": "n",
            "nats-urls": self._nats,
            "cluster": "demo",
            "http-port": 0,
            "state-dir": folder / "agent",
            "audit-log-dir": folder / "audit",
            "containerd-endpoint": folder / "containerd.sock",
            "kubelet-address": "127.0.0.1",
            "kubelet-insecure-tls": "true",
            "kubelet-read-only-port": self.kubelet.server.server_port,
            "kubelet-sync-interval": "1s",
            "disable-query-kubelet-config": "true",
            "var-lib-kubelet-dir": folder / "kubelet",
            "runtime-hooks-addr": folder / "koordlet.sock",
            "runtime-hooks-host-endpoint": folder / "koordlet.sock",
            "runtime-hooks-config-path": folder / "hookserver.d",
            "runtime-hooks-failure-policy": policy,
            "enable-nri-runtime-hook": "false",
            "feature-gates": "GPUEnvInject=true",
        }
        words = [sys.executable, "-m", "koord_agent", *(f"--{name}={value}" for name, value in flags.items())]
        with (folder / "agent.log").open("ab") as log:
            process = subprocess.Popen(words, stdout=log, stderr=log)
        self.node.running.append(process)
        return process

    async def facts(self, kind: type[Event]) -> list[Event]:
        """Facts of one kind that the agent has told."""
        stored = await self.bus.events.read_aggregate(AggregateRef("nodestate", "n"))
        return [event for each in stored if isinstance(event := CATALOGUE.read(each), kind)]

    async def until_agent_serves(self, starts: int) -> None:
        """Wait until an agent has started for the n-th time, and serves its hooks."""

        async def serves() -> bool:
            registered = (self.node.folder / "hookserver.d" / "koordlet.json").exists()
            return registered and len(await self.facts(AgentStarted)) == starts and await self._answers()

        await until(serves, f"start {starts} of the agent")

    async def until_agent_has_the_list(self) -> None:
        """Wait until the agent knows the pods that the kubelet lists.

        Before, it takes a pod of its ledger for one without containers, and sets CPUs for the whole pod.
        """
        asked = len(self.kubelet.tokens)
        # An agent asks again only after it has read the answer before.
        await until(lambda: len(self.kubelet.tokens) >= asked + 2, "the agent has read the list of the kubelet")

    async def _answers(self) -> bool:
        address = f"unix://{self.node.folder / 'koordlet.sock'}"
        async with grpc.aio.insecure_channel(address, options=[("grpc.enable_http_proxy", 0)]) as channel:
            unary: Any = channel.unary_unary
            call = unary("/runtime.v1alpha1.RuntimeHookService/PreStartContainerHook")
            try:
                await call(b"", timeout=5)
            except grpc.aio.AioRpcError:
                return False
        return True


@pytest.fixture
async def machine(tmp_path: Path, fresh_nats_server: NatsServer) -> AsyncGenerator[Machine]:
    settings = BusSettings(urls=(fresh_nats_server.url,), cluster="demo", user="agent")
    await bootstrap_bus(settings)
    kubelet = FakeKubelet()
    kubelet.lists()
    with node_in(tmp_path, kubepods=KUBEPODS) as node:
        async with open_bus(settings) as bus:
            await bus.desired.put(node.desired)
            yield Machine(node, bus, fresh_nats_server.url, kubelet)
    kubelet.close()


async def start(machine: Machine, pod: Wanted, sandbox: str) -> str:
    return await asyncio.to_thread(machine.node.start, pod, sandbox)


async def started(machine: Machine, pod: Wanted, sandbox: str) -> bool:
    """One more try of the kubelet; whether it succeeded."""
    try:
        await start(machine, pod, sandbox)
    except grpc.RpcError:
        return False
    return True


@pytest.mark.parametrize("pod", [LSR, BE], ids=["lsr", "be"])
async def test_required_agent_that_is_killed_between_sandbox_and_container(machine: Machine, pod: Wanted) -> None:
    node = machine.node
    agent = machine.start_agent(FailurePolicy.FAIL)
    await machine.until_agent_serves(1)
    node.start_proxy()
    sandbox = await asyncio.to_thread(node.run_sandbox, pod)
    agent.kill()
    agent.wait()
    with pytest.raises(grpc.RpcError, match="hook server err"):
        await start(machine, pod, sandbox)
    assert node.containers_of(sandbox) == 0
    machine.start_agent(FailurePolicy.FAIL)
    await machine.until_agent_serves(2)
    await until(lambda: started(machine, pod, sandbox), "the kubelet's next try succeeds")
    first = await asyncio.to_thread(node.first_line, pod)
    assert differences(first, pod.first) == {}
    assert node.containers_of(sandbox) == 1


async def test_optional_agent_that_is_killed_repairs_what_started_without_it(machine: Machine) -> None:
    node, of_node = machine.node, (V1 / "cpuset" / KUBEPODS / "cpuset.cpus").read_text().strip()
    machine.kubelet.lists(kubelet_document(LSR))
    agent = machine.start_agent(FailurePolicy.IGNORE)
    await machine.until_agent_serves(1)
    await machine.until_agent_has_the_list()
    node.start_proxy()
    sandbox = await asyncio.to_thread(node.run_sandbox, LSR)
    agent.kill()
    agent.wait()
    container = await start(machine, LSR, sandbox)
    without = {"cpus": of_node, "quota": "100000", "gpu": ""}
    assert differences(await asyncio.to_thread(node.first_line, LSR), without) == {}
    machine.kubelet.lists(kubelet_document(LSR, container))
    machine.start_agent(FailurePolicy.IGNORE)
    await machine.until_agent_serves(2)

    await until(lambda: node.value(LSR, container, "quota") == "-1", "the next agent lifts the quota")

    async def repairs() -> dict[str, tuple[str, str]]:
        told = [each for each in await machine.facts(ContainerHookApplied) if isinstance(each, ContainerHookApplied)]
        of_container = [each for each in told if each.container == "main" and each.mode == Mode.RECONCILER]
        return {value.name: (value.old, value.new) for each in of_container for value in each.values}

    async def is_told() -> bool:
        return bool(await repairs())

    await until(is_told, "the log has what the agent repaired")
    assert await repairs() == {"cpu.cfs_quota_us": ("100000", "-1"), "cpuset.cpus": (of_node, "1")}
    assert node.value(LSR, container, "cpus") == "1"
    node.call("StopContainer", message((1, container)))
