"""Disks and connections of a pod: of what it uses itself, and nothing where the kernel does not say."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from koord_agent.domain.kernel.cgroup_layout import CgroupLayout, Driver
from koord_agent.domain.kernel.counters import MalformedCounter, common_disks, parse_devices, parse_diskstats, parse_tcp
from koord_agent.domain.strategies.contention.contentions import disk_await_ms
from koord_agent.shell.host.linux import LinuxHost
from koord_agent.shell.host.probe import HostRoots

SNMP = "Ip: Forwarding\nIp: 1\nTcp: RtoMin OutSegs RetransSegs\nTcp: 200 {out} {again}\nUdp: InDatagrams\nUdp: 1\n"
POD = "kubepods/pod1"


def diskstats(**reads: int) -> str:
    lines = (
        f"   8  {16 * n} {name} {count} 0 80 {count * 4} 0 0 0 0 0 4 4\n"
        for n, (name, count) in enumerate(reads.items())
    )
    return "".join(lines)


@pytest.mark.parametrize("version", [1, 2])
def test_only_the_disks_and_the_network_of_the_pod_count(tmp_path: Path, version: int) -> None:
    proc, cgroup = tmp_path / "proc", tmp_path / "cgroup"
    roots = (
        {"cpu": cgroup / "cpu" / POD, "blkio": cgroup / "blkio" / POD}
        if version == 1
        else dict.fromkeys(("cpu", "blkio"), cgroup / POD)
    )
    for directory in (*roots.values(), proc / "1/ns", proc / "7/ns", proc / "7/net"):
        directory.mkdir(parents=True, exist_ok=True)
    (proc / "diskstats").write_text(diskstats(sda=100, sdb=1_000))
    name, text = (
        ("io.stat", "8:0 rbytes=1\n")
        if version == 2
        else ("blkio.throttle.io_serviced_recursive", "8:0 Read 1\nTotal 1\n")
    )
    (roots["blkio"] / name).write_text(text)
    (roots["cpu"] / "cgroup.procs").write_text("999\n7\n")
    (proc / "1/ns/net").symlink_to("net:[1]")
    (proc / "7/ns/net").symlink_to("net:[2]")
    (proc / "7/net/snmp").write_text(SNMP.format(out=50, again=2))
    host = LinuxHost(
        monotonic_ns=lambda: 0,
        roots=HostRoots(cgroup=cgroup, proc=proc, sys=tmp_path),
        version=version,
        layout=CgroupLayout(Driver.CGROUPFS),
        jiffy=10_000_000,
    )
    assert host.disk_counters(POD) == {"8:0": (100, 400, 0, 0)}
    assert host.tcp_counters(POD) == (50, 2)
    (proc / "7/ns/net").unlink()
    (proc / "7/ns/net").symlink_to("net:[1]")
    assert host.tcp_counters(POD) is None, "the machine's own network tells nothing about one pod"
    assert host.disk_counters("kubepods/gone") is None


def test_a_disk_that_came_meanwhile_does_not_count() -> None:
    before, after = parse_diskstats(diskstats(sda=100)), parse_diskstats(diskstats(sda=110, sdb=5_000))
    assert disk_await_ms(*common_disks(before, after)) == 4.0
    assert disk_await_ms(*common_disks({}, after)) is None


@given(st.text(max_size=200))
def test_any_text_is_counters_or_refused(text: str) -> None:
    parse_devices(text)
    parse_diskstats(text)
    with pytest.raises(MalformedCounter):
        parse_tcp(text)
