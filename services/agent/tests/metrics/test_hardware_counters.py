"""Hardware counters of a cgroup: counted where the machine can, absent where it cannot, never left open."""

import os
from pathlib import Path

import pytest
from koord_agent.domain.kernel.cgroup_layout import CgroupLayout, Driver, HostApplication
from koord_agent.shell.host.linux import KIDLED_SETTINGS, LinuxHost
from koord_agent.shell.host.perf import CountersAbsent, CycleCounters, open_cgroup_counters
from koord_agent.shell.host.probe import HostRoots


def open_descriptors() -> int:
    """How many files this process has open."""
    return len(list(Path("/proc/self/fd").iterdir()))


def test_a_directory_that_is_no_cgroup_has_no_counters_and_leaks_nothing(tmp_path: Path) -> None:
    before = open_descriptors()
    for _ in range(20):
        with pytest.raises((CountersAbsent, OSError)):
            open_cgroup_counters(str(tmp_path), [0])
        with pytest.raises(OSError):
            open_cgroup_counters(str(tmp_path / "none"), [0])
    assert open_descriptors() == before


def test_a_host_without_counters_says_none(tmp_path: Path) -> None:
    roots = HostRoots(cgroup=tmp_path / "cgroup", proc=tmp_path / "proc", sys=tmp_path / "sys")
    roots.proc.mkdir()
    roots.cgroup.mkdir()
    (roots.proc / "stat").write_text("cpu 1 1 1 1 1 1 1\ncpu0 1 1 1 1 1 1 1\n")
    host = LinuxHost(monotonic_ns=lambda: 0, roots=roots, version=1, layout=CgroupLayout(Driver.CGROUPFS))
    assert host.open_cycle_counters("kubepods") is None
    assert not host.start_cold_page_scans()
    kidled = roots.sys / "kernel/mm/kidled"
    kidled.mkdir(parents=True)
    for name in KIDLED_SETTINGS:
        (kidled / name).write_text("0")
    assert host.start_cold_page_scans()
    assert (kidled / "scan_period_in_seconds").read_text() == "5"


def test_counters_read_what_the_kernel_says_and_skip_what_it_does_not(tmp_path: Path) -> None:
    def file(*numbers: int) -> int:
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}"
        path.write_bytes(b"".join(number.to_bytes(8, "little") for number in numbers))
        return os.open(path, os.O_RDONLY)

    counters = CycleCounters([(file(1_000, 200, 100), file(500, 200, 100)), (file(7), file(7))])
    counted = counters.read()
    assert (counted.cycles, counted.instructions, counted.cpi) == (2_000.0, 1_000.0, 2.0)
    before = open_descriptors()
    counters.close()
    counters.close()
    assert open_descriptors() == before - 4


@pytest.mark.parametrize("name", ["", "..", "a/../../b", "/etc", "a//b"])
def test_a_host_application_never_leaves_its_tree(name: str) -> None:
    with pytest.raises(ValueError, match="plain path"):
        CgroupLayout(Driver.CGROUPFS).host_application_directory(HostApplication(name=name))
