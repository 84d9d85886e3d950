"""Which CPUs share an L3 cache: by the kernel's ids, numbered where it has none, absent where it does not tell."""

from pathlib import Path
from typing import Any

import pytest
from koord_agent.domain.kernel.cpus import CacheFiles, l3_caches
from koord_agent.domain.node.desired import view_of
from koord_agent.shell.collect.topology import TopologyReporter
from koord_agent.shell.host.linux import LinuxHost
from koord_agent.shell.host.numa import CPUS, read_l3_caches
from koord_agent.shell.host.probe import HostRoots
from koordcore.events.nodestate import CpuCache
from koordcore.ports.desired import DesiredNode
from koordcore.values.cpuset import parse_cpuset
from koordcore.values.topology import CpuPlace

MIB = 1 << 20
REAL = Path("/sys")


def put_cache(sys: Path, cpu: int, index: int, **files: str) -> None:
    folder = sys / CPUS / f"cpu{cpu}/cache/index{index}"
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text + "\n")


def two_chiplets(sys: Path, *, ids: bool = True) -> None:
    """8 CPUs; an L3 for the even and one for the odd ones, with ids 4 and 2."""
    for cpu in range(8):
        put_cache(sys, cpu, 0, level="1", id=str(cpu), size="48K", shared_cpu_list=str(cpu))
        shared = "0,2,4,6" if cpu % 2 == 0 else "1,3,5,7"
        more = {"id": "4" if cpu % 2 == 0 else "2"} if ids else {}
        put_cache(sys, cpu, 3, level="3", size="32M" if cpu % 2 else "16384K", shared_cpu_list=shared, **more)


def test_caches_have_the_ids_that_resctrl_uses(tmp_path: Path) -> None:
    two_chiplets(tmp_path)
    assert read_l3_caches(tmp_path) == [
        CpuCache(id=2, cpus="1,3,5,7", size_bytes=32 * MIB),
        CpuCache(id=4, cpus="0,2,4,6", size_bytes=16 * MIB),
    ]


def test_without_ids_they_are_numbered_by_their_first_cpu(tmp_path: Path) -> None:
    two_chiplets(tmp_path, ids=False)
    assert [(cache.id, cache.cpus) for cache in read_l3_caches(tmp_path)] == [(0, "0,2,4,6"), (1, "1,3,5,7")]


def test_what_is_not_there_or_not_a_kernels_text_is_left_out(tmp_path: Path) -> None:
    assert read_l3_caches(tmp_path) == []
    put_cache(tmp_path, 0, 3, level="3", shared_cpu_list="0-1")
    put_cache(tmp_path, 2, 3, level="3", id="x", size="much", shared_cpu_list="two")
    put_cache(tmp_path, 3, 3, level="three", shared_cpu_list="3")
    assert read_l3_caches(tmp_path) == [CpuCache(id=0, cpus="0-1")]


def test_ids_that_repeat_are_no_ids() -> None:
    """Some virtual machines say 0 for every cache."""
    files = [CacheFiles(level="3", id="0", size="1M", shared_cpu_list=cpus) for cpus in ("2-3", "0-1")]
    assert [(cache.id, cache.cpus) for cache in l3_caches(files)] == [(0, "0-1"), (1, "2-3")]


def reporter_of(folder: Path, seen: list[tuple[CpuPlace, ...]]) -> TopologyReporter:
    """Of a machine whose CPUs are the last ones in `seen`."""

    class Machine(LinuxHost):
        def cpu_topology(self) -> tuple[CpuPlace, ...]:
            return seen[-1]

    roots = HostRoots(cgroup=folder / "cgroup", proc=folder / "proc", sys=folder / "sys")
    for path in (roots.cgroup, roots.proc, roots.sys / "bus/node/devices/node0"):
        path.mkdir(parents=True, exist_ok=True)
    (roots.sys / "bus/node/devices/node0/meminfo").write_text("Node 0 MemTotal: 1048576 kB\n")
    host = Machine(monotonic_ns=lambda: 0, roots=roots, version=1)
    return TopologyReporter(host, host.cpu_topology())


def test_the_report_has_them_and_a_cpu_that_goes_offline_is_seen_within_a_minute(tmp_path: Path) -> None:
    two_chiplets(tmp_path / "sys")
    all_cpus = tuple(CpuPlace(cpu=cpu, core=cpu, socket=0, node=0) for cpu in range(8))
    seen = [all_cpus]
    reporter = reporter_of(tmp_path, seen)
    desired: Any = view_of(DesiredNode(node="n", capacity={"cpu": 8_000, "memory": 1 << 30}))
    first = reporter.report(desired, [], 0)
    assert first is not None
    assert [cache.id for cache in first.l3_caches] == [2, 4]
    assert first.zones[0].capacity["cpu"] == 8_000
    seen.append(all_cpus[:6])
    assert reporter.report(desired, [], 30_000) is None
    second = reporter.report(desired, [], 60_000)
    assert second is not None
    assert second.zones[0].capacity["cpu"] == 6_000
    assert len(reporter.places) == 6
    seen.append(())
    assert reporter.report(desired, [], 120_000) is None, "nothing was readable: what was seen stays"
    assert len(reporter.places) == 6


def test_on_this_machine_every_cpu_has_at_most_one_l3() -> None:
    found = read_l3_caches(REAL)
    if not found:
        pytest.skip("this machine does not tell of L3 caches")
    cpus = [cpu for cache in found for cpu in parse_cpuset(cache.cpus)]
    assert len(cpus) == len(set(cpus))
    assert all(cache.size_bytes >= 0 for cache in found)
