"""A node of a fake cgroup v1 tree with the kernel's formats, and its pods as a kubelet serves them."""

from pathlib import Path
from typing import Any

from koord_agent.domain.kernel.cgroup_layout import CgroupLayout, Driver
from koordcore.protocol.qos import KubeQos

CPUS = 32
MEMORY_KIB = 131_072_000
CONTAINERS = 2
MEMORY_KEYS = (
    *("cache", "rss", "rss_huge", "shmem", "mapped_file", "dirty", "writeback", "pgpgin", "pgpgout", "pgfault"),
    *("pgmajfault", "inactive_anon", "active_anon", "inactive_file", "active_file", "unevictable"),
)
MEMORY_STAT = "".join(f"{prefix}{name} 1048576\n" for prefix in ("", "total_") for name in MEMORY_KEYS)
FILES = {
    "cpuacct/cpuacct.usage": "123456789012\n",
    "memory/memory.stat": MEMORY_STAT,
    "memory/memory.numa_stat": "total=4096 N0=4096\nfile=1024 N0=1024\nanon=3072 N0=3072\nunevictable=0 N0=0\n",
    "cpu/cpu.stat": "nr_periods 100\nnr_throttled 3\nthrottled_time 5000000\n",
    "cpu/cpu.cfs_quota_us": "-1\n",
    "cpu/cpu.cfs_period_us": "100000\n",
    "cpu/cpu.shares": "1024\n",
    "cpu/cpu.cfs_burst_us": "0\n",
    "cpu/tasks": "",
    "cpuset/cpuset.cpus": f"0-{CPUS - 1}\n",
}


class FakeNode:
    """Folders `cgroup` and `proc` of a machine of 32 CPUs. What nobody changes stays as it is: idle pods."""

    def __init__(self, folder: Path) -> None:
        self.root = ""  # The kubelet's cgroupRoot
        self.layout = CgroupLayout(Driver.SYSTEMD)
        self.cgroup, self.proc = folder / "cgroup", folder / "proc"
        self.proc.mkdir()
        self.set_busy_ticks(1600)
        (self.proc / "meminfo").write_text(
            f"MemTotal: {MEMORY_KIB} kB\nMemFree: 60000000 kB\nMemAvailable: 90000000 kB\n"
        )
        for qos in (KubeQos.GUARANTEED, KubeQos.BURSTABLE, KubeQos.BEST_EFFORT):
            self._put(self.layout.qos_directory(qos))

    def set_busy_ticks(self, ticks: int) -> None:
        """Ticks of 10 ms that all CPUs together have worked."""
        cpus = "".join(f"cpu{n} {ticks // CPUS} 5 25 500 15 2 3 3 0 0\n" for n in range(CPUS))
        usage = self.file("", "cpuacct/cpuacct.usage")
        usage.parent.mkdir(parents=True, exist_ok=True)
        replace(usage, f"{ticks * 10_000_000}\n")
        replace(self.proc / "stat", f"cpu  {ticks} 160 800 16000 480 64 96 96 0 0\n{cpus}intr 1\n")

    def file(self, directory: str, file: str) -> Path:
        """A knob: `<hierarchy>/<name>` of a directory."""
        hierarchy, _, name = file.partition("/")
        return self.cgroup / hierarchy / directory / name

    def add(self, uid: str, *, best_effort: bool) -> dict[str, Any]:
        """A pod of two containers with its directories; the pod as the kubelet serves it."""
        qos, kube_qos = ("BE", KubeQos.BEST_EFFORT) if best_effort else ("LS", KubeQos.BURSTABLE)
        ids = [f"containerd://{uid}-c{k}" for k in range(CONTAINERS)]
        resource, amount = ("kubernetes.io/batch-cpu", "1000") if best_effort else ("cpu", "1")
        resources = {"requests": {resource: amount}, "limits": {resource: amount}}
        self._put(self.layout.pod_directory(kube_qos, uid))
        for identity in ids:
            self._put(self.layout.container_directory(kube_qos, uid, identity))
        return {
            "metadata": {
                "name": uid,
                "namespace": "default",
                "uid": uid,
                "labels": {"koordinator.sh/qosClass": qos},
                "creationTimestamp": "2026-01-01T00:00:00Z",
            },
            "spec": {"containers": [{"name": f"c{k}", "resources": resources} for k in range(CONTAINERS)]},
            "status": {
                "phase": "Running",
                "qosClass": str(kube_qos),
                "containerStatuses": [
                    {"name": f"c{k}", "containerID": identity, "state": {"running": {}}}
                    for k, identity in enumerate(ids)
                ],
            },
        }

    def _put(self, directory: str) -> None:
        for file, text in FILES.items():
            path = self.file(directory, file)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)


def replace(path: Path, text: str) -> None:
    """New content at once: whoever reads sees the old text or the new one."""
    beside = path.with_name(f".{path.name}.new")
    beside.write_text(text)
    beside.replace(path)
