"""No text and no vanishing file of a machine brings a collector down."""

import random
import shutil
from pathlib import Path

import pytest
from koord_agent.domain.kernel import counters
from koord_agent.domain.kernel.cgroup_files import RESOURCES, Unsupported, from_file_text
from koord_agent.domain.kernel.cgroup_layout import CgroupLayout, Driver
from koord_agent.domain.kernel.cpus import CpuFiles, cpu_places
from koord_agent.domain.kernel.resctrl_files import parse_monitoring, parse_schemata, resctrl_support
from koord_agent.domain.metrics.monitor import HostReading, NodeMonitor
from koord_agent.domain.metrics.series import SeriesStore
from koord_agent.domain.plans.plan import CgroupFile
from koord_agent.shell.host.linux import LinuxHost
from koord_agent.shell.host.probe import HostRoots
from koordcore.protocol.qos import KubeQos
from koordcore.values.invalid import InvalidInput
from support.agent.pods import corrupted
from support.depth import repeats

CORRUPTED = repeats(5_000)
JUNK = (
    *("", "\0", "\n", "-1", "max", "9" * 5_000, "18446744073709551615", "99999999999999999999999", "nan", "1e308"),
    *("\u0663", "=", ":", ";", "N0=", "total=", "cpu", "some", "0x", " ", "\t", "-", "--5", "1-999999999999"),
)
TEXTS = {
    "proc/stat": "cpu  100 10 50 1000 30 4 6 7 0 0\ncpu0 50 5 25 500 15 2 3 3 0 0\nintr 1\n",
    "proc/meminfo": "MemTotal: 1000 kB\nMemFree: 400 kB\nMemAvailable: 700 kB\n",
    "sys/bus/node/devices/node0/meminfo": "Node 0 MemTotal: 1000 kB\nNode 0 MemFree: 1 kB\nNode 0 Active(file): 1 kB\n"
    "Node 0 Inactive(file): 1 kB\nNode 0 SReclaimable: 1 kB\n",
    "cpuacct.usage": "7000\n",
    "memory.stat": "".join(
        f"total_{name} 5\n"
        for name in (
            "cache",
            "rss",
            "inactive_anon",
            "active_anon",
            "unevictable",
            "inactive_file",
            "active_file",
        )
    ),
    "cpu.stat": "nr_periods 10\nnr_throttled 4\nthrottled_time 5\n",
    "memory.numa_stat": "total=8 N0=4 N1=4\nfile=1 N0=1\n",
    "cpu.cfs_quota_us": "-1\n",
    "cpuset.cpus": "0-1\n",
    **dict.fromkeys(
        counters.RESOURCES.values(),
        "some avg10=1.00 avg60=2.00 avg300=3.00 total=4\nfull avg10=1.00 avg60=2.00 avg300=3.00 total=4\n",
    ),
    "memory.idle_page_stats": "".join(f"row{i} 1 2 3\n" for i in range(14)) + "cfei 1 2 3 4 5 6 7\n" * 17,
}
LAYOUT = CgroupLayout(Driver.CGROUPFS)
POD = LAYOUT.pod_directory(KubeQos.BEST_EFFORT, "u-1")


class Machine:
    """A fake tree of one pod on cgroup v1."""

    def __init__(self, folder: Path, version: int = 1) -> None:
        self.roots = HostRoots(cgroup=folder / "cgroup", proc=folder / "proc", sys=folder / "sys")
        self.version = version
        for name, text in TEXTS.items():
            for path in self.paths(name):
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
        self.now_ns = 0
        self.host = LinuxHost(
            monotonic_ns=self.tick, roots=self.roots, version=version, layout=LAYOUT, jiffy=10_000_000
        )

    def tick(self) -> int:
        """A clock that goes on, and sometimes does not."""
        self.now_ns += 1_000_000_000
        return self.now_ns

    def paths(self, name: str) -> list[Path]:
        """Where a text stands on this machine."""
        if "/" in name:
            return [self.roots.cgroup.parent / name]
        row = RESOURCES[name]
        file = row.file(self.version, reading=True)
        if file is None:
            return []
        root = self.roots.cgroup / (row.hierarchy or "") if self.version == 1 else self.roots.cgroup
        return [root / directory / file for directory in (LAYOUT.qos_directory(KubeQos.BEST_EFFORT), POD)]

    def look(self, monitor: NodeMonitor, now_ms: int) -> None:
        """Everything that collectors ask of a machine, into the series."""
        host = self.host
        reading_of = {"u-1": host.cgroup_counters(POD)}
        monitor.observe(HostReading(node=host.node_counters(), pods=reading_of), now_ms)
        for directory in (POD, "", "gone/../x\0"):
            host.numa_pages(directory)
            host.pressure(directory)
            host.cold_page_bytes(directory)
            host.sched_counters(directory)
        host.numa_memory()
        host.resctrl_counters()
        for resource in RESOURCES:
            text = host.read(CgroupFile(POD, resource))
            if text is not None:
                try:
                    from_file_text(resource, text, self.version)
                except (InvalidInput, Unsupported):
                    continue


@pytest.mark.fuzz
@pytest.mark.parametrize("version", [1, 2])
def test_corrupted_texts_never_bring_a_collector_down(tmp_path: Path, version: int) -> None:
    machine = Machine(tmp_path, version)
    random_ = random.Random(version)
    monitor = NodeMonitor(collect_interval_ms=1_000, store=SeriesStore(retention_ms=60_000))
    names = sorted(TEXTS)
    for attempt in range(CORRUPTED // 10):
        for name in random_.sample(names, 5):
            for path in machine.paths(name):
                path.write_bytes(corrupted(TEXTS[name].encode(), random_, JUNK))
        machine.look(monitor, attempt * 1_000)


@pytest.mark.fuzz
def test_texts_without_a_file_are_parsed_or_refused_but_nothing_else() -> None:
    random_ = random.Random(7)
    for _ in range(CORRUPTED // 5):
        lists = [corrupted(b"0-1\n", random_, JUNK).decode(errors="replace") for _ in range(4)]
        cpu_places({cpu: CpuFiles(core_cpus=lists[cpu], package_cpus=lists[cpu + 2]) for cpu in range(2)}, {})
        resctrl_support(
            corrupted(b"vendor_id : GenuineIntel\nflags : cat_l3 mba\n", random_, JUNK).decode(errors="replace")
        )
        parse_monitoring({"mon_L3_0": {"llc_occupancy": corrupted(b"123\n", random_, JUNK).decode(errors="replace")}})
        try:
            parse_schemata(corrupted(b"L3:0=7ff;1=7ff\nMB:0=100;1=100\n", random_, JUNK).decode(errors="replace"))
        except ValueError:
            continue


def test_a_tree_that_vanishes_between_two_looks_leaves_gaps_only(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    monitor = NodeMonitor(collect_interval_ms=1_000)
    machine.look(monitor, 1_000)
    shutil.rmtree(tmp_path / "cgroup")
    machine.look(monitor, 2_000)
    shutil.rmtree(tmp_path / "proc")
    machine.look(monitor, 3_000)
    assert machine.host.cgroup_counters(POD) is None
    assert machine.host.node_counters() is None
