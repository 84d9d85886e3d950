"""The agent on a cgroup v2 tree that answers as the kernel does: its formats to the byte, its EINVAL, its rounding."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest
from koord_agent.domain.kernel.cgroup_files import to_file_text
from koord_agent.domain.kernel.cgroup_layout import CgroupLayout, Driver
from koord_agent.domain.metrics.monitor import NodeMonitor
from koord_agent.domain.node.desired import view_of
from koord_agent.domain.node.kubelet import KnownPods
from koord_agent.domain.plans.plan import CgroupFile
from koord_agent.settings import AgentSettings
from koord_agent.shell.host.host import WriteFailed
from koord_agent.shell.host.linux import LinuxHost
from koord_agent.shell.host.probe import HostRoots
from koord_agent.shell.node.measure import Measurement
from koord_agent.shell.node.node_agent import NodeAgent
from koordcore.ports.desired import DesiredNode
from koordcore.protocol.qos import KubeQos
from koordcore.values.cpuset import format_cpuset, parse_cpuset
from koordcore.values.invalid import InvalidInput
from support.agent.pods import colocated_pod

LAYOUT = CgroupLayout(Driver.SYSTEMD)
CPUS, PAGE = 8, 4096
BE = LAYOUT.qos_directory(KubeQos.BEST_EFFORT)
FRESH = {
    "cpu.max": "max 100000\n",
    "cpu.max.burst": "0\n",
    "cpu.weight": "100\n",
    "cpu.stat": "usage_usec 0\nuser_usec 0\nsystem_usec 0\nnr_periods 0\nnr_throttled 0\nthrottled_usec 0\n",
    "cpuset.cpus": "\n",
    "cpuset.cpus.effective": f"0-{CPUS - 1}\n",
    "memory.min": "0\n",
    "memory.low": "0\n",
    "memory.high": "max\n",
    "memory.max": "max\n",
    "memory.stat": "anon 0\nfile 0\ninactive_anon 0\nactive_anon 0\nunevictable 0\ninactive_file 0\nactive_file 0\n",
}


class KernelV2(LinuxHost):
    """A machine below a folder whose files do on a write what a v2 kernel does."""

    def write(self, file: CgroupFile, value: str) -> None:
        path = Path(self._path(file, reading=False))
        text = to_file_text(file.resource, value, 2)
        try:
            self._take(path, text.strip())
        except OSError as error:
            raise WriteFailed(f"{path}: {value!r} not written: {error.strerror}") from error

    def _take(self, path: Path, text: str) -> None:
        if not path.exists():
            raise OSError(errno.ENOENT, os.strerror(errno.ENOENT))
        match path.name:
            case "cpu.max":
                quota, _, period = text.partition(" ")
                burst = int(path.with_name("cpu.max.burst").read_text())
                if quota != "max" and (int(quota) < 1_000 or burst > int(quota)):
                    raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
                period = period or path.read_text().split()[1]
                path.write_text(f"{quota} {period}\n")
            case "cpu.max.burst":
                quota = path.with_name("cpu.max").read_text().split()[0]
                if quota != "max" and int(text) > int(quota):
                    raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
                path.write_text(f"{int(text)}\n")
            case "cpuset.cpus":
                try:
                    cpus = parse_cpuset(text)
                except InvalidInput as error:
                    raise OSError(errno.EINVAL, os.strerror(errno.EINVAL)) from error
                if cpus and max(cpus) >= CPUS:
                    raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
                path.write_text(f"{format_cpuset(cpus)}\n")
                self._derive(path.parent)
            case "memory.min" | "memory.low" | "memory.high" | "memory.max":
                path.write_text("max\n" if text == "max" else f"{int(text) // PAGE * PAGE}\n")
            case "cpu.weight":
                if not 1 <= int(text) <= 10_000:
                    raise OSError(errno.ERANGE, os.strerror(errno.ERANGE))
                path.write_text(f"{int(text)}\n")
            case other:
                raise AssertionError(f"{other} is not a knob that is set here")

    def _derive(self, directory: Path) -> None:
        """Effective CPUs: the own list inside the parent's, the parent's where that leaves none; then below."""
        above = parse_cpuset((directory.parent / "cpuset.cpus.effective").read_text().strip())
        own = parse_cpuset((directory / "cpuset.cpus").read_text().strip())
        (directory / "cpuset.cpus.effective").write_text(f"{format_cpuset(own & above or above)}\n")
        for child in directory.iterdir():
            if child.is_dir():
                self._derive(child)


class Node:
    """A node of 8 CPUs whose web pod uses 4 of them and whose best-effort pod the rest."""

    def __init__(self, folder: Path) -> None:
        self.root, proc = folder / "cgroup", folder / "proc"
        self.now_ms = 0
        self.pods = {one.uid: one for one in (colocated_pod("web", "LS"), colocated_pod("job", "BE"))}
        self.directories = [LAYOUT.qos_directory(qos) for qos in KubeQos]
        for one in self.pods.values():
            self.directories.append(LAYOUT.pod_directory(one.kube_qos, one.uid))
            self.directories.append(LAYOUT.container_directory(one.kube_qos, one.uid, f"containerd://{one.uid}-c"))
        for directory in ("", *self.directories):
            (self.root / directory).mkdir(parents=True, exist_ok=True)
            for name, text in FRESH.items():
                (self.root / directory / name).write_text(text)
        proc.mkdir()
        self.proc = proc
        (proc / "meminfo").write_text("MemTotal: 4096000 kB\nMemFree: 1024 kB\nMemAvailable: 2048000 kB\n")
        host = KernelV2(
            monotonic_ns=lambda: self.now_ms * 1_000_000,
            roots=HostRoots(cgroup=self.root, proc=proc, sys=folder / "sys"),
            version=2,
            layout=LAYOUT,
            jiffy=10_000_000,
        )
        self.agent = NodeAgent(
            "n",
            host,
            Measurement(monitor=NodeMonitor(collect_interval_ms=1_000)),
            interval_ms=1_000,
            settings=AgentSettings.model_validate({"feature_gates": "CgroupReconcile=true"}),
        )

    def live(self, seconds: int, slo: dict[str, Any]) -> list[str]:
        problems: list[str] = []
        amounts = {"cpu": CPUS * 1_000, "memory": 4096000 << 10}
        self.agent.desired = view_of(DesiredNode(node="n", slo=slo, capacity=amounts, allocatable=amounts))
        self.agent.known = KnownPods(pods=self.pods, at_ms=self.now_ms)
        for _ in range(seconds):
            self.now_ms += 1_000
            used = {"web": 4_000 * self.now_ms, "job": 3_000 * self.now_ms}
            for uid, usec in ((uid, usec) for uid, usec in used.items() if uid in self.pods):
                directory = LAYOUT.pod_directory(self.pods[uid].kube_qos, uid)
                text = FRESH["cpu.stat"].replace("usage_usec 0", f"usage_usec {usec}")
                (self.root / directory / "cpu.stat").write_text(text)
            (self.proc / "stat").write_text(f"cpu {sum(used.values()) // 10_000} 0 0 0 0 0 0\n")
            problems.extend(self.agent.run_cycle(self.now_ms).problems)
        return problems

    def text(self, directory: str, name: str) -> str:
        return (self.root / directory / name).read_text()


def threshold(policy: str, *, enable: bool = True) -> dict[str, Any]:
    return {"enable": enable, "cpuSuppressThresholdPercent": 65, "cpuSuppressPolicy": policy}


def test_the_quota_is_held_in_the_kernels_words_and_given_back(tmp_path: Path) -> None:
    node = Node(tmp_path)
    assert node.live(4, {"resourceUsedThresholdWithBE": threshold("cfsQuota")}) == []
    # 8 cores * 65 % - 4 of web
    assert node.text(BE, "cpu.max") == "120000 100000\n"
    assert node.live(2, {"resourceUsedThresholdWithBE": threshold("cfsQuota", enable=False)}) == []
    assert node.text(BE, "cpu.max") == "max 100000\n"


def test_protection_of_memory_is_what_the_kernel_makes_of_it(tmp_path: Path) -> None:
    node = Node(tmp_path)
    memory = {"enable": True, "minLimitPercent": 40, "lowLimitPercent": 50, "throttlingPercent": 80}
    slo = {"resourceQOSStrategy": {"lsClass": {"memoryQOS": memory}}}
    node.live(3, slo)
    web = LAYOUT.pod_directory(KubeQos.BURSTABLE, "web")
    container = LAYOUT.container_directory(KubeQos.BURSTABLE, "web", "containerd://web-c")
    for directory in (LAYOUT.qos_directory(KubeQos.BURSTABLE), web, container):
        assert node.text(directory, "memory.min") == f"{400_000 // PAGE * PAGE}\n"
        assert node.text(directory, "memory.low") == f"{500_000 // PAGE * PAGE}\n"
    assert node.text(container, "memory.high") == f"{1_000_000 // PAGE * PAGE}\n"
    assert node.text(BE, "memory.min") == "0\n"


def test_protection_of_a_class_falls_when_its_last_pod_leaves(tmp_path: Path) -> None:
    node, burstable = Node(tmp_path), LAYOUT.qos_directory(KubeQos.BURSTABLE)
    slo = {"resourceQOSStrategy": {"lsClass": {"memoryQOS": {"enable": True, "minLimitPercent": 40}}}}
    node.live(3, slo)
    all_pods = LAYOUT.qos_directory(KubeQos.GUARANTEED)
    assert node.text(burstable, "memory.min") == node.text(all_pods, "memory.min") == f"{400_000 // PAGE * PAGE}\n"
    web = node.pods.pop("web")
    node.live(1, slo)
    assert node.text(burstable, "memory.min") == node.text(all_pods, "memory.min") == "0\n"
    node.pods["web"] = web
    node.live(1, slo)
    assert node.text(burstable, "memory.min") != "0\n"


@pytest.mark.parametrize(("percent", "burst"), [(50, 100_000), (1_000, 200_000)])
def test_a_burst_is_at_most_the_quota(tmp_path: Path, percent: int, burst: int) -> None:
    """Mainline kernels take no burst above the quota; the reference's kernels do."""
    node = Node(tmp_path)
    container = LAYOUT.container_directory(KubeQos.BURSTABLE, "web", "containerd://web-c")
    for directory in (LAYOUT.pod_directory(KubeQos.BURSTABLE, "web"), container):
        (node.root / directory / "cpu.max").write_text("200000 100000\n")
    problems = node.live(3, {"cpuBurstStrategy": {"policy": "cpuBurstOnly", "cpuBurstPercent": percent}})
    assert node.text(container, "cpu.max.burst") == f"{burst}\n"
    assert problems == []
    assert node.text(container, "cpu.max") == "200000 100000\n"
