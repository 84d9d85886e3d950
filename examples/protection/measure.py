"""Protection on this machine, measured: a latency-sensitive process beside best-effort ones that burn every CPU.

    sudo .venv/bin/python examples/protection/measure.py [--seconds 8] [--rounds 3] [--picture protection.svg] [--json]

Pods are real process trees in cgroups of their own, with the equal weights that cgroups are born with (with
--kubelet-shares those that a kubelet gives, where the kernel does part of the job). Off and on alternate, so that
whatever else this machine does hits both alike. "On" is the agent as it ships: it measures procfs and cgroups,
computes the best-effort budget once a second and writes the quota.
"""

import argparse
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from koord_agent.domain.kernel.cgroup_layout import CgroupLayout, Driver
from koord_agent.domain.kernel.counters import CgroupCounters, NodeCounters
from koord_agent.domain.metrics.monitor import NodeMonitor
from koord_agent.domain.metrics.usage import cgroup_usage, node_usage
from koord_agent.domain.node.desired import view_of
from koord_agent.domain.plans.plan import CgroupFile
from koord_agent.shell.host.linux import LinuxHost
from koord_agent.shell.host.probe import cgroup_version
from koord_agent.shell.node.measure import Measurement
from koord_agent.shell.node.node_agent import NodeAgent
from koordcore.events.node_ledger import PodOnNode
from koordcore.ports.desired import DesiredNode
from koordcore.protocol.qos import KubeQos
from picture import Curve, tail_picture

CGROUP = Path("/sys/fs/cgroup")
WORKER = Path(__file__).with_name("worker.py")
INTERVAL_MS = 1_000
LS_REQUEST_MILLI = 500
THRESHOLD_PERCENT = 65


@dataclass(slots=True)
class Phase:
    """What was measured with protection off or on.

    latencies_ms   of the latency-sensitive process
    be_cores       that the best-effort class used; be_rounds_per_second: what it got done
    node_percent   of the machine's CPU that was busy
    """

    protected: bool
    latencies_ms: list[float] = field(default_factory=list[float])
    be_cores: list[float] = field(default_factory=list[float])
    be_rounds_per_second: list[float] = field(default_factory=list[float])
    node_percent: list[float] = field(default_factory=list[float])
    be_quota_us: list[int] = field(default_factory=list[int])

    def percentile(self, percent: float) -> float:
        """Latency below which this share of the requests was, ms."""
        ordered = sorted(self.latencies_ms)
        return ordered[min(int(len(ordered) * percent / 100), len(ordered) - 1)] if ordered else float("nan")

    def summary(self) -> dict[str, float]:
        """The numbers of the table."""
        return {
            "requests": len(self.latencies_ms),
            "p50_ms": round(self.percentile(50), 2),
            "p90_ms": round(self.percentile(90), 2),
            "p99_ms": round(self.percentile(99), 2),
            "be_cores": round(_mean(self.be_cores), 3),
            "be_rounds_per_second": round(_mean(self.be_rounds_per_second)),
            "node_percent": round(_mean(self.node_percent), 1),
            "lowest_be_quota_us": min(self.be_quota_us, default=-1),
        }


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


class Pods:
    """A tree like the kubelet's with two pods of real processes; removed with everything in it at the end."""

    def __init__(self, folder: Path, burners: int, *, kubelet_shares: bool) -> None:
        self.layout = CgroupLayout(Driver.CGROUPFS, kubepods=f"kubepods-protection-{os.getpid()}")
        self.folder = folder
        self.be_root = self.layout.qos_directory(KubeQos.BEST_EFFORT)
        self.ls = PodOnNode(
            uid="web", namespace="default", name="web", qos="LS", kube_qos="Burstable", priority_class="koord-prod",
            requests={"cpu": LS_REQUEST_MILLI},
        )  # fmt: skip
        self.be = PodOnNode(
            uid="batch", namespace="default", name="batch", qos="BE", kube_qos="BestEffort",
            priority_class="koord-batch", requests={"kubernetes.io/batch-cpu": 1000 * burners},
        )  # fmt: skip
        self._made: list[Path] = []
        self._processes: list[subprocess.Popen[bytes]] = []
        self._burners = burners
        self._kubelet_shares = kubelet_shares

    def __enter__(self) -> "Pods":
        try:
            for qos in (KubeQos.GUARANTEED, KubeQos.BURSTABLE, KubeQos.BEST_EFFORT):
                self._make(self.layout.qos_directory(qos))
            for pod in (self.ls, self.be):
                self._make(self._directory(pod))
            if self._kubelet_shares:
                (CGROUP / "cpu" / self.be_root / "cpu.shares").write_text("2")
                (CGROUP / "cpu" / self._directory(self.ls) / "cpu.shares").write_text(str(LS_REQUEST_MILLI))
            self._run(self.ls, "serve", "latency")
            for number in range(self._burners):
                self._run(self.be, "burn", f"burn-{number}")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.kill()
            process.wait()
        for directory in reversed(self._made):
            deadline = time.monotonic() + 5
            while directory.exists() and time.monotonic() < deadline:
                with contextlib.suppress(OSError):
                    directory.rmdir()

    def _directory(self, pod: PodOnNode) -> str:
        return self.layout.pod_directory(KubeQos(pod.kube_qos), pod.uid)

    def _make(self, directory: str) -> None:
        for root in hierarchies():
            path = root / directory
            if not path.exists():
                path.mkdir()
                self._made.append(path)
            if root.name == "cpuset":
                for file in ("cpuset.mems", "cpuset.cpus"):
                    (path / file).write_text((path.parent / file).read_text())
            if root == CGROUP:
                path.parent.joinpath("cgroup.subtree_control").write_text("+cpu +memory")

    def _run(self, pod: PodOnNode, what: str, file: str) -> None:
        process = subprocess.Popen([sys.executable, str(WORKER), what, str(self.folder / file)])
        self._processes.append(process)
        for root in hierarchies():
            (root / self._directory(pod) / "cgroup.procs").write_text(str(process.pid))


def hierarchies() -> list[Path]:
    """The hierarchies of this machine that a pod lives in."""
    if cgroup_version(CGROUP) == 2:
        return [CGROUP]
    found = [CGROUP / name for name in ("cpu", "cpuacct", "cpuset", "memory")]
    return [root for root in found if os.access(root / "tasks", os.W_OK)]


def new_agent(pods: Pods, host: LinuxHost, *, enable: bool) -> NodeAgent:
    """The agent of this machine, told of the two pods."""
    cpu_milli = host.capacity().cpu_milli
    threshold = {
        "enable": enable,
        "cpuSuppressThresholdPercent": THRESHOLD_PERCENT,
        "cpuSuppressPolicy": "cfsQuota",
    }
    agent = NodeAgent(
        "here", host, Measurement(monitor=NodeMonitor(collect_interval_ms=INTERVAL_MS)), interval_ms=INTERVAL_MS
    )
    agent.desired = view_of(
        DesiredNode(
            node="here",
            pods=[pods.ls, pods.be],
            slo={"resourceUsedThresholdWithBE": threshold},
            capacity={"cpu": cpu_milli, "memory": host.capacity().memory_bytes},
            allocatable={"cpu": cpu_milli, "memory": host.capacity().memory_bytes},
        )
    )
    return agent


def measure(seconds: float, rounds: int, *, kubelet_shares: bool = False) -> tuple[Phase, Phase]:
    """Protection off and on, each `rounds` times for `seconds`; the first second of each is not counted."""
    off, on = Phase(protected=False), Phase(protected=True)
    burners = (os.cpu_count() or 1) * 2
    folder = Path(tempfile.mkdtemp())
    try:
        with Pods(folder, burners, kubelet_shares=kubelet_shares) as pods:
            host = LinuxHost(monotonic_ns=time.monotonic_ns, layout=pods.layout)
            for _ in range(rounds):
                for phase in (off, on):
                    _one(phase, pods, host, folder, seconds)
    finally:
        shutil.rmtree(folder)
    return off, on


def _one(phase: Phase, pods: Pods, host: LinuxHost, folder: Path, seconds: float) -> None:
    agent = new_agent(pods, host, enable=phase.protected)
    quota = CgroupFile(pods.be_root, "cpu.cfs_quota_us")
    begin = time.monotonic()
    counted_from, end = begin + 2 * INTERVAL_MS / 1000, begin + seconds
    before = None
    while (now := time.monotonic()) < end:
        agent.run_cycle(int(now * 1000))
        if before is None and now >= counted_from:
            before = _look(pods, host)
        text = host.read(quota)
        if text is not None and now >= counted_from:
            phase.be_quota_us.append(int(text.split()[0].replace("max", "-1")))
        time.sleep(max(0.0, min(INTERVAL_MS / 1000 - (time.monotonic() - now), end - time.monotonic())))
    after = _look(pods, host)
    if before is not None:
        _add_usage(phase, before, after, host.capacity().cpu_milli / 1000)
        phase.latencies_ms.extend(v for _, v in _lines(folder / "latency", before.at, after.at))
        rounds = sum(v for file in folder.glob("burn-*") for _, v in _lines(file, before.at, after.at))
        phase.be_rounds_per_second.append(rounds / (after.at - before.at))
    host.write(quota, "-1")


class Look(NamedTuple):
    """Counters at a moment."""

    at: float
    best_effort: CgroupCounters | None
    node: NodeCounters | None


def _look(pods: Pods, host: LinuxHost) -> Look:
    return Look(time.monotonic(), host.cgroup_counters(pods.be_root), host.node_counters())


def _add_usage(phase: Phase, before: Look, after: Look, cores: float) -> None:
    if before.best_effort is not None and after.best_effort is not None:
        phase.be_cores.append(cgroup_usage(before.best_effort, after.best_effort) or 0.0)
    if before.node is not None and after.node is not None:
        phase.node_percent.append(100 * (node_usage(before.node, after.node) or 0.0) / cores)


def _lines(path: Path, since: float, until: float) -> Iterator[tuple[float, float]]:
    for line in path.read_text(encoding="ascii").splitlines():
        words = line.split()
        if len(words) == 2 and since <= float(words[0]) < until:
            yield float(words[0]), float(words[1])


def picture(off: Phase, on: Phase) -> str:
    """Both tails, with what the best-effort class got done."""
    curves = [
        Curve(
            name,
            phase.latencies_ms,
            f"p99 {phase.percentile(99):.1f} ms; best effort used {_mean(phase.be_cores):.2f} cores,"
            f" node {_mean(phase.node_percent):.0f} % busy",
        )
        for name, phase in (("protection off", off), ("protection on", on))
    ]
    return tail_picture("A latency-sensitive process beside best-effort work that burns every CPU", curves)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(
        description="Latency of a process beside best-effort work, unprotected and protected."
    )
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--picture", type=Path)
    parser.add_argument("--kubelet-shares", action="store_true")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    if os.geteuid() != 0 or not hierarchies():
        sys.exit("this needs root and a writable cgroup file system")
    off, on = measure(asked.seconds, asked.rounds, kubelet_shares=asked.kubelet_shares)
    if asked.picture is not None:
        asked.picture.write_text(picture(off, on), encoding="utf-8")
    if asked.json:
        print(json.dumps({"off": off.summary(), "on": on.summary()}))
        return
    rows = [("", "off", "on"), *((name, off.summary()[name], on.summary()[name]) for name in off.summary())]
    for name, left, right in rows:
        print(f"{name:<24}{left!s:>12}{right!s:>12}")


if __name__ == "__main__":
    main()
