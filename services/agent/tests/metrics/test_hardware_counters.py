"""Hardware counters of a cgroup: counted where the machine can, absent where it cannot, never left open."""

import errno
import gc
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from koord_agent.domain.kernel.cgroup_layout import CgroupLayout, Driver, HostApplication
from koord_agent.shell.host import linux
from koord_agent.shell.host.host import TooManyOpenFiles
from koord_agent.shell.host.linux import KIDLED_SETTINGS, LinuxHost
from koord_agent.shell.host.perf import CountersAbsent, CycleCounters, open_cgroup_counters
from koord_agent.shell.host.probe import HostRoots


def open_descriptors() -> int:
    """How many files this process has open, without those that nobody has closed and nobody can reach."""
    gc.collect()
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

    counters = CycleCounters(
        [
            (file(1_000, 200, 100), file(500, 200, 100)),
            (file(7), file(7)),
            # a CPU of which one counter is unreadable, or got no hardware, would falsify the ratio (koordinator#3060)
            (file(1_000, 200, 100), file(7)),
            (file(7), file(500, 200, 100)),
            (file(1_000, 200, 100), file(0, 200, 0)),
        ]
    )
    counted = counters.read()
    assert (counted.cycles, counted.instructions, counted.cpi) == (2_000.0, 1_000.0, 2.0)
    before = open_descriptors()
    counters.close()
    counters.close()
    assert open_descriptors() == before - 10


def test_counters_never_take_the_files_by_which_the_agent_protects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With 2 CPUs, each container needs 4 descriptors, and half of the soft limit is for them."""
    roots = HostRoots(cgroup=tmp_path / "cgroup", proc=tmp_path / "proc", sys=tmp_path / "sys")
    roots.proc.mkdir()
    (roots.proc / "stat").write_text("cpu 1 1 1 1 1 1 1\ncpu0 1 1 1 1 1 1 1\ncpu1 1 1 1 1 1 1 1\n")
    host = LinuxHost(monotonic_ns=lambda: 0, roots=roots, version=2, layout=CgroupLayout(Driver.CGROUPFS))

    def opened(_directory: str, cpus: Sequence[int]) -> CycleCounters:
        return CycleCounters([(os.open("/dev/null", os.O_RDONLY), os.open("/dev/null", os.O_RDONLY)) for _ in cpus])

    monkeypatch.setattr(linux, "open_cgroup_counters", opened)

    def limits(_resource: int) -> tuple[int, int]:
        return 20, 1_000

    monkeypatch.setattr(linux, "getrlimit", limits)
    first, second = host.open_cycle_counters("a"), host.open_cycle_counters("b")
    assert first is not None
    assert second is not None
    with pytest.raises(TooManyOpenFiles, match="each needs 4 descriptors, and half of 20"):
        host.open_cycle_counters("c")
    first.close()
    third = host.open_cycle_counters("c")
    assert third is not None
    for source in (second, third):
        source.close()

    def full(_directory: str, _cpus: Sequence[int]) -> CycleCounters:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(linux, "open_cgroup_counters", full)
    with pytest.raises(TooManyOpenFiles, match="Too many open files"):
        host.open_cycle_counters("d")


def test_the_soft_limit_of_open_files_becomes_the_hard_one() -> None:
    """As the Go runtime does; containerd 2 starts containers with a soft limit of 1024."""
    program = (
        "from resource import RLIMIT_NOFILE, getrlimit, setrlimit\n"
        "from koord_agent.shell.host.kernel_files import raise_open_files\n"
        "setrlimit(RLIMIT_NOFILE, (64, 4096))\n"
        "print(raise_open_files(), getrlimit(RLIMIT_NOFILE), raise_open_files())"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "(64, 4096) (4096, 4096) (4096, 4096)"


@pytest.mark.parametrize("name", ["", "..", "a/../../b", "/etc", "a//b"])
def test_a_host_application_never_leaves_its_tree(name: str) -> None:
    with pytest.raises(ValueError, match="plain path"):
        CgroupLayout(Driver.CGROUPFS).host_application_directory(HostApplication(name=name))
