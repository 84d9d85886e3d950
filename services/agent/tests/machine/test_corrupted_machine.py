"""A whole agent on a machine whose files are corrupted at random: it goes on, keeps to its trees, harms no LS pod."""

import random
from pathlib import Path
from typing import Any

import pytest
from koord_agent.domain.kernel.cgroup_files import RESOURCES
from koord_agent.domain.kernel.cgroup_layout import CgroupLayout, Driver
from koord_agent.domain.metrics.monitor import NodeMonitor
from koord_agent.domain.node.desired import view_of
from koord_agent.domain.node.kubelet import KnownPods
from koord_agent.domain.plans.plan import CgroupFile
from koord_agent.settings import AgentSettings
from koord_agent.shell.host.linux import LinuxHost
from koord_agent.shell.host.probe import HostRoots
from koord_agent.shell.node.measure import Measurement
from koord_agent.shell.node.node_agent import CYCLE_FAILED, NodeAgent
from koordcore.ports.desired import DesiredNode
from koordcore.protocol.qos import KubeQos
from koordcore.values.cpuset import parse_cpuset
from support.agent.pods import colocated_pod, corrupted
from support.depth import repeats

CORRUPTED, AT_ONCE = repeats(5_000), 10
CPUS = 8
LAYOUT = CgroupLayout(Driver.SYSTEMD)
BASE_QUOTA_US = 200_000
PRESSURE = "some avg10=1.00 avg60=2.00 avg300=3.00 total=4\nfull avg10=1.00 avg60=2.00 avg300=3.00 total=4\n"
MEMORY_KEYS = ("cache", "rss", "inactive_anon", "active_anon", "unevictable", "inactive_file", "active_file")
V1 = {
    "cpuacct.usage": "7000\n",
    "cpu.stat": "nr_periods 10\nnr_throttled 4\nthrottled_time 5\n",
    "cpu.cfs_quota_us": f"{BASE_QUOTA_US}\n",
    "cpu.cfs_burst_us": "0\n",
    "cpu.shares": "1024\n",
    "cpuset.cpus": f"0-{CPUS - 1}\n",
    "memory.stat": "".join(f"{total}{name} 5\n" for total in ("", "total_") for name in MEMORY_KEYS),
    "memory.min": "0\n",
    "memory.low": "0\n",
    "memory.high": "9223372036854771712\n",
    **dict.fromkeys(("cpu.pressure", "memory.pressure", "io.pressure"), PRESSURE),
}
V2 = {
    "cpu.stat": "usage_usec 7\nuser_usec 0\nsystem_usec 0\nnr_periods 10\nnr_throttled 4\nthrottled_usec 5\n",
    "cpu.max": f"{BASE_QUOTA_US} 100000\n",
    "cpu.max.burst": "0\n",
    "cpu.weight": "100\n",
    "cpuset.cpus": "\n",
    "cpuset.cpus.effective": f"0-{CPUS - 1}\n",
    "memory.stat": "anon 5\nfile 5\ninactive_anon 5\nactive_anon 5\nunevictable 5\ninactive_file 5\nactive_file 5\n",
    "memory.min": "0\n",
    "memory.low": "0\n",
    "memory.high": "max\n",
    **dict.fromkeys(("cpu.pressure", "memory.pressure", "io.pressure"), PRESSURE),
}
LEAST = {
    "cpu.cfs_quota_us": BASE_QUOTA_US,
    "cpu.shares": 1024,
    "cpuset.cpus": CPUS,
    "memory.high": float("inf"),
    "memory.min": 200_000,
    "memory.low": 400_000,
}
"""What LS pods have without any fault."""
JUNK = (
    *("", "\0", "\n", "-1", "max", "0", "1", "9" * 5_000, "18446744073709551615", "99999999999999999999999", "nan"),
    *("1e308", "\u0663", "=", ":", ";", "total=", "cpu", "some", "0x", " ", "\t", "-", "--5", "1-999999999999"),
)
SLO: dict[str, Any] = {
    "resourceUsedThresholdWithBE": {"enable": True, "cpuSuppressThresholdPercent": 65, "cpuSuppressPolicy": "cfsQuota"},
    "cpuBurstStrategy": {"policy": "auto", "cfsQuotaBurstPercent": 300},
    "resourceQOSStrategy": {
        "lsClass": {
            "memoryQOS": {"enable": True, "minLimitPercent": 20, "lowLimitPercent": 40, "throttlingPercent": 0}
        },
        "beClass": {"memoryQOS": {"enable": True, "throttlingPercent": 80}},
    },
}


class Told(LinuxHost):
    """A machine that remembers what is written."""

    written: list[tuple[CgroupFile, str]]

    def write(self, file: CgroupFile, value: str) -> None:
        self.written.append((file, value))
        super().write(file, value)


class Machine:
    """A node of 8 CPUs with an LS pod and a best-effort pod, and somebody else's tree beside theirs."""

    def __init__(self, folder: Path, version: int) -> None:
        self.version = version
        self.roots = HostRoots(cgroup=folder / "cgroup", proc=folder / "proc", sys=folder / "sys")
        self.pods = {one.uid: one for one in (colocated_pod("web", "LS"), colocated_pod("job", "BE"))}
        self.of_ls = [LAYOUT.qos_directory(KubeQos.GUARANTEED), LAYOUT.qos_directory(KubeQos.BURSTABLE)]
        self.directories = [*self.of_ls, LAYOUT.qos_directory(KubeQos.BEST_EFFORT)]
        for one in self.pods.values():
            own = [
                LAYOUT.pod_directory(one.kube_qos, one.uid),
                LAYOUT.container_directory(one.kube_qos, one.uid, f"containerd://{one.uid}-c"),
            ]
            self.directories.extend(own)
            if one.uid == "web":
                self.of_ls.extend(own)
        self.texts: dict[Path, bytes] = {}
        for directory in ("", "system.slice", *self.directories):
            for name, text in (V1 if version == 1 else V2).items():
                self.put(self.path(directory, name), text.encode())
        self.put(self.roots.proc / "stat", b"cpu 1 0 0 0 0 0 0\n")
        self.put(self.roots.proc / "meminfo", b"MemTotal: 4096000 kB\nMemFree: 1024 kB\nMemAvailable: 2048000 kB\n")
        self.put(self.roots.proc / "diskstats", b"8 0 sda 1 2 3 4 5 6 7 8 9 10 11\n")
        self.now_ms = 0
        self.host = Told(
            monotonic_ns=lambda: self.now_ms * 1_000_000,
            roots=self.roots,
            version=version,
            layout=LAYOUT,
            jiffy=10_000_000,
        )
        self.host.written = []
        self.agent = NodeAgent(
            "n",
            self.host,
            Measurement(monitor=NodeMonitor(collect_interval_ms=1_000)),
            interval_ms=1_000,
            settings=AgentSettings.model_validate({"feature_gates": "CgroupReconcile=true,PSICollector=true"}),
        )
        amounts = {"cpu": CPUS * 1_000, "memory": 4096000 << 10}
        self.agent.desired = view_of(DesiredNode(node="n", slo=SLO, capacity=amounts, allocatable=amounts))

    def path(self, directory: str, name: str) -> Path:
        """Where a file stands in this version's tree."""
        if self.version == 2:
            return self.roots.cgroup / directory / name
        return self.roots.cgroup / (RESOURCES[name].hierarchy or "") / directory / name

    def put(self, path: Path, text: bytes) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text)
        self.texts[path] = text

    def live(self) -> tuple[str, ...]:
        """A second passes: the pods work, the agent has its round."""
        self.now_ms += 1_000
        self.agent.known = KnownPods(pods=self.pods, at_ms=self.now_ms)
        return self.agent.run_cycle(self.now_ms).problems

    def work(self) -> None:
        """The counters go on: the LS pod uses 4 cores, best effort 3."""
        for uid, cores in (("web", 4), ("job", 3)):
            directory = LAYOUT.pod_directory(self.pods[uid].kube_qos, uid)
            used_us = cores * 1_000 * self.now_ms
            if self.version == 1:
                self.put(self.path(directory, "cpuacct.usage"), f"{used_us * 1_000}\n".encode())
            else:
                self.put(self.path(directory, "cpu.stat"), V2["cpu.stat"].replace("usec 7", f"usec {used_us}").encode())
        self.put(self.roots.proc / "stat", f"cpu {7 * self.now_ms // 10} 0 0 0 0 0 0\n".encode())

    def files(self) -> set[Path]:
        """Every file that there is."""
        return {path for root in (self.roots.cgroup, self.roots.proc) for path in root.rglob("*") if path.is_file()}


def worth(resource: str, value: str) -> float:
    """How much a value gives: more is never tighter."""
    if resource == "cpuset.cpus":
        return len(parse_cpuset(value))
    return float("inf") if value in ("-1", "max") or int(value) >= 1 << 62 else float(value)


@pytest.mark.fuzz
@pytest.mark.parametrize(("version", "seed"), [(1, 300), (1, 600), (2, 400), (2, 800)])
def test_it_goes_on_keeps_to_its_trees_and_never_tightens_a_limit_of_latency_sensitive_pods(
    tmp_path: Path, version: int, seed: int
) -> None:
    machine, random_ = Machine(tmp_path, version), random.Random(seed)
    files = machine.files()
    foreign = {path: path.read_bytes() for path in files if "system.slice" in path.parts}
    names = sorted(path for path in machine.texts if path not in foreign)
    failed: list[str] = []
    for _ in range(CORRUPTED // AT_ONCE):
        machine.work()
        hit = {path: path.read_bytes() for path in random_.sample(names, AT_ONCE)}
        for path, text in hit.items():
            path.write_bytes(corrupted(text, random_, JUNK))
        failed.extend(problem for problem in machine.live() if problem.startswith(CYCLE_FAILED))
        for path in hit:
            path.write_bytes(machine.texts[path])
    assert failed == []
    written = machine.host.written
    assert {file.directory.split("/")[0] for file, _ in written} == {LAYOUT.root}
    assert machine.files() == files
    assert {path: path.read_bytes() for path in foreign} == foreign
    of_ls = [(file, value) for file, value in written if file.directory in machine.of_ls]
    assert len(of_ls) > repeats(50), "it was at work all the time"
    tighter = [(file.key, value) for file, value in of_ls if worth(file.resource, value) < LEAST.get(file.resource, 0)]
    assert tighter == []
