"""The agent as it runs: its own process, a log server, a kubelet with 60 pods of two containers, default intervals.

Cost is measured with cgroups of this machine's kernel and a process in each pod (`bench.real_node`), as root with
cgroup v1; else with a fake tree. The reaction needs a machine whose load is exact: a fake tree of 32 CPUs. One
latency-sensitive pod's load rises by a quarter of the node at random moments; the reaction is the time until the
best-effort quota is lower in its file, and until it is that of the whole rise. A third agent has a node without pods.
"""

import asyncio
import http.server
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from bench.fake_node import CPUS, MEMORY_KIB, FakeNode, replace
from bench.real_node import is_possible, real_node
from bench.results import Better, Result
from koordcore.bus.factory import BusSettings, bootstrap_bus, open_bus
from koordcore.embedded.nats import NatsServer
from koordcore.embedded.nats_config import NatsServerConfig
from koordcore.events.node_ledger import PodOnNode
from koordcore.ports.desired import DesiredNode
from koordcore.protocol.qos import KubeQos

T = TypeVar("T")
NODE = "bench"
PODS = 60
RISES = 12
COST_SECONDS = 90.0
CALM_CORES, BUSY_CORES, OTHER_CORES = 4.0, 12.0, 1.0
STEP_SECONDS = 0.005
WARM_UP_SECONDS = 20.0
STARTS = 4
"""Warm-ups before the first quota: a busy machine starts an agent late."""
PATIENCE_SECONDS = 6.0
TARGET_SECONDS = 1.0
DEAD_BAND_CORES = 0.02 * CPUS
"""What the quota may be above the budget: a change of 1 % of the node is ignored, and so is a rise of 1 %."""
BUSY_QUOTA_US = round((CPUS * 0.65 - BUSY_CORES - OTHER_CORES + DEAD_BAND_CORES) * 100_000)
SLO: dict[str, Any] = {
    "resourceUsedThresholdWithBE": {
        "enable": True,
        "cpuSuppressThresholdPercent": 65,
        "cpuSuppressPolicy": "cfsQuota",
    }
}


@dataclass(slots=True)
class Machine:
    """The node whose counters go on; `cores` of the one pod that works."""

    node: FakeNode
    uid: str
    cores: float = CALM_CORES
    pod_ns: float = 0.0
    other_ns: float = 0.0
    at: float = field(default_factory=time.monotonic)

    def step(self) -> None:
        """Let time pass up to now."""
        now = time.monotonic()
        passed, self.at = (now - self.at) * 1e9, now
        self.pod_ns += self.cores * passed
        self.other_ns += OTHER_CORES * passed
        usage = self.node.file(self.node.layout.pod_directory(KubeQos.BURSTABLE, self.uid), "cpuacct/cpuacct.usage")
        replace(usage, f"{int(self.pod_ns)}\n")
        self.node.set_busy_ticks(int((self.pod_ns + self.other_ns) / 1e7))

    @property
    def quota_us(self) -> int:
        """Of best effort, as the file says."""
        directory = self.node.layout.qos_directory(KubeQos.BEST_EFFORT)
        text = self.node.file(directory, "cpu/cpu.cfs_quota_us").read_text().strip()
        return int(text) if text else 0

    def wait(self, seconds: float) -> None:
        """Go on for a while."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.step()
            time.sleep(STEP_SECONDS)

    def reaction(self) -> tuple[float, float]:
        """Seconds from a rise of the load to a lower quota, and to the one that it stays at. Raises TimeoutError."""
        self.step()
        before, began, first = self.quota_us, time.monotonic(), 0.0
        self.cores = BUSY_CORES
        while (passed := time.monotonic() - began) < PATIENCE_SECONDS:
            if 0 < (quota := self.quota_us) < before:
                first = first or passed
                if quota <= BUSY_QUOTA_US:
                    return first, passed
            self.step()
            time.sleep(STEP_SECONDS)
        raise TimeoutError(f"the quota is {self.quota_us} after {PATIENCE_SECONDS} s, was {before}")


def measure() -> Iterator[Result]:
    """Reaction and cost of one real agent, and the memory of one without pods."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        reactions = asyncio.run(_measure(folder, FakeNode(folder), PODS, lambda node, _pid: _reactions(node)))
    with tempfile.TemporaryDirectory() as name, _node(Path(name)) as node:
        cost = asyncio.run(_measure(Path(name), node, PODS, lambda _node, pid: _cost(pid)))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        idle = asyncio.run(_measure(folder, FakeNode(folder), 0, lambda _node, pid: _cost(pid)))
    for what, times in zip(("a lower quota", "the quota for all of it"), zip(*reactions, strict=True), strict=True):
        yield Result(
            name=f"agent: from a rising load to {what}, slowest of a dozen",
            value=max(times),
            unit="s",
            target=TARGET_SECONDS,
            better=Better.LOWER,
            note=f"fastest {min(times):.2f} s, median {statistics.median(times):.2f} s",
        )
    yield Result(
        name=f"agent process with a log and a kubelet, {PODS} pods: cpu",
        value=cost.percent,
        unit="% of a core",
        target=1.0,
        better=Better.LOWER,
        note=f"without pods {idle.percent:.2f} %",
    )
    yield Result(
        name=f"agent process with a log and a kubelet, {PODS} pods: resident memory",
        value=cost.resident_mib,
        unit="MiB",
        target=80.0,
        better=Better.LOWER,
        note=f"proportional share {cost.share_mib:.1f} MiB",
    )
    yield Result(
        name="agent process with a log, no pods: resident memory",
        value=idle.resident_mib,
        unit="MiB",
        target=64.0,
        better=Better.LOWER,
        note=f"proportional share {idle.share_mib:.1f} MiB",
    )


@dataclass(frozen=True, slots=True)
class Cost:
    """Of a process."""

    percent: float
    resident_mib: float
    share_mib: float
    """Memory that it shares with other processes counts by their number."""


def _node(folder: Path) -> AbstractContextManager[FakeNode]:
    return real_node() if is_possible() else nullcontext(FakeNode(folder))


async def _measure(folder: Path, node: FakeNode, count: int, observe: Callable[[FakeNode, int], T]) -> T:
    pods = [node.add(f"pod-{index}", best_effort=index % 4 == 0) for index in range(count)]
    with _Kubelet(pods, node.root) as kubelet_port:
        async with NatsServer(NatsServerConfig(directory=folder / "nats")) as server:
            settings = BusSettings(urls=(server.url,), cluster=NODE, user="agent")
            await bootstrap_bus(settings)
            async with open_bus(settings) as bus:
                await bus.desired.put(_desired(pods))
            with _agent(folder, node, server.url, kubelet_port) as pid:
                return await asyncio.to_thread(observe, node, pid)


def _reactions(node: FakeNode) -> list[tuple[float, float]]:
    machine = Machine(node, "pod-1")
    for _ in range(STARTS):
        if machine.quota_us > 0:
            break
        machine.wait(WARM_UP_SECONDS)
    reactions: list[tuple[float, float]] = []
    for _ in range(RISES):
        reactions.append(machine.reaction())
        machine.cores = CALM_CORES
        # at another moment of the interval each time, once best effort has everything back
        machine.wait(4.0 + random.random())
    return reactions


def _cost(pid: int) -> Cost:
    time.sleep(WARM_UP_SECONDS)
    cpu, began = _cpu_seconds(pid), time.monotonic()
    time.sleep(COST_SECONDS)
    percent = 100 * (_cpu_seconds(pid) - cpu) / (time.monotonic() - began)
    rows = (line.split() for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:])
    kib = {row[0]: int(row[1]) for row in rows}
    return Cost(percent, kib["Rss:"] / 1024, kib["Pss:"] / 1024)


def _cpu_seconds(pid: int) -> float:
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def _desired(pods: list[dict[str, Any]]) -> DesiredNode:
    amounts = {"cpu": CPUS * 1000, "memory": MEMORY_KIB * 1024}
    placed = [
        PodOnNode(
            uid=pod["metadata"]["uid"],
            namespace="default",
            name=pod["metadata"]["name"],
            qos=pod["metadata"]["labels"]["koordinator.sh/qosClass"],
            kube_qos=pod["status"]["qosClass"],
            priority_class="koord-prod",
            requests={"cpu": 1000},
        )
        for pod in pods
    ]
    return DesiredNode(node=NODE, pods=placed, slo=SLO, capacity=amounts, allocatable=amounts)


class _Kubelet:
    def __init__(self, pods: list[dict[str, Any]], cgroup_root: str) -> None:
        body = json.dumps({"items": pods}).encode()
        configuration = json.dumps({"kubeletconfig": {"cgroupRoot": f"/{cgroup_root}"}}).encode()

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                found = body if self.path == "/pods/" else configuration
                self.send_response(200)
                self.send_header("Content-Length", str(len(found)))
                self.end_headers()
                self.wfile.write(found)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it so
                return

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)

    def __enter__(self) -> int:
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self.server.server_port

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()


@contextmanager
def _agent(folder: Path, node: FakeNode, url: str, kubelet_port: int) -> Generator[int]:
    flags = [
        *("--cluster", NODE),
        *("--node", NODE),
        *("--host-mode", "linux"),
        *("--nats-urls", url),
        *("--state-dir", str(folder / "state")),
        *("--cgroup-root", str(node.cgroup)),
        *("--proc-root", str(node.proc)),
        *(("--kubelet-cgroup-root", node.root) if node.root else ()),
        *("--kubelet-address", "127.0.0.1"),
        "--kubelet-insecure-tls",
        *("--kubelet-read-only-port", str(kubelet_port)),
        *("--var-lib-kubelet-dir", str(folder / "kubelet")),
    ]
    with (folder / "agent.log").open("wb") as log:
        process = subprocess.Popen([sys.executable, "-m", "koord_agent", *flags], stdout=log, stderr=log)
    try:
        yield process.pid
        if process.poll() is not None:
            raise RuntimeError((folder / "agent.log").read_text()[-2000:])
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
