"""On a real kernel: a busy process in a cgroup of its own really gets what the executor writes."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from koord_agent.domain.kernel.cgroup_layout import CgroupLayout, Driver
from koord_agent.domain.kernel.counters import CgroupCounters, Throttling
from koord_agent.domain.metrics.usage import cgroup_usage, throttled_ratio
from koord_agent.domain.plans.plan import Band, CgroupFile, Plan, writable_trees
from koord_agent.shell.host.executor import CgroupExecutor, Result
from koord_agent.shell.host.kept_files import MOST_REUSES
from koord_agent.shell.host.linux import LinuxHost
from koord_agent.shell.host.probe import cgroup_version
from koordcore.protocol.qos import KubeQos
from support.until import until_blocking

pytestmark = pytest.mark.root

CGROUP = Path("/sys/fs/cgroup")
TREE = f"kubepods-koordtest-{os.getpid()}"
LAYOUT = CgroupLayout(Driver.CGROUPFS, kubepods=TREE)
BE = LAYOUT.qos_directory(KubeQos.BEST_EFFORT)
BUSY = "input(); kept = bytearray(b'x' * (64 << 20))\nwhile True: pass"
"""Once it is told to, it takes 64 MiB and a whole core."""
POD = LAYOUT.pod_directory(KubeQos.BEST_EFFORT, "busy")


def hierarchies() -> list[Path]:
    """The hierarchies of this machine that a pod lives in; empty if they cannot be written."""
    if cgroup_version(CGROUP) == 2:
        controllers = (CGROUP / "cgroup.controllers").read_text().split()
        return [CGROUP] if "cpu" in controllers and os.access(CGROUP, os.W_OK) else []
    roots = [CGROUP / name for name in ("cpu", "cpuacct", "memory")]
    return [root for root in dict.fromkeys(root.resolve() for root in roots) if os.access(root / "tasks", os.W_OK)]


@pytest.fixture
def busy() -> Iterator[LinuxHost]:
    """A host with a best-effort pod whose one process never rests; everything is removed afterwards."""
    if os.geteuid() != 0 or not hierarchies():
        pytest.skip("needs root and a writable cgroup file system")
    with subprocess.Popen([sys.executable, "-c", BUSY], stdin=subprocess.PIPE) as process:
        made: list[Path] = []
        try:
            for root in hierarchies():
                for directory in (TREE, BE, POD):
                    (root / directory).mkdir()
                    made.append(root / directory)
                    if root == CGROUP:
                        (root / directory).parent.joinpath("cgroup.subtree_control").write_text("+cpu +memory")
                (root / POD / "cgroup.procs").write_text(str(process.pid))
            assert process.stdin is not None
            process.stdin.write(b"go\n")
            process.stdin.flush()
            yield LinuxHost(monotonic_ns=time.monotonic_ns, layout=LAYOUT)
        finally:
            process.kill()
            process.wait()
            for directory in reversed(made):
                _remove(directory)


def _remove(directory: Path) -> None:
    def is_gone() -> bool:
        with contextlib.suppress(OSError):
            directory.rmdir()
        return not directory.exists()

    until_blocking(is_gone, f"the removal of {directory}", every=0)


def root_throttling(host: LinuxHost) -> Throttling:
    """CFS periods of the best-effort root."""
    counters = host.cgroup_counters(BE)
    assert counters is not None
    assert counters.throttling is not None
    return counters.throttling


def pod_counters(host: LinuxHost) -> CgroupCounters:
    """Counters of the busy pod."""
    counters = host.cgroup_counters(POD)
    assert counters is not None
    assert counters.cpu_usage_ns is not None
    return counters


def counters_when(host: LinuxHost, done: Callable[[CgroupCounters], bool]) -> CgroupCounters:
    """Return the pod's counters as soon as a condition on them holds."""

    def counters() -> CgroupCounters | None:
        found = pod_counters(host)
        return found if done(found) else None

    return until_blocking(counters, every=0)


def cores_until(host: LinuxHost, done: Callable[[CgroupCounters], bool]) -> float:
    """Cores that the pod used from now until a condition on its counters holds."""
    cores = cgroup_usage(pod_counters(host), counters_when(host, done))
    assert cores is not None
    return cores


def test_a_busy_process_is_held_to_the_quota_that_the_executor_writes(busy: LinuxHost) -> None:
    executor = CgroupExecutor(busy, trees=writable_trees(LAYOUT))

    def apply(value: str, now_ms: int) -> None:
        file = CgroupFile(BE, "cpu.cfs_quota_us")
        plan = Plan(plugin="t", band=Band.SUPPRESS, file=file, value=value, created_ms=now_ms, ttl_ms=1_000)
        (outcome,) = executor.apply([plan], now_ms)
        assert (outcome.result, outcome.held) == (Result.WRITTEN, True), outcome

    # little enough to be less than its fair share of a machine that is busy with other things
    apply("5000", 0)
    periods = root_throttling(busy)
    held = cores_until(busy, lambda _: root_throttling(busy).nr_periods >= periods.nr_periods + 12)
    assert held <= 0.05 * 1.5, "a twentieth of a core, plus what a period at either end adds"
    assert (throttled_ratio(periods, root_throttling(busy)) or 0) > 0.5
    apply("-1", 1)
    used = pod_counters(busy).cpu_usage_ns or 0
    free = cores_until(busy, lambda now: (now.cpu_usage_ns or 0) >= used + 300_000_000)
    # the machine may be busy with other things: it is enough that the limit is gone
    assert free > held * 1.3
    counters_when(busy, lambda now: now.memory is not None and now.memory.used_bytes >= 60 << 20)


def test_pages_of_a_numa_node_contain_those_of_child_cgroups(busy: LinuxHost) -> None:
    def pages() -> int:
        return sum((busy.numa_pages(BE) or {}).values())

    # the process is in the child: a pod has its processes in its containers
    until_blocking(lambda: pages() >= (60 << 20) // 4096, "the 64 MiB of the process", every=0)


def test_a_quota_below_what_the_kernel_takes_fails_and_changes_nothing(busy: LinuxHost) -> None:
    executor = CgroupExecutor(busy, trees=writable_trees(LAYOUT))
    file = CgroupFile(BE, "cpu.cfs_quota_us")
    plan = Plan(plugin="t", band=Band.SUPPRESS, file=file, value="500", created_ms=0, ttl_ms=1_000)
    (outcome,) = executor.apply([plan], 0)
    assert outcome.result is Result.FAILED
    assert "Invalid argument" in outcome.detail
    assert (busy.read(file) or "").split()[0] in ("-1", "max")


def test_what_is_not_read_again_has_not_changed(busy: LinuxHost, monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[int] = []
    read = os.pread

    def counted(descriptor: int, size: int, offset: int) -> bytes:
        reads.append(descriptor)
        return read(descriptor, size, offset)

    def cycle() -> tuple[CgroupCounters | None, int]:
        busy.cgroup_counters(BE)
        before = len(reads)
        return busy.cgroup_counters(POD, BE), len(reads) - before

    def all_read() -> CgroupCounters | None:
        return LinuxHost(monotonic_ns=time.monotonic_ns, layout=LAYOUT).cgroup_counters(POD)

    cycle()
    process = int((hierarchies()[0] / POD / "cgroup.procs").read_text())
    for _ in range(2):
        os.kill(process, signal.SIGSTOP)
        stat = Path(f"/proc/{process}/stat")
        until_blocking(lambda file=stat: file.read_text().rpartition(")")[2].split()[0] == "T")
        # whatever the process did last, the kernel may count it a little later
        until_blocking(lambda: pod_counters(busy)[1:] == (all_read() or (0,))[1:])
        monkeypatch.setattr(os, "pread", counted)
        idle = [cycle() for _ in range(MOST_REUSES)]
        monkeypatch.undo()
        assert {counters and counters[1:] for counters, _ in idle} == {(all_read() or (0,))[1:]}
        assert min(count for _, count in idle) == 0
        assert max(count for _, count in idle) > 0, "it is read now and then, whatever the directory above says"
        os.kill(process, signal.SIGCONT)
        used = (idle[-1][0] or pod_counters(busy)).cpu_usage_ns or 0
        until_blocking(lambda last=used: ((cycle()[0] or pod_counters(busy)).cpu_usage_ns or 0) > last)
